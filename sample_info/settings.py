"""What is scored, and how: the options of `conf/sample_info`."""

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from conf.schema import unhashed
from sample_info.eraser_fit import EraserFit
from sample_info.kernel.jacobian import Kind, Projection
from sample_info.linearized.training import LeftOutLoss, LinearizedDescent, Time
from sample_info.summaries.options import SummaryNetwork, SummaryOptions


@dataclass(frozen=True, kw_only=True)
class SampleInfoSettings:
    """Options of sample information.

    Args:
        classes: labels that are kept, several in a list of their own being one class; or "all".
        examples: n, training examples to score, at most; a stratified sample of the training split.
        at_most: NAME:COUNT, examples that there are at most of a group: a class that was merged, a part of a mixture.
        held_out: test examples on which predictions are compared, at most.
        eraser_fit: which examples the eraser is fitted on, see `sample_info.eraser_fit`.
        subset_seed: of that sample, and of wrong labels; seeds of runs are initialisations.
        steps: t, or "converged" for its limit.
        learning_rate: η, of the mean loss.
        weight_decay: λ towards the initial weights, on the scale of the summed loss.
        time: "discrete" or "continuous".
        left_out_loss: "sum" or "mean", see `LinearizedDescent`.
        sigma: standard deviation of the smoothing noise.
        sgd_batch_size: b of the SGD whose steady state smooths the third score; None leaves that score out.
        label_noise: fraction of the examples that get a wrong label.
        adversarial: fraction of the examples that are replaced by adversarial ones, see `adversaries`.
        epsilon: how far those are from the originals, in every pixel, on the scale 0..1.
        initial_weights: directory or weights.safetensors of a finished `python -m train` run whose weights, of the same
            seed, are w_0; None draws them.
        readout_gain: the readout's initial weights are N(0, gain² / fan-in); None keeps what the model draws, or
            what `initial_weights` has.
        projection: of gradients, see `Projection`; "auto" is exact where that is cheap.
        projection_size: numbers kept per layer.
        references: names of what to compare with.
        reference_examples: how many examples retraining leaves out, a random sample; None for all.
        influence_damping: of influence functions, one comparison for each; added to the curvature of the mean loss.
        summaries: orders in which examples are dropped, see `sample_info.summaries.orders`.
        removed: fractions of the examples that are dropped.
        summary_network: whose accuracy is measured on what is left, "linearized" or "trained".
        summary_model: options of the trained network that differ from the scored one's.
        random_draws: of the order "random", averaged.
        batch_size: examples per backward pass.
        memory_gib: for intermediate results.

    Raises:
        ValueError: a value outside its range.
    """

    classes: list[int | list[int]] | Literal["all"]
    examples: int
    at_most: list[str]
    held_out: int
    eraser_fit: Literal["auto"] | EraserFit
    subset_seed: int
    steps: float | Literal["converged"]
    learning_rate: float
    weight_decay: float
    time: Time
    left_out_loss: LeftOutLoss
    sigma: float
    sgd_batch_size: int | None
    label_noise: float
    adversarial: float
    epsilon: float
    initial_weights: str | None
    readout_gain: float | None
    projection: Literal["auto", "exact", "coordinates", "random"]
    projection_size: int
    references: list[str]
    reference_examples: int | None
    influence_damping: list[float]
    summaries: list[str]
    removed: list[float]
    summary_network: SummaryNetwork
    summary_model: dict[str, Any] | None
    random_draws: int
    batch_size: int = unhashed(64)
    memory_gib: float = unhashed(1.0)

    def __post_init__(self) -> None:
        for name, least in (("examples", 2), ("held_out", 1), ("batch_size", 1), ("projection_size", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"sample_info.{name}={getattr(self, name)}: must be at least {least}")
        if self.reference_examples is not None and self.reference_examples < 2:
            raise ValueError(
                f"sample_info.reference_examples={self.reference_examples}: must be at least 2, or null for all"
            )
        if not self.influence_damping or not all(0 < d < math.inf for d in self.influence_damping):
            raise ValueError(
                f"sample_info.influence_damping={self.influence_damping}: must be one or more positive "
                "numbers, as in [10], the paper's"
            )
        for name, none in (("references", "[]"), ("adversarial", "0")):
            if value := getattr(self, name):
                self._require_steps(f"sample_info.{name}={value}", f"{name}={none}")
        self._check_summaries()
        for name in ("sigma", "memory_gib", "epsilon"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"sample_info.{name}={getattr(self, name)}: must be a positive number")
        for name in ("label_noise", "adversarial"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"sample_info.{name}={getattr(self, name)}: must be a fraction, from 0 to less than 1")
        if odd := [cap for cap in self.at_most if not re.fullmatch(r".+:[1-9]\d*", cap)]:
            raise ValueError(f"sample_info.at_most={self.at_most}: {odd[0]} is not NAME:COUNT, as in [cat:50,dog:400]")
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
                f"{what}: networks are trained for it step by step, which sample_info.steps={self.steps}, "
                f"sample_info.time={self.time} are not: choose a number of steps and time=discrete, or {instead}"
            )

    def _check_summaries(self) -> None:
        self.summary.require_examples(self.examples, 2 if self.classes == "all" else len(self.classes))
        if self.summaries and self.summary_network == "trained":
            self._require_steps("sample_info.summary_network=trained", "summary_network=linearized")
        elif self.summary_model is not None:
            raise ValueError(
                f"sample_info.summary_model={self.summary_model}: is trained on summaries, so needs "
                "sample_info.summaries and sample_info.summary_network=trained"
            )

    @property
    def needs_one_kernel(self) -> bool:
        """Whether something is computed for which all examples must come from one and the same erased data."""
        return bool(self.references or self.summaries or self.adversarial or self.sgd_batch_size)

    @property
    def summary(self) -> SummaryOptions:
        """Which summaries are tried."""
        return SummaryOptions(
            orders=self.summaries, removed=self.removed, network=self.summary_network, draws=self.random_draws
        )

    @property
    def caps(self) -> dict[str, int]:
        """`at_most` by name."""
        return {name: int(most) for name, _, most in (cap.rpartition(":") for cap in self.at_most)}

    @property
    def descent(self) -> LinearizedDescent:
        """The training whose outcome is compared."""
        return LinearizedDescent(
            learning_rate=self.learning_rate,
            steps=math.inf if self.steps == "converged" else float(self.steps),
            weight_decay=self.weight_decay,
            time=self.time,
            left_out_loss=self.left_out_loss,
        )

    @property
    def memory_bytes(self) -> float:
        """`memory_gib` in bytes."""
        return self.memory_gib * 2**30

    def projection_of(self, kind: Kind, seed: int) -> Projection:
        """The projection, "auto" being decided."""
        return Projection(kind, self.projection_size, seed)
