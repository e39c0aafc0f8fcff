"""Kernels of infinite width against networks of finite width, and against formulas written down once more."""

import math

import pytest
import torch
from torch import Tensor

from models.kernel import Kernel, Name

SHAPE = (1, 2, 3)


def kernel(name: Name, depth: int = 2, bandwidth: float = 0.5) -> Kernel:
    return Kernel(SHAPE, 10, kernel=name, depth=depth, bandwidth=bandwidth)


def images(n: int = 4) -> Tensor:
    return torch.randn(n, *SHAPE, generator=torch.Generator().manual_seed(0))


def of_width(x: Tensor, width: int, depth: int, seed: int) -> tuple[Tensor, Tensor]:
    """Hidden layers' and gradients' products [n, n] of a drawn network f = v h / √width, h = √2 relu(W h / √fan-in)."""
    generator = torch.Generator().manual_seed(seed)
    fan_ins = [x.shape[1], *[width] * (depth - 1)]
    weights = [torch.randn(width, d, generator=generator).double().requires_grad_() for d in fan_ins]
    readout = torch.randn(width, generator=generator).double().requires_grad_()
    h = x
    for weight in weights:
        h = math.sqrt(2) * torch.relu(h @ weight.T / math.sqrt(weight.shape[1]))
    outputs = h @ readout / math.sqrt(width)
    gradients = [torch.autograd.grad(one, [*weights, readout], retain_graph=True) for one in outputs]
    flat = torch.stack([torch.cat([g.flatten() for g in by_weight]) for by_weight in gradients])
    return (h @ h.T / width).detach(), flat @ flat.T


@pytest.mark.parametrize("depth", [1, 3])
def test_wide_networks_have_nearly_these_kernels(depth: int) -> None:
    x = images()
    flat, drawn = x.flatten(1).double(), range(4)
    layers, gradients = zip(*(of_width(flat, 1000, depth, seed) for seed in drawn), strict=True)
    nngp, ntk = kernel("nngp", depth)(x, x), kernel("ntk", depth)(x, x)
    scale = float(nngp.diagonal().max())
    assert (sum(layers) / 4 - nngp).abs().max() < 0.08 * scale
    assert (sum(gradients) / 4 / (depth + 1) - ntk).abs().max() < 0.08 * scale
    assert (kernel("nngp", depth + 2)(x, x) - nngp).abs().max() > 0.08 * scale  # another depth is noticed


def test_one_hidden_layer_is_the_arc_cosine_kernel() -> None:
    x, y = images(2).double(), images(5)[2:].double()
    for i, a in enumerate(x.flatten(1)):
        for j, b in enumerate(y.flatten(1)):
            angle = math.acos(float(a @ b / a.norm() / b.norm()))
            first = float(a.norm() * b.norm()) * (math.sin(angle) + (math.pi - angle) * math.cos(angle)) / math.pi / 6
            both_on = (math.pi - angle) / math.pi
            assert float(kernel("nngp", 1)(x, y)[i, j]) == pytest.approx(first, rel=1e-9)
            tangent = (first + float(a @ b) / 6 * both_on) / 2
            assert float(kernel("ntk", 1)(x, y)[i, j]) == pytest.approx(tangent, rel=1e-9)
            gauss = math.exp(-float((a - b).square().sum()) / (2 * 0.25 * 6))
            assert float(kernel("rbf")(x, y)[i, j]) == pytest.approx(gauss, rel=1e-9)


@pytest.mark.parametrize("name", ["ntk", "nngp", "rbf"])
def test_kernels_are_symmetric_positive_and_know_their_diagonal(name: Name) -> None:
    x = torch.cat([images(20), torch.zeros(1, *SHAPE)])
    model = kernel(name)
    whole = model(x, x)
    assert (whole - whole.T).abs().max() < 1e-14
    assert float(torch.linalg.eigvalsh(whole).min()) > -1e-12
    torch.testing.assert_close(whole.diagonal(), model.diagonal(x), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("name", ["ntk", "nngp", "rbf"])
def test_rounding_makes_no_cosine_or_distance_that_cannot_be(name: Name) -> None:
    x = images(300).double()
    other = torch.cat([-x, x * (1 + 1e-7), x + 1e-7 * x.flip(0), 1e4 + x])
    for depth in (1, 2, 6):
        values = kernel(name, depth)(torch.cat([x, 1e4 + x]), other)
        assert values.isfinite().all()
    if name == "rbf":
        assert float(values.max()) <= 1


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"model\.depth=0"):
        kernel("ntk", depth=0)
    with pytest.raises(ValueError, match=r"model\.bandwidth=0"):
        kernel("rbf", bandwidth=0)
    with pytest.raises(ValueError, match=r"model\.bandwidth=inf"):
        kernel("rbf", bandwidth=math.inf)
