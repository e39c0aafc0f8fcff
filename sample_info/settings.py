"""What is scored, and how: the options of `conf/sample_info`."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from sample_info.jacobian import Kind, Projection
from sample_info.linearized_descent import LinearizedDescent, Time
from sample_info.summary_options import SummaryNetwork, SummaryOptions


@dataclass(frozen=True, kw_only=True)
class SampleInfoSettings:
    """Options of sample information.

    Args:
        classes: labels that are kept, or "all".
        examples: n, training examples to score, at most; a stratified sample of the training split.
        held_out: test examples on which predictions are compared, at most.
        subset_seed: of that sample, and of wrong labels; seeds of runs are initialisations.
        steps: t, or "converged" for its limit.
        learning_rate: η, of the mean loss.
        weight_decay: λ towards the initial weights, on the scale of the summed loss.
        time: "discrete" or "continuous".
        sigma: standard deviation of the smoothing noise.
        sgd_batch_size: b of the SGD whose steady state smooths the third score; None leaves that score out.
        label_noise: fraction of the examples that get a wrong label.
        readout_gain: the readout's initial weights are N(0, gain² / fan-in); None keeps what the model draws.
        projection: of gradients, see `Projection`; "auto" is exact where that is cheap.
        projection_size: numbers kept per layer.
        references: names of what to compare with.
        reference_examples: how many examples references leave out, a random sample; None for all.
        summaries: orders in which examples are dropped, see `sample_info.summarize`.
        removed: fractions of the examples that are dropped.
        summary_network: whose accuracy is measured on what is left, "linearized" or "trained".
        summary_model: options of the trained network that differ from the scored one's.
        random_draws: of the order "random", averaged.
        batch_size: examples per backward pass.
        memory_gib: for intermediate results.

    Raises:
        ValueError: a value outside its range.
    """

    classes: list[int] | Literal["all"]
    examples: int
    held_out: int
    subset_seed: int
    steps: float | Literal["converged"]
    learning_rate: float
    weight_decay: float
    time: Time
    sigma: float
    sgd_batch_size: int | None
    label_noise: float
    readout_gain: float | None
    projection: Literal["auto", "exact", "coordinates", "random"]
    projection_size: int
    references: list[str]
    reference_examples: int | None
    summaries: list[str]
    removed: list[float]
    summary_network: SummaryNetwork
    summary_model: dict[str, Any] | None
    random_draws: int
    batch_size: int
    memory_gib: float

    def __post_init__(self) -> None:
        for name, least in (("examples", 2), ("held_out", 1), ("batch_size", 1), ("projection_size", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"sample_info.{name}={getattr(self, name)}: must be at least {least}")
        if self.reference_examples is not None and self.reference_examples < 2:
            raise ValueError(
                f"sample_info.reference_examples={self.reference_examples}: must be at least 2, or null for all"
            )
        if self.references:
            self._require_steps(f"sample_info.references={self.references}: they train", "references=[]")
        self._check_summaries()
        for name in ("sigma", "memory_gib"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"sample_info.{name}={getattr(self, name)}: must be a positive number")
        if not 0 <= self.label_noise < 1:
            raise ValueError(f"sample_info.label_noise={self.label_noise}: must be a fraction, from 0 to less than 1")
        if self.readout_gain is not None and not 0 < self.readout_gain < math.inf:
            raise ValueError(
                f"sample_info.readout_gain={self.readout_gain}: must be positive, or null for what the model draws"
            )
        if self.sgd_batch_size is not None and (self.sgd_batch_size < 1 or not self.weight_decay):
            raise ValueError(
                f"sample_info.sgd_batch_size={self.sgd_batch_size}: must be at least 1, and needs a positive "
                "sample_info.weight_decay, without which gradients vanish at the minimum and SGD has no noise"
            )
        try:
            self.descent  # noqa: B018
        except ValueError as error:
            raise ValueError(f"sample_info.{error}") from None

    def _require_steps(self, what: str, instead: str) -> None:
        if self.steps == "converged" or self.time != "discrete":
            raise ValueError(
                f"{what} step by step, which sample_info.steps={self.steps}, sample_info.time={self.time} do "
                f"not: choose a number of steps and time=discrete, or {instead}"
            )

    def _check_summaries(self) -> None:
        self.summary.require_examples(self.examples, 2 if self.classes == "all" else len(self.classes))
        if self.summaries and self.summary_network == "trained":
            self._require_steps("sample_info.summary_network=trained: it trains", "summary_network=linearized")
        elif self.summary_model is not None:
            raise ValueError(
                f"sample_info.summary_model={self.summary_model}: is trained on summaries, so needs "
                "sample_info.summaries and sample_info.summary_network=trained"
            )

    @property
    def summary(self) -> SummaryOptions:
        """Which summaries are tried."""
        return SummaryOptions(
            orders=self.summaries, removed=self.removed, network=self.summary_network, draws=self.random_draws
        )

    @property
    def descent(self) -> LinearizedDescent:
        """The training whose outcome is compared."""
        return LinearizedDescent(
            learning_rate=self.learning_rate,
            steps=math.inf if self.steps == "converged" else float(self.steps),
            weight_decay=self.weight_decay,
            time=self.time,
        )

    @property
    def memory_bytes(self) -> float:
        """`memory_gib` in bytes."""
        return self.memory_gib * 2**30

    def projection_of(self, kind: Kind, seed: int) -> Projection:
        """The projection, "auto" being decided."""
        return Projection(kind, self.projection_size, seed)
