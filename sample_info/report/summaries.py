"""Summaries in result.json, in tables and figures, and on W&B: accuracy over the fraction of examples removed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.compare import Grid, Spread
from harness.logger import Logger
from harness.style import STYLE, shared_legend
from sample_info.problem import Examples
from sample_info.report.figure import title_of
from sample_info.report.table import Result, Section
from sample_info.summaries.accuracy import Summaries
from sample_info.summaries.options import SummaryOptions

ORDER_COLOURS = {"bottom": "#56B4E9", "bottom_iterative": "#0072B2", "top": "#D55E00", "random": "#4d4d4d"}
_MARKERS = {"bottom": "o", "bottom_iterative": "s", "top": "^", "random": "x"}


@dataclass(frozen=True)
class Panel:
    """One run's summaries.

    Attributes:
        title: of the panel.
        network: whose accuracy it is, e.g. "of the linearised network".
        removed: fractions.
        accuracy: by order, for every fraction.
    """

    title: str
    network: str
    removed: Sequence[float]
    accuracy: Mapping[str, Sequence[Spread]]


def draw_summaries(panels: Sequence[Panel], path: Path) -> Path:
    """The figure of `summaries_figure` on disk."""
    with mpl.rc_context(STYLE):
        summaries_figure(panels).savefig(path, dpi=110)
    return path


def summaries_figure(panels: Sequence[Panel]) -> Figure:
    """A panel per run, in it a line per order and a band of a standard deviation to either side."""
    wide = min(3, len(panels))
    tall = -(-len(panels) // wide)
    figure = Figure(figsize=(4.2 * wide + 1.2, 3.4 * tall + 0.8), layout="constrained")
    axes = figure.subplots(tall, wide, squeeze=False).flatten().tolist()
    for ax, panel in zip(axes, panels, strict=False):
        _draw(ax, panel)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    shared_legend(figure, axes[: len(panels)])
    return figure


def _draw(ax: Axes, panel: Panel) -> None:
    percent = [100 * fraction for fraction in panel.removed]
    for order, spreads in panel.accuracy.items():
        mean, std = ([100 * value for value in values] for values in _means_and_stds(spreads))
        colour = ORDER_COLOURS[order]
        ax.plot(percent, mean, label=order.replace("_", " "), color=colour, marker=_MARKERS[order], markersize=4)
        low, high = ([m + sign * s for m, s in zip(mean, std, strict=True)] for sign in (-1, 1))
        ax.fill_between(percent, low, high, color=colour, alpha=0.15, linewidth=0)
    ax.set_ylim(top=min(ax.get_ylim()[1], 101))  # a band may leave what accuracies can be
    ax.set_title(panel.title, fontsize=10, wrap=True)
    ax.set_xlabel("training examples removed (%)")
    ax.set_ylabel(f"test accuracy (%)\n{panel.network}", fontsize=10)


def _means_and_stds(spreads: Sequence[Spread]) -> tuple[list[float], list[float]]:
    return [spread.mean for spread in spreads], [spread.std or 0.0 for spread in spreads]


def summaries_result(options: SummaryOptions, found: Sequence[Summaries]) -> dict[str, Any] | None:
    """What result.json says: lists have an entry per seed, in it an entry per fraction removed.

    Returns:
        "network", "removed", "accuracy" and "classes_left" by order: averages and minima over draws of the random
        order, whose accuracies are "random_draws", per seed, draw and fraction. None where no summaries are asked for.
    """
    orders = options.orders
    if not orders:
        return None
    result: dict[str, Any] = {
        "network": options.network,
        "removed": list(options.removed),
        "accuracy": {order: [_over_draws(mean, one.accuracy[order]) for one in found] for order in orders},
        "classes_left": {order: [_over_draws(min, one.classes_left[order]) for one in found] for order in orders},
    }
    if "random" in orders:
        result["random_draws"] = [one.accuracy["random"] for one in found]
    return result


def spreads(summaries: Mapping[str, Any]) -> dict[str, list[Spread]]:
    """Accuracy by order, for every fraction removed: over seeds, and over draws of the random order."""
    trials = dict(summaries["accuracy"])
    if "random" in trials:
        trials["random"] = [draw for draws in summaries["random_draws"] for draw in draws]
    return {order: [Spread.of(values) for values in zip(*curves, strict=True)] for order, curves in trials.items()}


def panel(summaries: Mapping[str, Any], config: Mapping[str, Any], title: str) -> Panel:
    """How a run's summaries are drawn."""
    return Panel(title, network_of(config), summaries["removed"], spreads(summaries))


def network_of(config: Mapping[str, Any]) -> str:
    """Whose accuracy a run's summaries are about, in words."""
    settings = config["sample_info"]
    if settings["summary_network"] == "linearized":
        return "of the linearised network"
    changed = ", ".join(f"{key}={value}" for key, value in (settings["summary_model"] or {}).items())
    return f"of the network trained again{f' ({changed})' if changed else ''}"


def log_summaries(directory: Path, logger: Logger, examples: Examples, found: Sequence[Summaries]) -> None:
    """Draw summaries.png; log it and every accuracy to W&B."""
    summaries = summaries_result(examples.settings.summary, found)
    assert summaries is not None
    rows = []
    for order, curves in summaries["accuracy"].items():
        for seed, curve in zip(examples.described["seeds"], curves, strict=True):
            rows += [[order, seed, removed, value] for removed, value in zip(summaries["removed"], curve, strict=True)]
    drawn = panel(summaries, examples.job.config, title_of(examples))
    logger.figure("summaries/figure", draw_summaries([drawn], directory / "summaries.png"))
    logger.table("summaries/accuracy", ["order", "seed", "removed", "accuracy"], rows)


def _over_draws(combine: Callable[[Sequence[Any]], Any], draws: Sequence[Sequence[Any]]) -> list[Any]:
    return [combine(values) for values in zip(*draws, strict=True)]


_CAPTION = (
    "Test accuracy (%) after a fraction of the training examples is removed in order of F-SI: mean over seeds (± "
    "standard deviation over seeds and, for the random order, draws); *: in some summary a class has no example left."
)


def summary_sections(grid: Grid) -> list[Section]:
    """A table per run that has summaries, the last with a caption."""
    found = [_section(name, result) for name, result in _summarised(grid)]
    return [*found[:-1], *(replace(section, caption=_CAPTION) for section in found[-1:])]


def draw_sweep(grid: Grid, path: Path) -> Path | None:
    """All runs' summaries in one figure; none for fewer than two."""
    panels = [panel(result["summaries"], result["config"], name) for name, result in _summarised(grid)]
    return draw_summaries(panels, path) if len(panels) > 1 else None


def _section(name: str, result: Result) -> Section:
    found = result["summaries"]
    headings = ["removed", *(order.replace("_", " ") for order in found["accuracy"])]
    title = f"{name}: summaries, accuracy {network_of(result['config'])}"
    return Section(headings, _lines(found, result["num_classes"]), title=title)


def _summarised(grid: Grid) -> Iterator[tuple[str, Result]]:
    """Runs that have summaries, and what to call them."""
    for row, column, result in grid.runs():
        if result["summaries"] is not None:
            yield f"{row} · {column}", result


def _lines(summaries: Mapping[str, Any], num_classes: int) -> list[list[str]]:
    lines = [[f"{fraction:.0%}"] for fraction in summaries["removed"]]
    for order, accuracy in spreads(summaries).items():
        fewest = [min(seeds) for seeds in zip(*summaries["classes_left"][order], strict=True)]
        for line, spread, classes in zip(lines, accuracy, fewest, strict=True):
            line.append(percent(spread) + ("" if classes == num_classes else " *"))
    return lines


def percent(accuracy: Spread) -> str:
    """Of a share between 0 and 1."""
    std = None if accuracy.std is None else 100 * accuracy.std
    return f"{Spread(100 * accuracy.mean, std):.1f}"
