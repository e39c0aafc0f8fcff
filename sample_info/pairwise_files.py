"""Files of the effects of every scored example on every held-out one: `sample_info.pairwise=true`."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from erasure.store.atomic_files import remove
from erasure.store.checked_files import load_tensors, save_tensors
from erasure.store.regular_files import regular

_BLOCKS = "pairwise-{}-*.safetensors"  # seed; first and last example


def save_block(directory: Path, seed: int, block: Tensor, outputs: Tensor, loss: Tensor) -> None:
    """Store a block's `outputs` f(x) - f_-i(x) [b, m, k] and `loss` [b, m] as pairwise-SEED-FIRST-LAST.safetensors.

    The file holds them as [m, b, k] and [m, b], with the positions of its `examples` among the scored ones, [b].
    """
    tensors = {"outputs": outputs.transpose(0, 1), "loss": loss.T, "examples": block}
    save_tensors(_path(directory, seed, block), tensors, {"seed": seed})


def keep_only(directory: Path, seed: int, blocks: Sequence[Tensor]) -> None:
    """Delete a seed's other blocks, left by an interrupted run with another memory limit."""
    for path in {*directory.glob(_BLOCKS.format(seed))} - {_path(directory, seed, block) for block in blocks}:
        remove(path)


def read_pairwise(directory: Path, seed: int) -> tuple[Tensor, Tensor]:
    """f(x) - f_-i(x) [m, n, k] and ℓ(f(x)) - ℓ(f_-i(x)) [m, n] of a seed of a finished run, in `scores.csv`'s order.

    Raises:
        ValueError: the run has no such files.
        DamagedFileError: a file is damaged.
    """
    stored = (load_tensors(regular(path, math.inf))[0] for path in directory.glob(_BLOCKS.format(seed)))
    blocks = sorted(stored, key=lambda one: int(one["examples"][0]))
    if not blocks:
        raise ValueError(f"{directory} has no effects of seed {seed}: run it with sample_info.pairwise=true")
    return torch.cat([one["outputs"] for one in blocks], 1), torch.cat([one["loss"] for one in blocks], 1)


def _path(directory: Path, seed: int, block: Tensor) -> Path:
    return directory / _BLOCKS.format(seed).replace("*", f"{int(block[0])}-{int(block[-1])}")
