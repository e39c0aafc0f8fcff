"""Third central moments of classes as functions of directions, and the directions in which they differ most."""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from erasure.moments import ClassMoments

_ROWS_AT_ONCE = 8192
_MOST_STEPS, _TOLERANCE = 100, 1e-6  # of a step's gain, relative to the largest value
_ANGLES = 128  # from the best of which a step of Newton's method is taken


@dataclass(frozen=True)
class ThirdMoments:
    """Differences D_j between third central moments of classes and their average, as functions of directions.

    Attributes:
        y: examples about their class means, [n, d].
        weights: [n, k], such that D_j = Σ_i weights[i, j] y_i ⊗ y_i ⊗ y_i.
    """

    y: Tensor
    weights: Tensor

    @classmethod
    def of(cls, y: Tensor, z: Tensor, moments: ClassMoments) -> Self:
        """Accumulate third moments of examples whose classes have mean zero; `moments` for the sizes of classes."""
        weights = torch.nn.functional.one_hot(z, moments.num_classes) / moments.counts.to(torch.float64)
        return cls(y, weights - weights.sum(1, keepdim=True) / moments.num_classes)

    def products(self, u: Tensor) -> Tensor:
        """⟨u, y_i⟩ of directions [d, m], [n, m] float64."""
        return torch.cat([y.to(u) @ u for y in self.y.split(_ROWS_AT_ONCE)])

    def combined(self, amounts: Tensor) -> Tensor:
        """Σ_i amounts[i] y_i, of [n, m], [d, m] float64."""
        total = amounts.new_zeros(self.y.shape[1], amounts.shape[1])
        for y, part in zip(self.y.split(_ROWS_AT_ONCE), amounts.split(_ROWS_AT_ONCE), strict=True):
            total.addmm_(y.to(part).T, part)
        return total

    def gradients(self, a: Tensor, classes: Tensor) -> Tensor:
        """D_j(u, u, ·), a third of the gradient of D_j(u, u, u), [d, m], from products a of u with class j each."""
        return self.combined(self.weights[:, classes] * a.square())

    def on_plane(self, a: Tensor, b: Tensor, classes: Tensor) -> Tensor:
        """D_j(u, u, u), D_j(u, u, v), D_j(u, v, v), D_j(v, v, v), [4, m], from products a of u and b of v."""
        weights = self.weights[:, classes]
        return torch.stack([(weights * cube).sum(0) for cube in (a**3, a * a * b, a * b * b, b**3)])


def climb(third: ThirdMoments, classes: Tensor, u: Tensor, removed: Tensor) -> tuple[Tensor, Tensor]:
    """Local maxima of |D_j(u, u, u)| on the unit sphere, from directions u [d, m] with class j each, and their values.

    They stay orthogonal to orthonormal columns `removed` [d, r], if they were.

    Every step goes to the best point of a great circle through u, at first that of its gradient g = D_j(u, u, ·), on
    which all points lie that higher-order power iteration may choose with any shift α, (g + α u) / ‖g + α u‖ (Kolda &
    Mayo 2011); then of g and the last step's direction, as in conjugate gradients (Polak & Ribière 1969): a third of
    the steps on the digits. No shift has to be chosen, and no step is worse. Directions that have converged stay.
    """
    reached, values, rising = u.clone(), u.new_zeros(u.shape[1]), torch.arange(u.shape[1], device=u.device)
    a, before, direction, tiny = third.products(u), torch.ones_like(u), torch.zeros_like(u), torch.finfo(u.dtype).tiny
    for _ in range(_MOST_STEPS):
        gradient = third.gradients(a, classes[rising])
        value = (u * gradient).sum(0)
        gradient = (gradient - removed @ (removed.T @ gradient) - u * value) * torch.where(value < 0, -1.0, 1.0)
        beta = (gradient * (gradient - before)).sum(0) / before.square().sum(0).clamp(min=tiny)
        before, direction = gradient, gradient + (direction - u * (u * direction).sum(0)) * beta.clamp(min=0)
        v = direction / direction.norm(dim=0).clamp(min=tiny)
        b = third.products(v)
        plane = third.on_plane(a, b, classes[rising])
        angle = best_angle(plane)
        cosine, sine = angle.cos(), angle.sin()
        u, a = u * cosine + v * sine, a * cosine + b * sine
        length = u.norm(dim=0).clamp(min=tiny)  # zero where no direction is left
        u, a = u / length, a / length
        reached[:, rising], values[rising] = u, on_circle(plane, angle).abs()
        going = (values[rising] - plane[0].abs() > _TOLERANCE * values.amax()).nonzero().squeeze(1)
        if not len(going):
            break
        rising, a = rising[going], a[:, going]
        u, before, direction = u[:, going], before[:, going], direction[:, going]
    return reached, values


def on_circle(plane: Tensor, angle: Tensor) -> Tensor:
    """D(w, w, w) of w = u cos θ + v sin θ, from D(u, u, u), D(u, u, v), D(u, v, v), D(v, v, v), [4, ...]."""
    c, s = angle.cos(), angle.sin()
    return plane[0] * c**3 + 3 * plane[1] * c * c * s + 3 * plane[2] * c * s * s + plane[3] * s**3


def best_angle(plane: Tensor) -> Tensor:
    """Return approximately where |D(w, w, w)| is largest, in -π/2..π/2, and never below its value at 0."""
    grid = torch.arange(-_ANGLES // 2, _ANGLES // 2, device=plane.device).to(plane) * (math.pi / _ANGLES)
    angle = grid[on_circle(plane[:, None], grid[:, None]).abs().argmax(0)]
    uuu, uuv, uvv, vvv = plane
    c, s = angle.cos(), angle.sin()
    slope = uuv * c**3 + (2 * uvv - uuu) * c * c * s + (vvv - 2 * uuv) * c * s * s - uvv * s**3
    bend = (
        (2 * uvv - uuu) * (c**3 - 2 * c * s * s)
        + (vvv - 2 * uuv) * (2 * c * c * s - s**3)
        - 3 * c * s * (uuv * c + uvv * s)
    )
    newton = angle - torch.where(bend == 0, 0.0, slope / bend).clamp(-math.pi / _ANGLES, math.pi / _ANGLES)
    return torch.where(on_circle(plane, newton).abs() >= on_circle(plane, angle).abs(), newton, angle)
