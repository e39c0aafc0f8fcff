"""The training loop: members of a stack take steps on planned batches."""

import math
from collections.abc import Callable, Iterator

from torch import Tensor

from train.data import DeviceImages
from train.ensemble import Ensemble, Weights
from train.memory import advice
from train.optimizer import ScheduleFree, ScheduleFreeSettings
from train.order import Draws
from train.settings import TrainSettings

_GATHERED = {"cpu": 2**21, "cuda": 2**28}  # bytes of images gathered at a time: what caches hold, or launches cost


class Learner:
    """Members of one stack, their weights and their optimiser.

    Args:
        ensemble: the architecture.
        initial: weights of the S members.
        train: what they learn.
        settings: of the optimiser, and batch size.
        average_power: of `ScheduleFree`.

    Attributes:
        before_step: called before every step; may save the state, and may raise.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        initial: Weights,
        train: DeviceImages,
        settings: TrainSettings,
        *,
        average_power: float = 0.0,
    ) -> None:
        self.ensemble, self.train, self.settings = ensemble, train, settings
        options = ScheduleFreeSettings(
            lr=settings.lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            warmup_steps=settings.warmup_steps,
            average_power=average_power,
        )
        self.optimizer = ScheduleFree(initial, options, ensemble.model.learning_rates())
        self.before_step: Callable[[], None] = lambda: None

    def learn(self, draws: Draws, first: int = 0) -> Iterator[Tensor]:
        """Take the steps from number `first` on; nothing here waits for the device.

        Args:
            draws: what each step is taken on, `positions` in the training split.
            first: number of the first step to take.

        Yields:
            the members' losses [S] in nats on a step's batch, once the step is taken.

        Raises:
            MemoryExhaustedError: says which setting to lower.
        """
        with advice("training", batch_size=self.settings.batch_size, stack=self.settings.stack):
            for x, z, factors in self._batches(draws, first):
                self.before_step()
                losses, gradients = self.ensemble.gradients(self.optimizer.weights, x, z, factors)
                self.optimizer.step(gradients)
                yield losses

    def _batches(self, draws: Draws, first: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield images [S, B, C, H, W], labels and factors, step by step; several batches gathered at a time."""
        index = draws.positions
        batch_bytes = index[0].numel() * math.prod(self.train.image_shape) * self.train.images.element_size()
        together = max(1, _GATHERED.get(index.device.type, 0) // batch_bytes)
        for start in range(first, len(index), together):
            here = slice(start, start + together)
            yield from zip(*self.train.augmented(index[here], draws.views[here]), draws.factors[here], strict=True)
