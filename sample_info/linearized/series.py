"""All systems that leave something out as columns of one matrix: a Chebyshev series of the masked kernel.

Training without example i is training with rows and columns i of the kernel masked, and t steps of it are a polynomial
in the masked kernel. A term costs all systems one product with the kernel, and a few dozen terms do the work of
thousands of steps. For one vector, or few steps and many outputs, no eigendecomposition pays.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

_LARGEST_DEGREE = 2**17
_EPS = torch.finfo(torch.float64).eps  # per value; over N of them the transform's coefficients add up to √N times it


@dataclass(frozen=True)
class ChebyshevSeries:
    """Σ_j c_j T_j, on [low, high] mapped to [-1, 1].

    Attributes:
        coefficients: c_j, [degree + 1] float64.
        low, high: the interval.
        truncation: bound on |function - series| over the interval: the sum of the coefficients left out, rounding
            included; those beyond the transform are taken to be less than its upper half.
    """

    coefficients: Tensor
    low: float
    high: float
    truncation: float

    @property
    def degree(self) -> int:
        return len(self.coefficients) - 1

    @classmethod
    def fit(cls, function: Callable[[Tensor], Tensor], low: float, high: float, tolerance: float) -> "ChebyshevSeries":
        """The shortest series with an error of at most `tolerance` times the function's largest value.

        Coefficients come from a discrete cosine transform of the function at Chebyshev points, twice as many until
        the upper half of them is negligible (Trefethen 2013, chapters 3 and 8). The function takes points [N] float64,
        and is smooth on the interval.

        Raises:
            ValueError: no series of degree 65,536 or less is good enough.
        """
        from scipy.fft import dct  # imported where it is used: a launch that has nothing left to do is quick

        points = 32
        while points <= _LARGEST_DEGREE:
            points *= 2
            angles = torch.pi * (torch.arange(points, dtype=torch.float64) + 0.5) / points
            values = function(low + (high - low) * (angles / 2).cos().square())  # (1 + cos)/2 with all digits at low
            coefficients = torch.from_numpy(dct(values.numpy(), type=2)) / points
            coefficients[0] /= 2
            tails = coefficients.abs().flip(0).cumsum(0).flip(0)  # tails[j]: what is lost by stopping before j
            largest, rounding = float(values.abs().max()), _EPS * points**0.5
            allowed, beyond = max(2 * rounding, tolerance) * largest, float(tails[points // 2])
            if beyond <= max(rounding, 1e-3 * tolerance) * largest:  # all above fall faster still
                kept = max(1, int((tails > allowed - beyond).sum()))
                return cls(coefficients[:kept].clone(), low, high, float(tails[kept]) + beyond)
        raise ValueError(
            f"no Chebyshev series of degree {_LARGEST_DEGREE // 2:,} reaches a tolerance of {tolerance:g} on "
            f"[{low:g}, {high:g}]: raise the tolerance, lower steps, or train to convergence"
        )


class MaskedSeries:
    """f(A) r and its change without some examples, for A = Θ + λI, by a series of f on [λ, λ + σ], σ a bound on Θ.

    Of a kernel Θ [n k, n k] float64 and a residual r [n, k].
    """

    def __init__(self, kernel: Tensor, residual: Tensor, series: ChebyshevSeries) -> None:
        self._kernel, self._shape = kernel, residual.shape
        self._scale = 2 / (series.high - series.low)  # Θ + λI is mapped to scale · Θ - I
        self._coefficients = series.coefficients
        now, before = residual.reshape(-1, 1).clone(), None
        terms = [now.squeeze(1).clone()]
        for _ in range(series.degree):
            now, before = self._step(now, before), now
            terms.append(now.squeeze(1).clone())
        self._terms = torch.stack(terms)  # T_j(A) r, [degree + 1, n k]
        self.full = series.coefficients.to(kernel) @ self._terms  # f(A) r, [n k]

    def bytes_per_set(self, _: int = 1) -> int:
        """Memory that `differences` takes for each set."""
        return 4 * 8 * len(self._kernel)

    def differences(self, sets: Tensor) -> Tensor:
        """f(A) r - f(A_-S) r_-S for each of `sets` [b, s], as columns [n k, b].

        They are Σ c_j e_j with e_j = T_j(A) r - T_j(MAM) M r. Off the masked rows e_j obeys the recurrence of T_j; on
        them the masked term is zero, and e_j is the full one. So nothing is subtracted that nearly cancels.
        """
        columns = torch.arange(len(sets), device=sets.device)[:, None]
        now, before = self._kernel.new_zeros(len(self._kernel), len(sets)), None
        total = torch.zeros_like(now)
        for j, weight in enumerate(self._coefficients.tolist()):
            if j:
                now, before = self._step(now, before), now
            now.view(*self._shape, -1)[sets, :, columns] = self._terms[j].view(self._shape)[sets]
            total.add_(now, alpha=weight)
        return total

    def _step(self, now: Tensor, before: Tensor | None) -> Tensor:
        """T_{j+1} from T_j and T_{j-1}, times a vector or columns, in `before`'s memory; T_1 without it."""
        if before is None:
            return torch.addmm(now, self._kernel, now, beta=-1, alpha=self._scale)
        return before.addmm_(self._kernel, now, beta=-1, alpha=2 * self._scale).sub_(now, alpha=2)
