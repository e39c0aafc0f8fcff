"""Maps and distances between Gaussians can be differentiated, also where eigenvalues coincide."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from erasure.transport import bures_distance, transport_map


def covariances(*shape: int) -> Tensor:
    root = torch.randn(*shape, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return (root @ root.mT).requires_grad_()


def symmetric(function):
    return lambda a, b: function((a + a.mT) / 2, (b + b.mT) / 2)


@pytest.mark.parametrize("function", [transport_map, bures_distance])
@pytest.mark.parametrize("source", ["any", "identity", "batch"])
def test_gradients_are_those_of_finite_differences(function, source: str) -> None:
    first = torch.eye(4, dtype=torch.float64, requires_grad=True) if source == "identity" else covariances()
    second = covariances(2)[1 if source == "any" else slice(None)].detach().requires_grad_()
    assert gradcheck(symmetric(function), (first, second))


def test_the_gradient_at_no_distance_is_zero() -> None:
    one = torch.eye(3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(bures_distance(one, torch.eye(3, dtype=torch.float64)), one)
    assert not gradient.any()


@pytest.mark.parametrize("function", [transport_map, bures_distance])
def test_singular_covariances_have_none(function) -> None:
    singular = torch.diag(torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64)).requires_grad_()
    with pytest.raises(ValueError, match="without full rank has no gradient"):
        function(singular, singular.detach() / 2).sum().backward()
