"""On a GPU every number that the processor asks for is a stop: erasers ask for few, whatever the dimension."""

import pytest
import torch
from torch import Tensor

from erasure import ClassMoments, LeaceEraser, OracleLeaceEraser, QleaceEraser, RandomEraser
from erasure.polar import polar_factor
from erasure.transport import align
from tests.erasure.synchronisations import Synchronisations


def moments(d: int, k: int = 3, n: int = 600) -> ClassMoments:
    generator = torch.Generator().manual_seed(0)
    z = torch.arange(n) % k
    scale = 1 + z[:, None] * torch.linspace(0, 1, d, dtype=torch.float64)
    return ClassMoments.fit(torch.randn(n, d, generator=generator, dtype=torch.float64) * scale + z[:, None], z)


def test_the_counter_counts() -> None:
    x = torch.arange(4.0)
    asked = [lambda: float(x.sum()), lambda: bool((x > 0).all()), lambda: x[x > 1], lambda: x.nonzero()]
    for ask in asked:
        with Synchronisations() as stops:
            ask()
        assert stops.count == 1
    with Synchronisations() as stops:
        y: Tensor = x[1:3].square() + x.sum()
        assert y is not None
    assert stops.count == 0


@pytest.mark.parametrize("d", [6, 60])
def test_leace_and_means_stop_three_times_at_most(d: int) -> None:
    m = moments(d)
    for fit in (LeaceEraser.from_moments, OracleLeaceEraser.from_moments):
        with Synchronisations() as stops:
            fit(m)
        assert stops.count <= 3, stops.by_operator
    with Synchronisations() as stops:
        RandomEraser.from_moments(m, num_directions=2)
    assert stops.count == 0


@pytest.mark.parametrize("d", [6, 60])
def test_qleace_stops_once_per_round_and_class_beside_its_factors(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    m, rounds = moments(d), []

    def counted(*args, **options):
        found = align(*args, **options)
        rounds.append(len(found.excess))
        return found

    monkeypatch.setattr("erasure.erasers.qleace.align", counted)
    with Synchronisations() as stops:
        QleaceEraser.from_moments(m)
    factors = m.num_classes + 1  # the average's, too
    assert stops.count <= 2 * factors + rounds[0] * (m.num_classes + 1) + m.num_classes + 2, stops.by_operator


def test_a_polar_factor_stops_twice() -> None:
    matrix = torch.randn(30, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with Synchronisations() as stops:
        polar_factor(matrix)
    assert stops.count <= 2
