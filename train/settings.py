"""Settings of a training, the options of `conf/train`, and the configuration of `python -m train`."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, Self

from pydantic import Field

from conf import Options
from conf.check import AtLeast1, ConfigError, Fraction, Positive
from conf.run_identity import unhashed
from conf.schema import Config
from train.published_rates import with_published_rates


@dataclass(frozen=True, kw_only=True)
class PublishedSettings:
    """Options of `train.protocol=published` (`mdl.published_procedure`).

    Args:
        patience_epochs: epochs in a row without improvement of the validation loss after which a training ends.
        backtrack: whether to reset weights and optimizer state to the best after every epoch without improvement.
        share_saved_state: whether the optimizer, after a reset, overwrites z and v of the saved state, as it does after
            PyTorch's `Optimizer.load_state_dict`. In a series of epochs without improvement, z and v are then reset
            only after the first; the weights are reset after each.
        round_losses: whether to round losses to bfloat16, as precision=bfloat16 does, for any precision of the weights.
    """

    patience_epochs: AtLeast1 = 100
    backtrack: bool = True
    share_saved_state: bool = False
    round_losses: bool = False


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Training options, the fields of `conf/train`.

    Args:
        lr: learning rate of schedule-free AdamW, after warm-up. In YAML files, `lr`, `betas` and `warmup_steps` may be
            "published", which stands for the number in the paper's code for this model and eraser
            (`train.published_rates`).
        betas: AdamW's β₁ (interpolation between the averaged and the fast weights) and β₂.
        weight_decay: decoupled weight decay, multiplied by the learning rate.
        warmup_steps: optimiser steps over which the learning rate rises linearly from zero.
        batch_size: upper bound; a training set is cut into equal batches of at most this size.
        max_epochs: maximum number of epochs.
        patience_steps: optimiser steps without improvement on the validation split after which a member stops, for
            every training size.
        plateau_steps: minimum patience before the training loss has fallen (`MemberCurve.plateau_epochs`).
            `patience_steps` count from the end of this plateau. Training on erased data starts with a plateau, which
            does not show whether the network will learn later.
        min_improvement_bits: smallest improvement that resets the patience. The best weights are those of the lowest
            validation loss in any case.
        eval_every: epochs between evaluations on the validation split.
        min_epoch_steps: minimum number of steps in an epoch. A small training set is repeated to reach it, which limits
            the share of time spent on evaluation.
        crop_padding: fraction of their side by which images are padded for random crops (the paper: 0.125).
        precision: precision of training: "float32", "bfloat16" (autocast), or "auto", which takes bfloat16 on a GPU and
            float32 elsewhere. A run's identity contains the resolved precision. Evaluation is always in float32.
        eval_batch_size: examples per evaluation batch.
        stack: "all" trains all seeds in one stacked network, "one" trains them one after another, and "auto" chooses by
            architecture, image size and device (`train.stacking_rule`). Results agree to floating-point reordering.
        compile: whether to compile forward pass, backward pass and update by `torch.compile`. Results are equal to
            rounding. Each shape of a batch is compiled on first use, which takes seconds to minutes. "auto" currently
            means false, as compiled steps have not been measured on a GPU (`scripts.benchmarks.train`).
        protocol: "standard" for our procedure, or "published" for that of the paper's code, in `python -m mdl` only.
            "published" uses `lr`, `betas`, `weight_decay`, `warmup_steps`, `batch_size`, `max_epochs`, `crop_padding`,
            `precision` (also for weights and optimizer), and `published`.
        published: options of the published procedure.
        checkpoint_every_s: seconds between checkpoints within a training.
    """

    lr: Positive
    betas: tuple[Annotated[float, Field(gt=0, lt=1)], Fraction]
    weight_decay: Annotated[float, Field(ge=0)]
    warmup_steps: Annotated[int, Field(ge=0)]
    batch_size: AtLeast1
    max_epochs: AtLeast1
    patience_steps: AtLeast1
    plateau_steps: Annotated[int, Field(ge=0)]
    min_improvement_bits: Annotated[float, Field(ge=0)]
    eval_every: AtLeast1
    min_epoch_steps: AtLeast1
    crop_padding: Annotated[float, Field(ge=0, le=0.5)]
    precision: Literal["auto", "float32", "bfloat16"]
    eval_batch_size: AtLeast1
    stack: Literal["auto", "all", "one"] = unhashed("auto")
    compile: Literal["auto"] | bool = unhashed("auto")
    protocol: Literal["standard", "published"] = "standard"
    published: PublishedSettings = field(default_factory=PublishedSettings)
    checkpoint_every_s: Annotated[float, Field(gt=0)] = unhashed(120.0)


def num_held_out(n: int) -> int:
    """Return the number of n examples to hold out for early stopping without a validation split: a tenth."""
    return max(1, n // 10)


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Config):
    """The configuration of a command that trains networks."""

    train: TrainSettings

    def with_precision(self) -> Self:
        """Return the configuration with `train.precision` "auto" resolved.

        Raises:
            ValueError: the device does not exist.
        """
        from harness.device_and_precision import pick_precision

        precision = pick_precision(self.train.precision, self.device)
        return replace(self, train=replace(self.train, precision=precision))

    @classmethod
    def resolved(cls, options: Options) -> Options:
        """Return a configuration with "published" training options replaced by those of `train.published_rates`."""
        match options:
            case {"train": dict() as train, "model": {"name": model}, "eraser": {"name": eraser}}:
                return options | {"train": with_published_rates(train, str(model), str(eraser))}
        return options  # incomplete: `check` refuses it


@dataclass(frozen=True, kw_only=True)
class TrainConfig(TrainingConfig):
    """The configuration of `python -m train`.

    Args:
        counterparts: names of samples that share some statistics with the test images. Losses on them are recorded
            during training (`train.counterpart_losses`). None records nothing.
    """

    counterparts: list[Literal["order1", "order2", "independent", "swap", "quantile"]] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.counterparts is not None and len({*self.counterparts}) < max(1, len(self.counterparts)):
            raise ConfigError(
                f"counterparts={self.counterparts}: name each once, e.g. [order1,order2,swap]; null for none"
            )
