"""What single examples cost: files beside result.json, and what they say of differences between runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from erasure.store.storage import load_tensors, save_tensors
from harness.compare import Array, bootstrap_error
from harness.run import Run

TEST_BITS = "test_bits.safetensors"  # of the final models: losses in bits [S, n], in the order of the test split
CODED_BITS = "bits.safetensors"


@dataclass(frozen=True)
class CodedBits:
    """What the labels of the training split cost, in its order.

    Attributes:
        seeds: S of them, one order of coding each.
        labels: [N].
        bits: [S, N].
        trained_on: how many examples the network that coded it had seen, [S, N]; 0: the uniform code.
    """

    seeds: Sequence[int]
    labels: Tensor
    bits: Tensor
    trained_on: Tensor

    @classmethod
    def in_order(
        cls, seeds: Sequence[int], labels: Tensor, orders: Tensor, bits: Tensor, trained_on: Tensor
    ) -> "CodedBits":
        """From numbers [S, N] in each seed's order of coding, `orders` [S, N]."""
        placed = [torch.empty_like(values).scatter_(1, orders, values) for values in (bits, trained_on.contiguous())]
        return cls(seeds, labels, *placed)


def save_coded_bits(run: Run, coded: CodedBits) -> None:
    """Keep what every label cost."""
    run.require_lease()
    tensors = {"labels": coded.labels, "bits": coded.bits.float(), "trained_on": coded.trained_on.int()}
    save_tensors(run.directory / CODED_BITS, tensors, {"seeds": list(coded.seeds)})


def read_coded_bits(directory: Path) -> CodedBits | None:
    """None for runs of earlier versions, which kept none.

    Raises:
        DamagedFileError: names the file.
    """
    if not (path := directory / CODED_BITS).exists():
        return None
    tensors, about = load_tensors(path)
    return CodedBits(about["seeds"], tensors["labels"], tensors["bits"], tensors["trained_on"])


def save_test_bits(run: Run, seeds: Sequence[int], bits: Tensor) -> None:
    """Keep the losses [S, n] of a run's final models on single test examples."""
    run.require_lease()
    save_tensors(run.directory / TEST_BITS, {"test_bits": bits.float()}, {"seeds": list(seeds)})


def read_test_bits(directories: Iterable[Path]) -> dict[int, Array]:
    """Seed -> losses [n]; of earlier versions' runs, which kept none, nothing.

    Raises:
        DamagedFileError: names the file.
    """
    found: dict[int, Array] = {}
    for path in (directory / TEST_BITS for directory in directories):
        if path.exists():
            tensors, about = load_tensors(path)
            found |= dict(zip(about["seeds"], tensors["test_bits"].numpy(), strict=True))
    return found


def error_over_examples(
    erased: Mapping[int, Array], control: Mapping[int, Array], seeds: Sequence[int]
) -> float | None:
    """`bootstrap_error` of the seeds' losses by seed; None where one of them is not known."""
    if any(seed not in known for known in (erased, control) for seed in seeds):
        return None
    return bootstrap_error(*(np.stack([known[seed] for seed in seeds]) for known in (erased, control)))


def loss_error(known: Mapping[int, Array], seeds: Sequence[int]) -> float | None:
    """Standard error over test examples of the mean loss of all seeds in bits; None where a seed's is not known."""
    return error_over_examples(known, {seed: np.zeros_like(bits) for seed, bits in known.items()}, seeds)
