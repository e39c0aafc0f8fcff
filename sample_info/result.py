"""The result of `python -m sample_info` in result.json."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from harness.result import Result
from harness.result_fields import Number, Part, Share, Whole

Order = Literal["bottom", "bottom_iterative", "top", "random"]  # in which summaries drop examples

SCORES = {"f_si_nats": "F-SI", "si_nats": "SI", "si_sgd_nats": "SI, SGD"}  # display names


@dataclass(frozen=True, kw_only=True)
class ScoreSummary(Part):
    """A summary of one seed's scores of one kind; examples are given by their positions in the dataset."""

    mean_nats: Number
    mean_bits: Number
    median_nats: Number
    largest_nats: Number
    share_of_top_tenth: Number | None  # None if all scores are zero
    mean_nats_by_class: list[Number | None]  # None where no example of the class is scored
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
    """Pearson's and Spearman's correlation of two estimates of the same changes; None if one does not vary."""

    pearson: Number | None
    spearman: Number | None
    ratio: Ratio | None = field(default=None, metadata={"written": True})


@dataclass(frozen=True, kw_only=True)
class ReferenceAgreement(Part):
    """Agreement of two estimates of leave-one-out changes, over the examples that both cover."""

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

    Attributes:
        datamodeling: Spearman's correlation over trainings on random halves.
        leave_one_out: Pearson's correlation over examples that were left out one by one; None if there are none.
        auroc: AUROC of mean squared effects for detecting wrong labels; None if there are no wrong labels.
    """

    datamodeling: Interval
    leave_one_out: Number | None = None
    auroc: Share | None = None


@dataclass(frozen=True, kw_only=True)
class LinearizedAccuracy(Part):
    """Accuracy of the linearised network, by seed; `left_out_accuracy` is on each training example without it."""

    train_accuracy: list[Share]
    test_accuracy: list[Share]
    left_out_accuracy: list[Share] | None = None


@dataclass(frozen=True, kw_only=True)
class Group(Part):
    """A subgroup: its size and, by seed, its mean F-SI and the AUROC of F-SI and SI against other examples."""

    examples: Whole
    mean_nats: list[Number]
    auroc: list[Share | None]
    auroc_si: list[Share | None]


@dataclass(frozen=True, kw_only=True)
class SummaryCurves(Part):
    """Accuracy after examples are removed: by order, then per seed and per fraction in `removed`.

    Attributes:
        network: the network whose accuracy is measured.
        removed: fractions of examples removed.
        accuracy: test accuracy; the mean over draws of the random order.
        classes_left: number of classes with examples left; the minimum over draws of the random order.
        random_draws: accuracies of the random order, per seed, draw and fraction.
    """

    network: Literal["linearized", "trained"]
    removed: list[Share]
    accuracy: dict[str, list[list[Share]]]
    classes_left: dict[str, list[list[Whole]]]
    random_draws: list[list[list[Share]]] | None = None

    def require_consistent(self, seeds: int) -> None:
        """Check that every order has `seeds` curves with a number for each fraction.

        Raises:
            ValueError: a curve is incomplete; the message names its order.
        """
        fractions = len(self.removed)
        if unknown := {*self.accuracy} - {*get_args(Order)}:
            raise ValueError(
                f"summaries.accuracy: no orders {sorted(unknown)!s:.60}: one of {', '.join(get_args(Order))}"
            )
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
class InformationResult(Result):
    """A result of `python -m sample_info`; lists have an entry per seed.

    Attributes:
        information: summaries of scores, by name of the score.
        references: agreement with references, by name of the reference.
        how: description of the computation, in a few words and numbers.
        between_seeds: mean and standard deviation, over pairs of seeds, of the correlation of F-SI.
        eraser_fit: `sample_info.data.eraser_fit` as resolved; None for the control.
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
    eraser_fit: Literal["disjoint", "refit", "scored"] | None = field(default=None, metadata={"written": True})

    def require_consistent(self) -> None:
        super().require_consistent()
        if "f_si_nats" not in self.information:
            raise ValueError("lacks information.f_si_nats")
        if self.summaries is not None:
            self.summaries.require_consistent(len(self.seeds))

    def by_seed(self) -> dict[str, Sequence[Any]]:
        f_si = self.information["f_si_nats"]
        columns: dict[str, Sequence[Any]] = {
            name: [one.mean_nats for one in self.information[name]] for name in SCORES if name in self.information
        }
        columns |= {
            "f_si_nats_median": [one.median_nats for one in f_si],
            "share_of_top_tenth": [one.share_of_top_tenth or 0.0 for one in f_si],  # 0 if all scores are zero
            "largest_over_median": [one.largest_nats / one.median_nats if one.median_nats else None for one in f_si],
            "accuracy": self.network.test_accuracy,
        }
        if self.network.left_out_accuracy is not None:
            columns["left_out_accuracy"] = self.network.left_out_accuracy
        return columns
