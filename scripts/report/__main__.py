"""Read finished runs, of any command and machine; write tables, figures and one page that opens from disk.

python -m scripts.report runs/ --out report/
python -m scripts.report cluster/runs laptop/runs --out report/
python -m scripts.report runs/ --columns bits_per_label,excess_bits   # in this order; all: every one there is
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from conf.check import unknown_key
from conf.errors import explain
from erasure.progress import Display, duration
from harness.figure_style import drawings
from harness.results.arrange import Comparison, Entry, arrange, colours_of
from harness.results.columns import BY_NAME, table_of
from harness.results.figures import draw_learning_curves, draw_loss_curves, draw_scaling, scaling_panels
from harness.results.read import INFORMATION, Reading, StoredRun, read_runs
from harness.results.run_labels import Label
from harness.untrusted_runs import one_line
from sample_info.report.figures import figures_of
from sample_info.report.tables import relations
from sample_info.report.tables import tables_of as information_tables
from scripts.command_line import argument_parser
from scripts.report.write import Section, draw_figures, write_page, write_tables

NOTHING_BUILT = 1


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
        return NOTHING_BUILT


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
        reading = read_runs(roots, _shown(display, "reading run", 0.0, 0.4))
        if not reading.finished:
            print(*map(one_line, reading.problems), sep="\n", file=sys.stderr)
            print(f"no finished run in {', '.join(map(str, roots))}: nothing to report", file=sys.stderr)
            return NOTHING_BUILT
        comparisons = arrange(reading.runs, reading.problems.append)
        colours = colours_of(comparisons)
        display.update(0.5, "tables")
        scored = [one for one in comparisons if one.command == INFORMATION]
        trained = [one for one in comparisons if one.command != INFORMATION]
        sections = [
            _section(one, chosen, colours)
            for one in sorted(trained, key=lambda one: (one.command != "mdl", -len(one.finished)))
        ]
        sections += _information_sections(scored, reading, colours)
        tables = write_tables(sections, out)
        draw_figures(sections, out, reading.problems.append, _shown(display, "figure", 0.6, 0.35))
        problems = [*map(one_line, reading.problems)]
        page = write_page(sections, out, roots, problems, colours)
    print(*problems, sep="\n", end="\n" * bool(problems), file=sys.stderr)
    print(_summary(reading))
    print(f"page:    {page}\ntables:  {tables[0]}, {len(tables) - 1} files in {out / 'tables'}")
    print(f"figures: {sum(len(section.figures) for section in sections)} in {out / 'figures'}, each also as PDF")
    return 0


def _section(comparison: Comparison, chosen: Sequence[str], colours: Mapping[Label, str]) -> Section:
    """Return the section of runs of `mdl` or `train` on one dataset, in one setting."""
    coded = comparison.command == "mdl"
    with_curves = [panel for panel in comparison.panels if any(entry["curves"] for entry in panel[1])]
    figures = {
        "learning curves": (draw_learning_curves, comparison.panels if coded else []),
        **{
            f"over {size}": (partial(draw_scaling, size), scaling_panels(comparison.finished, size) if coded else [])
            for size in ("width", "depth")
        },
        "loss curves": (draw_loss_curves, with_curves),
    }
    return Section(table_of(comparison, chosen), _runs_of(comparison.entries), drawings(figures, colours))


def _information_sections(
    comparisons: Sequence[Comparison], reading: Reading, colours: Mapping[Label, str]
) -> list[Section]:
    """Return the sections of runs that score examples; adds to the reading's problems what cannot be shown."""
    moved, alike = relations(comparisons, reading.problems.append)
    figures = {f"sample-info-{name}": figure for name, figure in figures_of(comparisons, moved, alike).items()}
    entries = [entry for one in comparisons for entry in one.entries]
    return [
        Section(
            table,
            _runs_of(entries) if table.name == "sample-info-runs" else (),
            drawings({"figure": figures[table.name]} if table.name in figures else {}, colours),
        )
        for table in information_tables(comparisons, moved, alike)
    ]


def _runs_of(entries: Sequence[Entry]) -> list[list[StoredRun]]:
    return [[*entry["runs"], *entry["unfinished"]] for entry in entries]


def _summary(reading: Reading) -> str:
    """Return how many runs there are, and the time that they took."""
    unfinished = len(reading.runs) - len(reading.finished)
    took = sum(run.result.timing.seconds or 0.0 for run in reading.finished if run.result is not None)
    parts = [f"{len(reading.finished):,} finished runs", *([f"{unfinished:,} unfinished"] if unfinished else [])]
    count = len(reading.problems)
    remarks = f"; {count} remark{'s' * (count > 1)} above and on the page" if count else ""
    return f"{', '.join(parts)}, {duration(took)} of computing{remarks}"


def _shown(display: Display, what: str, done: float, share: float) -> Callable[[int, int], None]:
    """Progress in a `share` of the whole."""
    return lambda i, of: display.update(done + share * i / of, f"{what} {i + 1:,} of {of:,}")


if __name__ == "__main__":
    raise SystemExit(main())
