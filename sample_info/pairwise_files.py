"""Files with the effect of every scored example on every held-out example: `sample_info.pairwise=true`."""

import math
from pathlib import Path

from torch import Tensor

from erasure.store.checked_files import load_tensors, save_tensors
from erasure.store.regular_files import regular


def save_pairwise(directory: Path, seed: int, outputs: Tensor, loss: Tensor) -> None:
    """Write `outputs` f(x) - f_-i(x) [n, m, k] and `loss` [n, m] to pairwise-SEED.safetensors.

    The file stores them as [m, n, k] and [m, n].
    """
    save_tensors(_path(directory, seed), {"outputs": outputs.transpose(0, 1), "loss": loss.T}, {"seed": seed})


def read_pairwise(directory: Path, seed: int) -> tuple[Tensor, Tensor]:
    """Return f(x) - f_-i(x) [m, n, k] and ℓ(f(x)) - ℓ(f_-i(x)) [m, n] of a finished run, in the order of `scores.csv`.

    Raises:
        ValueError: the run has no such file.
        DamagedFileError: the file is damaged.
    """
    path = _path(directory, seed)
    if not path.exists():
        raise ValueError(f"{directory} has no effects of seed {seed}: run it with sample_info.pairwise=true")
    stored, _ = load_tensors(regular(path, math.inf))
    return stored["outputs"], stored["loss"]


def _path(directory: Path, seed: int) -> Path:
    return directory / f"pairwise-{seed}.safetensors"
