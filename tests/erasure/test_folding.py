"""Erasers folded into weights: the network computes what it computes with hooks, without them."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from erasure import (
    AlfQleaceEraser,
    Eraser,
    LeaceEraser,
    OracleLeaceEraser,
    RandomEditEraser,
    erase,
    fit_layers,
    fold,
    fold_layers,
)

X = torch.randn(90, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 3
Z = torch.arange(90) % 3


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def hooks_of(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [LeaceEraser, AlfQleaceEraser, RandomEditEraser])
def test_one_layer_before_and_after(kind: type[Eraser], bias: bool) -> None:
    x = X + Z[:, None] * torch.arange(6)
    eraser = kind.fit(x, Z)
    before, after = nn.Linear(6, 4, bias=bias).double(), nn.Linear(5, 6, bias=bias).double()
    weights = copy.deepcopy(before.state_dict())
    torch.testing.assert_close(fold(before, eraser)(x), before(eraser(x)), rtol=0, atol=1e-12)
    inputs = torch.randn(20, 5, dtype=torch.float64)
    expected = eraser(after(inputs))
    torch.testing.assert_close(fold(after, eraser, after=True)(inputs), expected, rtol=0, atol=1e-12)
    assert all(torch.equal(before.state_dict()[name], weight) for name, weight in weights.items())
    half = fold(before.bfloat16(), eraser)
    assert half.weight.dtype == half.bias.dtype == torch.bfloat16


def test_a_vision_transformer_whose_normalisations_are_erased() -> None:
    timm = pytest.importorskip("timm")
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=3).eval()
    x = torch.randn(60, 3, 32, 32) + Z[:60, None, None, None]
    names = [f"blocks.{i}.{part}" for i in range(2) for part in ("norm1", "norm2", "mlp.fc2")]
    erasers = fit_layers(model, [(x, Z[:60])], names, num_classes=3)
    folded = fold_layers(model, erasers, x[:4])
    with torch.no_grad():
        plain = model(x)
        with erase(model, erasers):
            expected = model(x)
        logits = folded(x)
    assert (plain - expected).abs().max() > 0.01
    assert (logits - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))
    assert hooks_of(folded) == 0
    assert [type(module) for module in folded.modules()] == [type(module) for module in model.modules()]
    assert torch.equal(model(x), plain), "the original is as it was"


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Identity(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


def test_an_mlp_erased_at_every_layer() -> None:
    model, x = mlp(), X.float()
    erasers = fit_layers(model, [(x, Z)], ["0", "1", "3", "4", "5"], num_classes=3)
    folded = fold_layers(model, erasers, x[:4])
    with erase(model, erasers):
        torch.testing.assert_close(folded(x), model(x), rtol=0, atol=1e-5)
    exact = fold_layers(model.double(), erasers, X[:4])  # float32 erasers in a network of float64
    with erase(model, {name: eraser.to(torch.float64) for name, eraser in erasers.items()}):
        torch.testing.assert_close(exact(X), model(X), rtol=0, atol=1e-12)


class Residual(nn.Module):
    """Reads the output of a normalisation twice: by a linear layer, and as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        states = self.norm(x)
        return states + self.linear(states)


class Tied(nn.Module):
    """Uses one linear layer on erased and on other states."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x)) + self.linear(x)


@pytest.mark.parametrize(("model", "name"), [(Residual(), "norm"), (Tied(), "norm"), (mlp(), "2")])
def test_what_stands_between_is_refused_or_looked_through(model: nn.Module, name: str) -> None:
    x = X.float()
    erasers: dict[str, Any] = fit_layers(model, [(x, Z)], [name], num_classes=3)
    if name == "2":  # an identity between activation and linear layer
        with erase(model, erasers):
            torch.testing.assert_close(fold_layers(model, erasers, x)(x), model(x), rtol=0, atol=1e-5)
    else:
        with pytest.raises(ValueError, match="norm cannot be folded: its output must be read by linear layers only"):
            fold_layers(model, erasers, x)


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_large_outputs_may_be_rounded_and_small_ones_may_not_be_wrong(size: float) -> None:
    """Folds are compared relative to the largest output: one that rounds is taken, a wrong one is not."""
    x, right, wrong = X.float(), mlp(), Residual().eval()
    for parameter in (*right[5].parameters(), *wrong.norm.parameters(), wrong.linear.bias):
        parameter.data *= size
    erasers = fit_layers(right, [(x, Z)], ["1", "4"], num_classes=3)
    with erase(right, erasers):
        torch.testing.assert_close(fold_layers(right, erasers, x)(x), right(x), rtol=0, atol=1e-4 * size)
    with pytest.raises(ValueError, match="norm cannot be folded"):
        fold_layers(wrong, fit_layers(wrong, [(x, Z)], ["norm"], num_classes=3), x)


class Outputs(nn.Module):
    """Returns its states beside, or within, other things; or lets a little of them past the linear layer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.norm, self.linear, self.kind = nn.LayerNorm(6), nn.Linear(6, 6), kind

    def forward(self, x: Tensor) -> Any:
        states = self.norm(x)
        logits = self.linear(states)
        if self.kind == "skip":
            return logits + 1e-6 * states
        if self.kind in ("integers", "booleans", "complex"):
            return logits, {"integers": states.argmax(-1), "booleans": states > 0, "complex": states * 1j}[self.kind]
        return {"tuple": (logits, states), "nested": {"logits": logits, "more": [None, (states * 1e-3,)]}}[self.kind]


@pytest.mark.parametrize("kind", ["tuple", "nested", "skip", "integers", "booleans", "complex"])
def test_every_tensor_of_the_output_is_compared(kind: str) -> None:
    model = Outputs(kind).double().eval()
    erasers = fit_layers(model, [(X, Z)], ["norm"], num_classes=3)
    with pytest.raises(ValueError, match="norm cannot be folded: its output must be read by linear layers only"):
        fold_layers(model, erasers, X)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("offset", "error"), [(1e4, 1e-10), (1e8, 1e-6)])
def test_data_far_from_the_origin(offset: float, error: float, after: bool) -> None:
    x, linear = X + Z[:, None] * torch.arange(6) + offset, nn.Linear(6, 6).double()
    if after:
        linear.bias.data += offset
        eraser = LeaceEraser.fit(linear(X).detach(), Z)
        torch.testing.assert_close(fold(linear, eraser, after=True)(X), eraser(linear(X)), rtol=0, atol=error)
    else:
        eraser = LeaceEraser.fit(x, Z)
        torch.testing.assert_close(fold(linear, eraser)(x), linear(eraser(x)), rtol=0, atol=error)


class Adapted(nn.Linear):
    """Adds a low-rank product, as LoRA does."""

    def __init__(self) -> None:
        super().__init__(6, 4)
        self.low = nn.Parameter(torch.randn(4, 6))

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + input @ self.low.T


def test_layers_that_compute_more_than_their_weights_say_are_refused() -> None:
    hooked, seen = nn.Linear(6, 4), list[Tensor]()
    hooked.register_forward_hook(lambda *_: seen.append(_[-1]))
    eraser = LeaceEraser.fit(X, Z).to(torch.float32)
    torch.testing.assert_close(fold(hooked, eraser)(X.float()), hooked(eraser(X.float())))
    hooked.register_forward_hook(lambda *_: _[-1] * 1.008)
    for linear, message in ((Adapted(), "Adapted is no plain"), (hooked, "Linear is no plain .* hooks that change it")):
        with pytest.raises(ValueError, match=message):
            fold(linear, eraser)
        with pytest.raises(ValueError, match=f"^1: {message}"):
            fold_layers(nn.Sequential(nn.Identity(), linear).eval(), {"0": eraser}, X.float())


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm", "orthogonal", "old", "pruned"])
def test_weights_that_are_computed_from_others_are_refused_until_they_are_plain(kind: str) -> None:
    utils: Any = nn.utils
    change, undo = {
        "old": (utils.weight_norm, utils.remove_weight_norm),
        "pruned": (
            lambda layer: prune.l1_unstructured(layer, "weight", amount=0.3),
            lambda layer: prune.remove(layer, "weight"),
        ),
    }.get(kind) or (
        getattr(utils.parametrizations, kind),
        lambda layer: utils.parametrize.remove_parametrizations(layer, "weight"),
    )
    model, eraser = nn.Sequential(nn.Identity(), nn.Linear(6, 6)).eval(), LeaceEraser.fit(X, Z).to(torch.float32)
    linear: Any = change(model[1])
    for folded in (lambda: fold(linear, eraser), lambda: fold_layers(model, {"0": eraser}, X.float())):
        with pytest.raises(ValueError, match="remove parametrizations and pruning by torch.nn.utils"):
            folded()
    undo(linear)
    expected = linear(eraser(X.float()))
    torch.testing.assert_close(fold_layers(model, {"0": eraser}, X.float())(X.float()), expected, rtol=0, atol=1e-5)


class Squared(LeaceEraser):
    """An eraser that is not affine."""

    version = 1

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        return super().transform(x, z) ** 2


def test_wrong_erasers_are_refused() -> None:
    linear = nn.Linear(6, 4).double()
    with pytest.raises(ValueError, match="OracleLeaceEraser maps each class differently: only one map"):
        fold(linear, OracleLeaceEraser.fit(X, Z))
    with pytest.raises(ValueError, match="Squared is not an affine map"):
        fold(linear, Squared.fit(X, Z))
    with pytest.raises(ValueError, match="the eraser is of 6 dimensions, the layer has 4 outputs: fit it there"):
        fold(linear, LeaceEraser.fit(X, Z), after=True)
    model, x = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.ReLU()), X.float()
    erasers = fit_layers(model, [(x, Z)], ["1"], num_classes=3)
    with pytest.raises(ValueError, match="1 cannot be folded: .* those that read it are none"):
        fold_layers(model, erasers, x)
    with pytest.raises(ValueError, match="the network has no module '9'"):
        fold_layers(mlp(), {"9": LeaceEraser.fit(X, Z)}, X.float())
