"""Summaries of a run: what result.json says of them, and what that is in words and in a table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING, TypeVar

from conf import Options
from harness.information import SummaryCurves
from harness.result import InformationResult
from harness.results.arrange import Comparison
from harness.results.labels import Label
from harness.results.statistics import Spread, seeds_text
from harness.results.table import Table

if TYPE_CHECKING:  # what is read back is not computed
    from sample_info.settings import SummarySettings
    from sample_info.summaries import Curve

_CAPTION = (
    "Test accuracy (%) after a fraction of the training examples is removed in order of F-SI: mean over seeds (± "
    "standard deviation over seeds and, for the random order, draws); *: in some summary a class has no example left."
)
_FITS = {
    "disjoint": "eraser fitted on other examples",
    "refit": "eraser refitted without each example",
    "scored": "eraser fitted on the scored examples: leaks what is left out",
}
N = TypeVar("N", int, float)


def curves_of(options: "SummarySettings", found: "Sequence[Mapping[str, list[Curve]]]") -> SummaryCurves | None:
    """Return the curves of all seeds by order; None where no summaries are asked for."""
    if not options.orders:
        return None
    accuracy = {order: [[curve.accuracy for curve in seed[order]] for seed in found] for order in options.orders}
    classes = {order: [[curve.classes_left for curve in seed[order]] for seed in found] for order in options.orders}
    return SummaryCurves(
        network=options.network,
        removed=options.removed,
        accuracy={order: [_over_draws(mean, draws) for draws in seeds] for order, seeds in accuracy.items()},
        classes_left={order: [_over_draws(min, draws) for draws in seeds] for order, seeds in classes.items()},
        random_draws=accuracy.get("random"),
    )


def _over_draws(combine: Callable[[Sequence[N]], N], draws: Sequence[Sequence[N]]) -> list[N]:
    return [combine(values) for values in zip(*draws, strict=True)]


def accuracies(found: SummaryCurves, seeds: Sequence[int]) -> list[list[str | int | float]]:
    """Return a row for each accuracy: order, seed, fraction removed, accuracy."""
    return [
        [order, seed, removed, value]
        for order, curves in found.accuracy.items()
        for seed, curve in zip(seeds, curves, strict=True)
        for removed, value in zip(found.removed, curve, strict=True)
    ]


def summarised(comparison: Comparison) -> list[tuple[Label, Label, InformationResult]]:
    """Return the runs that have summaries."""
    return [run for run in comparison.information if run[-1].summaries is not None]


def summaries_tables(comparison: Comparison) -> list[Table]:
    """For each run that has summaries a row per fraction removed and a column per order; the last has the caption."""
    found = [_table(f"{row.display} · {eraser.display}", result) for row, eraser, result in summarised(comparison)]
    return [*found[:-1], *(replace(last, caption=_CAPTION) for last in found[-1:])]


def _table(run: str, result: InformationResult) -> Table:
    found = result.summaries
    assert found is not None
    rows = [[f"{fraction:.0%}"] for fraction in found.removed]
    for order, accuracy in spreads(found).items():
        fewest = [min(seeds) for seeds in zip(*found.classes_left[order], strict=True)]
        for row, shown, classes in zip(rows, accuracy, fewest, strict=True):
            row.append(percent(shown) + ("" if classes == result.num_classes else " *"))
    headings = ["removed", *(order.replace("_", " ") for order in found.accuracy)]
    title = f"{run}: summaries, accuracy {accuracy_of(result)}, {seeds_text(len(result.seeds))}"
    return Table("", "", headings, rows, title=title)


def spreads(found: SummaryCurves) -> dict[str, list[Spread]]:
    """Accuracy by order, for every fraction removed: over seeds, and over draws of the random order."""
    trials = dict(found.accuracy)
    if found.random_draws is not None:
        trials["random"] = [draw for draws in found.random_draws for draw in draws]
    return {order: [Spread.of(values) for values in zip(*curves, strict=True)] for order, curves in trials.items()}


def percent(accuracy: Spread) -> str:
    """Format a fraction as a percentage."""
    std = None if accuracy.std is None else 100 * accuracy.std
    return f"{Spread(100 * accuracy.mean, std):.1f}"


def whose(found: SummaryCurves, config: Options) -> str:
    """Return in words which network the accuracy of a run's summaries is of."""
    if found.network == "linearized":
        return "of the linearised network"
    model = config["sample_info"]["summaries"].get("model")
    changed = ", ".join(f"{key}={value}" for key, value in model.items()) if isinstance(model, Mapping) else ""
    return f"of the network trained again{f' ({changed})' if changed else ''}"


def accuracy_of(result: InformationResult) -> str:
    """Return in words which network the accuracy is of, and whether the eraser was fitted on the examples."""
    assert result.summaries is not None
    return "; ".join([whose(result.summaries, result.config), *eraser_note(result.eraser_fit)])


def eraser_note(fit: str | None) -> list[str]:
    """Return a note on what the eraser was fitted on; empty for the control, and for older runs."""
    return [] if fit is None else [_FITS[fit]]
