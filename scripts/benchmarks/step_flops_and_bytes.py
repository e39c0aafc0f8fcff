"""Cost of an optimiser step in FLOPs and bytes, and a lower bound on its time on a device."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from models.classifier import Classifier, count_parameters


class Device(NamedTuple):
    """Rates a second of a device's products and memory in one precision, and that precision's bytes per number."""

    flops: float
    memory_bytes: float
    number_bytes: int


class Floor(NamedTuple):
    """Seconds that a device needs at least: for products, and for reading and writing memory."""

    products_s: float
    memory_s: float

    @property
    def seconds(self) -> float:
        return max(self)

    @property
    def bound_by(self) -> str:
        """The one that takes longer, "products" or "memory"."""
        return "products" if self.products_s >= self.memory_s else "memory"

    def __str__(self) -> str:
        return f"products {self.products_s:.3g} s, memory {self.memory_s:.3g} s: bound by {self.bound_by}"


class Step(NamedTuple):
    """An optimiser step of one seed, independent of the device.

    Attributes:
        parameters: number of trainable parameters.
        forward_flops: of one example, in products and convolutions.
        flops: of one example, with the backward pass.
        activations: floating numbers saved for the backward pass per example, its image included.
    """

    parameters: int
    forward_flops: float
    flops: float
    activations: float

    @classmethod
    def of(cls, model: Classifier, shape: Sequence[int]) -> "Step":
        """Measure the cost of an image [C, H, W] as half the difference of batches of four and two."""
        two, four = (_counted(model, shape, batch) for batch in (2, 4))
        return cls(count_parameters(model), *((more - less) / 2 for less, more in zip(two, four, strict=True)))

    def moved_bytes(self, examples: int, number_bytes: int) -> float:
        """Return bytes: y, z, v and the gradient read and written, y read again; activations written and read."""
        return 36 * self.parameters + 2 * self.activations * examples * number_bytes

    def floor(self, examples: int, device: Device, steps: int = 1) -> Floor:
        """Return the floor of so many steps on so many examples each. Caches that keep an activation can beat it."""
        moved = self.moved_bytes(examples, device.number_bytes)
        return Floor(steps * self.flops * examples / device.flops, steps * moved / device.memory_bytes)


def _counted(model: Classifier, shape: Sequence[int], batch: int) -> tuple[int, int, int]:
    """Count forward FLOPs, all FLOPs, and saved floating numbers of a batch."""
    weights, stored = list(model.parameters()), dict[int, Tensor]()

    def keep(saved: Tensor) -> Tensor:
        stored[saved.untyped_storage().data_ptr()] = saved
        return saved

    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.convolution_backward: _gradient_flops})
    with counter, saved_tensors_hooks(keep, lambda saved: saved):
        logits = model(torch.zeros(batch, *shape, device=weights[0].device))
        forward = counter.get_total_flops()
        torch.autograd.grad(logits, weights, torch.zeros_like(logits))
    for weight in weights:
        stored.pop(weight.untyped_storage().data_ptr(), None)
    numbers = [t.untyped_storage().nbytes() // t.element_size() for t in stored.values() if t.is_floating_point()]
    return forward, counter.get_total_flops(), sum(numbers)


def _gradient_flops(slope, x, weight, *rest, **_) -> int:
    """Count FLOPs of a convolution's backward pass; PyTorch ignores groups."""
    *_, transposed, _, _, wanted = rest
    return sum(wanted[:2]) * conv_flop_count(x, weight, slope, transposed)
