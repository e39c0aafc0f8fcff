"""Parts of result.json about single examples (`harness.result`)."""

from dataclasses import dataclass, field
from typing import Literal

from harness.result_fields import Number, Part, Share, Whole


@dataclass(frozen=True, kw_only=True)
class ScoreSummary(Part):
    """One seed's scores of one kind; examples by where they stand in the dataset, classes in their order."""

    mean_nats: Number
    mean_bits: Number
    median_nats: Number
    largest_nats: Number
    share_of_top_tenth: Number | None  # None where all are zero
    mean_nats_by_class: list[Number]
    most_informative: list[Whole]
    least_informative: list[Whole]


@dataclass(frozen=True, kw_only=True)
class Ratio(Part):
    """Ratio of one score to another, over examples."""

    median: Number
    least: Number
    largest: Number


@dataclass(frozen=True, kw_only=True)
class Correlation(Part):
    """Correlation of two estimates of the same changes, Pearson's and of ranks; None where one does not vary."""

    pearson: Number | None
    spearman: Number | None
    ratio: Ratio | None = field(default=None, metadata={"written": True})


@dataclass(frozen=True, kw_only=True)
class ReferenceAgreement(Part):
    """Agreement of two estimates of leave-one-out changes, over the examples that both have."""

    examples: Whole
    weight: Correlation
    prediction: Correlation


@dataclass(frozen=True, kw_only=True)
class Interval(Part):
    """A mean and the ends of its 95 % bootstrap interval."""

    mean: Number
    low: Number
    high: Number


@dataclass(frozen=True, kw_only=True)
class Attribution(Part):
    """Accuracy of an attribution method, judged by trainings without some examples.

    `datamodeling`: Spearman's correlation over trainings on random halves; `leave_one_out`: Pearson's over examples
    that were left out one by one, None where none were; `auroc`: of mean squared effects finding wrong labels, None
    where there are none.
    """

    datamodeling: Interval
    leave_one_out: Number | None = None
    auroc: Share | None = None


@dataclass(frozen=True, kw_only=True)
class ErrorEstimate(Part):
    """Counts of one seed's scores that are wrong by less than a factor of two, by the error estimate.

    Where retraining left `retrained` examples out: Spearman's correlation of the estimate with the error, how many of
    them are believed, how many of those truly are within the factor, and how many of the doubted truly are not.
    """

    believable: Whole
    retrained: Whole | None = None
    spearman: Number | None = None
    believed: Whole | None = None
    rightly_believed: Whole | None = None
    rightly_doubted: Whole | None = None


@dataclass(frozen=True, kw_only=True)
class LinearizedAccuracy(Part):
    """Accuracy of the linearised network, an entry per seed; `left_out` on training examples, trained without each."""

    train_accuracy: list[Share]
    test_accuracy: list[Share]
    left_out_accuracy: list[Share] | None = None


@dataclass(frozen=True, kw_only=True)
class Group(Part):
    """A kind of examples: how many, mean F-SI, how well F-SI and SI tell them from the others, an entry per seed."""

    examples: Whole
    mean_nats: list[Number]
    auroc: list[Share | None]
    auroc_si: list[Share | None]


@dataclass(frozen=True, kw_only=True)
class SummaryCurves(Part):
    """Accuracy after examples are removed: by order, an entry per seed, in it one per fraction that is `removed`.

    Test accuracy, and how many classes have examples left: mean and minimum over draws of the random order, whose
    accuracies are `random_draws`, per seed, draw and fraction.
    """

    network: Literal["linearized", "trained"]
    removed: list[Share]
    accuracy: dict[str, list[list[Share]]]
    classes_left: dict[str, list[list[Whole]]]
    random_draws: list[list[list[Share]]] | None = None

    def require_consistent(self, seeds: int) -> None:
        """Check that every order has `seeds` curves with a number for each fraction.

        Raises:
            ValueError: names what does not.
        """
        fractions = len(self.removed)
        if {*self.accuracy} != {*self.classes_left}:
            raise ValueError("summaries: accuracy and classes_left are of different orders")
        for name in ("accuracy", "classes_left"):
            for order, curves in getattr(self, name).items():
                if [len(curve) for curve in curves] != [fractions] * seeds:
                    raise ValueError(f"summaries.{name}.{order}: needs {fractions} numbers for each of {seeds} seeds")
        if self.random_draws is None:
            return
        draws = [draw for each in self.random_draws for draw in each]
        if "random" not in self.accuracy or not draws or any(len(draw) != fractions for draw in draws):
            raise ValueError(f"summaries.random_draws: needs the order random, and {fractions} numbers for each draw")


@dataclass(frozen=True, kw_only=True)
class Information(Part):
    """The share of `python -m sample_info`; lists have an entry per seed, `information` and `references` by name.

    `how` says what was computed, in a few words and numbers; `between_seeds` correlates F-SI, mean and standard
    deviation over pairs of seeds; `error_estimates` are by score, None where they were not asked for; `eraser_fit` is
    that of `sample_info.data`, None for the control.
    """

    held_out_size: Whole
    information: dict[str, list[ScoreSummary]]
    network: LinearizedAccuracy
    references: dict[str, list[ReferenceAgreement]]
    how: list[dict[str, str | Number]]
    between_seeds: dict[str, Number | None] | None
    groups: dict[str, Group]
    summaries: SummaryCurves | None
    attribution: dict[str, list[Attribution]] | None = None
    error_estimates: dict[str, list[ErrorEstimate]] | None = None
    eraser_fit: Literal["disjoint", "refit", "scored"] | None = field(default=None, metadata={"written": True})
