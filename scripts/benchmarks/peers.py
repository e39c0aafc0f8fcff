"""Public packages that do what our erasers do, given the same statistics. Installed by `--group bench` only."""

import importlib.util
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from erasure import ClassMoments
from scripts.benchmarks.benchmark import measured

MISSING = "not installed: uv run --group bench python -m scripts.benchmarks.erasers"


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def leace_fitter(moments: ClassMoments):
    """concept-erasure's LEACE with our statistics; its eraser is computed on first use of `.eraser`."""
    from concept_erasure import LeaceFitter  # pyright: ignore[reportMissingImports]

    device = moments.means.device
    fitter = LeaceFitter(moments.dim, moments.num_classes, shrinkage=False, dtype=torch.float64, device=device)
    fitter.mean_x, fitter.mean_z = moments.mean, moments.weights
    fitter.n = torch.tensor(moments.n, device=device)
    fitter.sigma_xx_, fitter.sigma_xz_ = moments.total * moments.n, moments.cross * moments.n
    return fitter


def quadratic_fitter(moments: ClassMoments):
    """concept-erasure's QLEACE with our statistics."""
    from concept_erasure import QuadraticFitter  # pyright: ignore[reportMissingImports]

    device = moments.means.device
    fitter = QuadraticFitter(moments.dim, moments.num_classes, shrinkage=False, dtype=torch.float64, device=device)
    fitter.mean_x, fitter.n = moments.means, moments.counts.double()
    fitter.sigma_xx_ = moments.covariances * moments.counts[:, None, None]
    return fitter


@dataclass(frozen=True)
class QuadraticSteps:
    """Seconds of the pieces of concept-erasure's QLEACE fit, each run once.

    Attributes:
        per_step: of a step of the fixed point, however many classes.
        per_class: of a step, for each class.
        per_map: of a class's map to the barycenter.
    """

    per_step: float
    per_class: float
    per_map: float

    @classmethod
    def time(cls, moments: ClassMoments) -> "QuadraticSteps":
        from concept_erasure import optimal_transport as peer  # pyright: ignore[reportMissingImports]

        device = moments.means.device
        two = torch.stack([moments.covariance(0), moments.covariance(1)])
        with measured(device) as step_of_two:
            average = peer.ot_barycenter(two, max_iter=1)
        with measured(device) as root:
            peer.psd_sqrt_rsqrt(average)
        with measured(device) as one_map:
            peer.ot_map(two[:1], average)
        return cls(root.seconds, (step_of_two.seconds - root.seconds) / 2, one_map.seconds)

    def total(self, classes: int, steps: int) -> float:
        return steps * (self.per_step + classes * self.per_class) + classes * self.per_map


def barycenter(moments: ClassMoments, rounds: int) -> Tensor:
    """POT's barycenter of the class covariances, after that many rounds; its own rule allows 1,000."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ot  # pyright: ignore[reportMissingImports]

    found: Any = ot.gaussian.bures_wasserstein_barycenter(
        moments.means, moments.covariances, moments.weights, num_iter=rounds
    )
    return found[1]
