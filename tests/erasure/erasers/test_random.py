"""The random projection: as many dimensions lost as by ALF-QLEACE, and no class information erased on purpose."""

import pytest
import torch

from erasure import AlfQleaceEraser, ClassMoments, RandomEraser
from tests.conftest import gaps


def test_it_is_an_orthogonal_projection_about_the_mean(digits) -> None:
    x, z = digits
    eraser = RandomEraser.fit(x, z, num_directions=10)
    erased = eraser(x)
    torch.testing.assert_close(eraser.left, eraser.right.T)
    torch.testing.assert_close(eraser.right @ eraser.left, torch.eye(10, dtype=torch.float64), rtol=0, atol=1e-14)
    torch.testing.assert_close(erased.mean(0), x.mean(0), rtol=0, atol=1e-14)
    torch.testing.assert_close(eraser(erased), erased, rtol=0, atol=1e-14)
    assert torch.equal(eraser(x, z), erased)  # no label is looked at
    removed = (x - erased).flatten(1) @ eraser.left
    torch.testing.assert_close(removed, (x.flatten(1) - eraser.mean) @ eraser.left, rtol=0, atol=1e-13)


def test_it_erases_no_order_of_moments(digits) -> None:
    x, z = digits
    eraser = RandomEraser.fit(x, z, num_directions=20)
    assert eraser.erased_order == 0
    assert min(gaps(eraser(x), z, x)) > 0.3


def test_it_removes_as_many_dimensions_as_alf_qleace_unless_told_otherwise(digits) -> None:
    moments = ClassMoments.fit(*digits)
    assert RandomEraser.from_moments(moments).removed == AlfQleaceEraser.from_moments(moments).removed
    assert RandomEraser.from_moments(moments, num_directions=3).removed == 3


def test_none_and_all_directions(digits) -> None:
    x, z = digits
    assert torch.equal(RandomEraser.fit(x, z, num_directions=0)(x), x)
    constant = x.mean(0).expand_as(x)
    torch.testing.assert_close(RandomEraser.fit(x, z, num_directions=64)(x), constant, rtol=0, atol=1e-13)


def test_directions_follow_the_seed_and_nothing_else(digits) -> None:
    moments = ClassMoments.fit(*digits)

    def directions(seed: int) -> torch.Tensor:
        torch.manual_seed(int(torch.randint(10**6, ())))  # whatever the global generator does
        return RandomEraser.from_moments(moments, num_directions=4, seed=seed).left

    assert torch.equal(directions(1), directions(1))
    assert not torch.allclose(directions(1), directions(2))


@pytest.mark.parametrize("num_directions", [-1, 65])
def test_more_directions_than_dimensions_are_refused(digits, num_directions: int) -> None:
    with pytest.raises(ValueError, match=f"num_directions={num_directions}: must lie between 0 and 64"):
        RandomEraser.fit(*digits, num_directions=num_directions)
