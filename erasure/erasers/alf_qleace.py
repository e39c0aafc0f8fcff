"""ALF-QLEACE: LEACE, followed by removal of the directions in which class covariances differ most."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from erasure.erasers.leace import LeaceEraser
from erasure.inputs import real_number, whole_number
from erasure.lanczos import largest_eigenpairs
from erasure.moments import ClassMoments
from erasure.projection_eraser import ProjectionEraser, removed_columns


@dataclass(frozen=True, repr=False)
class AlfQleaceEraser(ProjectionEraser):
    """Approximate label-free quadratic LEACE (Quirke & Belrose 2025, section 2.3).

    After LEACE, repeat: among the differences D_j = P (Σ_j - Σ̄) Pᵀ between class covariances and their average, take
    the one with the largest spectral norm, and project its leading direction out. The map is the same for every class,
    so that it adds no label information; some quadratic information remains.

    Attributes:
        norms: max_j ‖D_j‖₂ after LEACE and after each removed direction; never increasing.

    Example:
        >>> import torch
        >>> from erasure import AlfQleaceEraser
        >>> z = torch.arange(300) % 3
        >>> x = torch.randn(300, 6, dtype=torch.float64) * (1 + z[:, None]) + z[:, None]
        >>> erased = AlfQleaceEraser.fit(x, z, num_directions=2)(x)
        >>> means = torch.stack([erased[z == j].mean(0) for j in range(3)])
        >>> bool((means - means[0]).abs().max() < 1e-9)
        True
    """

    norms: tuple[float, ...]
    version = 2
    erased_order = 1

    @classmethod
    def require_options(cls, *, num_directions: int | None = None, target: float | None = 0.9, **_: Any) -> None:
        _require_limits(None, num_directions, target)

    @classmethod
    def from_moments(
        cls, moments: ClassMoments, *, num_directions: int | None = None, target: float | None = 0.9
    ) -> Self:
        """Fit from class moments.

        The differences are never formed: D_j acts on a vector through Σ_j and the thin factors of P. A norm takes a few
        dozen such products, O(k d²) per direction. Projections never raise a norm, so a class whose last computed norm
        is below the largest current one need not be evaluated again.

        Args:
            moments: moments of the data to erase, with at least two examples per class.
            num_directions: maximum number of directions to remove after LEACE; None for no limit.
            target: fraction by which the largest norm must have fallen to stop; None to stop at `num_directions`.

        Raises:
            ValueError: no limit, or a limit out of range.
        """
        _require_limits(moments.dim, num_directions, target)
        moments.require_examples()
        leace = LeaceEraser.from_moments(moments)
        search = _Search(moments, leace)
        norms = [search.worst()]
        limit = moments.dim - leace.removed if num_directions is None else num_directions
        goal = -1.0 if target is None else (1 - target) * norms[0]
        while len(norms) <= min(limit, moments.dim - leace.removed) and norms[-1] > goal:
            search.remove_worst()
            norms.append(min(search.worst(), norms[-1]))  # rounding could raise it if nothing was gained
        total = moments.total
        # constant coordinates remain constant: rounding left traces of the random start of the search there
        search.removed.masked_fill_((total.diagonal() == 0)[:, None], 0.0)
        left, right = leace.without(search.removed)
        constant = removed_columns(cls, moments, total, left, right)
        return cls(leace.mean, leace.num_classes, left, right, norms=tuple(norms), constant=constant)


def _require_limits(dim: int | None, num_directions: int | None, target: float | None) -> None:
    """Raise ValueError unless there is a valid limit for directions in `dim` dimensions (None if unknown)."""
    if num_directions is None and target is None:
        raise ValueError("num_directions=None, target=None: give one of them, for example target=0.9")
    num_directions = None if num_directions is None else whole_number(num_directions, "num_directions")
    if num_directions is not None and not 0 <= num_directions <= (math.inf if dim is None else dim):
        allowed = "be at least 0" if dim is None else f"lie between 0 and {dim}, the dimensions"
        raise ValueError(f"num_directions={num_directions}: must {allowed}")
    if target is not None and not 0 <= real_number(target, "target") <= 1:
        raise ValueError(f"target={target}: a fraction between 0 and 1, by which the largest norm is to fall")


class _Search:
    """Spectral norms of the class differences after projection, evaluated only if they can be the largest."""

    def __init__(self, moments: ClassMoments, leace: LeaceEraser) -> None:
        k, d = moments.means.shape
        self.moments, self.leace = moments, leace
        self.average = functools.reduce(torch.add, map(moments.covariance, range(k))) / k
        self.rounding = 1e-15 * float(self.average.trace())
        self.removed = moments.means.new_empty(d, 0)  # orthonormal directions, in columns
        self.bounds = [math.inf] * k  # norms when last evaluated, which bound the present ones
        self._start = torch.randn(d, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(self.average)
        self.vectors = [self._start] * k

    def worst(self) -> float:
        """Return the largest norm, after evaluating the two highest bounds and then all bounds above them."""
        first, *rest = sorted(range(len(self.bounds)), key=lambda j: -self.bounds[j])
        self._evaluate([first, *rest[:1]])
        best = max(self.bounds[j] for j in (first, *rest[:1]))
        if others := [j for j in rest[1:] if self.bounds[j] > best]:
            self._evaluate(others)
        return max(self.bounds)

    def _evaluate(self, classes: Sequence[int]) -> None:
        starts = torch.stack([self.vectors[j] for j in classes])
        values, vectors = largest_eigenpairs(lambda u: self._differences(classes, u), starts, rounding=self.rounding)
        for j, value, vector in zip(classes, values, vectors, strict=True):
            self.bounds[j], self.vectors[j] = abs(value), vector

    def remove_worst(self) -> None:
        """Project out the leading direction of the class with the largest norm."""
        worst = self.bounds.index(max(self.bounds))
        v = self._complement(self.vectors[worst][None])
        self.removed = torch.cat([self.removed, v.mT / v.norm()], 1)
        # start again, because the class's vector is now projected out
        self.vectors[worst] = self._start

    def _differences(self, classes: Sequence[int], u: Tensor) -> Tensor:
        """Return P (Σ_j - Σ̄) Pᵀ u of classes j and rows u [g, d]; P is LEACE, then removal of the directions."""
        u = self._complement(u)
        u = u - (u @ self.leace.left) @ self.leace.right
        moved = [self.moments.multiply(j, row) for j, row in zip(classes, u, strict=True)]
        u = torch.stack(moved) - u @ self.average
        u = u - (u @ self.leace.right.T) @ self.leace.left.T
        return self._complement(u)

    def _complement(self, u: Tensor) -> Tensor:
        u = u - (u @ self.removed) @ self.removed.T
        return u - (u @ self.removed) @ self.removed.T  # twice is enough for orthogonality to rounding
