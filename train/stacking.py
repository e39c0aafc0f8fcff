"""Seeds in one stacked network or one after another: whichever a few timed steps show to be faster.

Stacked layers save launches and interpreter time; where products are large, the batched ones may be slower than
plain ones. Which wins depends on architecture, image and batch size, number of seeds and machine.
"""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import torch

from train.data import DeviceImages
from train.ensemble import Ensemble
from train.memory import MemoryExhaustedError, advice
from train.optimizer import ScheduleFree
from train.randomness import generator
from train.settings import TrainSettings

STACKING = "stacking"  # the name under which a run keeps its choice, so that it makes the same when resumed
_ROUNDS = 2  # candidates in turn, so that a moment in which the machine is slow hits no one of them alone
_WARM_UP, _STEPS = 1, 3  # of each kind and round; the fastest counts
_AT_LEAST_S = 0.05
_HOW = {"all": "in one network", "one": "one after another"}


@dataclass(frozen=True)
class Stacking:
    """How many seeds are trained at once, and why.

    Attributes:
        stack: seeds in one network.
        why: one line.
        step_seconds: measured time of one optimiser step of all seeds, by the value of train.stack; empty where
            there was nothing to choose.
    """

    stack: int
    why: str
    step_seconds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Self:
        """The choice that a run has kept; of former versions, too, whose seeds could be in threads."""
        return cls(kept["stack"], kept["why"], kept["step_seconds"])

    @property
    def setting(self) -> str:
        """The value of train.stack that asks for this."""
        return "one" if self.stack == 1 else "all"

    @property
    def how(self) -> str:
        return _HOW[self.setting]


def choose(ensemble: Ensemble, members: int, train: DeviceImages, settings: TrainSettings) -> Stacking:
    """Decide, on scratch weights, how to train the members.

    Args:
        ensemble: the architecture.
        members: number S of seeds.
        train: training split.
        settings: "stack" decides, unless it is "auto"; the batch size is timed.

    Raises:
        ValueError: train.stack=all with an architecture that cannot be stacked.
    """
    name = type(ensemble.model).__name__
    if settings.stack == "all" and not ensemble.stacks:
        raise ValueError(f"train.stack=all: {name} cannot be stacked; choose auto or one")
    if settings.stack != "auto":
        return _stacking(settings.stack, members, f"train.stack={settings.stack}")
    if members == 1 or not ensemble.stacks:
        return _stacking("one", members, "one seed" if members == 1 else f"{name} cannot be stacked")
    seconds: dict[str, float] = {}
    for stack in [*_HOW] * _ROUNDS:
        with contextlib.suppress(MemoryExhaustedError):
            once = step_seconds(ensemble, members, stack, train, settings)
            seconds[stack] = min(once, seconds.get(stack, once))
    best = min(seconds, key=lambda stack: seconds[stack], default="one")
    measured = ", ".join(
        (f"{1e3 * seconds[stack]:.2f} ms " if stack in seconds else "too much memory ") + how
        for stack, how in _HOW.items()
    )
    return _stacking(best, members, f"a step of {members} seeds takes {measured}", seconds)


def _stacking(stack: str, members: int, why: str, seconds: Mapping[str, float] | None = None) -> Stacking:
    return Stacking(members if stack == "all" else 1, why, dict(seconds or {}))


def step_seconds(ensemble: Ensemble, members: int, stack: str, train: DeviceImages, settings: TrainSettings) -> float:
    """Seconds of one optimiser step of all members, arranged as `stack` ("all", "one") says."""
    with advice("timing a step", batch_size=settings.batch_size, stack=settings.stack):
        steps = ScratchSteps(ensemble, members if stack == "all" else 1, train, settings)
        times: list[float] = []
        while len(times) < _WARM_UP + _STEPS or (sum(times) < _AT_LEAST_S and len(times) < 200):
            started = time.perf_counter()
            steps.step()
            times.append(time.perf_counter() - started)
        return min(times[_WARM_UP:]) * (1 if stack == "all" else members)


class ScratchSteps:
    """Optimiser steps of some stacked members on weights of their own, for timing."""

    def __init__(self, ensemble: Ensemble, members: int, train: DeviceImages, settings: TrainSettings) -> None:
        self._ensemble, self._device = ensemble, train.images.device
        batch = torch.arange(min(settings.batch_size, len(train)), device=self._device).expand(members, -1)
        initial = ensemble.initial_weights([generator(seed, "scratch") for seed in range(members)], self._device)
        self._optimizer = ScheduleFree(initial, ensemble.model.learning_rates(), lr=settings.lr)
        self._x, self._z = train.plain(batch)

    def step(self) -> None:
        """One step, finished when it returns."""
        with self._ensemble.training(generator(0, "scratch")):
            _, gradients = self._ensemble.gradients(self._optimizer.weights, self._x, self._z)
        self._optimizer.step(gradients)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
