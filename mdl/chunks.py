"""Options of the code, and the training sizes of the curve: parts that grow geometrically."""

import itertools
import math
from dataclasses import dataclass, field
from typing import Literal

from conf.check import AtLeast1
from conf.schema import later, only_with, unhashed
from train.settings import TrainingConfig

_MIN_CHUNK = 1024  # ours: the paper's text states none
_HELD_OUT_SHARE = 10  # of a prefix, a tenth
_MIN_CHUNK_SHARE = 47  # so that 48,976 CIFAR-10 training images still start at 1,024


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """Options of `mdl.code=replay` (`mdl.replay`).

    Args:
        batch: labels that are coded at once, before any of them is learnt.
        streams: K, so that every new example brings K + 1 to learn: itself, and one from each stream over the past.
    """

    batch: AtLeast1 = 4
    streams: AtLeast1 = 255


@dataclass(frozen=True, kw_only=True)
class ChunkSettings:
    """Options of `conf/mdl`.

    Args:
        num_chunks: number m >= 2 of training sizes.
        min_chunk: first training size; None for 1,024 (ours) or a 47th of the training set, whichever is less.
        order: in which the sizes are trained, smallest or largest first; results are the same.
        validation: examples that stop trainings and fit temperatures: the validation split, whose labels are free, or a
            tenth of the prefix, which is paid for, and not trained on.
        share: whether processes that are asked for the same run train different sizes of it; results are the same.
        code: "blocks" trains a network for each size, which codes the labels up to the next; "replay" trains one
            network, which codes every batch and then learns it (`mdl.replay`).
        replay: options of the latter.

    Raises:
        ValueError: fewer than two training sizes, or validation where nothing is stopped.
    """

    num_chunks: int
    min_chunk: AtLeast1 | None
    order: Literal["smallest_first", "largest_first"] = unhashed("smallest_first")
    share: bool = unhashed(default=False)
    validation: Literal["given", "prefix"] = later("given")
    code: Literal["blocks", "replay"] = later("blocks")
    replay: ReplaySettings = field(default_factory=ReplaySettings, metadata=only_with(code="replay"))

    def __post_init__(self) -> None:
        if self.num_chunks < 2:
            raise ValueError(
                f"mdl.num_chunks={self.num_chunks}: must be at least 2, as each chunk's labels are coded by a network "
                "trained on those before; for one training on everything: python -m train"
            )
        if self.code == "replay" and self.validation != "given":
            raise ValueError(
                f"mdl.validation={self.validation}: the replay code stops nothing and uses no validation labels: "
                "leave it at given, or set mdl.code=blocks"
            )

    def num_held_out(self, n: int) -> int:
        """Return how many of the first n examples stop the training on the others."""
        return max(1, n // _HELD_OUT_SHARE) if self.validation == "prefix" else 0


@dataclass(frozen=True, kw_only=True)
class MdlConfig(TrainingConfig):
    """The configuration of `python -m mdl`."""

    mdl: ChunkSettings


def chunk_sizes(total: int, settings: ChunkSettings) -> list[int]:
    """Return training sizes n_1 < ... < n_m = total; the parts form a geometric series from n_1 on.

    The parts are rounded down and the last takes what is left, so that they never shrink.

    Raises:
        ValueError: sizes that do not fit the dataset; says which would.
    """
    m = settings.num_chunks
    first = settings.min_chunk
    if first is None:
        first = max(1, min(_MIN_CHUNK, total // _MIN_CHUNK_SHARE))
    if m * first > total:
        remedies = (("mdl.num_chunks", total // first, 2), ("mdl.min_chunk", total // m, 1))
        raise ValueError(
            f"mdl.num_chunks={m} chunks of at least min_chunk={first} examples need {m * first:,} training examples, "
            f"but there are {total:,}: "
            + " or ".join(f"set {key} to at most {most}" for key, most, least in remedies if most >= least)
        )
    if settings.validation == "prefix" and first < 2:
        raise ValueError(
            f"mdl.validation=prefix with a first training size of {first}: one example cannot stop the training on "
            "none: set mdl.min_chunk to at least 2"
        )
    ratio = _ratio(total / first, m)
    parts = [math.floor(first * ratio**i) for i in range(m)]
    parts[-1] = total - sum(parts[:-1])
    return [sum(parts[: i + 1]) for i in range(m)]


def rounded_sizes(total: int, settings: ChunkSettings) -> list[int]:
    """Return training sizes whose parts are the geometric series' rounded to the nearest integers that sum to `total`.

    As in the paper's code: what rounding down leaves goes to the parts with the largest remainders. `chunk_sizes` gives
    it to the last part.

    Raises:
        ValueError: as `chunk_sizes`.
    """
    first = chunk_sizes(total, settings)[0]
    ratio = _ratio(total / first, settings.num_chunks)
    exact = [first * ratio**i for i in range(settings.num_chunks)]
    parts = [math.floor(part) for part in exact]
    largest_remainders = sorted(range(len(parts)), key=lambda i: parts[i] - exact[i])
    for i in largest_remainders[: total - sum(parts)]:
        parts[i] += 1
    return list(itertools.accumulate(parts))


def _ratio(sum_of_powers: float, m: int) -> float:
    """Solve 1 + r + ... + r^(m-1) = sum_of_powers >= m for r >= 1."""

    def excess(r: float) -> float:
        return sum(r**i for i in range(m)) - sum_of_powers

    if excess(1.0) >= 0:
        return 1.0
    from scipy.optimize import brentq

    root = brentq(excess, 1.0, sum_of_powers ** (1 / (m - 1)), xtol=1e-14)
    assert isinstance(root, float)
    return root
