"""How a network is trained: the options of `conf/train`."""

from dataclasses import dataclass
from typing import Literal

from conf.schema import unhashed


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Training options.

    Args:
        lr: schedule-free AdamW's learning rate, after warm-up.
        betas: AdamW's β₁ (interpolation between the averaged and the fast weights) and β₂.
        weight_decay: decoupled, times the learning rate.
        warmup_steps: optimiser steps over which the learning rate rises linearly from zero.
        batch_size: upper bound; a training set is cut into equal batches of at most this size.
        max_epochs: hard end of a training.
        patience_steps: optimiser steps without improvement on the validation split after which a member stops; the
            same at every training size.
        plateau_steps: at least so many while the training loss has not fallen yet (`MemberCurve.plateau_epochs`), after
            which `patience_steps` count from there: erased data starts with a plateau, on which a network that will
            learn looks like one that cannot.
        min_improvement_bits: smaller improvements do not reset the patience, though the best weights
            are still those of the lowest validation loss.
        eval_every: epochs between evaluations on the validation split.
        min_epoch_steps: a small training set is repeated until an epoch has this many steps, so that it is not
            evaluated all the time.
        crop_padding: random crops from images padded by this fraction of their side (the paper: 0.125).
        precision: of training, "float32", "bfloat16" (autocast), or "auto": bfloat16 on a GPU, float32 elsewhere.
            A run's identity holds what "auto" turns out to be. Evaluation is always in float32.
        eval_batch_size: examples per evaluation batch.
        stack: "all" trains all seeds in one stacked network, "one" one after another; "auto" times a few steps of each
            and takes the faster. Results agree to floating-point reordering.
        checkpoint_every_s: seconds between checkpoints within a training.

    Raises:
        ValueError: a value outside its range.
    """

    lr: float
    betas: tuple[float, float]
    weight_decay: float
    warmup_steps: int
    batch_size: int
    max_epochs: int
    patience_steps: int
    plateau_steps: int
    min_improvement_bits: float
    eval_every: int
    min_epoch_steps: int
    crop_padding: float
    precision: Literal["auto", "float32", "bfloat16"]
    eval_batch_size: int
    stack: Literal["auto", "all", "one"] = unhashed("auto")
    checkpoint_every_s: float = unhashed(120.0)

    def __post_init__(self) -> None:
        at_least_1 = ("batch_size", "max_epochs", "patience_steps", "eval_every", "min_epoch_steps", "eval_batch_size")
        not_negative = ("weight_decay", "warmup_steps", "plateau_steps", "min_improvement_bits")
        requirements = {
            **{name: (getattr(self, name) >= 1, "be at least 1") for name in at_least_1},
            **{name: (getattr(self, name) >= 0, "not be negative") for name in not_negative},
            "checkpoint_every_s": (self.checkpoint_every_s > 0, "be more than 0 seconds"),
            "lr": (0 < self.lr < float("inf"), "be a positive number"),
            "betas": (0 < self.betas[0] < 1 and 0 <= self.betas[1] < 1, "have β₁ in (0, 1) and β₂ in [0, 1)"),
            "crop_padding": (0 <= self.crop_padding <= 0.5, "lie between 0 and 0.5 of the side"),
        }
        for name, (met, requirement) in requirements.items():
            if not met:
                raise ValueError(f"train.{name}={getattr(self, name)}: must {requirement}")
