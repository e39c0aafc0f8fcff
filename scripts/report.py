"""Read finished runs of any command and machine, and write tables, figures and a page that opens from disk.

python -m scripts.report runs/ --out report/
python -m scripts.report cluster/runs laptop/runs --out report/
python -m scripts.report runs/ --columns bits_per_label excess_bits   # in this order; "all" for all columns
python -m scripts.report runs/ --wandb TEAM                           # also saves a W&B workspace with the tables
"""

import argparse
import errno
import functools
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
import pandas as pd

from conf.command_process import exit_code
from conf.commands import COMMANDS, report_module
from conf.error_messages import explain
from conf.terminal import printable
from erasure.progress import Display, duration
from erasure.store.atomic_files import write_text
from harness.result import as_json
from harness.results.arrange import arrange, colours_of
from harness.results.columns import runs_of
from harness.results.figures import Section, draw_parts
from harness.results.read import Note, StoredRun, read_runs
from harness.results.run_labels import Label
from harness.results.table import COMMON, Table, common_notes, file_name, markdown_of
from harness.untrusted_runs import one_line
from scripts.command_line import argument_parser, runs_folder

MAX_FIGURES = 60  # a figure takes half a second
REPORTS = {name: report_module(name) for name in COMMANDS}
COLUMNS = [*dict.fromkeys(name for report in REPORTS.values() for name in report.COLUMNS)]
Files = Mapping[str, Sequence[tuple[str, str]]]  # by name of a table: captions and paths of its drawn figures


def main(arguments: Sequence[str] | None = None) -> int:
    command = argument_parser("report", __doc__)
    command.add_argument("runs", nargs="+", type=runs_folder, help="folders to search for runs, e.g. a run's runs_dir")
    command.add_argument("--out", type=Path, default=Path("report"), help="default: %(default)s")
    about = f"columns for mdl and train, in this order: all, or some of {', '.join(COLUMNS)}; CSV files have all"
    command.add_argument("--columns", nargs="+", choices=("all", *COLUMNS), metavar="NAME", default=(), help=about)
    command.add_argument("--wandb", metavar="TEAM", default="", help="W&B user or team, or TEAM/PROJECT")
    options = command.parse_args(arguments)
    return exit_code(functools.partial(_build, options), "", [])


def _build(options: argparse.Namespace) -> int:
    chosen = COLUMNS if "all" in options.columns else [*dict.fromkeys(options.columns)]  # each once
    try:
        return build(options.runs, options.out, chosen, options.wandb)
    except BrokenPipeError:  # the report is written
        raise
    except OSError as error:
        print(f"no whole report: {explain(error, '', [])}; or another folder for it with --out", file=sys.stderr)
        return 1


def build(roots: Sequence[Path], out: Path, chosen: Sequence[str] = (), team: str = "") -> int:
    """Build a report of the runs below `roots`, of chosen columns or the usual ones; return the exit code."""
    with Display("report") as display:
        display.update(0.0, "reading runs")
        problems: list[str] = []
        runs = read_runs(roots, problems.append)
        finished = [run.result for run in runs if run.result is not None]
        if not finished:
            none = f"no finished run in {', '.join(map(str, roots))}: give the runs_dir of a command"
            print(*map(one_line, problems), none, sep="\n", file=sys.stderr)
            return 1
        frames = arrange(runs, problems.append)
        colours = colours_of(frames)
        display.update(0.3, "tables")
        sections = sections_of(frames, chosen, problems.append)
        tables = [table for table, _ in sections]
        written = write_tables(tables, out)
        figures = draw_figures(sections, colours, out, problems.append, display)
        remarks = [*map(one_line, problems)]
        page = write_page(tables, figures, out, roots, remarks)
    print(*remarks, sep="\n", end="\n" * bool(remarks), file=sys.stderr)
    unfinished, took = len(runs) - len(finished), sum(result.timing.seconds or 0.0 for result in finished)
    print(f"{len(finished):,} finished runs, {unfinished:,} unfinished, {duration(took)} of computing")
    print(f"page:    {page}\ntables:  {written[0]}, {len(written) - 1} files in {out / 'tables'}")
    print(f"figures: {sum(map(len, figures.values()))} in {out / 'figures'}, those drawn here also as PDF")
    if team:
        from scripts.wandb_workspace import save_workspace

        try:
            print(f"W&B:     {save_workspace(tables, team)}")
        except ValueError as error:
            print(one_line(str(error)), file=sys.stderr)
            return 1
    return 0


def sections_of(frames: Sequence[pd.DataFrame], chosen: Sequence[str], note: Note) -> list[Section]:
    """Return the sections of every command's tables, in the order of `conf.commands.COMMANDS`."""
    return [
        section
        for command, report in REPORTS.items()
        if (of_command := [frame for frame in frames if runs_of(frame)[0].command == command])
        for section in report.sections(of_command, chosen, note)
    ]


def folder_in(out: Path, name: str) -> Path:
    """Return `out/name`; raise OSError if it is a link, which could lead anywhere."""
    if (folder := out / name).is_symlink():
        raise OSError(errno.EPERM, "a link, which is not written through", str(folder))
    return folder


def write_tables(tables: Sequence[Table], out: Path) -> list[Path]:
    """Write tables.md with all tables, and LaTeX and CSV of each."""
    paths = [out / "tables.md"]
    write_text(paths[0], markdown_of(tables))
    for table in tables:
        paths += [folder_in(out, "tables") / f"{file_name(table.name)}.{kind}" for kind in ("tex", "csv")]
        write_text(paths[-2], table.latex())
        write_text(paths[-1], table.csv())
    return paths


def draw_figures(
    sections: Sequence[Section], colours: Mapping[Label, str], out: Path, note: Note, display: Display
) -> Files:
    """Draw to `figures/<name>.svg` and `.pdf`; note what is left out, and a figure that cannot be drawn."""
    figures = [(table.name, caption, figure) for table, of in sections for caption, figure in of.items()]
    files: dict[str, list[tuple[str, str]]] = {}
    for i, (table, caption, figure) in enumerate(figures[:MAX_FIGURES]):
        display.update(0.4 + 0.55 * i / len(figures), f"figure {i + 1:,} of {len(figures):,}")
        name = f"{table} {caption}"
        try:
            drawn = draw_parts(*figure, colours, folder_in(out, "figures") / f"{file_name(name)}.svg")
        except OSError:
            raise
        except Exception as error:  # a run may be anybody's: the rest is shown all the same
            note(f"figure {name}: cannot be drawn ({type(error).__name__}: {error})")
        else:
            files.setdefault(table, []).extend((caption, path.relative_to(out).as_posix()) for path in drawn)
    if len(figures) > MAX_FIGURES:
        left_out = len(figures) - MAX_FIGURES
        note(f"{left_out:,} of {len(figures):,} figures left out; report on fewer runs for these")
    return files


def write_page(
    tables: Sequence[Table], figures: Files, out: Path, roots: Sequence[Path], remarks: Sequence[str]
) -> Path:
    """Write index.html: report_page.html with tables, figures, and remarks on the runs found below `roots`."""
    page = jinja2.Template(
        Path(__file__).with_name("report_page.html").read_text(encoding="utf-8"), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    ).render(
        built=time.strftime("%Y-%m-%d %H:%M"),
        roots=[printable(str(root)) for root in roots],
        remarks=remarks,
        tables=tables,
        figures=figures,
        common=common_notes(tables),
        common_heading=COMMON,
        described=described,
        runs_of=runs_of,
    )  # fmt: skip
    write_text(out / "index.html", printable(page, lines=True))
    return out / "index.html"


def described(run: StoredRun) -> str:
    """Return a run's state or cost, certificate and configuration as JSON."""
    names = ("seeds", "parameters", "timing", "versions", "certificate")
    about = {"state": run.state} if run.result is None else {name: getattr(run.result, name) for name in names}
    return json.dumps(as_json(about | {"config": run.config}), indent=2, ensure_ascii=False)


if __name__ == "__main__":
    raise SystemExit(main())
