"""Public packages that do what our erasers do, given the same statistics. Installed by `--group bench` only."""

import importlib.util
import warnings
from typing import Any

import torch
from torch import Tensor

from erasure import ClassMoments

MISSING = "not installed: uv run --group bench python -m scripts.bench_erasers"


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


def quadratic_step(covariance: Tensor, average: Tensor) -> None:
    """What concept-erasure's fixed point does for one class in one step, and for the average besides."""
    from concept_erasure.optimal_transport import psd_sqrt  # pyright: ignore[reportMissingImports]

    psd_sqrt(average @ covariance[None] @ average)


def barycenter(moments: ClassMoments, rounds: int) -> Tensor:
    """POT's barycenter of the class covariances, after that many rounds; its own rule allows 1,000."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ot  # pyright: ignore[reportMissingImports]

    found: Any = ot.gaussian.bures_wasserstein_barycenter(
        moments.means, moments.covariances, moments.weights, num_iter=rounds
    )
    return found[1]
