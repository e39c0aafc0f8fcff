"""Cost of an optimiser step on any device, in FLOPs and bytes, and the hours that it takes at least."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from models.classifier import Classifier, count_parameters


class Device(NamedTuple):
    """Peak rates of a device, and the bytes of a number that a forward pass keeps."""

    flops: float
    memory_bytes: float
    number_bytes: int


class Step(NamedTuple):
    """An optimiser step of one seed, whatever it runs on.

    Attributes:
        parameters: numbers that are trained.
        forward_flops: of one example, in products and convolutions.
        flops: of one example, with the backward pass.
        kept: floating numbers of one example that the forward pass keeps for the backward pass, the image among them.
    """

    parameters: int
    forward_flops: float
    flops: float
    kept: float

    @classmethod
    def of(cls, model: Classifier, shape: Sequence[int]) -> "Step":
        """Measure the cost of an image [C, H, W], from what two more of them add."""
        two, four = (_counted(model, shape, batch) for batch in (2, 4))
        return cls(count_parameters(model), *((more - less) / 2 for less, more in zip(two, four, strict=True)))

    def moved_bytes(self, examples: int, number_bytes: int) -> float:
        """y, z, v read and written, the gradient written and read, y read again; what is kept written and read."""
        return 36 * self.parameters + 2 * self.kept * examples * number_bytes

    def hours(self, examples: int, device: Device) -> float:
        """Return the larger of FLOPs by rate and bytes by bandwidth."""
        moved_s = self.moved_bytes(examples, device.number_bytes) / device.memory_bytes
        return max(self.flops * examples / device.flops, moved_s) / 3600


def _counted(model: Classifier, shape: Sequence[int], batch: int) -> tuple[int, int, int]:
    """FLOPs forward, FLOPs in all, and floating numbers kept, of a batch."""
    weights, kept = list(model.parameters()), dict[int, Tensor]()

    def keep(saved: Tensor) -> Tensor:
        kept[saved.untyped_storage().data_ptr()] = saved
        return saved

    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.convolution_backward: _gradient_flops})
    with counter, saved_tensors_hooks(keep, lambda saved: saved):
        logits = model(torch.zeros(batch, *shape, device=weights[0].device))
        forward = counter.get_total_flops()
        torch.autograd.grad(logits, weights, torch.zeros_like(logits))
    for weight in weights:
        kept.pop(weight.untyped_storage().data_ptr(), None)
    numbers = [t.untyped_storage().nbytes() // t.element_size() for t in kept.values() if t.is_floating_point()]
    return forward, counter.get_total_flops(), sum(numbers)


def _gradient_flops(slope, x, weight, *rest, **_) -> int:
    """Count FLOPs of a convolution's backward pass, from shapes. PyTorch counts as if every group met every channel."""
    *_, transposed, _, _, wanted = rest
    return sum(wanted[:2]) * conv_flop_count(x, weight, slope, transposed)
