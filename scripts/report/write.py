"""The report's files: figures, tables as Markdown, LaTeX and CSV, and one page that opens from disk."""

import errno
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2

from erasure.progress import duration
from erasure.store.atomic_files import write_text
from harness.figure_style import css_colour
from harness.result import as_json
from harness.results.read import Note, StoredRun
from harness.results.run_labels import Label
from harness.results.table import COMMON, Table, common_notes, file_name, markdown_of
from harness.untrusted_runs import printable

MAX_FIGURES = 60  # a figure takes half a second


@dataclass
class Section:
    """A part of the report.

    Attributes:
        table: on the page and in files.
        runs: the runs of each row of the table; the page shows their configuration and certificate on demand.
        drawings: functions that draw figures to a path, by caption.
        figures: files of drawn figures, by caption.
    """

    table: Table
    runs: Sequence[Sequence[StoredRun]] = ()
    drawings: Mapping[str, Callable[[Path], object]] = field(default_factory=dict)
    figures: dict[str, Path] = field(default_factory=dict)

    @property
    def columns(self) -> list[int]:
        """Positions of the table's columns that are not empty."""
        return [i for i in range(len(self.table.headings)) if any(row[i] for row in self.table.rows)]


def file_in(out: Path, folder: str, name: str) -> Path:
    """Return `out/folder/name`, and make the folder.

    Raises:
        OSError: the folder cannot be made, or is a link that leads out of `out`.
    """
    directory = out / folder
    directory.mkdir(parents=True, exist_ok=True)
    if directory.resolve() != out.resolve() / folder:
        raise OSError(errno.EPERM, "a link that leads elsewhere, which is not written through", str(directory))
    return directory / name


def write_tables(sections: Sequence[Section], out: Path) -> list[Path]:
    """Write tables.md with all tables, and LaTeX and CSV of each."""
    tables = [section.table for section in sections]
    paths = [out / "tables.md"]
    write_text(paths[0], markdown_of(tables))
    for table in tables:
        paths += [file_in(out, "tables", f"{file_name(table.name)}.{kind}") for kind in ("tex", "csv")]
        write_text(paths[-2], table.latex())
        write_text(paths[-1], table.csv())
    return paths


def draw_figures(sections: Sequence[Section], out: Path, note: Note, progress: Callable[[int, int], None]) -> None:
    """Draw to `figures/<name>.svg` and `.pdf`; notes what is left out, and a figure that cannot be drawn."""
    drawings = [(section, caption, draw) for section in sections for caption, draw in section.drawings.items()]
    for i, (section, caption, draw) in enumerate(drawings[:MAX_FIGURES]):
        progress(i, len(drawings))
        name = f"{section.table.name} {caption}"
        path = file_in(out, "figures", f"{file_name(name)}.svg")
        try:
            draw(path)
            section.figures[caption] = path
        except OSError:
            raise
        except Exception as error:  # a run may be anybody's: the rest is shown all the same
            note(f"figure {name}: cannot be drawn ({type(error).__name__}: {error})")
    if len(drawings) > MAX_FIGURES:
        left_out = len(drawings) - MAX_FIGURES
        note(f"{left_out:,} of {len(drawings):,} figures left out; report on fewer runs for these")


def write_page(
    sections: Sequence[Section], out: Path, roots: Sequence[Path], remarks: Sequence[str], colours: Mapping[Label, str]
) -> Path:
    """Write index.html: page.html with the sections, from which text is escaped.

    Args:
        sections: with their figures drawn.
        out: the report's folder.
        roots: folders that were searched for runs.
        remarks: lines about these runs.
        colours: colours of erasers.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "duration": duration,
        "pretty": lambda value: json.dumps(as_json(value), indent=2, ensure_ascii=False),
        "relative": lambda path: path.relative_to(out).as_posix(),
    }
    page = environment.get_template("page.html").render(
        built=time.strftime("%Y-%m-%d %H:%M"),
        roots=[printable(str(root)) for root in roots],
        remarks=remarks,
        sections=sections,
        common=common_notes([section.table for section in sections]),
        common_heading=COMMON,
        colours={eraser: css_colour(colour) for eraser, colour in colours.items()},
    )
    write_text(out / "index.html", page)
    return out / "index.html"
