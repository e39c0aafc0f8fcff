"""Leave-one-out effects on weights, outputs and losses; their files; F-SI and SI."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from erasure.store.checked_files import load_tensors, remove, save_tensors

_BLOCKS = "pairwise-{}-*.safetensors"  # seed; first and last example


@dataclass(frozen=True)
class Changes:
    """Changes by leaving out each of n examples, or sets; float64, NaN where not computed."""

    weight: Tensor  # ‖w - w_-i‖², [n]
    prediction: Tensor  # mean over held-out inputs of ‖f(x) - f_-i(x)‖², [n]

    @classmethod
    def joined(cls, parts: Iterable["Changes"]) -> Self:
        every = [*parts]
        return cls(*(torch.cat([getattr(one, f.name) for one in every]) for f in fields(cls)))

    def among(self, n: int, which: Tensor) -> Self:
        """Return changes of n examples: these at positions `which`, NaN elsewhere."""
        parts = [getattr(self, f.name) for f in fields(self)]
        return type(self)(*(part.new_full((n, *part.shape[1:]), math.nan).index_put((which,), part) for part in parts))


@dataclass(frozen=True)
class Effects(Changes):
    """Changes, and signed differences of the outputs."""

    outputs: Tensor  # f(x) - f_-i(x) of m held-out inputs, [n, m, k]

    @classmethod
    def along(cls, coefficients: Tensor, kernel: Tensor, held_out_kernel: Tensor, k: int) -> Self:
        """Return effects of b changes of the weights ∇f(X) a, a the columns [n k, b] of `coefficients`.

        The kernels are [n k, n k], and [m k, n k] for held-out inputs.
        """
        weight = (coefficients * (kernel @ coefficients)).sum(0).clamp(min=0)
        moved = held_out_kernel @ coefficients
        prediction = moved.square().sum(0) * (k / len(held_out_kernel))
        return cls(weight, prediction, moved.T.unflatten(1, (-1, k)))

    @property
    def changes(self) -> Changes:
        """The changes without outputs, on the CPU."""
        return Changes(self.weight.cpu(), self.prediction.cpu())


def loss_effects(outputs: Tensor, trained: Tensor, y: Tensor) -> Tensor:
    """ℓ(f(x)) - ℓ(f_-i(x)), [b, m], of ℓ = ½‖f - y‖²; below zero where an example helps.

    Outputs are those of `Effects`, [b, m, k]; `trained`, f(x), and targets y are [m, k].
    """
    return torch.einsum("bmk,mk->bm", outputs, trained - y) - outputs.square().sum(-1) / 2


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
    stored = (load_tensors(path)[0] for path in directory.glob(_BLOCKS.format(seed)))
    blocks = sorted(stored, key=lambda one: int(one["examples"][0]))
    if not blocks:
        raise ValueError(f"{directory} has no effects of seed {seed}: run it with sample_info.pairwise=true")
    return torch.cat([one["outputs"] for one in blocks], 1), torch.cat([one["loss"] for one in blocks], 1)


def _path(directory: Path, seed: int, block: Tensor) -> Path:
    return directory / _BLOCKS.format(seed).replace("*", f"{int(block[0])}-{int(block[-1])}")


def functional_information(changes: Changes, sigma: float) -> Tensor:
    """F-SI_σ in nats, [n]: mean ‖f(x) - f_-i(x)‖² / (2σ²), σ the noise on every output (equation 8).

    The square is that of equation 8; equation 16 prints it without.
    """
    return changes.prediction / (2 * sigma**2)


def weight_information(changes: Changes, sigma: float) -> Tensor:
    """SI_Σ with Σ = σ²I in nats, [n]: ‖w - w_-i‖² / (2σ²), σ the noise on every weight (equation 5)."""
    return changes.weight / (2 * sigma**2)
