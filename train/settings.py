"""Settings of a training, the options of `conf/train`, and the configuration of `python -m train`."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

from pydantic import Field

from conf import Options
from conf.check import AtLeast1, ConfigError, Fraction, Positive
from conf.run_identity import later, only_with, unhashed
from conf.schema import Config
from train.published_rates import with_published_rates


@dataclass(frozen=True, kw_only=True)
class PublishedSettings:
    """Options of `train.protocol=published` (`mdl.published_procedure`).

    Args:
        patience_epochs: epochs in a row without improvement of the validation loss after which a training ends.
        backtrack: set weights and optimizer state back to the best after every epoch without improvement.
        share_saved_state: after a reset the optimizer overwrites z and v of the saved state, as it does after PyTorch's
            `Optimizer.load_state_dict`. Of several epochs without improvement in a row, only the first is then undone
            in z and v; the weights are reset after each.
        round_losses: round losses to bfloat16, as precision=bfloat16 does, whatever the precision of the weights.
    """

    patience_epochs: AtLeast1 = 100
    backtrack: bool = True
    share_saved_state: bool = later(False)
    round_losses: bool = later(False)


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Training options; their ranges hold wherever a configuration is checked.

    Args:
        lr: schedule-free AdamW's learning rate, after warm-up. In YAML files `lr`, `betas` and `warmup_steps` may also
            be "published": the number of the paper's code for the model and eraser (`train.published_rates`).
        betas: AdamW's β₁ (interpolation between the averaged and the fast weights) and β₂.
        weight_decay: decoupled, times the learning rate.
        warmup_steps: optimiser steps over which the learning rate rises linearly from zero.
        batch_size: upper bound; a training set is cut into equal batches of at most this size.
        max_epochs: hard end of a training.
        patience_steps: optimiser steps without improvement on the validation split after which a member stops; the
            same at every training size.
        plateau_steps: patience, if larger, while the training loss has not fallen yet (`MemberCurve.plateau_epochs`);
            `patience_steps` count from the end of this plateau. Training on erased data starts with a plateau, which
            does not show whether the network will learn later.
        min_improvement_bits: smaller improvements do not reset the patience; the best weights are those of the lowest
            validation loss all the same.
        eval_every: epochs between evaluations on the validation split.
        min_epoch_steps: a small training set is repeated until an epoch has this many steps, which limits the share of
            time spent on evaluation.
        crop_padding: random crops from images padded by this fraction of their side (the paper: 0.125).
        precision: of training, "float32", "bfloat16" (autocast), or "auto": bfloat16 on a GPU, float32 elsewhere.
            A run's identity contains the precision that "auto" resolved to. Evaluation is always in float32.
        eval_batch_size: examples per evaluation batch.
        stack: "all" trains all seeds in one stacked network, "one" one after another; "auto" follows a rule of
            architecture, image size and device (`train.stacking_rule`). Results agree to floating-point reordering.
        compile: compile forward pass, backward pass and update by `torch.compile`. Results are equal to rounding; each
            shape of a batch is compiled first, which takes seconds to minutes. "auto" currently means false: compiled
            steps were not measured on a GPU yet (`scripts.benchmarks.train`).
        protocol: "standard", ours, or "published", the procedure of the paper's code, for `python -m mdl` alone. The
            latter uses `lr`, `betas`, `weight_decay`, `warmup_steps`, `batch_size`, `max_epochs`, `crop_padding`,
            `precision` (for weights and optimizer as well), and `published`.
        published: options of that procedure.
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
    protocol: Literal["standard", "published"] = later("standard")
    published: PublishedSettings = only_with(PublishedSettings, protocol="published")
    checkpoint_every_s: Annotated[float, Field(gt=0)] = unhashed(120.0)


def num_held_out(n: int) -> int:
    """Return the number of examples held out of n for early stopping where there is no validation split: a tenth."""
    return max(1, n // 10)


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Config):
    """The configuration of a command that trains networks."""

    train: TrainSettings

    def with_precision(self) -> Self:
        """Return the configuration with `train.precision` resolved, never "auto".

        Raises:
            ValueError: a device that is not there.
        """
        from harness.device_and_precision import pick_precision

        precision = pick_precision(self.train.precision, self.device)
        return replace(self, train=replace(self.train, precision=precision))

    @classmethod
    def resolved(cls, options: Options) -> Options:
        """Return a configuration with the numbers of `train.published_rates` where the training options name them."""
        match options:
            case {"train": dict() as train, "model": {"name": model}, "eraser": {"name": eraser}}:
                return options | {"train": with_published_rates(train, str(model), str(eraser))}
        return options  # incomplete: `check` refuses it


@dataclass(frozen=True, kw_only=True)
class TrainConfig(TrainingConfig):
    """The configuration of `python -m train`.

    Args:
        counterparts: samples that share some statistics with the test images, whose losses are followed along the
            training (`train.matched_sample_losses`); None for none.
    """

    counterparts: list[Literal["order1", "order2", "independent", "swap", "quantile"]] | None = later(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.counterparts is not None and len({*self.counterparts}) < max(1, len(self.counterparts)):
            raise ConfigError(
                f"counterparts={self.counterparts}: name each once, e.g. [order1,order2,swap]; null for none"
            )
