"""Seeds side by side in one network, or one after another: whichever a few timed steps show to be faster.

Stacked layers save launches and interpreter time; where products are large, the batched ones may be slower than
plain ones. Which wins depends on architecture, image and batch size, number of seeds and machine.
"""

import logging
import time
from dataclasses import dataclass

import torch

from train.data import DeviceImages
from train.ensemble import Ensemble
from train.memory import MemoryExhaustedError, advice
from train.optimizer import ScheduleFree
from train.randomness import generator
from train.settings import TrainSettings

log = logging.getLogger(__name__)

STACKING = "stacking"  # the name under which a run keeps its choice, so that it makes the same when resumed
_WARM_UP, _STEPS = 2, 5  # of each kind; the fastest counts
_AT_LEAST_S = 0.1


@dataclass(frozen=True)
class Stacking:
    """How many seeds are trained at once, and why.

    Attributes:
        stack: that number.
        why: one line.
        step_seconds: measured time of one optimiser step of all seeds, stacked and one after another; None
            where there was nothing to measure.
    """

    stack: int
    why: str
    step_seconds: tuple[float, float] | None = None


def choose(ensemble: Ensemble, members: int, train: DeviceImages, settings: TrainSettings) -> Stacking:
    """Decide, on scratch weights, how many of the members to train at once.

    Args:
        ensemble: the architecture.
        members: number S of seeds.
        train: training split.
        settings: "stack" decides, unless it is "auto"; the batch size is timed.

    Raises:
        ValueError: train.stack=all with an architecture that cannot be stacked.
    """
    if settings.stack == "all" and not ensemble.stacks:
        raise ValueError(f"train.stack=all: {type(ensemble.model).__name__} cannot be stacked; choose auto or one")
    if settings.stack != "auto":
        return Stacking(members if settings.stack == "all" else 1, f"train.stack={settings.stack}")
    if members == 1 or not ensemble.stacks:
        return Stacking(1, "one seed" if members == 1 else f"{type(ensemble.model).__name__} cannot be stacked")
    alone = members * step_seconds(ensemble, 1, train, settings)
    try:
        together = step_seconds(ensemble, members, train, settings)
    except MemoryExhaustedError:
        return Stacking(1, f"{members} stacked seeds do not fit into memory")
    why = f"a step of {members} seeds takes {1e3 * together:.2f} ms stacked, {1e3 * alone:.2f} ms one after another"
    return Stacking(members if together <= alone else 1, why, (together, alone))


def step_seconds(ensemble: Ensemble, members: int, train: DeviceImages, settings: TrainSettings) -> float:
    """Seconds of the fastest of a few optimiser steps of so many stacked members."""
    device = train.images.device
    scratch = [generator(seed, "scratch") for seed in range(members)]
    batch = torch.arange(min(settings.batch_size, len(train)), device=device).expand(members, -1)
    with advice("timing a step", batch_size=settings.batch_size, stack=settings.stack):
        optimizer = ScheduleFree(
            ensemble.initial_weights(scratch, device), ensemble.model.learning_rates(), lr=settings.lr
        )
        x, z = train.plain(batch)
        times: list[float] = []
        with ensemble.training(generator(0, "scratch")):
            while len(times) < _WARM_UP + _STEPS or (sum(times) < _AT_LEAST_S and len(times) < 200):
                started = time.perf_counter()
                optimizer.step(ensemble.gradients(optimizer.weights, x, z)[1])
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                times.append(time.perf_counter() - started)
    return min(times[_WARM_UP:])
