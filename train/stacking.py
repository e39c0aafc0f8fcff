"""Seeds in one stacked network, one after another, or in threads: whichever a few timed steps show to be fastest.

Stacked layers save launches and interpreter time; where products are large, the batched ones may be slower than
plain ones. Threads keep all cores busy where single operations are too small to. Which wins depends on architecture,
image and batch size, number of seeds and machine.
"""

import contextlib
import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from train.data import DeviceImages
from train.ensemble import Ensemble
from train.memory import MemoryExhaustedError, advice
from train.optimizer import ScheduleFree
from train.randomness import generator
from train.settings import TrainSettings
from train.threads import in_threads

STACKING = "stacking"  # the name under which a run keeps its choice, so that it makes the same when resumed
_ROUNDS = 2  # candidates in turn, so that a moment in which the machine is slow hits no one of them alone
_WARM_UP, _STEPS = 1, 3  # of each kind and round; the fastest counts
_AT_LEAST_S = 0.05
_HOW = {"all": "in one network", "threads": "in threads", "one": "one after another"}


@dataclass(frozen=True)
class Stacking:
    """How many seeds are trained at once, and why.

    Attributes:
        stack: seeds in one network.
        why: one line.
        threads: whether networks are trained at the same time, a thread each.
        step_seconds: measured time of one optimiser step of all seeds, by the value of train.stack; empty where
            there was nothing to choose.
    """

    stack: int
    why: str
    threads: bool = False
    step_seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def setting(self) -> str:
        """The value of train.stack that asks for this."""
        return "threads" if self.threads else "one" if self.stack == 1 else "all"

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
        ValueError: train.stack=all with an architecture that cannot be stacked, or train.stack=threads on a GPU.
    """
    on_cpu = train.images.device.type == "cpu"
    name = type(ensemble.model).__name__
    if settings.stack == "all" and not ensemble.stacks:
        raise ValueError(f"train.stack=all: {name} cannot be stacked; choose auto, one or threads")
    if settings.stack == "threads" and not on_cpu:
        raise ValueError(f"train.stack=threads: for the CPU only, not {train.images.device}; choose auto, all or one")
    if settings.stack != "auto":
        return _stacking(settings.stack, members, f"train.stack={settings.stack}")
    candidates = ["all"] * ensemble.stacks + ["threads"] * (on_cpu and torch.get_num_threads() > 1) + ["one"]
    if members == 1 or candidates == ["one"]:
        return _stacking("one", members, "one seed" if members == 1 else f"{name} cannot be stacked")
    seconds: dict[str, float] = {}
    for stack in candidates * _ROUNDS:
        with contextlib.suppress(MemoryExhaustedError):
            once = step_seconds(ensemble, members, stack, train, settings)
            seconds[stack] = min(once, seconds.get(stack, once))
    best = min(seconds, key=lambda stack: seconds[stack], default="one")
    measured = ", ".join(
        (f"{1e3 * seconds[stack]:.2f} ms " if stack in seconds else "too much memory ") + _HOW[stack]
        for stack in candidates
    )
    return _stacking(best, members, f"a step of {members} seeds takes {measured}", seconds)


def _stacking(stack: str, members: int, why: str, seconds: Mapping[str, float] | None = None) -> Stacking:
    return Stacking(members if stack == "all" else 1, why, stack == "threads" and members > 1, dict(seconds or {}))


def step_seconds(ensemble: Ensemble, members: int, stack: str, train: DeviceImages, settings: TrainSettings) -> float:
    """Seconds of one optimiser step of all members, arranged as `stack` ("all", "one", "threads") says."""
    with advice("timing a step", batch_size=settings.batch_size, stack=settings.stack):
        if stack == "threads":
            return _seconds_in_threads(ensemble, members, train, settings)
        steps = ScratchSteps(ensemble, members if stack == "all" else 1, train, settings)
        times: list[float] = []
        while len(times) < _WARM_UP + _STEPS or (sum(times) < _AT_LEAST_S and len(times) < 200):
            started = time.perf_counter()
            steps.step()
            times.append(time.perf_counter() - started)
        return min(times[_WARM_UP:]) * (1 if stack == "all" else members)


def _seconds_in_threads(ensemble: Ensemble, members: int, train: DeviceImages, settings: TrainSettings) -> float:
    def work(_: int, check: Callable[[], None]) -> tuple[float, float]:
        steps = ScratchSteps(copy.deepcopy(ensemble), 1, train, settings)
        for _ in range(_WARM_UP):
            steps.step()
            check()
        started = time.perf_counter()
        for _ in range(_STEPS):
            steps.step()
        return started, time.perf_counter()

    starts, ends = zip(*in_threads(work, members), strict=True)
    return (max(ends) - min(starts)) / _STEPS


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
