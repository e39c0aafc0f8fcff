"""Schedule-free AdamW over flat buffers: averaged weights can be read at any time, and members can leave."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

_EPS = 1e-8
_BLOCK = 2**18  # elements updated at a time on the CPU, so that y, z, v, gradient and scratch stay in cache
_LARGE = 2**18  # smallest number of elements for which a gradient is read in place, not gathered with others


@dataclass(frozen=True)
class _Segment:
    """Adjacent parameters in the flat buffer with one learning rate: one large parameter, or several small ones."""

    start: int
    stop: int
    positions: Sequence[int]  # of the segment's parameters, in the order of `parameters`
    factor: float


class ScheduleFree:
    """Schedule-free AdamW (Defazio et al. 2024) over named parameters that may carry a leading member axis.

    Results equal those of `schedulefree.AdamWScheduleFree` to rounding. Parameters and their states lie side by side in
    flat buffers, so that a step takes few kernels. The library's `eval()` and `train()` rewrite the weights in place
    and are not exact inverses. Here the averaged sequence x is computed separately from the training sequence y, so
    reading x changes nothing.

    An optimizer that replaces this one in `train.trainer.Trainer` needs `weights`, `step`, `averaged`, `keep_members`,
    `state` and `restore` and, for a GPU and for compiled steps, `next_coefficients` and `step_on_device`.

    Attributes:
        weights: y by name, leaves of autograd that `step` updates in place.

    Args:
        parameters: initial values by name; copied.
        learning_rates: factors on `lr` by name; 1 by default.
        lr: learning rate after warm-up.
        betas: β₁ and β₂.
        weight_decay: decoupled weight decay. Every parameter shrinks by `lr` × `weight_decay` per step, regardless of
            its factor, so that the time constant of the decay does not depend on width.
        warmup_steps: steps over which learning rates rise linearly from zero.
        average_power: r; the k-th iterate has weight k^r in the average x. All have equal weights for r = 0. Use a
            larger r if the loss function changes during training, as it does when examples are added.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        learning_rates: Mapping[str, float] | None = None,
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        warmup_steps: int = 0,
        average_power: float = 0.0,
    ) -> None:
        self._names = list(parameters)
        self._factors = dict.fromkeys(parameters, 1.0) if learning_rates is None else dict(learning_rates)
        self._lr, self._betas, self._decay = lr, betas, weight_decay
        self._warmup_steps, self._power = warmup_steps, average_power
        self._k = 0  # steps taken
        self._weight_sum = self._lr_max = 0.0
        self._layout({name: parameter.detach() for name, parameter in parameters.items()})
        self._z, self._v = self._y.clone(), torch.zeros_like(self._y)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Update all parameters with their gradients, given in the order of the parameters."""
        beta1, beta2 = self._betas
        lr, c, root = self._next_rates()
        for y, z, v, gradient, factor in self._blocks(gradients):
            scratch = self._scratch[: len(y)]
            v.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            torch.sqrt(v, out=scratch).add_(_EPS * root)
            torch.div(gradient, scratch, out=scratch)
            if self._decay:
                scratch.add_(y, alpha=self._decay / (factor * root))
            y.lerp_(z, c).add_(scratch, alpha=lr * factor * root * (beta1 * (1 - c) - 1))
            z.sub_(scratch, alpha=lr * factor * root)

    def next_coefficients(self) -> Tensor:
        """Count a step, and return its coefficients for `step_on_device`, [learning rates, 5], on the device."""
        (beta1, _), factors = self._betas, sorted({*self._factors.values()})
        lr, c, root = self._next_rates()
        rows = [
            [c, _EPS * root, self._decay / (f * root), lr * f * root * (beta1 * (1 - c) - 1), lr * f * root]
            for f in factors
        ]
        return torch.tensor(rows, dtype=self._y.dtype).to(self._y.device, non_blocking=True)

    @torch.no_grad()
    def step_on_device(self, gradients: Sequence[Tensor], coefficients: Tensor, *, compiled: bool = False) -> None:
        """Update all parameters as `step` does, to rounding.

        Only tensors on the device are read and changed, so that a CUDA graph can capture the update.

        Args:
            gradients: in the order of the parameters.
            coefficients: coefficients of this step, from `next_coefficients`.
            compiled: whether to use one kernel for each block, compiled by `torch.compile`.
        """
        rows = dict(zip(sorted({*self._factors.values()}), coefficients, strict=True))
        update = _compiled_update() if compiled else _update
        for y, z, v, gradient, factor in self._blocks(gradients):
            scratch = None if compiled else self._scratch[: len(y)]
            update(y, z, v, gradient, scratch, rows[factor], self._betas[1])

    def _next_rates(self) -> tuple[float, float, float]:
        """Count a step.

        Returns:
            the learning rate, the newest iterate's weight in x, and the root of Adam's bias correction.
        """
        lr = self._lr * min(1.0, (self._k + 1) / max(1, self._warmup_steps))
        self._lr_max = max(lr, self._lr_max)
        self._k += 1
        weight = self._k**self._power * self._lr_max**2
        self._weight_sum += weight
        c = weight / self._weight_sum if self._weight_sum else 0.0
        return lr, c, math.sqrt(1 - self._betas[1] ** self._k)

    @torch.no_grad()
    def averaged(self) -> dict[str, Tensor]:
        """Return a copy of the averaged weights x by name, in the order of the parameters."""
        return self._views(torch.lerp(self._y, self._z, 1 - 1 / self._betas[0]) if self._k else self._y.clone())

    @torch.no_grad()
    def keep_members(self, members: Tensor) -> None:
        """Keep the members at these indices of the leading axis, and drop the others."""
        y, z, v = (
            {name: view[members] for name, view in self._views(buffer).items()}
            for buffer in (self._y, self._z, self._v)
        )
        self._layout(y)
        self._z, self._v = self._flatten(z), self._flatten(v)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the state for `restore`: the flat buffers by name, and JSON-like numbers."""
        numbers = {"k": self._k, "weight_sum": self._weight_sum, "lr_max": self._lr_max}
        return {"y": self._y.detach(), "z": self._z, "v": self._v}, numbers

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Continue from the state of another optimizer with the same parameters and number of members."""
        for name, buffer in (("y", self._y), ("z", self._z), ("v", self._v)):
            buffer.copy_(tensors[name])
        self._k, self._weight_sum, self._lr_max = (numbers[key] for key in ("k", "weight_sum", "lr_max"))

    def _layout(self, parameters: Mapping[str, Tensor]) -> None:
        """Place the parameters in a new flat buffer, sorted by learning rate."""
        groups: dict[float, list[int]] = {}
        for position, name in enumerate(self._names):
            groups.setdefault(self._factors[name], []).append(position)
        self._segments: list[_Segment] = []
        self._places: dict[str, tuple[int, int, torch.Size]] = {}
        stop = 0
        for factor, positions in groups.items():
            small = [p for p in positions if parameters[self._names[p]].numel() < _LARGE]
            for together in [*([p] for p in positions if p not in small), *([small] if small else [])]:
                start = stop
                for position in together:
                    parameter = parameters[self._names[position]]
                    self._places[self._names[position]] = (stop, stop + parameter.numel(), parameter.shape)
                    stop += parameter.numel()
                self._segments.append(_Segment(start, stop, together, factor))
        self._y = self._flatten(parameters)
        longest = max(segment.stop - segment.start for segment in self._segments)
        self._block = min(_BLOCK, longest) if self._y.device.type == "cpu" else longest
        self._scratch = torch.empty(self._block, dtype=self._y.dtype, device=self._y.device)
        gathered = max((s.stop - s.start for s in self._segments if len(s.positions) > 1), default=0)
        self._gathered = torch.empty(gathered, dtype=self._y.dtype, device=self._y.device)
        self.weights = {name: view.requires_grad_() for name, view in self._views(self._y).items()}

    def _flatten(self, parameters: Mapping[str, Tensor]) -> Tensor:
        ordered = sorted(self._places, key=lambda name: self._places[name][0])
        return torch.cat([parameters[name].reshape(-1) for name in ordered])

    def _views(self, buffer: Tensor) -> dict[str, Tensor]:
        places = ((name, *self._places[name]) for name in self._names)
        return {name: buffer[start:stop].view(shape) for name, start, stop, shape in places}

    def _blocks(self, gradients: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, float]]:
        """Yield matching pieces of y, z, v and the gradient, and their factor on the learning rate."""
        for segment in self._segments:
            gradient = self._gather(segment, gradients)
            for start in range(segment.start, segment.stop, self._block):
                block = slice(start, min(start + self._block, segment.stop))
                offset = slice(block.start - segment.start, block.stop - segment.start)
                yield self._y[block], self._z[block], self._v[block], gradient[offset], segment.factor

    def _gather(self, segment: _Segment, gradients: Sequence[Tensor]) -> Tensor:
        """Return the segment's gradients as one vector."""
        if len(segment.positions) == 1:
            return gradients[segment.positions[0]].reshape(-1)
        gathered = self._gathered[: segment.stop - segment.start]
        return torch.cat([gradients[position].reshape(-1) for position in segment.positions], out=gathered)


def _update(
    y: Tensor, z: Tensor, v: Tensor, gradient: Tensor, scratch: Tensor | None, coefficients: Tensor, beta2: float
) -> None:
    """Update a block in place; the compiled function, without `scratch`, passes over memory once."""
    c, eps, decay, toward_x, toward_z = coefficients.unbind()
    v.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    root = torch.sqrt(v, out=scratch).add_(eps)
    change = torch.div(gradient, root, out=scratch).addcmul_(y, decay)
    y.lerp_(z, c).addcmul_(change, toward_x)
    z.addcmul_(change, toward_z, value=-1)


@cache
def _compiled_update() -> Callable[..., None]:
    return torch.compile(_update, dynamic=True)
