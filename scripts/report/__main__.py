"""Read finished runs, of any command and machine; write tables, figures and one page that opens from disk.

python -m scripts.report runs/ --out report/
python -m scripts.report cluster/runs laptop/runs --out report/
python -m scripts.report runs/ --grids                           # images, too
python -m scripts.report runs/ --columns bits,excess_bits,loss   # in this order; all: every one there is
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from conf.errors import explain
from conf.schema import unknown_key
from erasure.progress import Display, duration
from harness.results.arrange import Comparison, by_dataset, eraser_order
from harness.results.columns import BY_NAME
from harness.results.labels import Label
from harness.results.read import Reading, read_runs
from harness.run_files import one_line
from harness.style import eraser_colours
from scripts.options import parser
from scripts.report.examples import draw_examples, example_tables, read_costs
from scripts.report.figures import comparison_drawings, draw_figures
from scripts.report.grids import draw_grids
from scripts.report.information import bring_figures, information_drawings, read_information, sheets
from scripts.report.page import Page
from scripts.report.tables import tables_of, write_tables

NOTHING_BUILT = 1


def main(arguments: Sequence[str] | None = None) -> int:
    own = parser("report", __doc__)
    own.add_argument("runs", nargs="+", type=Path, help="folders to search for runs, e.g. a run's runs_dir")
    own.add_argument("--out", type=Path, default=Path("report"), help="default: %(default)s")
    grids = "draw the images under each eraser, too; computes what is not cached"
    own.add_argument("--grids", action="store_true", help=grids)
    own.add_argument("--cache-dir", default="cache", help="of erased datasets, for --grids (default: %(default)s)")
    own.add_argument("--columns", type=columns, help=f"of codes and runs: all, or some of {', '.join(BY_NAME)}")
    options = own.parse_args(arguments)
    missing = [root for root in options.runs if not root.is_dir()]
    if missing:
        own.error(f"{missing[0]}: no such folder; give the runs_dir of python -m mdl, train or sample_info")
    if options.out.exists() and not options.out.is_dir():
        own.error(f"--out={options.out} is a file: give a folder")
    cache_dir = options.cache_dir if options.grids else None
    try:
        return build(options.runs, options.out, cache_dir, chosen=options.columns)
    except OSError as error:
        print(f"no report: {explain(error, '', [])}; or another folder for it with --out", file=sys.stderr)
        return NOTHING_BUILT


def columns(written: str) -> list[str]:
    """Names of columns, each once.

    Raises:
        ArgumentTypeError: one that there is not.
    """
    names = list(BY_NAME) if written == "all" else list(dict.fromkeys(written.split(",")))
    if unknown := [name for name in names if name not in BY_NAME]:
        raise argparse.ArgumentTypeError(unknown_key(unknown[0], [*BY_NAME, "all"], "column "))
    return names


def build(
    roots: Sequence[Path],
    out: Path,
    cache_dir: str | None = None,
    *,
    chosen: Sequence[str] | None = None,
) -> int:
    """Build a report of the runs below `roots`, of chosen columns, with grids from a cache, if any; the exit code."""
    with Display("report") as display:
        reading = read_runs(roots, _shown(display, "reading run", 0.0, 0.4))
        comparisons, information = by_dataset(reading), read_information(reading)
        if not reading.finished:
            print(*map(one_line, reading.problems), sep="\n", file=sys.stderr)
            print(f"no finished run in {', '.join(map(str, roots))}: nothing to report", file=sys.stderr)
            return NOTHING_BUILT
        colours = colours_of([*comparisons, information.comparison])
        display.update(0.5, "tables")
        costs = read_costs(comparisons, information)
        further = [*example_tables(costs), *sheets(information)]
        tables = write_tables(
            [*(t for comparison in comparisons for t in tables_of(comparison, chosen)), *further], out
        )
        left_out: list[str] = []
        note = left_out.append
        drawings = [*comparison_drawings(comparisons, colours, note), *information_drawings(information, colours, note)]
        figures = draw_figures(drawings, out, note, _shown(display, "figure", 0.6, 0.3))
        copies = bring_figures(information, out, note)
        if cache_dir is not None:
            configs = [run.config for run in reading.finished]
            figures += draw_grids(configs, cache_dir, out, note, _shown(display, "grid", 0.9, 0.05))
            figures += draw_examples(costs, cache_dir, out, note)
        display.update(0.95, "page")
        problems, left_out = ([*map(one_line, lines)] for lines in (reading.problems, left_out))
        remarks = [*problems, *left_out]
        drawn = [figure for figure in figures if figure.suffix != ".pdf"]
        page = Page(
            comparisons=comparisons, colours=colours, problems=remarks, roots=roots, sheets=further, figures=copies,
            drawn=drawn, columns=chosen,
        ).write(out / "index.html")  # fmt: skip
    for line in problems:
        print(line, file=sys.stderr)
    for line in left_out:
        print(line)
    _tell(reading)
    print(f"page:    {page}\ntables:  {tables[0]}, {len(tables) - 1} files in {out / 'tables'}")
    print(f"figures: {len(figures) + len(copies)} files in {out / 'figures'}")
    if cache_dir is None:
        print("images under each eraser: add --grids, where the datasets are")
    return 0


def _tell(reading: Reading) -> None:
    """Print how many runs there are, and the time that they took."""
    unfinished = len(reading.runs) - len(reading.finished)
    print(f"{len(reading.finished):,} finished runs" + (f", {unfinished:,} unfinished" if unfinished else ""), end="")
    took = sum(run.result.timing.seconds or 0.0 for run in reading.finished if run.result is not None)
    print(f", {duration(took)} of a device", end="")
    print(f"; {len(reading.problems)} remarks above and on the page" if reading.problems else "")


def _shown(display: Display, what: str, done: float, share: float) -> Callable[[int, int], None]:
    """Progress in a `share` of the whole."""
    return lambda i, of: display.update(done + share * i / of, f"{what} {i + 1:,} of {of:,}")


def colours_of(comparisons: Sequence[Comparison]) -> dict[Label, str]:
    """Give every eraser one colour, in every figure and on the page."""
    return eraser_colours(sorted({eraser for one in comparisons for eraser in one.erasers}, key=eraser_order))


if __name__ == "__main__":
    raise SystemExit(main())
