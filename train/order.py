"""In which order, and in which crop and flip, each member sees its examples."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from train.randomness import generator
from train.settings import TrainSettings


class EpochOrder:
    """Each member's order of its examples and their views, epoch by epoch, from its own generators.

    A training set of n examples is cut into the fewest equal batches of at most `batch_size`; the few that
    do not fill them sit this pass out and are drawn again in the next. Batches of one size, and draws on
    the CPU, make an epoch the same on every device.

    Args:
        seeds: one per member.
        n: examples in a member's training set.
        num_views: crops and flips to draw from.
        settings: batch size, and least number of steps in an epoch.
    """

    def __init__(self, seeds: Sequence[int], n: int, num_views: int, settings: TrainSettings) -> None:
        self.batches = math.ceil(n / settings.batch_size)
        self.batch_size = n // self.batches
        self.passes = math.ceil(settings.min_epoch_steps / self.batches)  # a small training set is repeated
        self.n, self.num_views = n, num_views
        self._order = [generator(seed, n, "order") for seed in seeds]
        self._views = [generator(seed, n, "views") for seed in seeds]

    @property
    def steps(self) -> int:
        """Optimiser steps per epoch."""
        return self.passes * self.batches

    def draw(self, members: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
        """Positions in the training set and views of one epoch, both [S, steps, B], for the given members."""
        positions = torch.stack([self._positions(self._order[member]) for member in members])
        shape = positions.shape[1:]
        views = [torch.randint(self.num_views, shape, generator=self._views[member]) for member in members]
        return positions.to(device), torch.stack(views).to(device)

    def _positions(self, source: torch.Generator) -> Tensor:
        used = self.batches * self.batch_size
        orders = [torch.randperm(self.n, generator=source)[:used] for _ in range(self.passes)]
        return torch.cat(orders).view(self.steps, self.batch_size)
