"""A run's scores on disk (safetensors, CSV, figure) and on W&B, and their summary in result.json."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev
from typing import TypeVar

import torch
from torch import Tensor

from erasure.store.storage import save_tensors, write_text
from harness.information import (
    Attribution,
    ErrorEstimate,
    Group,
    Information,
    LinearizedAccuracy,
    ScoreSummary,
    SummaryCurves,
)
from harness.logger import Logger
from harness.table import Record, csv_of
from sample_info.changes import Changes, agreements_of, auroc, bits, pearson
from sample_info.examples import Examples
from sample_info.settings import SummarySettings
from sample_info.summaries.accuracy import Curve
from sample_info.trust import TRAINED_PATH, Trust

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Scored:
    """One seed's scores, [n] each, on the CPU, and what goes with them."""

    seed: int
    changes: Changes
    scores: Mapping[str, Tensor]
    references: Mapping[str, Changes]
    how: dict[str, str | float]
    left_out_correct: Tensor  # whether the network trained without an example finds the label that it was given
    train_accuracy: float
    test_accuracy: float
    summaries: Mapping[str, list[Curve]]
    attribution: Mapping[str, Attribution] | None = None

    @property
    def trusts(self) -> dict[str, Trust]:
        """How far each kind of score is to be trusted, by name; none where that was not asked for."""
        path, truth = self.references.get(TRAINED_PATH), self.references.get("retraining")
        if path is None:
            return {}
        kinds = {"f_si": "prediction", "si": "weight"}
        accounts = (self.changes, path) if truth is None else (self.changes, path, truth)
        return {name: Trust(*(getattr(one, kind) for one in accounts)) for name, kind in kinds.items()}


def columns(scored: Scored) -> dict[str, Tensor]:
    """A seed's numbers per example by name, [n] each; units in the names."""
    named = {"weight_change": scored.changes.weight, "prediction_change": scored.changes.prediction, **scored.scores}
    named["left_out_correct"] = scored.left_out_correct.long()
    for name, changes in scored.references.items():
        prefix = name.replace(" ", "_")
        named |= {f"{prefix}_weight_change": changes.weight, f"{prefix}_prediction_change": changes.prediction}
    for name, trust in scored.trusts.items():
        named |= {f"{name}_error_factor": trust.factor, f"{name}_believable": trust.believable.long()}
    return named


def save_scores(
    directory: Path, logger: Logger, examples: Examples, scored: Sequence[Scored], share: Information
) -> None:
    """scores.safetensors (a row per seed, a column per example), scores.csv (a row per seed and example), figures.

    The scores, the figures and what is said of the summaries go to W&B, too.
    """
    from sample_info.report.figures import Panel, run_figure, save, summaries_figure, title_of  # and so matplotlib

    names = list(columns(scored[0]))
    tensors = {name: torch.stack([columns(one)[name] for one in scored]) for name in names}
    about = {"index": examples.index, "label": examples.labels.cpu(), "given_label": examples.given.cpu()}
    metadata = {"seeds": [one.seed for one in scored], "class_names": list(examples.dataset.class_names)}
    if examples.groups.masks():
        about["group"] = examples.groups.of
        metadata["group_names"] = list(examples.groups.names)
    save_tensors(directory / "scores.safetensors", {**about, **tensors}, metadata)
    rows = [row for one in scored for row in _rows(examples, one)]
    write_text(directory / "scores.csv", csv_of(rows))
    means = {name: torch.stack([one.scores[name] for one in scored]).mean(0) for name in scored[0].scores}
    logger.table("scores", list(rows[0]), [list(row.values()) for row in rows])
    logger.figure("scores/figure", save(lambda: run_figure(examples, means), directory / "scores.png", dpi=120))
    if share.summaries is not None:
        panel = Panel(title_of(examples), examples.job.config, examples.eraser_fit, share.summaries)
        figure = save(lambda: summaries_figure([panel]), directory / "summaries.png", dpi=110)
        logger.figure("summaries/figure", figure)
        logger.table(
            "summaries/accuracy", ["order", "seed", "removed", "accuracy"], _accuracies(scored, share.summaries)
        )
    for one in scored:
        logger.log({"seed": one.seed, "information/f_si_nats.mean": float(one.scores["f_si_nats"].mean())})
    logged = {f"information.{name}.mean": float(values.mean()) for name, values in means.items()}
    logger.summarise(logged | {"network.test_accuracy": mean(one.test_accuracy for one in scored)})


def _rows(examples: Examples, one: Scored) -> Iterator[Record]:
    groups = examples.groups
    found = {
        "seed": [one.seed] * len(groups.of),
        "index": examples.index.tolist(),
        **({} if (names := examples.names) is None else {"name": names}),
        "label": examples.labels.tolist(),
        "given_label": examples.given.tolist(),
        "class": [examples.dataset.class_names[label] for label in examples.labels.tolist()],
        "group": [groups.names[j] for j in groups.of.tolist()],
        **{name: values.tolist() for name, values in columns(one).items()},
    }
    return (dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True))


def _accuracies(scored: Sequence[Scored], found: SummaryCurves) -> list[list[str | int | float]]:
    return [
        [order, one.seed, removed, value]
        for order, curves in found.accuracy.items()
        for one, curve in zip(scored, curves, strict=True)
        for removed, value in zip(found.removed, curve, strict=True)
    ]


def share_of(examples: Examples, scored: Sequence[Scored]) -> Information:
    """What result.json says of the scores; lists have an entry per seed."""
    agreements = [agreements_of(one.changes, one.references) for one in scored]
    return Information(
        information={name: [_summary_of(one.scores[name], examples) for one in scored] for name in scored[0].scores},
        network=LinearizedAccuracy(
            train_accuracy=[one.train_accuracy for one in scored],
            test_accuracy=[one.test_accuracy for one in scored],
            left_out_accuracy=[float(one.left_out_correct.double().mean()) for one in scored],
        ),
        references={name: [found[name] for found in agreements] for name in agreements[0]},
        how=[one.how for one in scored],
        groups=_groups(examples, scored),
        between_seeds=_between_seeds([one.scores["f_si_nats"] for one in scored]),
        summaries=_summaries(examples.settings.summaries, [one.summaries for one in scored]),
        attribution=_attribution([one.attribution for one in scored if one.attribution is not None]),
        error_estimates=_error_estimates([one.trusts for one in scored]),
    )


def _error_estimates(found: Sequence[Mapping[str, Trust]]) -> dict[str, list[ErrorEstimate]] | None:
    """None where nothing was estimated."""
    return {f"{name}_nats": [seed[name].described for seed in found] for name in found[0]} or None


def _attribution(found: Sequence[Mapping[str, Attribution]]) -> dict[str, list[Attribution]] | None:
    """None where nothing was judged."""
    return {name: [seed[name] for seed in found] for name in found[0]} if found else None


def _groups(examples: Examples, scored: Sequence[Scored]) -> dict[str, Group]:
    f_si, si = ([one.scores[name] for one in scored] for name in ("f_si_nats", "si_nats"))
    return {
        name: Group(
            examples=int(mask.sum()),
            mean_nats=[float(scores[mask].mean()) for scores in f_si],
            auroc=[auroc(scores, mask) for scores in f_si],
            auroc_si=[auroc(scores, mask) for scores in si],
        )
        for name, mask in examples.groups.masks().items()
    }


def _between_seeds(scores: Sequence[Tensor]) -> dict[str, float | None] | None:
    """Correlation of F-SI between two initialisations, mean and standard deviation over pairs; None for one seed."""
    found = [value for a, b in combinations(scores, 2) if (value := pearson(a, b)) is not None]
    if not found:
        return None
    return {"pearson": mean(found), "std": stdev(found) if len(found) > 1 else None}


def _summary_of(scores: Tensor, examples: Examples) -> ScoreSummary:
    order, labels = scores.argsort(descending=True), examples.labels.cpu()
    tenth = max(1, len(scores) // 10)
    total = float(scores.sum())
    return ScoreSummary(
        mean_nats=float(scores.mean()),
        mean_bits=float(bits(scores).mean()),
        median_nats=float(scores.median()),
        largest_nats=float(scores.max()),
        share_of_top_tenth=float(scores[order[:tenth]].sum()) / total if total else None,
        mean_nats_by_class=[float(scores[labels == j].mean()) for j in range(len(examples.dataset.class_names))],
        most_informative=examples.index[order[:10]].tolist(),
        least_informative=examples.index[order[-10:].flip(0)].tolist(),
    )


def _summaries(options: SummarySettings, found: Sequence[Mapping[str, list[Curve]]]) -> SummaryCurves | None:
    """None where no summaries are asked for."""
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
