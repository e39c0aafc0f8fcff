"""What single examples cost: files beside result.json, and what they say of differences between runs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
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
        index: where the examples stand in the dataset's own training images, [N].
        labels: [N].
        bits: [S, N].
        trained_on: how many examples the network that coded it had seen, [S, N]; 0: the uniform code.
    """

    seeds: Sequence[int]
    index: Tensor
    labels: Tensor
    bits: Tensor
    trained_on: Tensor

    @classmethod
    def in_order(
        cls, seeds: Sequence[int], index: Tensor, labels: Tensor, orders: Tensor, bits: Tensor, trained_on: Tensor
    ) -> "CodedBits":
        """From numbers [S, N] in each seed's order of coding, `orders` [S, N]."""
        placed = [torch.empty_like(values).scatter_(1, orders, values) for values in (bits, trained_on.contiguous())]
        return cls(seeds, index, labels, *placed)

    @cached_property
    def by_network(self) -> Tensor:
        """Bits [S, N] of labels that a network coded; NaN for those of the uniform code."""
        return torch.where(self.trained_on > 0, self.bits.double(), torch.nan)

    @cached_property
    def information(self) -> Tensor:
        """Pointwise V-information of each example, [N] bits: -log2 of its label's share, less what the label cost.

        Ethayarajh et al. 2022, equation 4, with V the networks of each training size; the mean over seeds, NaN for
        examples that no network coded.
        """
        shares = self.labels.bincount() / len(self.labels)
        return -shares.log2()[self.labels] - self.by_network.nanmean(0)

    def above(self, other: "CodedBits") -> Tensor:
        """How much more labels cost than in another code of the same examples, [N] bits.

        The mean over common seeds, in which an example was coded by networks that had seen the same others; NaN where
        there is none.
        """
        common = [seed for seed in self.seeds if seed in other.seeds]
        mine, theirs = (code.by_network[[code.seeds.index(seed) for seed in common]] for code in (self, other))
        return (mine - theirs).nanmean(0)

    @cached_property
    def reliability(self) -> float | None:
        """Correlation of single labels' bits between seeds, mean over pairs; None for one seed."""
        pairs = [row[:, row.isfinite().all(0)] for row in map(torch.stack, combinations(self.by_network, 2))]
        found = [float(torch.corrcoef(pair)[0, 1]) for pair in pairs if pair.shape[1] > 2]
        known = [value for value in found if not math.isnan(value)]  # where labels do not all cost the same
        return sum(known) / len(known) if known else None


def save_coded_bits(run: Run, coded: CodedBits) -> None:
    """Keep what every label cost."""
    run.require_lease()
    tensors = {
        "index": coded.index,
        "labels": coded.labels,
        "bits": coded.bits.float(),
        "trained_on": coded.trained_on.int(),
    }
    save_tensors(run.directory / CODED_BITS, tensors, {"seeds": list(coded.seeds)})


def read_coded_bits(directories: Iterable[Path]) -> CodedBits | None:
    """Of runs that differ by their seeds alone; None for those of earlier versions, which kept none.

    Raises:
        DamagedFileError: names the file.
    """
    found: dict[int, list[Tensor]] = {}
    about_examples: tuple[Tensor, Tensor] | None = None
    for path in (directory / CODED_BITS for directory in directories):
        if path.exists():
            tensors, about = load_tensors(path)
            about_examples = tensors["index"], tensors["labels"]
            for seed, *own in zip(about["seeds"], tensors["bits"], tensors["trained_on"], strict=True):
                found.setdefault(seed, own)
    if about_examples is None:
        return None
    bits, trained_on = map(torch.stack, zip(*found.values(), strict=True))
    return CodedBits(list(found), *about_examples, bits, trained_on)


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
