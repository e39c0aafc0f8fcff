"""Options of `python -m mdl`: `conf/mdl`, and its whole configuration."""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Literal

from conf.check import AtLeast1
from conf.run_identity import later, only_with, unhashed
from conf.unread_options import no_effect
from train.settings import TrainingConfig, num_held_out


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """Options of `mdl.code=replay` (`mdl.replay_code`).

    Args:
        batch: labels that are coded at once, before any of them is learnt.
        streams: K, so that every new example brings K + 1 to learn: itself, and one from each stream over the past.
    """

    batch: AtLeast1 = 4
    streams: AtLeast1 = 255


@dataclass(frozen=True, kw_only=True)
class MdlSettings:
    """Options of `conf/mdl`.

    Args:
        num_chunks: number m >= 2 of training sizes.
        min_chunk: first training size; None for 1,024 (ours) or a 47th of the training set, whichever is less, and at
            least 10 examples or one per class.
        order: in which the sizes are trained, smallest or largest first; results are the same.
        validation: examples that stop trainings and fit temperatures: the validation split, whose labels are free, or a
            tenth of the prefix, which is paid for, and not trained on.
        code: "blocks" trains a network for each size, which codes the labels up to the next; "replay" trains one
            network, which codes every batch and then learns it (`mdl.replay_code`).
        replay: options of the latter.

    Raises:
        ValueError: fewer than two training sizes.
    """

    num_chunks: int
    min_chunk: AtLeast1 | None
    order: Literal["smallest_first", "largest_first"] = unhashed("smallest_first")
    validation: Literal["given", "prefix"] = later("given")
    code: Literal["blocks", "replay"] = later("blocks")
    replay: ReplaySettings = only_with(ReplaySettings, code="replay")

    def __post_init__(self) -> None:
        if self.num_chunks < 2:
            raise ValueError(
                f"mdl.num_chunks={self.num_chunks}: must be at least 2, as each chunk's labels are coded by a network "
                "trained on those before; for one training on everything: python -m train"
            )

    def num_held_out(self, n: int) -> int:
        """Return how many of the first n examples stop the training on the others."""
        return num_held_out(n) if self.validation == "prefix" else 0


@dataclass(frozen=True, kw_only=True)
class MdlConfig(TrainingConfig):
    """The configuration of `python -m mdl`."""

    row_options: ClassVar[tuple[str, ...]] = ("mdl.code", "mdl.replay.batch", "mdl.replay.streams")

    mdl: MdlSettings


class LabelCode(Enum):
    """A code of the labels; the value is the option that chooses it, as messages name it."""

    KERNEL = "model=kernel"
    PUBLISHED = "train.protocol=published"
    REPLAY = "mdl.code=replay"
    BLOCKS = "mdl.code=blocks"


_SIZES = {"mdl.num_chunks", "mdl.min_chunk"}
_LEARNING = {f"train.{option}" for option in ("lr", "betas", "weight_decay", "warmup_steps", "batch_size")}
_LEARNING |= {"train.crop_padding", "train.precision", "train.protocol", "train.checkpoint_every_s", "dataset.flip"}
_SCORING = {"train.eval_batch_size", "train.stack", "train.compile"}
_STOPPING = {"patience_steps", "plateau_steps", "min_improvement_bits", "eval_every", "min_epoch_steps", "max_epochs"}
_BLOCKS = {"mdl.order", "mdl.validation", *(f"train.{option}" for option in _STOPPING)}
READ = {  # options that each code of the labels reads; `unread_options` says so of the others
    LabelCode.KERNEL: _SIZES,
    LabelCode.PUBLISHED: {*_SIZES, *_LEARNING, "train.max_epochs", "train.published"},
    LabelCode.REPLAY: {*_SIZES, *_LEARNING, *_SCORING, "mdl.code", "mdl.replay"},
    LabelCode.BLOCKS: {*_SIZES, *_LEARNING, *_SCORING, *_BLOCKS, "mdl.code"},
}


def unread_options(code: LabelCode, model: str) -> dict[str, str]:
    """Return why options have no effect with a code of the labels, for `conf.unread_options.require_read`.

    Args:
        code: of the run.
        model: the model's name.
    """
    unread = {}
    for option in sorted(set().union(*READ.values()) - READ[code]):
        if code is LabelCode.KERNEL:
            unread[option] = no_effect(f"model={model}", "a network, e.g. model=mlp")
        else:
            readers = [one.value for one in READ if option in READ[one]]
            unread[option] = no_effect(code.value, *(["train.protocol=standard"] if option == "mdl.code" else readers))
    return unread
