"""Summaries in result.json, and on W&B."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from harness.compare import Spread
from harness.logger import Logger
from sample_info.figure import title_of
from sample_info.problem import Examples
from sample_info.summaries import Summaries
from sample_info.summary_figure import Panel, draw_summaries
from sample_info.summary_options import SummaryOptions


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
