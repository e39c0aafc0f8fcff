"""ALF-cubic: ALF-QLEACE, and then the directions along which third central moments of classes differ most."""

import math
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from erasure.columns_made_constant import removed_columns
from erasure.erasers.alf_qleace import AlfQleaceEraser, require_limits
from erasure.moments import ClassMoments
from erasure.progress import report_progress
from erasure.projection_eraser import ProjectionEraser
from erasure.third_moment_search import ThirdMoments, climb

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
        norms3: max_j ‖D_j‖ after ALF-QLEACE and after each direction removed, as estimated by the search; never
            increasing: a larger norm that is found later replaces earlier ones.

    Example:
        >>> import torch
        >>> from erasure import AlfCubicEraser
        >>> x, z = torch.randn(90, 10, generator=torch.Generator().manual_seed(0)), torch.arange(90) % 3
        >>> eraser = AlfCubicEraser.fit(x, z, num_directions=1, target=None)
        >>> len(eraser.norms3)  # before and after the direction
        2
    """

    norms3: tuple[float, ...]
    version = 3
    erased_order = 1

    @classmethod
    def from_moments(cls, moments: ClassMoments, **options: Any) -> Self:  # noqa: ARG003
        """Not possible: raises ValueError."""
        raise ValueError(f"{cls.__name__} needs examples, not only their moments: call {cls.__name__}.fit(x, z)")

    @classmethod
    def require_options(
        cls,
        *,
        num_directions: int | None = None,
        target: float | None = 0.9,
        starts: int = 4,
        seed: int = 0,
        **_: Any,
    ) -> None:
        require_limits(None, num_directions, target)
        if starts < 1:
            raise ValueError(f"starts={starts}: each class's ascent needs at least 1")
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed={seed}: must be at least 0, and less than 2^63")

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
            num_directions: most directions to remove after ALF-QLEACE with its defaults; None for no limit.
            target: stop once the worst norm has fallen by this fraction; None to go on to `num_directions`.
            starts: of the ascent for each class: the best direction so far, and random ones.
            seed: of those.

        Raises:
            ValueError: neither limit given, or one out of range, or no start.
        """
        cls.require_options(num_directions=num_directions, target=target, starts=starts, seed=seed)
        require_limits(moments.dim, num_directions, target)
        second = AlfQleaceEraser.from_moments(moments)
        device, flat = second.mean.device, x.flatten(1)
        y = second(flat).sub_(second.mean.to(flat))
        search = _Search(ThirdMoments.of(y.to(device), z.to(device), moments), second, starts, seed)
        norms = [search.worst()]
        left = moments.dim - second.removed
        limit = left if num_directions is None else min(left, num_directions)
        total = moments.total
        rounding = _ROUNDING * float(total.trace()) ** 1.5
        end = max(rounding, 0.0 if target is None else (1 - target) * norms[0])
        while len(norms) <= limit and norms[-1] > end:
            search.remove_worst()
            worst = search.worst()
            norms = [*(max(norm, worst) for norm in norms), worst]
            fallen = math.log(max(end, norms[-1]) / norms[0]) / math.log(end / norms[0])
            detail = f"{len(norms) - 1} directions: {norms[-1] / norms[0]:.2g} of the worst norm"
            report_progress("ALF-cubic", max(fallen, len(norms) / (limit + 1)), detail)
        left, right = second.without(search.removed)
        constant = removed_columns(total, left, right)
        return cls(second.mean, second.num_classes, left, right, norms3=tuple(norms), constant=constant)


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
        """Return the largest norm that the search finds."""
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
        u = u - self.second.left @ (self.second.right @ u)  # remove rounding errors
        for _ in range(2):  # twice is enough for orthogonality to rounding
            u = u - self.removed @ (self.removed.T @ u)
        return u / u.norm(dim=0).clamp(min=torch.finfo(u.dtype).tiny)
