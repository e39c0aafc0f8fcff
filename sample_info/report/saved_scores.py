"""A run's scores on disk (safetensors, CSV, figure) and on W&B, and their summary in result.json."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev
from typing import TypeVar

import pandas as pd
import torch
from torch import Tensor

from erasure.store.atomic_files import write_text
from erasure.store.checked_files import save_tensors
from harness.logger import Logger
from harness.sample_info_fields import Attribution, Group, Information, LinearizedAccuracy, ScoreSummary, SummaryCurves
from sample_info.agreement import auroc, pearson, with_references
from sample_info.data_summarization import Curve
from sample_info.error_estimates import TRAINED_PATH, EstimatedErrors
from sample_info.leave_one_out_effects import Changes
from sample_info.scored_examples import Examples
from sample_info.settings import SummarySettings

T = TypeVar("T")


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
    attribution: Mapping[str, Attribution]  # of no method where none was judged

    @property
    def error_estimates(self) -> dict[str, EstimatedErrors]:
        """Error estimates by name of the score; empty where they were not asked for."""
        path, truth = self.references.get(TRAINED_PATH), self.references.get("retraining")
        if path is None:
            return {}
        attributes = {"f_si": "prediction", "si": "weight"}
        methods = (self.changes, path) if truth is None else (self.changes, path, truth)
        return {
            name: EstimatedErrors(*(getattr(one, attribute) for one in methods))
            for name, attribute in attributes.items()
        }


def columns(scored: Scored) -> dict[str, Tensor]:
    """Return a seed's numbers per example by name, [n] each; units in the names."""
    named = {"weight_change": scored.changes.weight, "prediction_change": scored.changes.prediction, **scored.scores}
    named["left_out_correct"] = scored.left_out_correct.long()
    for name, changes in scored.references.items():
        prefix = name.replace(" ", "_")
        named |= {f"{prefix}_weight_change": changes.weight, f"{prefix}_prediction_change": changes.prediction}
    for name, estimate in scored.error_estimates.items():
        named |= {f"{name}_error_factor": estimate.factor, f"{name}_believable": estimate.believable.long()}
    return named


def save_scores(
    directory: Path, logger: Logger, examples: Examples, scored: Sequence[Scored], information: Information
) -> None:
    """scores.safetensors (a row per seed, a column per example), scores.csv (a row per seed and example), figures.

    Scores and figures are logged to W&B as well.
    """
    from sample_info.report.figures import draw_run, draw_summaries, title_of  # and so matplotlib
    from sample_info.report.tables import accuracy_of

    seeds = [one.seed for one in scored]
    tensors = {name: torch.stack(values) for name, values in _by_name([columns(one) for one in scored]).items()}
    about = {"index": examples.index, "label": examples.labels.cpu(), "given_label": examples.train_labels.cpu()}
    metadata = {"seeds": seeds, "class_names": list(examples.dataset.class_names)}
    if examples.groups.masks():
        about["group"] = examples.groups.of
        metadata["group_names"] = list(examples.groups.names)
    save_tensors(directory / "scores.safetensors", {**about, **tensors}, metadata)
    frame = pd.concat([_frame(examples, one) for one in scored])
    write_text(directory / "scores.csv", frame.to_csv(index=False))
    means = {name: tensors[name].mean(0) for name in scored[0].scores}
    logger.table("scores", [*map(str, frame)], frame.to_numpy().tolist())
    logger.figure("scores/figure", draw_run(examples, means, directory / "scores.png"))
    if information.summaries is not None:
        accuracy = accuracy_of(information.summaries, examples.job.config.plain, examples.eraser_fit)
        panel = title_of(examples), accuracy, information.summaries
        logger.figure("summaries/figure", draw_summaries([panel], {}, directory / "summaries.png"))
    for one in scored:
        logger.log({"seed": one.seed, "information/f_si_nats.mean": float(one.scores["f_si_nats"].mean())})
    logged = {f"information.{name}.mean": float(values.mean()) for name, values in means.items()}
    logger.summarise(logged | {"network.test_accuracy": mean(one.test_accuracy for one in scored)})


def _frame(examples: Examples, one: Scored) -> pd.DataFrame:
    """Return a row per example."""
    groups, names = examples.groups, examples.job.source.row_names(examples.index)
    about = {
        "seed": [one.seed] * len(groups.of),
        "index": examples.index.tolist(),
        **({} if names is None else {"name": names}),
        "label": examples.labels.tolist(),
        "given_label": examples.train_labels.tolist(),
        "class": [examples.dataset.class_names[label] for label in examples.labels.tolist()],
        "group": [groups.names[j] for j in groups.of.tolist()],
    }
    return pd.DataFrame(about | {name: values.tolist() for name, values in columns(one).items()})


def information_of(examples: Examples, scored: Sequence[Scored]) -> Information:
    """Return the part of result.json about scores; lists have an entry per seed."""
    summaries = [{name: _summary_of(values, examples) for name, values in one.scores.items()} for one in scored]
    estimates = [
        {f"{name}_nats": estimate.described for name, estimate in one.error_estimates.items()} for one in scored
    ]
    return Information(
        information=_by_name(summaries),
        network=LinearizedAccuracy(
            train_accuracy=[one.train_accuracy for one in scored],
            test_accuracy=[one.test_accuracy for one in scored],
            left_out_accuracy=[float(one.left_out_correct.double().mean()) for one in scored],
        ),
        references=_by_name([with_references(one.changes, one.references) for one in scored]),
        how=[one.how for one in scored],
        groups=_groups(examples, scored),
        between_seeds=_between_seeds([one.scores["f_si_nats"] for one in scored]),
        summaries=_summaries(examples.settings.summaries, [one.summaries for one in scored]),
        attribution=_by_name([one.attribution for one in scored]) or None,
        error_estimates=_by_name(estimates) or None,
    )


def _by_name(by_seed: Sequence[Mapping[str, T]]) -> dict[str, list[T]]:
    """Return lists over seeds by name."""
    return {name: [seed[name] for seed in by_seed] for name in by_seed[0]}


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


def _summaries(options: SummarySettings, by_seed: Sequence[Mapping[str, list[Curve]]]) -> SummaryCurves | None:
    """Return the curves of all seeds by order, mean and fewest classes over draws; None where none are asked for."""
    if not options.orders:
        return None
    accuracy = {order: [[curve.accuracy for curve in seed[order]] for seed in by_seed] for order in options.orders}
    classes = {order: [[curve.classes_left for curve in seed[order]] for seed in by_seed] for order in options.orders}
    return SummaryCurves(
        network=options.network,
        removed=options.removed,
        accuracy={o: [[*map(mean, zip(*draws, strict=True))] for draws in seeds] for o, seeds in accuracy.items()},
        classes_left={o: [[*map(min, zip(*draws, strict=True))] for draws in seeds] for o, seeds in classes.items()},
        random_draws=accuracy.get("random"),
    )


def _between_seeds(scores: Sequence[Tensor]) -> dict[str, float | None] | None:
    """Correlation of F-SI between two initialisations, mean and standard deviation over pairs; None for one seed."""
    correlations = [value for a, b in combinations(scores, 2) if (value := pearson(a, b)) is not None]
    return (
        {"pearson": mean(correlations), "std": stdev(correlations) if len(correlations) > 1 else None}
        if correlations
        else None
    )


def _summary_of(scores: Tensor, examples: Examples) -> ScoreSummary:
    order, labels = scores.argsort(descending=True), examples.labels.cpu()
    tenth = max(1, len(scores) // 10)
    total = float(scores.sum())
    return ScoreSummary(
        mean_nats=float(scores.mean()),
        mean_bits=float((scores / math.log(2)).mean()),
        median_nats=float(scores.median()),
        largest_nats=float(scores.max()),
        share_of_top_tenth=float(scores[order[:tenth]].sum()) / total if total else None,
        mean_nats_by_class=[float(scores[labels == j].mean()) for j in range(len(examples.dataset.class_names))],
        most_informative=examples.index[order[:10]].tolist(),
        least_informative=examples.index[order[-10:].flip(0)].tolist(),
    )
