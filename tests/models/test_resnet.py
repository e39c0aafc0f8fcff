"""The residual network is He et al.'s of twenty layers but for its normalisation, which mixes no examples."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from models.classifier import count_parameters
from models.resnet import ResNet
from models.stackable_layers import Conv2d

PAPERS_COUNT = 0.27e6  # of ten classes: table 6


def drawn(shape: tuple[int, int, int] = (3, 32, 32), *, width: int = 16, depth: int = 3) -> ResNet:
    """With weights none of which is as it starts."""
    model = ResNet(shape, 10, width=width, depth=depth, parametrization="mup")
    generator = torch.Generator().manual_seed(0)
    model.reset_parameters(generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
    return model.double()


def images(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def textbook(model: ResNet, x: Tensor) -> Tensor:
    """Logits, layer by layer, in PyTorch's own functions."""
    weights = dict(model.named_parameters())

    def normalised(name: str, h: Tensor, stride: int = 1) -> Tensor:
        h = F.conv2d(h, weights[f"{name}.convolution.weight"], weights[f"{name}.convolution.bias"], stride, padding=1)
        grouped = h.unflatten(1, (8, -1))
        h = (grouped - grouped.mean((2, 3, 4), keepdim=True)) / (
            grouped.var((2, 3, 4), unbiased=False, keepdim=True) + 1e-5
        ).sqrt()
        scale, shift = (weights[f"{name}.norm.{part}"][:, None, None] for part in ("weight", "bias"))
        return h.flatten(1, 2) * scale + shift

    h = normalised("stem", x).relu()
    for b in range(9):
        halved = b in (3, 6)
        branch = normalised(f"blocks.{b}.first", h, 2 if halved else 1).relu()
        branch = normalised(f"blocks.{b}.second", branch)
        if halved:
            h = torch.cat([h[:, :, ::2, ::2], torch.zeros_like(h[:, :, ::2, ::2])], 1)
        h = (h + branch).relu()
    return h.mean((2, 3)) @ weights["readout.weight"].T + weights["readout.bias"]


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 9, 15)])
def test_it_computes_what_the_paper_says(shape: tuple[int, int, int]) -> None:
    model, x = drawn(shape), images(4, *shape)
    torch.testing.assert_close(model(x), textbook(model, x))


def test_it_has_twenty_layers_and_the_papers_number_of_parameters() -> None:
    model = drawn()
    convolutions = [layer for layer in model.modules() if isinstance(layer, Conv2d)]
    assert len(convolutions) + 1 == 20
    assert {len(layer.weight) for layer in convolutions} == {16, 32, 64}
    assert round(count_parameters(model), -4) == PAPERS_COUNT


@pytest.mark.parametrize(
    ("shape", "width", "message"),
    [
        ((3, 32, 32), 12, r"model\.width=12: a residual network needs a multiple of 8"),
        ((3, 3, 32), 16, "images of 3×32: a residual network needs sides of at least 4"),
        ((16, 1, 1), 16, "vectors of 16 values are not images"),
    ],
)
def test_what_it_cannot_do_is_refused(shape: tuple[int, int, int], width: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ResNet(shape, 10, width=width, depth=1, parametrization="mup")
