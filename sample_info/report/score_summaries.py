"""Summaries of a run's scores in result.json: means, groups, correlation between seeds, data summarization."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import mean, stdev

from torch import Tensor

from sample_info.agreement import auroc, median, pearson, with_references
from sample_info.data_summarization import Curve
from sample_info.report.save_scores import Scored, by_name
from sample_info.result import Group, InformationResult, LinearizedAccuracy, ScoreSummary, SummaryCurves
from sample_info.scored_examples import Examples
from sample_info.settings import SummarySettings


def information_of(examples: Examples, scored: Sequence[Scored]) -> InformationResult:
    """Return the result of a run from the scores of its seeds."""
    summaries = [{name: _summary_of(values, examples) for name, values in one.scores.nats.items()} for one in scored]
    return InformationResult(
        **examples.result_fields(),
        information=by_name(summaries),
        network=LinearizedAccuracy(
            train_accuracy=[one.train_accuracy for one in scored],
            test_accuracy=[one.test_accuracy for one in scored],
            left_out_accuracy=[float(one.scores.left_out_correct.double().mean()) for one in scored],
        ),
        references=by_name([with_references(one.scores.changes, one.scores.references) for one in scored]),
        how=[one.scores.how for one in scored],
        groups=_groups(examples, scored),
        between_seeds=_between_seeds([one.scores.nats["f_si_nats"] for one in scored]),
        summaries=_summaries(examples.settings.summaries, [one.summaries for one in scored]),
        attribution=by_name([one.attribution for one in scored]) or None,
        held_out_size=len(examples.held_out),
        eraser_fit=examples.eraser_fit,
    )


def _groups(examples: Examples, scored: Sequence[Scored]) -> dict[str, Group]:
    f_si, si = ([one.scores.nats[name] for one in scored] for name in ("f_si_nats", "si_nats"))
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
    """Return all seeds' curves by order, with mean accuracy and fewest classes over draws; None without orders."""
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
    """Return mean and standard deviation of the correlation of F-SI over pairs of seeds; None for one seed."""
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
        median_nats=median(scores),
        largest_nats=float(scores.max()),
        share_of_top_tenth=float(scores[order[:tenth]].sum()) / total if total else None,
        mean_nats_by_class=[
            float(of_class.mean()) if len(of_class) else None
            for of_class in (scores[labels == j] for j in range(len(examples.dataset.class_names)))
        ],
        most_informative=examples.index[order[:10]].tolist(),
        least_informative=examples.index[order[-10:].flip(0)].tolist(),
    )
