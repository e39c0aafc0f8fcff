"""ALF-QLEACE against its definition (section 2.3), by explicit projections and full decompositions."""

import pytest
import torch
from torch import Tensor

from erasure import AlfQleaceEraser, ClassMoments, LeaceEraser
from tests.conftest import gaps


def mixture(k: int, d: int, *, n: int = 40, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Classes of different size, mean and covariance."""
    generator = torch.Generator().manual_seed(seed)
    classes = []
    for j in range(k):
        factor = torch.randn(d, d, generator=generator, dtype=torch.float64) / d**0.5
        x = torch.randn(n + 7 * j, d, generator=generator, dtype=torch.float64)
        classes.append(x @ factor + torch.randn(d, generator=generator, dtype=torch.float64))
    z = torch.arange(k).repeat_interleave(torch.tensor([len(c) for c in classes]))
    return torch.cat(classes), z


def class_covariances(x: Tensor, z: Tensor) -> Tensor:
    return torch.stack([x[z == j].T.cov(correction=0) for j in z.unique()])


def reference(x: Tensor, z: Tensor, directions: int) -> tuple[list[float], Tensor]:
    """Worst norms and the whole projection [d, d], every covariance projected and decomposed at every step."""
    d = x.shape[1]
    eye = torch.eye(d, dtype=torch.float64)
    total = (x - x.mean(0)).T @ (x - x.mean(0)) / len(x)
    values, vectors = torch.linalg.eigh(total)
    half, inverse = (vectors * values.sqrt()) @ vectors.T, (vectors / values.sqrt()) @ vectors.T
    means = torch.stack([x[z == j].mean(0) for j in z.unique()])
    u, sizes, _ = torch.linalg.svd(inverse @ (means - x.mean(0)).T, full_matrices=False)
    u = u[:, sizes > 1e-8 * sizes[0]]
    p = eye - half @ u @ u.T @ inverse
    covariances = class_covariances(x, z)
    norms = []
    for step in range(directions + 1):
        projected = p @ covariances @ p.T
        values, vectors = torch.linalg.eigh(projected - projected.mean(0))  # the plain average, not λ's
        j, i = divmod(int(values.abs().argmax()), d)
        norms.append(float(values[j, i].abs()))
        if step < directions:
            p = (eye - torch.outer(vectors[j, :, i], vectors[j, :, i])) @ p
    return norms, p


def projection(eraser: AlfQleaceEraser) -> Tensor:
    return torch.eye(len(eraser.mean), dtype=torch.float64) - eraser.left @ eraser.right


@pytest.mark.parametrize(("k", "d", "directions"), [(2, 5, 3), (4, 12, 7), (7, 60, 10)])
def test_norms_and_removed_directions_are_the_slow_references(k: int, d: int, directions: int) -> None:
    x, z = mixture(k, d, n=d + 20, seed=d)
    eraser = AlfQleaceEraser.fit(x, z, num_directions=directions, target=None)
    norms, p = reference(x, z, directions)
    assert eraser.removed == k - 1 + directions
    # norms are Rayleigh quotients: a residual of 1e-8 squared; the directions themselves are of first order
    torch.testing.assert_close(torch.tensor(eraser.norms), torch.tensor(norms), rtol=1e-6, atol=1e-6 * norms[0])
    torch.testing.assert_close(projection(eraser), p, rtol=0, atol=1e-5)


def test_the_digits_norms_fall_to_the_target_and_every_step_is_needed(digits) -> None:
    x, z = digits  # singular covariances
    eraser = AlfQleaceEraser.fit(x, z)
    norms = eraser.norms
    assert list(norms) == sorted(norms, reverse=True)
    assert norms[-1] <= 0.1 * norms[0] < norms[-2]
    assert eraser.removed == 9 + len(norms) - 1
    covariances = class_covariances(eraser(x).flatten(1), z)
    differences = torch.linalg.eigvalsh(covariances - covariances.mean(0)).abs().amax()
    assert float(differences) == pytest.approx(norms[-1], rel=1e-6)  # what is recorded is what is left
    # a linear eraser cannot make covariances equal, but the gap falls
    leace_gap = gaps(LeaceEraser.fit(x, z)(x), z, x)[1]
    assert 1e-3 < gaps(eraser(x), z, x)[1] < 0.5 * leace_gap


def test_it_stops_at_whichever_limit_comes_first() -> None:
    x, z = mixture(3, 10)
    full = AlfQleaceEraser.fit(x, z, num_directions=8, target=None).norms
    assert len(full) == 9
    reached = next(i for i, norm in enumerate(full) if norm <= 0.5 * full[0])
    assert 0 < reached < 8
    for num_directions, expected in ((None, reached), (8, reached), (reached - 1, reached - 1), (0, 0)):
        eraser = AlfQleaceEraser.fit(x, z, num_directions=num_directions, target=0.5)
        assert eraser.norms == full[: expected + 1]
        assert eraser.removed == 2 + expected
    assert AlfQleaceEraser.fit(x, z, target=0.0).norms == full[:1]  # a fall by nothing is there from the start


@pytest.mark.parametrize("target", [None, 1.0])
def test_all_directions_can_be_removed_and_none_is_left(target: float | None) -> None:
    x, z = mixture(3, 7)
    eraser = AlfQleaceEraser.fit(x, z, num_directions=7, target=target)
    assert eraser.removed == 7  # LEACE's two among them
    torch.testing.assert_close(eraser(x), x.mean(0).expand_as(x), rtol=0, atol=1e-12)
    assert eraser.norms[-1] < 1e-12


def test_classes_that_differ_in_nothing_are_left_alone() -> None:
    x = torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x, z = torch.cat([x, x]), torch.arange(2).repeat_interleave(40)
    eraser = AlfQleaceEraser.fit(x, z, num_directions=2)
    assert eraser.norms[0] < 1e-15
    assert eraser.removed <= 2
    erased = eraser(x)
    torch.testing.assert_close(eraser(erased), erased, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": None}, "num_directions=None, target=None: give one"),
        ({"num_directions": -1}, "num_directions=-1: must lie between 0 and 6"),
        ({"num_directions": 7}, "num_directions=7: must lie between 0 and 6"),
        ({"target": 1.5}, "target=1.5: a fraction between 0 and 1"),
        ({"target": float("nan")}, "target=nan: a fraction between 0 and 1"),
    ],
)
def test_limits_out_of_range_are_refused(options: dict, message: str) -> None:
    moments = ClassMoments.fit(*mixture(3, 6))
    with pytest.raises(ValueError, match=message):
        AlfQleaceEraser.from_moments(moments, **options)
