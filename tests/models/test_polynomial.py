"""Polynomial classifiers: features are all monomials, of a sketch where one is asked for."""

import itertools

import pytest
import torch

from models.classifier import count_parameters
from models.polynomial import PolynomialClassifier


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
@pytest.mark.parametrize(("d", "sketch"), [(1, 1), (4, None), (4, 32), (9, 3)])
def test_features_are_all_monomials_up_to_the_degree(d: int, sketch: int | None, degree: int) -> None:
    model = PolynomialClassifier((1, 1, d), 3, degree=degree, sketch=sketch)
    x = torch.randn(4, d, generator=torch.Generator().manual_seed(d))
    s = min(d, sketch or d)
    y = x if s == d else x @ model.get_buffer("directions")
    factors = (itertools.combinations_with_replacement(range(s), p) for p in range(1, degree + 1))
    monomials = torch.stack([y[:, list(chosen)].prod(1) for chosen in itertools.chain(*factors)], 1)
    torch.testing.assert_close(model.features(x).sort(1).values, monomials.sort(1).values)
    assert count_parameters(model) == 3 * (monomials.shape[1] + 1)


def test_a_sketch_is_orthogonal_keeps_the_scale_and_is_the_same_every_time() -> None:
    torch.manual_seed(1)
    model = PolynomialClassifier((3, 10, 10), 2, degree=2, sketch=20)
    torch.manual_seed(2)
    again = PolynomialClassifier((3, 10, 10), 2, degree=2, sketch=20)
    x = torch.randn(500, 300, generator=torch.Generator().manual_seed(0))
    assert model.features(x).shape == (500, 20 * 23 // 2)
    assert torch.equal(model.features(x), again.features(x))
    sketched = model.features(x)[:, :20]
    second_moment = sketched.T @ sketched / 500
    # 20 of 300 directions, scaled up: a value's variance stays 1, to the sampling error of 500 examples
    torch.testing.assert_close(second_moment.diagonal().mean(), torch.tensor(15.0), rtol=0.05, atol=0)
    directions = model.get_buffer("directions")
    torch.testing.assert_close(directions.T @ directions, 15 * torch.eye(20), rtol=0, atol=1e-4)


@pytest.mark.parametrize("sketch", [0, -3])
def test_an_empty_sketch_is_refused(sketch: int) -> None:
    with pytest.raises(ValueError, match=f"model.sketch={sketch}: need at least 1 dimension"):
        PolynomialClassifier((1, 4, 4), 10, degree=2, sketch=sketch)


def test_a_degree_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="model.degree=0: need at least 1"):
        PolynomialClassifier((1, 4, 4), 10, degree=0)
