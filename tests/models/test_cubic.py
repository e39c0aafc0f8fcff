"""Theorem 2.2 at order three: where moments up to it are equal, degree-3 features are worth nothing; else they are."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from erasure import QleaceEraser
from models.classifier import count_parameters
from models.cubic import CubicClassifier
from models.quadratic import QuadraticClassifier
from tests.models.test_quadratic import entropy, lowest_loss


def grid(*classes: list[float]) -> tuple[Tensor, Tensor]:
    """All pairs of each class's values, each class 36 times: coordinates are independent and distributed alike."""
    points = [torch.tensor(list(itertools.product(values * (6 // len(values)), repeat=2))) for values in classes]
    x = torch.cat(points).double().view(-1, 1, 1, 2)
    return x, torch.arange(len(classes)).repeat_interleave(36)


TWO = [-1.0, 1.0]  # moments 0, 1, 0, 1
THREE = [-math.sqrt(3), 0.0, 0.0, 0.0, 0.0, math.sqrt(3)]  # moments 0, 1, 0, 3
SKEWED = [math.sqrt(2), -math.sqrt(0.5), -math.sqrt(0.5)]  # moments 0, 1, 1/√2


def test_it_cannot_learn_where_third_moments_are_equal_whatever_the_fourth() -> None:
    x, z = grid(TWO, THREE)
    assert lowest_loss(CubicClassifier((1, 1, 2), 2, sketch=2), x, z) == pytest.approx(entropy(z), abs=1e-9)


def test_it_learns_from_third_moments_what_the_quadratic_classifier_cannot() -> None:
    x, z = grid(TWO, SKEWED)
    assert lowest_loss(QuadraticClassifier((1, 1, 2), 2, sketch=2), x, z) == pytest.approx(entropy(z), abs=1e-9)
    assert lowest_loss(CubicClassifier((1, 1, 2), 2, sketch=2), x, z) < 0.5 * entropy(z)


def test_it_learns_what_qleace_leaves_of_the_digits(digits: tuple[Tensor, Tensor]) -> None:
    x, z = F.avg_pool2d(digits[0], 2), digits[1]
    erased = QleaceEraser.fit(x, z)(x, z)
    quadratic, cubic = (kind((1, 4, 4), 10, sketch=8) for kind in (QuadraticClassifier, CubicClassifier))
    assert lowest_loss(quadratic, erased, z, max_iter=20) == pytest.approx(entropy(z), abs=1e-6)
    assert lowest_loss(cubic, erased, z, max_iter=20) < 0.95 * entropy(z)
    assert lowest_loss(cubic, x, z, max_iter=40) < 0.2 * entropy(z)


@pytest.mark.parametrize(("d", "sketch"), [(1, 1), (4, 32), (9, 3)])
def test_features_are_all_monomials_of_degree_one_to_three(d: int, sketch: int) -> None:
    model = CubicClassifier((1, 1, d), 3, sketch=sketch)
    x = torch.randn(4, d, generator=torch.Generator().manual_seed(d))
    s = min(d, sketch)
    y = x if d <= sketch else x @ model.get_buffer("directions")
    chosen = [c for degree in (1, 2, 3) for c in itertools.combinations_with_replacement(range(s), degree)]
    monomials = torch.stack([y[:, list(c)].prod(1) for c in chosen], 1)
    torch.testing.assert_close(model.features(x).sort(1).values, monomials.sort(1).values)
    assert len(chosen) == (s + 1) * (s + 2) * (s + 3) // 6 - 1
    assert count_parameters(model) == 3 * (len(chosen) + 1)
