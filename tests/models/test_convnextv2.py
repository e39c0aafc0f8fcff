"""The two replaced layers compute what timm's do, gradients included."""

import functools

import pytest
import torch
from timm.layers.grn import GlobalResponseNorm
from torch import nn

from models.convnextv2 import DepthwiseConv2d, FastGlobalResponseNorm
from tests.models.every_model import EVERY


def assert_same(ours: nn.Module, theirs: nn.Module, x: torch.Tensor) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            mine.copy_(other.normal_(generator=generator))
    results = []
    for layer in (ours, theirs):
        inputs = x.clone().requires_grad_()
        output = layer(inputs)
        output.square().sum().backward()
        results.append([output, inputs.grad, *(p.grad for p in layer.parameters())])
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("sides", [(1, 1), (1, 2), (2, 2), (3, 1), (4, 4), (5, 2), (9, 8)], ids=str)
def test_a_cropped_kernel_computes_the_same(sides: tuple[int, int]) -> None:
    x = torch.randn(3, 6, *sides, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert_same(DepthwiseConv2d(6, 7).double(), nn.Conv2d(6, 6, 7, padding=3, groups=6).double(), x)


def test_global_response_norm_computes_the_same() -> None:
    x = torch.randn(3, 4, 5, 6, generator=torch.Generator().manual_seed(0))
    ours, theirs = FastGlobalResponseNorm(6), GlobalResponseNorm(6)
    with torch.no_grad():
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            mine.copy_(other.normal_(generator=torch.Generator().manual_seed(1)))
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)


def test_global_response_norm_has_a_gradient_where_a_channel_is_silent() -> None:
    layer = FastGlobalResponseNorm(3)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    x = torch.tensor([0.0, 1.0, 2.0]).view(1, 1, 1, 3).requires_grad_()
    layer(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_activations_stay_in_the_precision_of_autocast() -> None:
    x = torch.randn(2, 4, 4, 6, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(0))
    layer = FastGlobalResponseNorm(6)
    nn.init.normal_(layer.bias, generator=torch.Generator().manual_seed(1))
    normalised = layer(x)
    assert normalised.dtype == torch.bfloat16
    torch.testing.assert_close(normalised.float(), layer(x.float()), rtol=2e-2, atol=2e-2)
    model = EVERY["convnextv2"]()
    seen: dict[str, torch.dtype] = {}

    def note(name: str, _: nn.Module, __: tuple[torch.Tensor, ...], h: torch.Tensor) -> None:
        seen[name] = h.dtype

    for name, module in model.network.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.GELU | FastGlobalResponseNorm):
            module.register_forward_hook(functools.partial(note, name))
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.randn(2, 1, 8, 8))
    assert len(seen) > 20
    assert set(seen.values()) == {torch.bfloat16}, seen
