"""Theorem 2.2 as an experiment: where class moments up to order 2 are equal, logistic regression on
degree-2 features cannot beat the constant predictor; where only means are, it can, and on raw data easily.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from erasure import LeaceEraser, QleaceEraser
from models.classifier import Classifier, count_parameters
from models.linear import LinearClassifier
from models.quadratic import QuadraticClassifier


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
    model = QuadraticClassifier((1, 4, 4), 10, sketch=16)
    # equal moments make the constant predictor's gradient zero and, the loss being convex, it the optimum
    assert lowest_loss(model, erased["qleace"], z) == pytest.approx(entropy(z), abs=1e-9)
    assert lowest_loss(model, erased["leace"], z) < 0.8 * entropy(z)
    assert lowest_loss(model, erased["raw"], z) < 0.01 * entropy(z)


def test_no_point_on_the_way_from_random_parameters_beats_the_constant_predictor_either(small_digits, erased) -> None:
    _, z = small_digits
    model = QuadraticClassifier((1, 4, 4), 10, sketch=16)
    seen = losses(model, erased["qleace"], z, start=0.3)
    assert seen[0] > 1.1 * entropy(z)  # far off at first
    assert entropy(z) - 1e-9 < min(seen) < 1.001 * entropy(z)  # the way down ends at the constant predictor
    assert min(losses(model, erased["leace"], z, start=0.3)) < 0.8 * entropy(z)


def test_a_linear_classifier_fails_after_leace_already(small_digits, erased) -> None:
    _, z = small_digits
    model = LinearClassifier((1, 4, 4), 10)
    assert lowest_loss(model, erased["leace"], z) == pytest.approx(entropy(z), abs=1e-9)
    assert lowest_loss(model, erased["qleace"], z) == pytest.approx(entropy(z), abs=1e-9)
    assert lowest_loss(model, erased["raw"], z) < 0.2 * entropy(z)


def test_the_theorem_holds_for_a_sketch_of_larger_images(digits) -> None:
    x, z = digits
    model = QuadraticClassifier((1, 8, 8), 10, sketch=12)
    assert lowest_loss(model, QleaceEraser.fit(x, z)(x, z), z) == pytest.approx(entropy(z), abs=1e-9)
    assert lowest_loss(model, LeaceEraser.fit(x, z)(x), z) < 0.5 * entropy(z)
    assert lowest_loss(model, x, z) < 0.01 * entropy(z)


@pytest.mark.parametrize("d", [1, 5])
def test_features_are_all_monomials_of_degree_one_and_two(d: int) -> None:
    model = QuadraticClassifier((1, 1, d), 3, sketch=d)
    x = torch.randn(4, d, generator=torch.Generator().manual_seed(d))
    monomials = [x[:, i] for i in range(d)] + [x[:, i] * x[:, j] for i in range(d) for j in range(i, d)]
    features = model.features(x)
    assert features.shape == (4, d * (d + 3) // 2)
    torch.testing.assert_close(features.sort(1).values, torch.stack(monomials, 1).sort(1).values)
    assert count_parameters(model) == 3 * (d * (d + 3) // 2 + 1)


def test_a_sketch_is_orthogonal_keeps_the_scale_and_is_the_same_every_time() -> None:
    torch.manual_seed(1)
    model = QuadraticClassifier((3, 10, 10), 2, sketch=20)
    torch.manual_seed(2)
    again = QuadraticClassifier((3, 10, 10), 2, sketch=20)
    x = torch.randn(500, 300, generator=torch.Generator().manual_seed(0))
    assert model.features(x).shape == (500, 20 * 23 // 2)
    assert torch.equal(model.features(x), again.features(x))
    sketched = model.features(x)[:, :20]
    second_moment = sketched.T @ sketched / 500
    # 20 of 300 directions, scaled up: a value's variance stays 1, to the sampling error of 500 examples
    torch.testing.assert_close(second_moment.diagonal().mean(), torch.tensor(15.0), rtol=0.05, atol=0)
    directions = model.get_buffer("directions")
    torch.testing.assert_close(directions.T @ directions, 15 * torch.eye(20), rtol=0, atol=1e-4)


@pytest.mark.parametrize("sketch", [8, 200])
def test_stacked_members_compute_what_each_computes_alone(sketch: int) -> None:
    model = QuadraticClassifier((1, 4, 4), 10, sketch=sketch)
    generator = torch.Generator().manual_seed(1)
    members = [
        {name: torch.randn(p.shape, generator=generator) * 0.2 for name, p in model.named_parameters()}
        for _ in range(3)
    ]
    stacked = {name: torch.stack([member[name] for member in members]) for name in members[0]}
    own, shared = torch.randn(3, 7, 1, 4, 4, generator=generator), torch.randn(7, 1, 4, 4, generator=generator)
    with_own = functional_call(model, stacked, (own,))
    with_shared = functional_call(model, stacked, (shared,))
    assert with_own.shape == (3, 7, 10)
    for s, member in enumerate(members):
        torch.testing.assert_close(with_own[s], functional_call(model, member, (own[s],)), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(with_shared[s], functional_call(model, member, (shared,)), rtol=1e-5, atol=1e-5)
    assert QuadraticClassifier.stackable


def test_a_fresh_model_predicts_uniformly() -> None:
    model = QuadraticClassifier((1, 4, 4), 10, sketch=4)
    model.reset_parameters(torch.Generator().manual_seed(0))
    assert torch.equal(model(torch.randn(5, 1, 4, 4)), torch.zeros(5, 10))


@pytest.mark.parametrize("sketch", [0, -3])
def test_an_empty_sketch_is_refused(sketch: int) -> None:
    with pytest.raises(ValueError, match=f"model.sketch={sketch}: need at least 1 dimension"):
        QuadraticClassifier((1, 4, 4), 10, sketch=sketch)
