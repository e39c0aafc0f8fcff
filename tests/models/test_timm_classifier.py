"""ConvNeXt V2 and Swin V2: sizes, refusals, warnings, and other ways to compute the same."""

import logging

import pytest
import torch
from timm.models.swin_transformer_v2 import WindowAttention
from torch import Tensor

from models.convnextv2 import ConvNeXtV2
from models.swinv2 import FusedWindowAttention, SwinV2
from tests.models.every_model import EVERY


@pytest.mark.parametrize(
    ("name", "shape", "stages"), [("convnextv2", (1, 8, 8), "4"), ("swinv2", (1, 8, 8), "3 and 4")]
)
def test_collapsed_stages_are_warned_of(name: str, shape, stages: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        EVERY[name]((3, 32, 32))
        assert not caplog.records
        EVERY[name](shape)
    (record,) = caplog.records
    assert f"on images of 8×8: stage {stages} of 4 works on 1×1 points" in record.getMessage()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: EVERY["convnextv2"](width=0), r"model\.width=0: ConvNeXt V2 needs at least 1"),
        (lambda: EVERY["convnextv2"](depth=0), r"model\.depth=0: ConvNeXt V2 needs at least 1"),
        (lambda: EVERY["swinv2"](width=50), r"model\.width=50: Swin V2 needs a multiple of 20, the size of its heads"),
        (lambda: EVERY["swinv2"]((1, 7, 8)), r"images of 7×8: Swin V2 needs sides of at least 8"),
        (
            lambda: ConvNeXtV2((1, 8, 8), 10, width=8, depth=1, drop_path=1.0, parametrization="mup"),
            r"model\.drop_path=1\.0: must lie in \[0, 1\)",
        ),
    ],
)
def test_what_cannot_be_built_is_refused(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_heads_grow_with_width_and_blocks_with_depth() -> None:
    model = SwinV2((3, 32, 32), 10, width=60, depth=3, drop_path=0.2, parametrization="mup")
    for stage, blocks in enumerate((3, 3, 9, 3)):
        for block in range(blocks):
            scale = model.get_parameter(f"network.layers.{stage}.blocks.{block}.attn.logit_scale")
            assert len(scale) == 3 * 2**stage


@pytest.mark.parametrize(("name", "way"), [("convnextv2", "channels_last"), ("swinv2", "fused_attention")])
def test_another_way_computes_the_same(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    computed: list[list[Tensor]] = []
    for chosen in (False, True):
        monkeypatch.setattr(ConvNeXtV2 if name == "convnextv2" else SwinV2, way, chosen)
        model = EVERY[name]((3, 8, 8))
        model.reset_parameters(draws := torch.Generator().manual_seed(0))
        with torch.no_grad():
            for parameter in model.parameters():  # readouts start at zero
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=draws))
        logits = model(x)
        computed.append([logits.detach(), *torch.autograd.grad(logits.square().sum(), list(model.parameters()))])
    for one, other in zip(*computed, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * float(one.abs().max().clamp_min(1)))
    assert not all(torch.equal(one, other) for one, other in zip(*computed, strict=True))  # it is another way


@pytest.mark.parametrize("windows", [None, 4], ids=["plain", "shifted"])
def test_fused_attention_is_that_of_timm(windows: int | None) -> None:
    draws = torch.Generator().manual_seed(0)
    attention = WindowAttention(40, (4, 4), 2).double()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=draws))
    x = torch.randn(8, 16, 40, dtype=torch.float64, generator=draws).requires_grad_()
    mask = None if windows is None else -100.0 * (torch.rand(windows, 16, 16, generator=draws) < 0.3).double()
    computed: list[list[Tensor]] = []
    for kind in (WindowAttention, FusedWindowAttention):
        output = kind.forward(attention, x, mask)  # pyright: ignore[reportArgumentType] as the classes have equal fields
        computed.append([output, *torch.autograd.grad(output.square().sum(), [x, *attention.parameters()])])
    for one, other in zip(*computed, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
