"""A run's scores on disk (safetensors, CSV, figure) and on W&B, and their summary in result.json."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor

from erasure.store.storage import save_tensors, write_text
from harness.logger import Logger
from sample_info.changes import Changes, auroc, bits, pearson
from sample_info.examples import Examples
from sample_info.report.figures import run_figure, save, summaries_figure, title_of
from sample_info.report.table import panel
from sample_info.settings import SummarySettings
from sample_info.summaries.accuracy import Summaries


@dataclass(frozen=True)
class Scored:
    """One seed's scores, [n] each, on the CPU, and what goes with them."""

    seed: int
    changes: Changes
    scores: Mapping[str, Tensor]
    references: Mapping[str, Changes]
    agreement: Mapping[str, Any]
    how: Mapping[str, Any]
    left_out_correct: Tensor  # whether the network trained without an example finds the label that it was given
    train_accuracy: float
    test_accuracy: float
    summaries: Summaries


def columns(scored: Scored) -> dict[str, Tensor]:
    """A seed's numbers per example by name, [n] each; units in the names."""
    named = {"weight_change": scored.changes.weight, "prediction_change": scored.changes.prediction, **scored.scores}
    named["left_out_correct"] = scored.left_out_correct.long()
    for name, changes in scored.references.items():
        prefix = name.replace(" ", "_")
        named |= {f"{prefix}_weight_change": changes.weight, f"{prefix}_prediction_change": changes.prediction}
    return named


def save_scores(directory: Path, examples: Examples, scored: Sequence[Scored]) -> None:
    """scores.safetensors (a row per seed, a column per example) and scores.csv (a row per seed and example)."""
    names = list(columns(scored[0]))
    tensors = {name: torch.stack([columns(one)[name] for one in scored]) for name in names}
    about = {"index": examples.index, "label": examples.labels.cpu(), "given_label": examples.given.cpu()}
    metadata = {"seeds": [one.seed for one in scored], "class_names": list(examples.dataset.class_names)}
    if examples.groups is not None:
        about["group"] = examples.groups.of
        metadata["group_names"] = list(examples.groups.names)
    save_tensors(directory / "scores.safetensors", {**about, **tensors}, metadata)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADER + names)
    for one in scored:
        writer.writerows(_rows(examples, one, names))
    write_text(directory / "scores.csv", text.getvalue())


_HEADER = ["seed", "index", "label", "given_label", "class", "group"]


def _rows(examples: Examples, one: Scored, names: Sequence[str]) -> Iterator[list[Any]]:
    own = columns(one)
    groups, n = examples.groups, len(examples.index)
    group = [""] * n if groups is None else [groups.names[j] for j in groups.of.tolist()]
    about = zip(examples.index.tolist(), examples.labels.tolist(), examples.given.tolist(), group, strict=True)
    values = zip(*(own[name].tolist() for name in names), strict=True)
    for (index, label, given, kind), row in zip(about, values, strict=True):
        yield [one.seed, index, label, given, examples.dataset.class_names[label], kind, *row]


def log_scores(directory: Path, logger: Logger, examples: Examples, scored: Sequence[Scored]) -> None:
    """Draw the run's figure; log it and every score to W&B."""
    figure = save(lambda: run_figure(examples, mean_scores(scored)), directory / "scores.png", dpi=120)
    names = list(columns(scored[0]))
    logger.table("scores", _HEADER + names, [row for one in scored for row in _rows(examples, one, names)])
    logger.figure("scores/figure", figure)
    _log_summaries(directory, logger, examples, [one.summaries for one in scored])
    for one in scored:
        logger.log({"seed": one.seed, "information/f_si_nats.mean": float(one.scores["f_si_nats"].mean())})
    means = {f"information.{name}.mean": float(s.mean()) for name, s in mean_scores(scored).items()}
    logger.summarise(means | {"network.test_accuracy": sum(one.test_accuracy for one in scored) / len(scored)})


def mean_scores(scored: Sequence[Scored]) -> dict[str, Tensor]:
    """Scores averaged over seeds, [n] each, by name."""
    return {name: torch.stack([one.scores[name] for one in scored]).mean(0) for name in scored[0].scores}


def scores_result(examples: Examples, scored: Sequence[Scored]) -> dict[str, Any]:
    """What result.json says of the scores; lists have an entry per seed."""
    information = {name: [_summary_of(one.scores[name], examples) for one in scored] for name in scored[0].scores}
    return {
        "information": information,
        "network": {
            "train_accuracy": [one.train_accuracy for one in scored],
            "test_accuracy": [one.test_accuracy for one in scored],
            "left_out_accuracy": [float(one.left_out_correct.double().mean()) for one in scored],
        },
        "references": {name: [one.agreement[name] for one in scored] for name in scored[0].agreement},
        "how": [dict(one.how) for one in scored],
        "groups": _groups(examples, scored),
        "between_seeds": _between_seeds([one.scores["f_si_nats"] for one in scored]),
        "summaries": summaries_result(examples.settings.summaries, [one.summaries for one in scored]),
    }


def _groups(examples: Examples, scored: Sequence[Scored]) -> dict[str, Any]:
    """For each kind of example: how many, mean F-SI, how well F-SI and SI tell them from the others, per seed."""
    if examples.groups is None:
        return {}
    f_si, si = ([one.scores[name] for one in scored] for name in ("f_si_nats", "si_nats"))
    return {
        name: {
            "examples": int(mask.sum()),
            "mean_nats": [float(scores[mask].mean()) for scores in f_si],
            "auroc": [auroc(scores, mask) for scores in f_si],
            "auroc_si": [auroc(scores, mask) for scores in si],
        }
        for name, mask in examples.groups.masks().items()
    }


def _between_seeds(scores: Sequence[Tensor]) -> dict[str, Any] | None:
    """Correlation of F-SI between two initialisations, mean and standard deviation over pairs; None for one seed."""
    found = [value for a, b in combinations(scores, 2) if (value := pearson(a, b)) is not None]
    if not found:
        return None
    return {"pearson": mean(found), "std": stdev(found) if len(found) > 1 else None}


def _summary_of(scores: Tensor, examples: Examples) -> dict[str, Any]:
    """One seed's scores of one kind: mean, median, largest; in bits, too; by class; most and least informative."""
    order, labels = scores.argsort(descending=True), examples.labels.cpu()
    tenth = max(1, len(scores) // 10)
    total = float(scores.sum())
    return {
        "mean_nats": float(scores.mean()),
        "mean_bits": float(bits(scores).mean()),
        "median_nats": float(scores.median()),
        "largest_nats": float(scores.max()),
        "share_of_top_tenth": float(scores[order[:tenth]].sum()) / total if total else None,
        "mean_nats_by_class": [float(scores[labels == j].mean()) for j in range(len(examples.dataset.class_names))],
        "most_informative": examples.index[order[:10]].tolist(),
        "least_informative": examples.index[order[-10:].flip(0)].tolist(),
    }


def summaries_result(options: SummarySettings, found: Sequence[Summaries]) -> dict[str, Any] | None:
    """What result.json says: lists have an entry per seed, in it an entry per fraction removed.

    Returns:
        "network", "removed", "accuracy" and "classes_left" by order: averages and minima over draws of the random
        order, whose accuracies are "random_draws", per seed, draw and fraction. None where no summaries are asked for.
    """
    if not options.orders:
        return None
    result: dict[str, Any] = {
        "network": options.network,
        "removed": options.removed,
        "accuracy": {order: [_over_draws(mean, one.accuracy[order]) for one in found] for order in options.orders},
        "classes_left": {
            order: [_over_draws(min, one.classes_left[order]) for one in found] for order in options.orders
        },
    }
    if "random" in options.orders:
        result["random_draws"] = [one.accuracy["random"] for one in found]
    return result


def _over_draws(combine: Callable[[Sequence[Any]], Any], draws: Sequence[Sequence[Any]]) -> list[Any]:
    return [combine(values) for values in zip(*draws, strict=True)]


def _log_summaries(directory: Path, logger: Logger, examples: Examples, found: Sequence[Summaries]) -> None:
    """Draw summaries.png; log it and every accuracy to W&B."""
    summaries = summaries_result(examples.settings.summaries, found)
    if summaries is None:
        return
    rows = []
    for order, curves in summaries["accuracy"].items():
        for seed, curve in zip(examples.described["seeds"], curves, strict=True):
            rows += [[order, seed, removed, value] for removed, value in zip(summaries["removed"], curve, strict=True)]
    drawn = panel(summaries, examples.job.config, title_of(examples))
    logger.figure("summaries/figure", save(lambda: summaries_figure([drawn]), directory / "summaries.png", dpi=110))
    logger.table("summaries/accuracy", ["order", "seed", "removed", "accuracy"], rows)
