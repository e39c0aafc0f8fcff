"""Theorem 2.2 as an experiment: where class moments up to order p are equal, logistic regression on monomials of degree
up to p cannot beat the constant predictor; where one of these orders differs, it can.
"""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from erasure import LeaceEraser, QleaceEraser
from models.classifier import Classifier
from models.polynomial import PolynomialClassifier


def entropy(z: Tensor) -> float:
    """Loss of the best constant predictor, in nats."""
    shares = z.bincount().double() / len(z)
    return float(-torch.xlogy(shares, shares).sum())


def losses(model: Classifier, x: Tensor, z: Tensor, *, start: float = 0.0, max_iter: int = 60) -> list[float]:
    """Training losses in nats, in float64: full-batch L-BFGS from parameters N(0, start²).

    Pixels are brought to mean 0 and one common scale first, which leaves polynomials polynomials of their degree.
    """
    model = model.double()
    x = (x - x.mean(0)) / x.std()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=1.0, generator=generator).mul_(start)
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=max_iter, tolerance_grad=1e-13, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )
    seen: list[float] = []

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(model(x), z)
        value.backward()
        seen.append(value.item())
        return value

    optimizer.step(loss)
    return seen


def lowest_loss(model: Classifier, x: Tensor, z: Tensor, *, max_iter: int = 60) -> float:
    return min(losses(model, x, z, max_iter=max_iter))


@pytest.fixture(scope="module")
def small_digits(digits) -> tuple[Tensor, Tensor]:
    """The digits at 4×4 pixels: 152 monomials of degree 1 and 2."""
    x, z = digits
    return F.avg_pool2d(x, 2), z


@pytest.fixture(scope="module")
def erased(small_digits) -> dict[str, Tensor]:
    x, z = small_digits
    return {"raw": x, "leace": LeaceEraser.fit(x, z)(x), "qleace": QleaceEraser.fit(x, z)(x, z)}


def test_quadratic_features_tell_nothing_after_qleace_and_much_after_leace(small_digits, erased) -> None:
    _, z = small_digits
    model = PolynomialClassifier((1, 4, 4), 10, degree=2, sketch=16)
    # equal moments make the constant predictor's gradient zero and, the loss being convex, it the optimum
    assert lowest_loss(model, erased["qleace"], z) == pytest.approx(entropy(z), abs=1e-9)
    assert lowest_loss(model, erased["leace"], z) < 0.8 * entropy(z)
    assert lowest_loss(model, erased["raw"], z) < 0.01 * entropy(z)


def test_no_point_on_the_way_from_random_parameters_beats_the_constant_predictor_either(small_digits, erased) -> None:
    _, z = small_digits
    model = PolynomialClassifier((1, 4, 4), 10, degree=2, sketch=16)
    seen = losses(model, erased["qleace"], z, start=0.3)
    assert seen[0] > 1.1 * entropy(z)  # far off at first
    assert entropy(z) - 1e-9 < min(seen) < 1.001 * entropy(z)  # the way down ends at the constant predictor
    assert min(losses(model, erased["leace"], z, start=0.3)) < 0.8 * entropy(z)


def test_a_linear_classifier_fails_after_leace_already(small_digits, erased) -> None:
    _, z = small_digits
    model = PolynomialClassifier((1, 4, 4), 10)
    assert lowest_loss(model, erased["leace"], z) == pytest.approx(entropy(z), abs=1e-9)
    assert lowest_loss(model, erased["qleace"], z) == pytest.approx(entropy(z), abs=1e-9)
    assert lowest_loss(model, erased["raw"], z) < 0.2 * entropy(z)


def test_the_theorem_holds_for_a_sketch_of_larger_images(digits) -> None:
    x, z = digits
    model = PolynomialClassifier((1, 8, 8), 10, degree=2, sketch=12)
    assert lowest_loss(model, QleaceEraser.fit(x, z)(x, z), z) == pytest.approx(entropy(z), abs=1e-9)
    assert lowest_loss(model, LeaceEraser.fit(x, z)(x), z) < 0.5 * entropy(z)
    assert lowest_loss(model, x, z) < 0.01 * entropy(z)


def grid(*classes: list[float]) -> tuple[Tensor, Tensor]:
    """All pairs of each class's values, each class 36 times: coordinates are independent and distributed alike."""
    points = [torch.tensor(list(itertools.product(values * (6 // len(values)), repeat=2))) for values in classes]
    x = torch.cat(points).double().view(-1, 1, 1, 2)
    return x, torch.arange(len(classes)).repeat_interleave(36)


TWO = [-1.0, 1.0]  # moments 0, 1, 0, 1
THREE = [-math.sqrt(3), 0.0, 0.0, 0.0, 0.0, math.sqrt(3)]  # moments 0, 1, 0, 3
SKEWED = [math.sqrt(2), -math.sqrt(0.5), -math.sqrt(0.5)]  # moments 0, 1, 1/√2


def test_the_cubic_classifier_cannot_learn_where_third_moments_are_equal_whatever_the_fourth() -> None:
    x, z = grid(TWO, THREE)
    assert lowest_loss(PolynomialClassifier((1, 1, 2), 2, degree=3), x, z) == pytest.approx(entropy(z), abs=1e-9)


def test_the_cubic_classifier_learns_from_third_moments_what_the_quadratic_classifier_cannot() -> None:
    x, z = grid(TWO, SKEWED)
    assert lowest_loss(PolynomialClassifier((1, 1, 2), 2, degree=2), x, z) == pytest.approx(entropy(z), abs=1e-9)
    assert lowest_loss(PolynomialClassifier((1, 1, 2), 2, degree=3), x, z) < 0.5 * entropy(z)


def test_the_cubic_classifier_learns_what_qleace_leaves_of_the_digits(digits: tuple[Tensor, Tensor]) -> None:
    x, z = F.avg_pool2d(digits[0], 2), digits[1]
    erased = QleaceEraser.fit(x, z)(x, z)
    quadratic, cubic = (PolynomialClassifier((1, 4, 4), 10, degree=degree, sketch=8) for degree in (2, 3))
    assert lowest_loss(quadratic, erased, z, max_iter=20) == pytest.approx(entropy(z), abs=1e-6)
    assert lowest_loss(cubic, erased, z, max_iter=20) < 0.95 * entropy(z)
    assert lowest_loss(cubic, x, z, max_iter=40) < 0.2 * entropy(z)
