"""Columns that erasers leave without variance are constant to the bit, others are not."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from erasure import (
    AlfQleaceEraser,
    ClassMoments,
    Eraser,
    LeaceEraser,
    OracleLeaceEraser,
    QleaceEraser,
    RandomEraser,
)
from erasure.projection_eraser import constant_columns


def tree_accuracy(x: Tensor, z: Tensor) -> float:
    """Return the accuracy of a decision tree on scaled columns, on held-out examples."""
    model_selection, tree = pytest.importorskip("sklearn.model_selection"), pytest.importorskip("sklearn.tree")
    centred = x.double() - x.double().mean(0)
    scaled = (centred / centred.abs().amax(0).clamp(min=torch.finfo(torch.float64).tiny)).numpy()
    return float(model_selection.cross_val_score(tree.DecisionTreeClassifier(random_state=0), scaled, z.numpy()).mean())


def seven_classes(columns: int) -> tuple[Tensor, Tensor]:
    """Columns with class means, one that is the class itself, and one that is constant."""
    generator = torch.Generator().manual_seed(0)
    z = torch.arange(700) % 7
    means = torch.randn(7, columns, generator=generator, dtype=torch.float64)
    x = torch.randn(700, columns, generator=generator, dtype=torch.float64) + means[z]
    return torch.cat([x, 0.1 * z[:, None] + 0.7, torch.full((700, 1), 0.3, dtype=torch.float64)], 1), z


@pytest.mark.parametrize(
    ("eraser_class", "columns", "options", "constant"),
    [
        (LeaceEraser, 4, {}, range(6)),  # all that varies is removed
        (LeaceEraser, 9, {}, [9, 10]),
        (OracleLeaceEraser, 4, {}, [4, 5]),
        (QleaceEraser, 4, {}, [4, 5]),
        (AlfQleaceEraser, 9, {"num_directions": 2, "target": None}, [9, 10]),
        (AlfQleaceEraser, 9, {"num_directions": 9, "target": None}, range(11)),
        (RandomEraser, 4, {"num_directions": 6}, range(5)),
    ],
)
def test_columns_that_an_eraser_makes_constant_are_constant(
    eraser_class: type[Eraser], columns: int, options: dict, constant: Sequence[int]
) -> None:
    """A probe that rescales every column learns from what rounding leaves there, otherwise."""
    x, z = seven_classes(columns)
    erased = eraser_class.fit(x, z, **options)(x, z)
    assert [i for i in range(x.shape[1]) if bool((erased[:, i] == erased[0, i]).all())] == [*constant]
    assert tree_accuracy(x, z) == 1.0
    if len(constant) == x.shape[1]:
        assert tree_accuracy(erased, z) == pytest.approx(1 / 7)


def test_columns_are_constant_that_vary_by_rounding_only_afterwards() -> None:
    before = torch.tensor([1.0, 1e-20, 0.0, 1e6, 1.0], dtype=torch.float64)
    after = torch.tensor([1e-16, 1e-20, 0.0, -1e-10, 1e-12], dtype=torch.float64)
    moments = ClassMoments.fit(torch.tensor([[0.0] * 5, [1.0] * 5]), [0, 1])
    assert constant_columns(LeaceEraser, moments, before, after) == (0, 3)
