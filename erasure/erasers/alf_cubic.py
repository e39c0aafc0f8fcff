"""ALF-cubic: ALF-QLEACE, and then the directions along which third central moments of classes differ most."""

import math
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from erasure.batches import by_rows
from erasure.erasers.alf_qleace import AlfQleaceEraser, require_limits
from erasure.moments import ClassMoments
from erasure.progress import Display
from erasure.projection import ProjectionEraser

_ROWS_AT_ONCE = 8192
_MOST_STEPS, _TOLERANCE = 100, 1e-6  # of a step's gain, relative to the largest value
_ANGLES = 128  # from the best of which a step of Newton's method is taken
_ROUNDING = 1e-14  # of a third moment, relative to that of the data's size


@dataclass(frozen=True, repr=False)
class AlfCubicEraser(ProjectionEraser):
    """Approximate label-free erasure of order three: the same affine map for every class, so that nothing is injected.

    After ALF-QLEACE, repeat: of the differences D_j = T_j - T̄ between the third central moments
    T_j(u, v, w) = E[⟨u, x - m_j⟩ ⟨v, x - m_j⟩ ⟨w, x - m_j⟩ | j] and their average over classes, take the one of the
    largest spectral norm, and project out the direction in which it is reached: the norm of a symmetric tensor is the
    maximum of |D_j(u, u, u)| over unit vectors u (Banach 1938). Ascent from several starts finds it, or, as
    the problem is NP-hard (Hillar & Lim 2013), a local maximum.

    Attributes:
        norms3: max_j ‖D_j‖ after ALF-QLEACE and after each direction removed, as far as it was found; never increasing,
            as what is found late was there before.
    """

    norms3: tuple[float, ...]
    version = 2
    erased_order = 1

    @classmethod
    def from_moments(cls, moments: ClassMoments, **options: Any) -> Self:  # noqa: ARG003
        """Not possible: raises ValueError."""
        raise ValueError(f"{cls.__name__} needs examples beside their moments: call {cls.__name__}.fit(x, z)")

    @classmethod
    def fit_examples(  # pyright: ignore[reportIncompatibleMethodOverride] its options are these alone
        cls,
        x: Tensor,
        z: Tensor,
        moments: ClassMoments,
        *,
        num_directions: int | None = None,
        target: float | None = 0.9,
        starts: int = 4,
        seed: int = 0,
    ) -> Self:
        """Fit on examples; a step costs O(n d) for each class and start, and no third moment is ever formed.

        Args:
            x: floating, [n, ...].
            z: labels, [n].
            moments: theirs; at least two examples per class.
            num_directions: most directions to remove after ALF-QLEACE, with its own defaults; None for no limit.
            target: stop once the worst norm has fallen by this fraction; None to go on to `num_directions`.
            starts: of the ascent for each class: the best direction so far, and random ones.
            seed: of those.

        Raises:
            ValueError: neither limit given, or one out of range, or no start.
        """
        require_limits(moments.dim, num_directions, target)
        if starts < 1:
            raise ValueError(f"eraser.starts={starts}: each class's ascent needs at least 1")
        second = AlfQleaceEraser.from_moments(moments)
        device, flat = second.mean.device, x.flatten(1)
        y = by_rows(lambda rows: second(flat[rows]) - second.mean.to(flat), torch.empty_like(flat))
        search = _Search(ThirdMoments.of(y.to(device), z.to(device), moments), second, starts, seed)
        norms = [search.worst()]
        left = moments.dim - second.removed
        limit = left if num_directions is None else min(left, num_directions)
        rounding = _ROUNDING * float(moments.total.trace()) ** 1.5
        end = max(rounding, 0.0 if target is None else (1 - target) * norms[0])
        with Display("ALF-cubic") as display:
            while len(norms) <= limit and norms[-1] > end:
                search.remove_worst()
                found = search.worst()
                norms = [*(max(norm, found) for norm in norms), found]
                fallen = math.log(max(end, norms[-1]) / norms[0]) / math.log(end / norms[0])
                left_of_it = f"{norms[-1] / norms[0]:.2g} of the worst norm"
                display.update(max(fallen, len(norms) / (limit + 1)), f"{len(norms) - 1} directions: {left_of_it}")
        left, right = second.without(search.removed)
        return cls(mean=second.mean, num_classes=second.num_classes, left=left, right=right, norms3=tuple(norms))


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
        """Of examples whose classes have mean zero; `moments` for the sizes of classes."""
        own = torch.nn.functional.one_hot(z, moments.num_classes) / moments.counts.to(torch.float64)
        return cls(y, own - own.sum(1, keepdim=True) / moments.num_classes)

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


class _Search:
    """Directions [d, m] climb |D_j(u, u, u)| on the unit sphere, orthogonal to those that were removed."""

    def __init__(self, third: ThirdMoments, second: AlfQleaceEraser, starts: int, seed: int) -> None:
        k, device = third.weights.shape[1], second.mean.device
        self.third, self.second, self.starts = third, second, starts
        self.generator = torch.Generator().manual_seed(seed)
        self.removed = second.mean.new_empty(len(second.mean), 0)  # orthonormal, in columns
        self.classes = torch.arange(k, device=device).repeat_interleave(starts)
        self.best = self._random(k)
        self.worst_direction = self.best[:, :1]

    def worst(self) -> float:
        """The largest norm that is found now."""
        k = self.best.shape[1]
        u = self._random(len(self.classes)).view(-1, k, self.starts)
        u[:, :, 0] = self._unit(self.best)
        u, values = climb(self.third, self.classes, u.flatten(1), self.removed)
        values, places = values.view(k, self.starts).max(1)
        self.best = u[:, places + torch.arange(k, device=u.device) * self.starts]
        self.worst_direction = self.best[:, values.argmax()[None]]
        return float(values.amax())

    def remove_worst(self) -> None:
        self.removed = torch.cat([self.removed, self._unit(self.worst_direction)], 1)

    def _random(self, m: int) -> Tensor:
        """Random combinations of examples: all that third moments can tell of lies in their span."""
        amounts = torch.randn(len(self.third.y), m, generator=self.generator, dtype=torch.float64)
        return self._unit(self.third.combined(amounts.to(self.removed.device)))

    def _unit(self, u: Tensor) -> Tensor:
        u = u - self.second.left @ (self.second.right @ u)  # what rounding has left there
        for _ in range(2):  # twice is enough for orthogonality to rounding
            u = u - self.removed @ (self.removed.T @ u)
        return u / u.norm(dim=0).clamp(min=torch.finfo(u.dtype).tiny)


def climb(third: ThirdMoments, classes: Tensor, u: Tensor, removed: Tensor) -> tuple[Tensor, Tensor]:
    """Local maxima of |D_j(u, u, u)| on the unit sphere, from directions u [d, m] with class j each, and their values.

    They stay orthogonal to orthonormal columns `removed` [d, r], if they were.

    Every step goes to the best point of a great circle through u, at first that of its gradient g = D_j(u, u, ·), on
    which all points lie that higher-order power iteration may choose with any shift α, (g + α u) / ‖g + α u‖ (Kolda &
    Mayo 2011); then of g and the last step's direction, as in conjugate gradients (Polak & Ribière 1969): a third of
    the steps on the digits. No shift has to be chosen, and no step is worse. What has arrived takes no further part.
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
    """Where |D(w, w, w)| is largest, in -π/2..π/2, nearly, and never below what it is at 0."""
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
