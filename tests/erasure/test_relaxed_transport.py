"""The relaxed transport map: where its objective is least, and how far above that it may end."""

import pytest
import torch
from torch import Tensor

from erasure.relaxed_transport import relaxed_transport_map
from erasure.transport import transport_map
from tests.erasure.test_transport import covariance


@pytest.mark.parametrize(("condition", "weight"), [(10.0, 0.0), (10.0, 10.0), (10.0, 1e3), (1e4, 0.1), (1e4, 10.0)])
def test_relaxed_map_is_where_the_objective_does_not_change(condition: float, weight: float) -> None:
    source, target = covariance(0, condition=condition), covariance(1, condition=condition)
    relaxed = relaxed_transport_map(source, torch.linalg.eigh(target), weight, tolerance=1e-24)
    torch.testing.assert_close(relaxed, relaxed.T, rtol=0, atol=1e-12)
    assert float(torch.linalg.eigvalsh(relaxed)[0]) > 0
    gap = relaxed @ source @ relaxed - target
    one = torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(relaxed @ (one + 2 * weight * gap), one, rtol=0, atol=1e-9)


def test_relaxed_map_is_no_further_above_the_least_than_it_was_asked_to_be() -> None:
    source, target, weight = covariance(0), covariance(1), 10.0

    def objective(matrix: Tensor) -> float:
        edit, gap = matrix - torch.eye(6), matrix @ source @ matrix - target
        return float((edit @ source @ edit).trace() + weight * gap.square().sum())

    eigen = torch.linalg.eigh(target)
    least = objective(relaxed_transport_map(source, eigen, weight, tolerance=1e-24))
    for tolerance in (1e-1, 1e-3, 1e-6):
        reached = objective(relaxed_transport_map(source, eigen, weight, tolerance=tolerance))
        assert least <= reached * (1 + 1e-12)
        assert reached - least <= tolerance * float(source.trace())


def test_relaxed_map_of_a_singular_covariance_lowers_the_objective_and_ends() -> None:
    source, target = covariance(0, rank=3), covariance(1)
    relaxed = relaxed_transport_map(source, torch.linalg.eigh(target), 10.0)
    assert float(torch.linalg.eigvalsh(relaxed)[0]) > 0
    gaps = [float((a @ source @ a - target).norm()) for a in (torch.eye(6, dtype=torch.float64), relaxed)]
    assert gaps[1] < 0.9 * gaps[0]


def test_relaxed_map_becomes_the_transport_map_as_its_weight_grows() -> None:
    source, target = covariance(0), covariance(1)
    exact, eigen = transport_map(source, target), torch.linalg.eigh(target)
    distances = [float((relaxed_transport_map(source, eigen, 10.0**p) - exact).norm()) for p in range(6)]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-2 * distances[0]


def test_relaxed_map_of_single_precision_stops_where_rounding_allows_no_more() -> None:
    source, target = covariance(0).float(), covariance(1)
    eigen = torch.linalg.eigh(target)
    relaxed = relaxed_transport_map(source, eigen, 100.0, tolerance=0.0)
    exact = relaxed_transport_map(source.double(), eigen, 100.0, tolerance=1e-12)
    assert relaxed.dtype == torch.float32
    torch.testing.assert_close(relaxed.double(), exact, rtol=0, atol=1e-3)
