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
    name, stackable = type(ensemble.model).__name__, ensemble.model.stackable
    if settings.stack == "all" and not stackable:
        raise ValueError(f"train.stack=all: {name} cannot be stacked; choose auto or one")
    if settings.stack != "auto":
        return Stacking(members if settings.stack == "all" else 1, f"train.stack={settings.stack}")
    if members == 1 or not stackable:
        return Stacking(1, "one seed" if members == 1 else f"{name} cannot be stacked")
    seconds: dict[str, float] = {}
    for how in [*_HOW] * _ROUNDS:
        with contextlib.suppress(MemoryExhaustedError):
            once = step_seconds(ensemble, members, how, train, settings)
            seconds[how] = min(once, seconds.get(how, once))
    measured = ", ".join(
        (f"{1e3 * seconds[key]:.2f} ms " if key in seconds else "too much memory ") + how for key, how in _HOW.items()
    )
    best = min(seconds, key=lambda how: seconds[how], default="one")
    return Stacking(members if best == "all" else 1, f"a step of {members} seeds takes {measured}", seconds)


def step_seconds(ensemble: Ensemble, members: int, how: str, train: DeviceImages, settings: TrainSettings) -> float:
    """Seconds of one optimiser step of all members on scratch weights, arranged as `how` ("all", "one") says."""
    at_once, device = members if how == "all" else 1, train.labels.device
    with advice("timing a step", batch_size=settings.batch_size, stack=settings.stack):
        batch = torch.arange(min(settings.batch_size, len(train)), device=device).expand(at_once, -1)
        initial = ensemble.initial_weights([generator(seed, "scratch") for seed in range(at_once)], device)
        optimizer = ScheduleFree(initial, ensemble.model.learning_rates(), lr=settings.lr)
        x, z = train.plain(batch)
        times: list[float] = []
        while len(times) < _WARM_UP + _STEPS or (sum(times) < _AT_LEAST_S and len(times) < 200):
            started = time.perf_counter()
            optimizer.step(ensemble.gradients(optimizer.weights, x, z)[1])
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times.append(time.perf_counter() - started)
        return min(times[_WARM_UP:]) * members / at_once
