"""The tables that `python -m sample_info` shows: runs, groups of examples, movements, agreement, summaries."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from rich import box
from rich.table import Table

from erasure.progress import console
from erasure.store.storage import write_text
from harness.compare import Grid, Result, Spread
from sample_info.report.comparison import Agreement, Movement
from sample_info.report.figures import Panel

HEADINGS = (
    "dataset · model", "eraser", "classes", "n", "F-SI, mean", "median", "top tenth", "SI, mean", "accuracy",
    "left out", "notes"
)  # fmt: skip
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
    "dataset · model", "eraser", "compared", "examples", "weights", "predictions", "rank, weights",
    "rank, predictions", "ratio, weights", "ratio, predictions"
)  # fmt: skip
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
_SUMMARY_CAPTION = (
    "Test accuracy (%) after a fraction of the training examples is removed in order of F-SI: mean over seeds (± "
    "standard deviation over seeds and, for the random order, draws); *: in some summary a class has no example left."
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
    """One line per run; then, if any, one per group, reference, pair of erasers; matrices of agreement; summaries."""
    found = [
        Section(HEADINGS, run_lines(grid), CAPTION),
        Section(GROUP_HEADINGS, group_lines(grid), GROUP_CAPTION),
        Section(REFERENCE_HEADINGS, reference_lines(grid), REFERENCE_CAPTION),
        Section(MOVEMENT_HEADINGS, [movement_cells(m) for m in movements], MOVEMENT_CAPTION),
    ]
    for agreement in agreements:
        headings = ["", agreement.eraser, *(str(j + 1) for j in range(len(agreement.names)))]
        found.append(Section(headings, agreement_lines(agreement), AGREEMENT_CAPTION))
    summaries = [_summary_section(f"{row} · {column}", result) for row, column, result in summarised(grid)]
    found += [*summaries[:-1], *(replace(last, caption=_SUMMARY_CAPTION) for last in summaries[-1:])]
    return [section for section in found if section.lines]


def summarised(grid: Grid) -> list[tuple[str, str, Result]]:
    """Runs that have summaries."""
    return [run for run in grid.runs() if run[2]["summaries"] is not None]


def _summary_section(name: str, result: Result) -> Section:
    found = result["summaries"]
    lines = [[f"{fraction:.0%}"] for fraction in found["removed"]]
    for order, accuracy in spreads(found).items():
        fewest = [min(seeds) for seeds in zip(*found["classes_left"][order], strict=True)]
        for line, spread, classes in zip(lines, accuracy, fewest, strict=True):
            line.append(percent(spread) + ("" if classes == result["num_classes"] else " *"))
    headings = ["removed", *(order.replace("_", " ") for order in found["accuracy"])]
    return Section(headings, lines, title=f"{name}: summaries, accuracy {network_of(result['config'])}")


def spreads(summaries: Mapping[str, Any]) -> dict[str, list[Spread]]:
    """Accuracy by order, for every fraction removed: over seeds, and over draws of the random order."""
    trials = dict(summaries["accuracy"])
    if "random" in trials:
        trials["random"] = [draw for draws in summaries["random_draws"] for draw in draws]
    return {order: [Spread.of(values) for values in zip(*curves, strict=True)] for order, curves in trials.items()}


def network_of(config: Mapping[str, Any]) -> str:
    """Whose accuracy a run's summaries are about, in words."""
    section = config["sample_info"]
    if isinstance(section["summaries"], Mapping):
        network, model = section["summaries"]["network"], section["summaries"]["model"]
    else:  # before options were grouped
        network, model = section["summary_network"], section["summary_model"]
    if network == "linearized":
        return "of the linearised network"
    changed = ", ".join(f"{key}={value}" for key, value in (model or {}).items())
    return f"of the network trained again{f' ({changed})' if changed else ''}"


def panel(summaries: Mapping[str, Any], config: Mapping[str, Any], title: str) -> Panel:
    """How a run's summaries are drawn."""
    return Panel(title, network_of(config), summaries["removed"], spreads(summaries))


def percent(accuracy: Spread) -> str:
    """Of a share between 0 and 1."""
    std = None if accuracy.std is None else 100 * accuracy.std
    return f"{Spread(100 * accuracy.mean, std):.1f}"


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
    return [
        movement.row,
        movement.before,
        movement.after,
        rank,
        f"{movement.median_ratio:.3g}",
        f"{movement.overlap:.0%}",
    ]


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
        [row, column, name, f"{group['examples']:,}", f"{Spread.of(group['mean_nats']):.2e}"]
        + [_mean(group[key]) for key in ("auroc", "auroc_si")]
        for row, column, result in grid.runs()
        for name, group in result["groups"].items()
    ]


def reference_lines(grid: Grid) -> list[list[str]]:
    """A line per run and comparison."""
    return [
        [row, column, name, f"{agreements[0]['examples']:,}"]
        + [_mean(a[kind][how] for a in agreements) for how in ("pearson", "spearman") for kind in _CHANGES]
        + [_ratios([a[kind].get("ratio") for a in agreements]) for kind in _CHANGES]
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
