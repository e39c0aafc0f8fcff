"""Options of `conf/mdl`, and the configuration of `python -m mdl`."""

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Literal

from conf.check import AtLeast1
from conf.run_identity import unhashed
from conf.unread_options import no_effect
from train.settings import TrainingConfig, num_held_out


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """Options of `mdl.code=replay` (`mdl.replay_code`).

    Args:
        batch: number of labels that are coded together, before any of them is learnt.
        streams: number K of streams over the past. Each new example is learnt together with one example per stream.
    """

    batch: AtLeast1 = 4
    streams: AtLeast1 = 255


@dataclass(frozen=True, kw_only=True)
class MdlSettings:
    """Options of `conf/mdl`.

    Args:
        num_chunks: number m >= 2 of training sizes.
        min_chunk: first training size. None takes 1,024 (our choice) or a 47th of the training set, whichever is less,
            but at least 10 examples and one per class.
        order: whether the smallest or the largest size is trained first; does not affect results.
        validation: examples that stop trainings and fit temperatures. "given": the validation split, whose labels are
            not coded. "prefix": a tenth of each prefix, which is coded but not trained on.
        code: "blocks" trains a network for each size, which codes the labels up to the next size; "replay" trains one
            network, which codes each batch and then learns it (`mdl.replay_code`).
        replay: options of "replay".

    Raises:
        ValueError: fewer than two training sizes.
    """

    num_chunks: int
    min_chunk: AtLeast1 | None
    order: Literal["smallest_first", "largest_first"] = unhashed("smallest_first")
    validation: Literal["given", "prefix"] = "given"
    code: Literal["blocks", "replay"] = "blocks"
    replay: ReplaySettings = field(default_factory=ReplaySettings)

    def __post_init__(self) -> None:
        if self.num_chunks < 2:
            raise ValueError(
                f"mdl.num_chunks={self.num_chunks}: must be at least 2, as each chunk's labels are coded by a network "
                "trained on those before; for one training on everything: python -m train"
            )

    def num_held_out(self, n: int) -> int:
        """Return the number of examples among the first n that stop the training on the others."""
        return num_held_out(n) if self.validation == "prefix" else 0


@dataclass(frozen=True, kw_only=True)
class MdlConfig(TrainingConfig):
    """The configuration of `python -m mdl`."""

    row_options: ClassVar[tuple[str, ...]] = ("mdl.code", "mdl.replay.batch", "mdl.replay.streams")

    mdl: MdlSettings


class LabelCode(Enum):
    """A code of the labels; its value is the option that chooses it, for messages."""

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
READ = {  # options that each code of the labels reads; `unread_options` lists the others
    LabelCode.KERNEL: _SIZES,
    LabelCode.PUBLISHED: {*_SIZES, *_LEARNING, "train.max_epochs", "train.published"},
    LabelCode.REPLAY: {*_SIZES, *_LEARNING, *_SCORING, "mdl.code", "mdl.replay"},
    LabelCode.BLOCKS: {*_SIZES, *_LEARNING, *_SCORING, *_BLOCKS, "mdl.code"},
}


def unread_options(code: LabelCode, model: str) -> dict[str, str]:
    """Return why options have no effect with a code of the labels, for `conf.unread_options.require_read`.

    Args:
        code: the run's code of the labels.
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
