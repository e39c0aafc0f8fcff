"""What is scored, and how: the options of `conf/sample_info`, a class for each of its groups."""

import math
import re
from dataclasses import dataclass
from typing import Literal

from conf import Options
from conf.check import keyword_only
from conf.schema import later, unhashed
from conf.target import Target, check_target
from models.tangent.jacobian import Kind
from sample_info.eraser_fit import EraserFit
from sample_info.linearized.training import LinearizedDescent

ORDERS = ("bottom", "bottom_iterative", "top", "random")


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which examples there are beside the plain ones, `sample_info.data`.

    Args:
        at_most: NAME:COUNT, examples that there are at most of a group: a class that was merged, a part of a mixture.
        label_noise: fraction of the examples that get a wrong label.
        adversarial: fraction of the examples that are replaced by adversarial ones, see `adversaries`.
        epsilon: how far those are from the originals, in every pixel, on the scale 0..1.
        eraser_fit: which examples the eraser is fitted on, see `sample_info.eraser_fit`.
        seed: of the sample of examples, and of wrong labels; seeds of runs are initialisations.
    """

    at_most: list[str]
    label_noise: float
    adversarial: float
    epsilon: float
    eraser_fit: Literal["auto"] | EraserFit
    seed: int

    def __post_init__(self) -> None:
        _require_positive("data.epsilon", self.epsilon)
        for name, share in (("label_noise", self.label_noise), ("adversarial", self.adversarial)):
            _require(0 <= share < 1, f"data.{name}", share, "must be a fraction, from 0 to less than 1")
        for cap in self.at_most:
            named = re.fullmatch(r".+:[1-9]\d*", cap)
            _require(named, "data.at_most", self.at_most, f"{cap} is not NAME:COUNT, as in [cat:50,dog:400]")

    @property
    def caps(self) -> dict[str, int]:
        """`at_most` by name."""
        return {name: int(most) for name, _, most in (cap.rpartition(":") for cap in self.at_most)}


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(LinearizedDescent):
    """The training whose outcome is compared, `sample_info.training`; options are those of `LinearizedDescent`, and:

    Args:
        readout_gain: the readout's initial weights are N(0, gain² / fan-in); None keeps what the model draws, or
            what `sample_info.initial_weights` has.
    """

    readout_gain: float | None

    def __post_init__(self) -> None:
        if self.readout_gain is not None:
            _require_positive("training.readout_gain", self.readout_gain, ", or null for what the model draws")
        try:
            super().__post_init__()
        except ValueError as error:
            raise ValueError(f"sample_info.training.{error}") from None

    def require_steps(self, what: str, instead: str) -> None:
        """Refuse `what`, for which networks are trained step by step, where there are no steps."""
        if not self.finite or self.time != "discrete":
            raise ValueError(
                f"sample_info.{what}: networks are trained for it step by step, which training.steps={self.steps}, "
                f"training.time={self.time} are not: choose a number of steps and time=discrete, or {instead}"
            )


@dataclass(frozen=True, kw_only=True)
class ReferenceSettings:
    """What scores are compared with, `sample_info.references`.

    Args:
        methods: names, see `sample_info.references.registry`.
        examples: how many retraining leaves out, a random sample; None for all.
        influence_damping: of influence functions, one comparison for each; added to the curvature of the mean loss.
        subsets: random halves that networks are trained on.
    """

    methods: list[str]
    examples: int | None
    influence_damping: list[float]
    subsets: int = later(default=100)

    def __post_init__(self) -> None:
        enough = self.examples is None or self.examples >= 2
        _require(enough, "references.examples", self.examples, "must be at least 2, or null for all")
        positive = self.influence_damping and all(0 < damping < math.inf for damping in self.influence_damping)
        _require_at_least(3, "references.subsets", self.subsets)
        complaint = "must be one or more positive numbers, as in [10], the paper's"
        _require(positive, "references.influence_damping", self.influence_damping, complaint)


@dataclass(frozen=True, kw_only=True)
class SummarySettings:
    """Orders in which examples are dropped, and whose accuracy is measured on what is left, `sample_info.summaries`.

    Args:
        orders: some of `ORDERS`; none for no summaries.
        removed: fractions of the examples that are dropped.
        network: "linearized", in closed form, or "trained" by gradient descent.
        model: options of the trained network that differ from the scored one's.
        draws: seeded draws of the order "random", per initialisation.
    """

    orders: list[str]
    removed: list[float]
    network: Literal["linearized", "trained"]
    model: Options | None
    draws: int

    def __post_init__(self) -> None:
        orders, removed = self.orders, self.removed
        for name in orders:
            known = f"there is no {name}; choose from {', '.join(ORDERS)}"
            _require(name in ORDERS, "summaries.orders", orders, known)
        _require(len(set(orders)) == len(orders), "summaries.orders", orders, "an order is named twice; name it once")
        fractions = removed and all(0 <= fraction < 1 for fraction in removed)
        _require(fractions, "summaries.removed", removed, "need fractions of the examples, from 0 to less than 1")
        _require(sorted({*removed}) == removed, "summaries.removed", removed, "must increase from one to the next")
        _require_at_least(1, "summaries.draws", self.draws)
        complaint = "is trained on summaries, so needs summaries.orders and summaries.network=trained"
        _require(self.model is None or self.trained, "summaries.model", self.model, complaint)

    @property
    def trained(self) -> bool:
        """Whether networks are trained on summaries."""
        return bool(self.orders) and self.network == "trained"

    def require_examples(self, n: int, num_classes: int) -> None:
        """Refuse fractions that leave fewer than two examples of n, or some class without any, whatever the order.

        Raises:
            ValueError: names the fraction, and the largest that is possible.
        """
        least, most = max(2, num_classes), self.removed[-1]
        left = n - round(most * n)
        complaint = (
            f"leaves {left} of {n} examples, and {num_classes} classes need {least} at least; remove "
            f"{max(0, n - least) / n:.2g} at most, or raise sample_info.examples"
        )
        _require(not self.orders or left >= least, "summaries.removed", f"{most:g}", complaint)


@dataclass(frozen=True, kw_only=True)
class KernelSettings:
    """How the kernel is computed, `sample_info.kernel`.

    Args:
        projection: of gradients, see `Projection`; "auto" is exact where that is cheap.
        size: numbers kept per layer.
    """

    projection: Literal["auto"] | Kind
    size: int

    def __post_init__(self) -> None:
        _require_at_least(1, "kernel.size", self.size)


@dataclass(frozen=True, kw_only=True)
class SampleInfoSettings:
    """Options of sample information.

    Args:
        classes: labels that are kept, several in a list of their own being one class; or "all".
        examples: n, training examples to score, at most; a stratified sample of the training split.
        held_out: test examples on which predictions are compared, at most.
        initial_weights: directory or weights.safetensors of a finished `python -m train` run whose weights, of the same
            seed, are w_0; None draws them.
        sigma: standard deviation of the smoothing noise.
        sgd_batch_size: b of the SGD whose steady state smooths the third score; None leaves that score out.
        pairwise: whether what each example does to each held-out output and loss is kept, with its sign.
        error_estimate: whether the error of every score is estimated, see `sample_info.trust`.
        data, training, references, summaries, kernel: groups of options.
        batch_size: examples per backward pass.
        memory_gib: for intermediate results.

    Raises:
        ValueError: a value outside its range, or that does not go with another.
    """

    classes: list[int | list[int]] | Literal["all"]
    examples: int
    held_out: int
    initial_weights: str | None
    sigma: float
    sgd_batch_size: int | None
    data: DataSettings
    training: TrainingSettings
    references: ReferenceSettings
    summaries: SummarySettings
    kernel: KernelSettings
    pairwise: bool = later(default=False)
    error_estimate: bool = later(default=False)
    batch_size: int = unhashed(64)
    memory_gib: float = unhashed(1.0)

    def __post_init__(self) -> None:
        _require_at_least(2, "examples", self.examples)
        _require_at_least(1, "held_out", self.held_out)
        _require_at_least(1, "batch_size", self.batch_size)
        _require_positive("sigma", self.sigma)
        _require_positive("memory_gib", self.memory_gib)
        self.summaries.require_examples(self.examples, 2 if self.classes == "all" else len(self.classes))
        if methods := self.references.methods:
            self.training.require_steps(f"references.methods={methods}", "references.methods=[]")
        if self.error_estimate:
            self.training.require_steps("error_estimate=true", "error_estimate=false")
        if adversarial := self.data.adversarial:
            self.training.require_steps(f"data.adversarial={adversarial}", "data.adversarial=0")
        if self.summaries.trained:
            self.training.require_steps("summaries.network=trained", "summaries.network=linearized")
        complaint = (
            "must be at least 1, and needs a positive sample_info.training.weight_decay, without which gradients "
            "vanish at the minimum and SGD has no noise"
        )
        batch = self.sgd_batch_size
        _require(batch is None or (batch >= 1 and self.training.weight_decay), "sgd_batch_size", batch, complaint)

    @property
    def needs_one_kernel(self) -> bool:
        """Whether something is computed for which all examples must come from one and the same erased data."""
        asked = self.references.methods, self.summaries.orders, self.data.adversarial, self.sgd_batch_size
        return any(asked) or self.error_estimate

    @property
    def memory_bytes(self) -> float:
        """`memory_gib` in bytes."""
        return self.memory_gib * 2**30


def summary_model(config: Options) -> Options:
    """The section of the network that is trained on summaries: the run's model with `summaries.model`'s options.

    Another `_target_` takes those of the run's options that it knows.

    Raises:
        ConfigError: an option that the architecture does not have.
    """
    own = config["sample_info"]["summaries"]["model"] or {}
    base = config["model"]
    if "_target_" in own:
        accepted = {"name", *keyword_only(Target(own).schema)}
        base = {key: value for key, value in base.items() if key in accepted}
    return check_target("sample_info.summaries.model", {**base, **own}, "model")


def _require(met: object, option: str, value: object, complaint: str) -> None:
    if not met:
        raise ValueError(f"sample_info.{option}={value}: {complaint}")


def _require_at_least(least: int, option: str, value: int) -> None:
    _require(value >= least, option, value, f"must be at least {least}")


def _require_positive(option: str, value: float, otherwise: str = "") -> None:
    _require(0 < value < math.inf, option, value, f"must be a positive number{otherwise}")
