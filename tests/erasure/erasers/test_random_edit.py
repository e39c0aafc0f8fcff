"""The control of equal edit: as much variance changed as by an eraser, in directions that mean nothing."""

from typing import Literal, get_args

import pytest
import torch

from erasure import ClassMoments, Eraser, LeaceEraser, QleaceEraser, RandomEditEraser, RandomEraser
from erasure.certificate import certify
from erasure.erasers.random_edit import _REFERENCES, expected_edit
from tests.conftest import gaps

Reference = Literal["leace", "oracle_leace", "qleace", "alf_qleace"]


def edit(eraser: Eraser, x: torch.Tensor, z: torch.Tensor) -> float:
    return float((eraser(x, z) - x).square().sum() / (x - x.mean(0)).square().sum())


@pytest.mark.parametrize("reference", get_args(Reference))
def test_its_edit_is_that_of_the_eraser_it_is_compared_with_and_equal_rank_is_not(digits, reference: Reference) -> None:
    x, z = digits
    moments = ClassMoments.fit(x, z)
    matched = edit(_REFERENCES[reference].from_moments(moments), x, z)
    control = RandomEditEraser.from_moments(moments, reference=reference)
    assert edit(control, x, z) == pytest.approx(matched, rel=1e-9)
    assert expected_edit(_REFERENCES[reference].from_moments(moments), moments) == pytest.approx(matched, rel=1e-9)
    assert certify(x, control(x), z, moments).edit_size == pytest.approx(matched, rel=1e-9)


def test_equal_rank_is_no_equal_edit(digits) -> None:
    x, z = digits
    leace = LeaceEraser.fit(x, z)
    of_equal_rank = RandomEraser.fit(x, z, num_directions=leace.removed)
    assert edit(of_equal_rank, x, z) < 0.5 * edit(leace, x, z)


def test_labels_are_not_looked_at_and_classes_stay_apart(digits) -> None:
    x, z = digits
    control = RandomEditEraser.fit(x, z, reference="leace")
    assert torch.equal(control(x, z), control(x))
    assert min(gaps(control(x), z, x)) > 0.2
    assert gaps(LeaceEraser.fit(x, z)(x), z, x)[0] < 1e-13
    torch.testing.assert_close(control(x).mean(0), x.mean(0), rtol=0, atol=1e-13)


@pytest.mark.parametrize("edit_size", [0.0, 0.013, 0.5, 1.0])
def test_any_edit_size_is_met_by_whole_directions_but_the_last(digits, edit_size: float) -> None:
    x, z = digits
    eraser = RandomEditEraser.fit(x, z, edit_size=edit_size)
    assert edit(eraser, x, z) == pytest.approx(edit_size, abs=1e-12)
    assert (eraser.shares[:-1] == 1).all()
    r = len(eraser.shares)
    torch.testing.assert_close(
        eraser.directions.T @ eraser.directions, torch.eye(r, dtype=torch.float64), rtol=0, atol=1e-13
    )


def test_the_draw_follows_the_seed_and_nothing_else(digits) -> None:
    moments = ClassMoments.fit(*digits)
    torch.manual_seed(int(torch.randint(10**6, ())))  # whatever the global generator does
    first, again, other = (RandomEditEraser.from_moments(moments, seed=seed).directions for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first[:, :5], other[:, :5])


@pytest.mark.parametrize("edit_size", [-0.1, 1.1])
def test_an_edit_that_no_projection_makes_is_refused(digits, edit_size: float) -> None:
    with pytest.raises(ValueError, match=f"edit_size={edit_size}: a projection edits between 0 and 1"):
        RandomEditEraser.fit(*digits, edit_size=edit_size)


def test_qleaces_edit_is_found_where_classes_differ_in_rank() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.arange(60) % 3
    x = torch.randn(60, 8, generator=generator, dtype=torch.float64) * (1 + z[:, None])
    x[z == 0, 5:] = 0.3
    moments = ClassMoments.fit(x, z)
    eraser = QleaceEraser.from_moments(moments)
    assert expected_edit(eraser, moments) == pytest.approx(edit(eraser, x, z), rel=1e-9)
