"""What every example does to every held-out output and loss, on disk with its sign: `sample_info.pairwise`."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from erasure.store.storage import load_tensors, remove, save_tensors


def save_block(directory: Path, seed: int, block: Tensor, outputs: Tensor, loss: Tensor) -> None:
    """Keep a block's `outputs` f(x) - f_-i(x) [b, m, k] and `loss` [b, m] as pairwise-SEED-FIRST-LAST.safetensors.

    There they are [m, b, k] and [m, b], beside the positions of the block's `examples` among those scored, [b].
    """
    tensors = {"outputs": outputs.transpose(0, 1), "loss": loss.T, "examples": block}
    save_tensors(_path(directory, seed, block), tensors, {"seed": seed})


def keep_only(directory: Path, seed: int, blocks: Sequence[Tensor]) -> None:
    """Delete a seed's other blocks: those of a run that was interrupted, and had less memory or more."""
    for path in set(_paths(directory, seed)) - {_path(directory, seed, block) for block in blocks}:
        remove(path)


def read_pairwise(directory: Path, seed: int) -> tuple[Tensor, Tensor]:
    """f(x) - f_-i(x) [m, n, k] and ℓ(f(x)) - ℓ(f_-i(x)) [m, n] of a seed of a finished run, in `scores.csv`'s order.

    Raises:
        ValueError: the run has none.
        DamagedFileError: they are not what was stored.
    """
    found = sorted((load_tensors(path)[0] for path in _paths(directory, seed)), key=lambda one: int(one["examples"][0]))
    if not found:
        raise ValueError(f"{directory} has no effects of seed {seed}: run it with sample_info.pairwise=true")
    return torch.cat([one["outputs"] for one in found], 1), torch.cat([one["loss"] for one in found], 1)


def _path(directory: Path, seed: int, block: Tensor) -> Path:
    return directory / f"pairwise-{seed}-{int(block[0])}-{int(block[-1])}.safetensors"


def _paths(directory: Path, seed: int) -> list[Path]:
    return list(directory.glob(f"pairwise-{seed}-*.safetensors"))
