"""ALF-cubic finds planted differences of third moments, and removes those of the digits."""

import pytest
import torch
from torch import Tensor

from erasure import AlfCubicEraser, AlfQleaceEraser, ClassMoments
from erasure.third_moment_search import ThirdMoments
from tests.conftest import gaps

SKEWED = torch.tensor([2.0, -0.5, -0.5, -0.5, -0.5], dtype=torch.float64)  # moments 0, 1, 1.5


def planted(d: int = 7, n: int = 3000, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Two classes that differ in mean, variance and third moment along a direction each: x, z, the three [3, d]."""
    generator = torch.Generator().manual_seed(seed)
    one = torch.randn(n, d, generator=generator, dtype=torch.float64)
    one[:, 2] = SKEWED[torch.randint(5, (n,), generator=generator)]
    one -= one.mean(0)
    other = -one  # of the same covariance, and opposite third moments
    other[:, 1] *= 3
    other[:, 0] += 1
    basis = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    return torch.cat([one, other]) @ basis.T, torch.arange(2).repeat_interleave(n), basis.T[:3]


def test_a_planted_difference_in_the_third_moment_is_found_and_removed() -> None:
    x, z, directions = planted()
    second, third = AlfQleaceEraser.fit(x, z), AlfCubicEraser.fit(x, z)
    assert (second.removed, third.removed) == (2, 3)
    assert third.norms3[0] == pytest.approx(1.5, rel=0.1)
    assert third.norms3[1] < 0.1 * third.norms3[0]
    for eraser, left in ((second, 1.0), (third, 0.0)):
        moved = eraser.left @ eraser.right @ directions[2]  # what is taken of it
        torch.testing.assert_close(moved, (1 - left) * directions[2], rtol=0, atol=0.15)


def test_the_digits_norms_fall_to_the_target_and_never_rise(digits: tuple[Tensor, Tensor]) -> None:
    x, z = digits[0][::3], digits[1][::3]
    second = AlfQleaceEraser.fit(x, z)
    eraser = AlfCubicEraser.fit(x, z, target=0.3, starts=2)
    norms = eraser.norms3
    assert list(norms) == sorted(norms, reverse=True)
    assert norms[-1] <= 0.7 * norms[0] < norms[-2]
    assert eraser.removed == second.removed + len(norms) - 1
    erased = eraser(x).flatten(1)
    assert gaps(erased, z, x)[0] < 1e-12
    torch.testing.assert_close(erased.mean(0), x.flatten(1).mean(0), rtol=0, atol=1e-12)
    # what is recorded is what is left: no image's direction is above it
    third = ThirdMoments.of(erased - erased.mean(0), z, ClassMoments.fit(x, z))
    probes = (erased - erased.mean(0)).T
    probes = probes / probes.norm(dim=0)
    a = third.products(probes)
    values = torch.stack([third.on_plane(a, a, torch.full((len(z),), j))[0] for j in range(10)]).abs()
    assert float(values.max()) <= norms[-1] * (1 + 1e-4)


def test_limits_and_where_nothing_is_left() -> None:
    x, z, _ = planted(n=100)
    second = AlfQleaceEraser.fit(x, z)
    none = AlfCubicEraser.fit(x, z, num_directions=0)
    torch.testing.assert_close(none(x), second(x))
    assert len(none.norms3) == 1
    assert len(AlfCubicEraser.fit(x, z, num_directions=1, target=None, starts=1).norms3) == 2
    everything = AlfCubicEraser.fit(x, z, num_directions=7, target=None)
    torch.testing.assert_close(everything(x), x.mean(0).expand_as(x), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="num_directions=None, target=None: give one"):
        AlfCubicEraser.fit(x, z, target=None)
    with pytest.raises(ValueError, match="starts=0: each class's ascent needs at least 1"):
        AlfCubicEraser.fit(x, z, starts=0)
    with pytest.raises(ValueError, match=r"AlfCubicEraser needs examples, .* call AlfCubicEraser.fit\(x, z\)"):
        AlfCubicEraser.fit_moments(ClassMoments.fit(x, z))
