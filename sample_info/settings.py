"""Settings of `sample_info`: a class for each group of the options of `conf/sample_info`."""

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from conf import Options
from conf.check import AtLeast1, Fraction, Positive
from conf.run_identity import unhashed
from conf.schema import Config
from conf.unread_options import no_effect
from sample_info.eraser_fit_without_scored_examples import EraserFit
from sample_info.linearized.descent import LinearizedDescent
from sample_info.result import Order

_DIGITS = ("digits", "mnist", "svhn")  # datasets on which two classes are scored by default, as in the paper
Reference = Literal["retraining", "influence", "cosine", "subsets"]


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Options of the scored data, `sample_info.data`: label noise, adversarial examples, subgroups."""

    at_most: list[str]
    label_noise: Fraction
    adversarial: Fraction
    epsilon: Positive
    eraser_fit: Literal["auto"] | EraserFit
    seed: int

    def __post_init__(self) -> None:
        for cap in self.at_most:
            named = re.fullmatch(r".+:[1-9]\d*", cap)
            _require(named, "data.at_most", self.at_most, f"{cap} is not NAME:COUNT, as in [cat:50,dog:400]")

    @property
    def caps(self) -> dict[str, int]:
        """The largest number of examples by group, from `at_most`."""
        return {name: int(most) for name, _, most in (cap.rpartition(":") for cap in self.at_most)}


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(LinearizedDescent):
    """Options of the training on all examples and without each, `sample_info.training`."""

    readout_gain: Positive | None  # None keeps the readout of the model or of `sample_info.initial_weights`


@dataclass(frozen=True, kw_only=True)
class ReferenceSettings:
    """Options of the reference methods, `sample_info.references`.

    "subsets" omits random halves and retrains; `sample_info.attribution_quality` judges all methods by the results.
    """

    methods: list[Reference]
    examples: Annotated[int, Field(ge=2)] | None
    influence_damping: Annotated[list[Positive], Field(min_length=1)]
    subsets: Annotated[int, Field(ge=3)] = 100

    def __post_init__(self) -> None:
        methods = self.methods
        twice = "a method is named twice; name it once"
        _require(len(set(methods)) == len(methods), "references.methods", methods, twice)


@dataclass(frozen=True, kw_only=True)
class SummarySettings:
    """Options of data summarization, `sample_info.summaries`: dropped examples, and the network trained on the rest."""

    orders: list[Order]
    removed: Annotated[list[Fraction], Field(min_length=1)]
    network: Literal["linearized", "trained"]
    model: Options | None

    def __post_init__(self) -> None:
        orders, removed = self.orders, self.removed
        _require(len(set(orders)) == len(orders), "summaries.orders", orders, "an order is named twice; name it once")
        _require(sorted({*removed}) == removed, "summaries.removed", removed, "must increase from one to the next")

    @property
    def trained(self) -> bool:
        """Whether networks are trained on the remaining examples."""
        return bool(self.orders) and self.network == "trained"

    def require_examples(self, n: int, num_classes: int) -> None:
        """Refuse fractions that leave fewer than two examples, or fewer than there are classes."""
        least, most = max(2, num_classes), self.removed[-1]
        left = n - round(most * n)
        complaint = (
            f"leaves {left} of {n} examples, and {num_classes} classes need {least} at least; remove "
            f"{max(0, n - least) / n:.2g} at most, or raise sample_info.examples"
        )
        _require(not self.orders or left >= least, "summaries.removed", f"{most:g}", complaint)


@dataclass(frozen=True, kw_only=True)
class KernelSettings:
    """Options of the tangent kernel, `sample_info.kernel`.

    "auto" samples 2,000 values of each parameter tensor's gradient (`models.tangent.jacobian.Projection`), unless the
    exact kernel is cheap.
    """

    projection: Literal["auto", "exact"]


@dataclass(frozen=True, kw_only=True)
class SampleInfoSettings:
    """All options of `sample_info`; invalid or incompatible values raise `ValueError`."""

    classes: list[int | list[int]] | Literal["all"]
    examples: Annotated[int, Field(ge=2)]
    held_out: AtLeast1
    initial_weights: str | None
    sigma: Positive
    sgd_batch_size: AtLeast1 | None
    data: DataSettings
    training: TrainingSettings
    references: ReferenceSettings
    summaries: SummarySettings
    kernel: KernelSettings
    memory_gib: Annotated[float, Field(gt=0)] = unhashed(1.0)

    def __post_init__(self) -> None:
        self.summaries.require_examples(self.examples, 2 if self.classes == "all" else len(self.classes))
        for option, value, instead in (
            ("references.methods", self.references.methods, "[]"),
            ("data.adversarial", self.data.adversarial, "0"),
            ("summaries.network", self.summaries.trained and "trained", "linearized"),
        ):
            remedy = f"choose a number of steps, or {option}={instead}"
            complaint = f"needs training step by step, not training.steps=converged: {remedy}"
            _require(not value or self.training.finite, option, value, complaint)
        complaint = (
            "needs a positive sample_info.training.weight_decay, without which gradients vanish at the minimum and SGD "
            "has no noise"
        )
        noisy = self.sgd_batch_size is None or self.training.weight_decay
        _require(noisy, "sgd_batch_size", self.sgd_batch_size, complaint)

    @property
    def needs_one_kernel(self) -> bool:
        """Whether any requested computation needs one erased dataset for all examples."""
        asked = self.references.methods, self.summaries.orders, self.data.adversarial, self.sgd_batch_size
        return any(asked)

    @property
    def memory_bytes(self) -> float:
        """`memory_gib` in bytes."""
        return self.memory_gib * 2**30


@dataclass(frozen=True, kw_only=True)
class SampleInfoConfig(Config):
    """The configuration of `python -m sample_info`."""

    row_options: ClassVar[tuple[str, ...]] = ("sample_info",)

    sample_info: SampleInfoSettings

    @classmethod
    def resolved(cls, options: Options) -> Options:
        """Return a configuration with default classes filled in: 4 and 9 for datasets of digits, all for others."""
        match options:
            case {"sample_info": {"classes": None} as settings, "dataset": {"name": name}}:
                return options | {"sample_info": settings | {"classes": [4, 9] if name in _DIGITS else "all"}}
        return options

    def unread_options(self) -> dict[str, str]:
        """Return why options have no effect, by option, for `conf.unread_options.require_read`."""
        settings = self.sample_info
        methods, orders = settings.references.methods, settings.summaries.orders
        named, ordered = f"references.methods=[{','.join(methods)}]", f"summaries.orders=[{','.join(orders)}]"
        network, drops = settings.summaries.network, "summaries.orders=[top]"
        readers = {  # option -> whether it is read, the option that ignores it, the option that reads it
            "references.examples": ("retraining" in methods, named, "references.methods=[retraining]"),
            "references.influence_damping": ("influence" in methods, named, "references.methods=[influence]"),
            "references.subsets": ("subsets" in methods, named, "references.methods=[subsets]"),
            "summaries.removed": (orders, ordered, drops),
            "summaries.network": (orders, ordered, drops),
            "summaries.model": (
                settings.summaries.trained,
                f"summaries.network={network}" if orders else ordered,
                "summaries.network=trained" if orders else drops,
            ),
            "data.epsilon": (settings.data.adversarial, "data.adversarial=0", "data.adversarial above 0"),
        }
        unread = {
            f"sample_info.{option}": no_effect(f"sample_info.{ignorer}", f"sample_info.{reader}")
            for option, (is_read, ignorer, reader) in readers.items()
            if not is_read
        }
        return unread | {"dataset.flip": no_effect("python -m sample_info", "trainings, e.g. python -m train")}


def _require(met: object, option: str, value: object, complaint: str) -> None:
    if not met:
        raise ValueError(f"sample_info.{option}={value}: {complaint}")
