"""Read finished runs, of any command and machine; write tables, figures and one page that opens from disk.

python -m scripts.report runs/ --out report/
python -m scripts.report cluster/runs laptop/runs --out report/
python -m scripts.report runs/ --columns bits_per_label,excess_bits   # in this order; all: every one there is
"""

import argparse
import errno
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2

from conf.check import unknown_key
from conf.error_messages import explain
from erasure.progress import Display, duration
from erasure.store.atomic_files import write_text
from harness.figure_style import css_colour
from harness.result import as_json
from harness.results.arrange import Comparison, arrange, colours_of
from harness.results.columns import BY_NAME, table_of
from harness.results.figures import Drawing, draw_parts, figures_of
from harness.results.read import Note, StoredRun, read_runs
from harness.results.run_labels import Label
from harness.results.table import COMMON, Table, common_notes, file_name, markdown_of
from harness.untrusted_runs import one_line, printable
from sample_info.agreement import compare_scores
from sample_info.report.figures import figures_of as sample_info_figures
from sample_info.report.tables import tables_of
from scripts.command_line import argument_parser

MAX_FIGURES = 60  # a figure takes half a second


@dataclass
class Section:
    """A part of the report.

    Attributes:
        table: on the page and in files.
        runs: the runs of each row of the table; the page shows their configuration and certificate on demand.
        figures: by caption.
        files: captions and files of drawn figures.
    """

    table: Table
    runs: Sequence[Sequence[StoredRun]] = ()
    figures: Mapping[str, Drawing] = field(default_factory=dict)
    files: list[tuple[str, Path]] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    command = argument_parser("report", __doc__)
    command.add_argument("runs", nargs="+", type=Path, help="folders to search for runs, e.g. a run's runs_dir")
    command.add_argument("--out", type=Path, default=Path("report"), help="default: %(default)s")
    about = f"of codes and runs: all, or some of {', '.join(BY_NAME)}; CSV files have all"
    command.add_argument("--columns", type=columns, default=(), help=about)
    options = command.parse_args(arguments)
    missing = [root for root in options.runs if not root.is_dir()]
    if missing:
        command.error(f"{missing[0]}: no such folder; give the runs_dir of python -m mdl, train or sample_info")
    if options.out.exists() and not options.out.is_dir():
        command.error(f"--out={options.out} is a file: give a folder")
    try:
        return build(options.runs, options.out, options.columns)
    except OSError as error:
        print(f"no report: {explain(error, '', [])}; or another folder for it with --out", file=sys.stderr)
        return 1


def columns(written: str) -> list[str]:
    """Return names of columns, each once.

    Raises:
        ArgumentTypeError: one that there is not.
    """
    names = list(BY_NAME) if written == "all" else list(dict.fromkeys(written.split(",")))
    if unknown := [name for name in names if name not in BY_NAME]:
        raise argparse.ArgumentTypeError(unknown_key(unknown[0], [*BY_NAME, "all"], "column "))
    return names


def build(roots: Sequence[Path], out: Path, chosen: Sequence[str] = ()) -> int:
    """Build a report of the runs below `roots`, of chosen columns or the usual ones; return the exit code."""
    with Display("report") as display:
        display.update(0.0, "reading runs")
        reading = read_runs(roots)
        if not reading.finished:
            print(*map(one_line, reading.problems), sep="\n", file=sys.stderr)
            print(f"no finished run in {', '.join(map(str, roots))}: nothing to report", file=sys.stderr)
            return 1
        comparisons = arrange(reading.runs, reading.problems.append)
        colours = colours_of(comparisons)
        display.update(0.3, "tables")
        sections = sections_of(comparisons, chosen, reading.problems.append)
        tables = write_tables(sections, out)
        draw_figures(sections, colours, out, reading.problems.append, display)
        problems = [*map(one_line, reading.problems)]
        page = write_page(sections, out, roots, problems, colours)
    print(*problems, sep="\n", end="\n" * bool(problems), file=sys.stderr)
    unfinished = len(reading.runs) - len(reading.finished)
    took = sum(run.result.timing.seconds or 0.0 for run in reading.finished if run.result is not None)
    print(f"{len(reading.finished):,} finished runs, {unfinished:,} unfinished, {duration(took)} of computing")
    print(f"page:    {page}\ntables:  {tables[0]}, {len(tables) - 1} files in {out / 'tables'}")
    print(f"figures: {sum(len(section.files) for section in sections)} in {out / 'figures'}, each also as PDF")
    return 0


def sections_of(comparisons: Sequence[Comparison], chosen: Sequence[str], note: Note) -> list[Section]:
    """Return a section for each comparison of `mdl`, then of `train`, and those of runs that score examples."""
    trained = [one for one in comparisons if one.command != "sample_info"]
    trained.sort(key=lambda one: (one.command != "mdl", -len(one.finished)))
    sections = [Section(table_of(one, chosen), _runs_of([one]), figures_of(one)) for one in trained]
    scored = [one for one in comparisons if one.command == "sample_info"]
    between = compare_scores(scored, note)
    figures = sample_info_figures(scored, *between)
    for table in tables_of(scored, *between):
        kind = table.name.removeprefix("sample-info-")
        runs = _runs_of(scored) if kind == "runs" else ()
        sections.append(Section(table, runs, {"figure": figures[kind]} if kind in figures else {}))
    return sections


def _runs_of(comparisons: Sequence[Comparison]) -> list[list[StoredRun]]:
    return [[*entry["runs"], *entry["unfinished"]] for one in comparisons for entry in one.entries]


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


def draw_figures(
    sections: Sequence[Section], colours: Mapping[Label, str], out: Path, note: Note, display: Display
) -> None:
    """Draw to `figures/<name>.svg` and `.pdf`; note what is left out, and a figure that cannot be drawn."""
    figures = [(section, caption) for section in sections for caption in section.figures]
    for i, (section, caption) in enumerate(figures[:MAX_FIGURES]):
        display.update(0.4 + 0.55 * i / len(figures), f"figure {i + 1:,} of {len(figures):,}")
        name = f"{section.table.name} {caption}"
        path = file_in(out, "figures", f"{file_name(name)}.svg")
        try:
            drawn = draw_parts(*section.figures[caption], colours, path)
            section.files += [(caption, path) for path in drawn]
        except OSError:
            raise
        except Exception as error:  # a run may be anybody's: the rest is shown all the same
            note(f"figure {name}: cannot be drawn ({type(error).__name__}: {error})")
    if len(figures) > MAX_FIGURES:
        left_out = len(figures) - MAX_FIGURES
        note(f"{left_out:,} of {len(figures):,} figures left out; report on fewer runs for these")


def write_page(
    sections: Sequence[Section], out: Path, roots: Sequence[Path], remarks: Sequence[str], colours: Mapping[Label, str]
) -> Path:
    """Write index.html: report_page.html with the sections, from which text is escaped.

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
    page = environment.get_template("report_page.html").render(
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


if __name__ == "__main__":
    raise SystemExit(main())
