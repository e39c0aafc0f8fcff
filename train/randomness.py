"""The random draws of a training, each from an explicit generator of one member and purpose."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from train.settings import TrainSettings

_PURPOSES = ("order", "views", "stochastic depth")


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Create the CPU generator of one seed and one purpose, e.g. `generator(3, "order", 642)`.

    Generators of different purposes are independent. A draw does not depend on the use of other generators, on other
    computations, or on the device.
    """
    name = "/".join(map(str, (seed, *purpose)))
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def permutation(seed: int, n: int) -> Tensor:
    """Return a seed's order of the n training examples; its prefixes are the seed's training sets, [n] int64."""
    return torch.randperm(n, generator=generator(seed, "permutation"))


def permutations(seeds: Sequence[int], n: int) -> Tensor:
    """Return the `permutation` of each seed, [S, n] int64."""
    return torch.stack([permutation(seed, n) for seed in seeds])


def epoch_steps(n: int, settings: TrainSettings) -> int:
    """Return the optimiser steps per epoch of a training set of n examples."""
    batches = math.ceil(n / settings.batch_size)
    return batches * math.ceil(settings.min_epoch_steps / batches)  # a small training set is repeated


class Draws(NamedTuple):
    """The random draws of one epoch of S members, step by step.

    Attributes:
        positions: positions in the training set, [steps, S, B].
        views: numbers of crops and flips, [steps, S, B].
        factors: factors of `models.stochastic_depth.StochasticDepth`, [steps, S, layers, B].
    """

    positions: Tensor
    views: Tensor
    factors: Tensor


class EpochOrder:
    """The random draws of all epochs (order, views and dropped branches), from each member's own generators.

    A training set of n examples is cut into the fewest equal batches of at most `batch_size`. The remaining examples
    are skipped in this pass; every pass draws a new order. Epochs are the same on every device, because batches have
    one size and are drawn on the CPU.

    Args:
        seeds: one per member.
        n: examples in a member's training set.
        num_views: number of combinations of crop and flip.
        settings: training options, for batch size and smallest number of steps in an epoch.
        rates: drop rates of the model's layers of stochastic depth.
    """

    def __init__(
        self, seeds: Sequence[int], n: int, num_views: int, settings: TrainSettings, rates: Sequence[float] = ()
    ) -> None:
        self.batches = math.ceil(n / settings.batch_size)
        self.batch_size = n // self.batches
        self.steps = epoch_steps(n, settings)  # optimiser steps per epoch
        self.n, self.num_views = n, num_views
        self._rates = rates
        self._generators = {purpose: [generator(seed, n, purpose) for seed in seeds] for purpose in _PURPOSES}
        self._before = self._states()

    def draw(self, members: Sequence[int], device: torch.device) -> Draws:
        """Draw one epoch for these members, and copy it to the device in one piece."""
        self._before = self._states()
        return stacked(
            (self._draw(*(self._generators[purpose][member] for purpose in _PURPOSES)) for member in members), device
        )

    def state(self) -> dict[str, Tensor]:
        """Return the generators' states before the latest epoch, [S, bytes] by purpose, for `restore`."""
        return self._before

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Make the next draw repeat the epoch before which this state was taken."""
        for purpose, sources in self._generators.items():
            for source, state in zip(sources, tensors[purpose], strict=True):
                source.set_state(state.clone())  # copied, as torch reads from the start of a tensor's storage

    def _states(self) -> dict[str, Tensor]:
        return {purpose: torch.stack([g.get_state() for g in sources]) for purpose, sources in self._generators.items()}

    def _draw(self, order: torch.Generator, views: torch.Generator, depth: torch.Generator) -> Draws:
        used = self.batches * self.batch_size
        passes = [torch.randperm(self.n, generator=order)[:used] for _ in range(self.steps // self.batches)]
        positions = torch.cat(passes).view(self.steps, self.batch_size)
        return drawn(positions, self.num_views, self._rates, views, depth)


def drawn(
    positions: Tensor, num_views: int, rates: Sequence[float], views: torch.Generator, depth: torch.Generator
) -> Draws:
    """Draw the views and drop factors of one member's examples [steps, B]; the result has no member axis."""
    steps, batch_size = positions.shape
    dropped = torch.tensor(rates)[:, None]
    undropped = torch.rand(steps, len(rates), batch_size, generator=depth) >= dropped
    factors = undropped.float().div_(torch.tensor([1 - rate for rate in rates])[:, None])
    return Draws(positions, torch.randint(num_views, positions.shape, generator=views), factors)


def stacked(members: Iterable[Draws], device: torch.device) -> Draws:
    """Stack the draws of S members, and copy them to the device once."""
    return Draws(*(torch.stack(kind, 1).to(device) for kind in zip(*members, strict=True)))
