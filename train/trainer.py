"""The training loop: a stack of members takes steps, round by round, until all members have finished."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from train.checkpoint import State
from train.device_images import DeviceImages
from train.ensemble import Ensemble, Weights
from train.memory import advice, keep_freed_memory
from train.randomness import Draws
from train.schedule_free import ScheduleFree
from train.settings import TrainSettings
from train.training_step import TrainingStep, training_step

_FORMAT = 4  # version of the saved state; states of other versions are not restored
# Bytes of images gathered at a time: few enough for the CPU's caches, or enough to outweigh a CUDA kernel launch.
_GATHERED = {"cpu": 2**21, "cuda": 2**28}


class Trainer(ABC):
    """A stack of members in training: their weights, their optimizer, and their progress.

    A subclass implements a procedure. It determines the examples of a round of steps, and the actions between rounds.
    `train.epoch_trainer.EpochTrainer` trains in epochs and stops early. `mdl.replay_code.ReplayTrainer` codes the next
    labels before it learns them.

    Args:
        ensemble: the architecture.
        seeds: one per member.
        initial: initial weights of the S members.
        examples: the training split.
        settings: training options, for the optimizer and the batch size.
        average_power: argument of `ScheduleFree`.

    Attributes:
        active: members that are still training, as positions in `seeds`.
        round: number of finished rounds: epochs, or batches of the replay code.
        step: number of steps taken in the current round.
        before_step: function called before every step. `Checkpoints.continued` sets it to one that saves the state when
            due, and that may raise.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        seeds: Sequence[int],
        initial: Weights,
        examples: DeviceImages,
        settings: TrainSettings,
        *,
        average_power: float = 0.0,
    ) -> None:
        keep_freed_memory()
        self.ensemble, self.seeds, self.examples, self.settings = ensemble, seeds, examples, settings
        self.optimizer = ScheduleFree(
            initial,
            ensemble.model.learning_rates(),
            lr=settings.lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            warmup_steps=settings.warmup_steps,
            average_power=average_power,
        )
        self.active = list(range(len(seeds)))
        self.round = self.step = 0
        self.before_step: Callable[[], None] = lambda: None
        self._take_step = self._new_step()

    def run(self) -> None:
        """Train until every member has finished.

        Raises:
            NonFiniteLossError: a training diverged.
            MemoryExhaustedError: names the setting to lower.
        """
        while self.active:
            for losses in self._steps(self.begin_round()):
                self.step += 1
                self.after_step(losses)
            self.round, self.step = self.round + 1, 0
            self.end_round()

    def _steps(self, draws: Draws) -> Iterator[Tensor]:
        """Take the remaining steps of a round, without waiting for the device.

        Yields:
            After each step, the members' losses [S] in nats on its batch. On a GPU the next step overwrites them.
        """
        with advice("training", batch_size=self.settings.batch_size, stack=self.settings.stack):
            for x, z, factors in self._batches(draws):
                self.before_step()
                yield self._take_step(x, z, factors)

    def _batches(self, draws: Draws) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield images [S, B, C, H, W], labels and factors of each step; several batches are gathered at once."""
        index = draws.positions
        batch_bytes = index[0].numel() * math.prod(self.examples.image_shape) * self.examples.images.element_size()
        together = max(1, _GATHERED.get(index.device.type, 0) // batch_bytes)
        for start in range(self.step, len(index), together):
            steps = slice(start, start + together)
            yield from zip(
                *self.examples.augmented(index[steps], draws.views[steps]), draws.factors[steps], strict=True
            )

    @abstractmethod
    def begin_round(self) -> Draws:
        """Prepare a round, and return the draws of all its steps.

        An interrupted round begins again with the same draws, and skips the steps that were taken.
        """

    def after_step(self, losses: Tensor) -> None:  # noqa: B027
        """Record the losses [S] of a step, without waiting for the device; by default nothing is recorded."""

    @abstractmethod
    def end_round(self) -> None:
        """Finish a round: evaluate, and keep the members that continue (`_keep`)."""

    def _keep(self, positions: Sequence[int]) -> None:
        """Keep only the active members at these positions."""
        self.active = [self.active[position] for position in positions]
        if self.active:
            self.optimizer.keep_members(torch.tensor(positions, device=self.examples.labels.device))
        self._take_step = self._new_step()  # the weights are now at other addresses, or no graph is needed

    def _new_step(self) -> TrainingStep:
        return training_step(self.ensemble, self.optimizer, compiled=self.settings.compile is True)

    @property
    def finished(self) -> bool:
        return not self.active

    def state(self) -> State:
        """Return the state for `restore`, as tensors by name and JSON-like values; it continues with equal results."""
        tensors, numbers = self.optimizer.state() if self.active else ({}, {})
        own_tensors, own_values = self._own_state()
        return tensors | own_tensors, {
            "members": self._members,
            "active": self.active,
            "round": self.round,
            "step": self.step,
            "optimizer": numbers,
            "procedure": own_values,
        }

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> bool:
        """Continue from a state on the same data with the same settings; return False if members or version differ."""
        if values.get("members") != self._members:
            return False
        self._keep(values["active"])  # members are positions: all are active in a new training
        if self.active:
            self.optimizer.restore(tensors, values["optimizer"])
        self.round, self.step = values["round"], values["step"]
        self._restore_own(tensors, values["procedure"])
        return True

    @property
    def _members(self) -> dict[str, Any]:
        """The identity of the members, which a saved state must match."""
        return {"format": _FORMAT, "procedure": type(self).__name__, "seeds": list(self.seeds)}

    @abstractmethod
    def _own_state(self) -> State:
        """Return the procedure's part of the state."""

    @abstractmethod
    def _restore_own(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Restore the procedure's part of the state."""


class NonFiniteLossError(RuntimeError):
    """A training that diverged."""
