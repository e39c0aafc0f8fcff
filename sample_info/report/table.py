"""The tables that `python -m sample_info` shows: runs, groups of examples, movements, agreement."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from rich import box
from rich.table import Table

from erasure.progress import console
from erasure.store.storage import write_text
from harness.compare import Grid, Spread
from sample_info.report.agreement import Agreement
from sample_info.report.movement import Movement

Result = Mapping[str, Any]

HEADINGS = (
    "dataset · model",
    "eraser",
    "classes",
    "n",
    "F-SI, mean",
    "median",
    "top tenth",
    "SI, mean",
    "accuracy",
    "left out",
    "notes",
)
CAPTION = (
    "F-SI: what an example tells the network's predictions that the others do not, SI: what it tells the weights, in "
    "nats at noise sigma, mean over examples (± standard deviation over seeds); top tenth: the share of all F-SI that "
    "the most informative tenth has; accuracy: of the linearised network on test examples; left out: on each training "
    "example, once trained without it. docs/sample_info.md."
)
GROUP_HEADINGS = ("dataset · model", "eraser", "group", "examples", "F-SI, mean", "AUROC, F-SI", "AUROC, SI")
GROUP_CAPTION = (
    "Groups of examples (± standard deviation over seeds). AUROC: the probability that an example of the group scores "
    "above one of the others; 0.5 is chance."
)
REFERENCE_HEADINGS = (
    "dataset · model",
    "eraser",
    "compared",
    "examples",
    "weights",
    "predictions",
    "rank, weights",
    "rank, predictions",
    "ratio, weights",
    "ratio, predictions",
)
REFERENCE_CAPTION = (
    "Correlation over examples, Pearson's and of ranks (Spearman's), of how far leaving one out moves weights and "
    "predictions (± standard deviation over seeds), and the median of their ratios, with the least and the largest. "
    "Ours, unless it says otherwise, with a reference; influence 10: functions with a damping of 10, the paper's."
)
MOVEMENT_HEADINGS = ("dataset · model", "from", "to", "rank correlation", "median ratio", "still in the top tenth")
MOVEMENT_CAPTION = (
    "F-SI example by example, mean over seeds: Spearman's rank correlation, the median of the ratio of the second to "
    "the first, and the share of the first's most informative tenth that is in the second's."
)
AGREEMENT_HEADINGS = ("eraser", "run", "another run", "correlation")
AGREEMENT_CAPTION = (
    "Pearson's correlation of F-SI over the same examples, seed by seed, mean over seeds; of a run with itself: "
    "between its seeds."
)
_CHANGES = ("weight", "prediction")
_FITS = {
    "disjoint": "eraser fitted on other examples",
    "refit": "eraser refitted without each example",
    "scored": "eraser fitted on the scored examples: leaks what is left out",
}


@dataclass(frozen=True)
class Section:
    """A table and what its columns mean."""

    headings: Sequence[str]
    lines: Sequence[Sequence[str]]
    caption: str = ""
    title: str = ""


def sections(grid: Grid, movements: Sequence[Movement], agreements: Sequence[Agreement]) -> list[Section]:
    """One line per run; then, if any, one per group, reference, pair of erasers, run that is compared with others."""
    found = [
        Section(HEADINGS, run_lines(grid), CAPTION),
        Section(GROUP_HEADINGS, group_lines(grid), GROUP_CAPTION),
        Section(REFERENCE_HEADINGS, reference_lines(grid), REFERENCE_CAPTION),
        Section(MOVEMENT_HEADINGS, [movement_cells(m) for m in movements], MOVEMENT_CAPTION),
    ]
    for agreement in agreements:
        headings = ["", agreement.eraser, *(str(j + 1) for j in range(len(agreement.names)))]
        found.append(Section(headings, agreement_lines(agreement), AGREEMENT_CAPTION))
    return [section for section in found if section.lines]


def print_tables(shown: Sequence[Section]) -> None:
    """On stdout."""
    output = console(min_width=150)
    for section in shown:
        if section.title:
            output.print(section.title)
        output.print(_table(section.headings, section.lines))
        if section.caption:
            output.print(section.caption, style="dim", highlight=False)


def write_tables(shown: Sequence[Section], path: Path) -> Path:
    """The same as Markdown."""
    parts = (part for s in shown for part in (s.title, _markdown(s.headings, s.lines).rstrip(), s.caption) if part)
    write_text(path, "\n\n".join(parts) + "\n")
    return path


def movement_cells(movement: Movement) -> list[str]:
    """One line of the table of movements."""
    rank = "" if movement.spearman is None else f"{movement.spearman:.3f}"
    names = [movement.row, movement.before, movement.after]
    return [*names, rank, f"{movement.median_ratio:.3g}", f"{movement.overlap:.0%}"]


def agreement_lines(agreement: Agreement) -> list[list[str]]:
    """A row per run: its number, its name, its correlation with every run."""
    rows = zip(agreement.names, agreement.correlation, strict=True)
    return [
        [str(i + 1), name, *("" if value is None else f"{value:.2f}" for value in row)]
        for i, (name, row) in enumerate(rows)
    ]


def group_lines(grid: Grid) -> list[list[str]]:
    """A line per run and group."""
    return [
        [
            row,
            column,
            name,
            f"{group['examples']:,}",
            f"{Spread.of(group['mean_nats']):.2e}",
            *(_mean(group[key]) for key in ("auroc", "auroc_si")),
        ]
        for row, column, result in grid.runs()
        for name, group in result["groups"].items()
    ]


def reference_lines(grid: Grid) -> list[list[str]]:
    """A line per run and comparison."""
    return [
        [
            row,
            column,
            name,
            f"{agreements[0]['examples']:,}",
            *(_mean(a[kind][how] for a in agreements) for how in ("pearson", "spearman") for kind in _CHANGES),
            *(_ratios([a[kind].get("ratio") for a in agreements]) for kind in _CHANGES),
        ]
        for row, column, result in grid.runs()
        for name, agreements in result["references"].items()
    ]


def _ratios(seeds: Sequence[Mapping[str, float] | None]) -> str:
    """Median over examples, mean over seeds, and the range over all; nothing for runs that are older."""
    known = [one for one in seeds if one is not None]
    if not known:
        return ""
    ends = min(one["least"] for one in known), max(one["largest"] for one in known)
    return f"{mean(one['median'] for one in known):.3g} ({ends[0]:.3g} to {ends[1]:.3g})"


def _mean(values: Iterable[float | None]) -> str:
    """Of what is known, over seeds."""
    known = [value for value in values if value is not None]
    return f"{Spread.of(known):.3f}" if known else ""


def run_lines(grid: Grid) -> list[list[str]]:
    """The first table's lines, row by row of the grid."""
    lines = []
    for row, column, result in grid.runs():
        f_si, si = (result["information"][name] for name in ("f_si_nats", "si_nats"))
        shares = [one["share_of_top_tenth"] or 0.0 for one in f_si]
        lines.append(
            [
                row,
                column,
                _classes(result),
                f"{result['train_size']:,}",
                f"{Spread.of([one['mean_nats'] for one in f_si]):.2e}",
                f"{mean(one['median_nats'] for one in f_si):.2e}",
                f"{mean(shares):.0%}",
                f"{Spread.of([one['mean_nats'] for one in si]):.2e}",
                *(_percent(result["network"].get(key)) for key in ("test_accuracy", "left_out_accuracy")),
                "; ".join(_notes(result)),
            ]
        )
    return lines


def _percent(accuracy: Sequence[float] | None) -> str:
    """Mean over seeds; nothing for runs that are older than the number."""
    return f"{100 * mean(accuracy):.1f} %" if accuracy else ""


def _classes(result: Result) -> str:
    classes = result["config"]["sample_info"]["classes"]
    if classes == "all":
        return f"all {result['num_classes']}"
    return ", ".join("+".join(map(str, c)) if isinstance(c, list) else str(c) for c in classes)


def _notes(result: Result) -> list[str]:
    """What the eraser was fitted on, how alike seeds are, the score with SGD's noise."""
    information, notes = result["information"], [_FITS[fit]] if (fit := result.get("eraser_fit")) else []
    if result["between_seeds"] is not None:
        notes.append(f"between seeds: r = {result['between_seeds']['pearson']:.2f}")
    if "si_sgd_nats" in information:
        notes.append(f"SI with SGD's noise {mean(one['mean_nats'] for one in information['si_sgd_nats']):.2e}")
    return notes


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for cells in lines:
        table.add_row(*cells)
    return table


def _markdown(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table for a page."""
    rows = [headings, ["---"] * len(headings), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
