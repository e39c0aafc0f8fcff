"""In which order, and in which crop and flip, each member sees its examples."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from train.randomness import generator
from train.settings import TrainSettings


def epoch_steps(n: int, settings: TrainSettings) -> int:
    """Optimiser steps per epoch of a training set of n examples."""
    batches = math.ceil(n / settings.batch_size)
    return batches * math.ceil(settings.min_epoch_steps / batches)  # a small training set is repeated


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
        self.steps = epoch_steps(n, settings)  # optimiser steps per epoch
        self.n, self.num_views = n, num_views
        self._order = [generator(seed, n, "order") for seed in seeds]
        self._views = [generator(seed, n, "views") for seed in seeds]
        self._before = self._states()

    def draw(self, members: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
        """Positions in the training set and views of one epoch, both [S, steps, B], for the given members."""
        self._before = self._states()
        positions = torch.stack([self._positions(self._order[member]) for member in members])
        shape = positions.shape[1:]
        views = [torch.randint(self.num_views, shape, generator=self._views[member]) for member in members]
        return positions.to(device), torch.stack(views).to(device)

    def state(self) -> dict[str, Tensor]:
        """What `restore` needs to draw the latest epoch again."""
        return self._before

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Draw next what another order with this state drew last."""
        for name, sources in (("order", self._order), ("views", self._views)):
            for source, state in zip(sources, tensors[f"generators.{name}"], strict=True):
                source.set_state(state.clone())  # a row's own memory: torch reads from the start of its storage

    def _states(self) -> dict[str, Tensor]:
        """States of all generators, [S, bytes] each."""
        sources = {"order": self._order, "views": self._views}
        return {f"generators.{name}": torch.stack([g.get_state() for g in group]) for name, group in sources.items()}

    def _positions(self, source: torch.Generator) -> Tensor:
        used = self.batches * self.batch_size
        orders = [torch.randperm(self.n, generator=source)[:used] for _ in range(self.steps // self.batches)]
        return torch.cat(orders).view(self.steps, self.batch_size)
