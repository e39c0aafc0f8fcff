"""FGSM against the closed form of a linear model, and its range."""

from functools import partial

import pytest
import torch

from sample_info.adversarial_examples import adversaries, fast_gradient_sign
from sample_info.settings import DataSettings
from sample_info.training_problem import decisions
from tests.sample_info.problems import draws, linear, mlp_problem

W = {"W": torch.tensor([[2.0, -1.0, 0.0]], dtype=torch.float64), "b": torch.zeros(1, dtype=torch.float64)}
X = draws(6, 3, seed=0)
trained = partial(linear, W)


def test_on_a_linear_model_it_moves_along_the_signs_of_the_weights() -> None:
    y = trained(X) - torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, 1.0])[:, None]
    moved = fast_gradient_sign(trained, X, y, epsilon=0.1)
    residual = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, 1.0])[:, None]
    expected = X + 0.1 * residual * torch.tensor([1.0, -1.0, 0.0])
    torch.testing.assert_close(moved, expected.clamp(float(X.min()), float(X.max())))


def test_it_raises_the_loss_more_than_a_random_step_and_whatever_the_batch() -> None:
    descent, _ = mlp_problem(k=3)
    network = partial(descent.network, descent.initial)

    def loss(x: torch.Tensor) -> float:
        return float((network(x) - descent.y).square().sum())

    moved = fast_gradient_sign(network, descent.x, descent.y, epsilon=0.05)
    assert (moved - descent.x).abs().max() == pytest.approx(0.05)
    aimless = descent.x + 0.05 * draws(*descent.x.shape, seed=1).sign()
    assert loss(moved) - loss(descent.x) > 3 * abs(loss(aimless) - loss(descent.x))
    parts = fast_gradient_sign(network, descent.x, descent.y, epsilon=0.05, batch_size=7)
    torch.testing.assert_close(parts, moved)


def data(epsilon: float) -> DataSettings:
    """A third of the examples is to be adversarial."""
    return DataSettings(at_most=[], label_noise=0.0, adversarial=1 / 3, epsilon=epsilon, eraser_fit="auto", seed=0)


def test_adversaries_are_successful_ones_and_the_others_stay_as_they_are() -> None:
    y = torch.where(trained(X) > 0.5, 9.0, -9.0).double()  # outputs fall short of their targets, whatever they are
    moved, replaced = adversaries(trained, X, y, data(2.0))
    assert int(replaced.sum()) == 2
    assert torch.equal(decisions(trained(X)) != decisions(trained(moved)), replaced)
    assert torch.equal(moved[~replaced], X[~replaced])
    assert (moved - X).abs().max() <= 2.0
    assert moved.min() >= X.min()
    assert moved.max() <= X.max()
    with pytest.raises(ValueError, match=r"sample_info.data.epsilon=1e-09: 0 of 6 examples"):
        adversaries(trained, X, y, data(1e-9))
