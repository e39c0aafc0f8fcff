"""Hidden states are erased where they arise: every later layer sees what is left, and the certificate holds at each."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from erasure import ClassMoments, IdentityEraser, erase, fit_layers

BLOCKS = [f"blocks.{i}" for i in range(4)]


def states_of(model: nn.Module, batches: list[tuple[Tensor, Tensor]], names: list[str]) -> dict[str, Tensor]:
    """Return the outputs of the named modules for all batches."""
    outputs: dict[str, list[Tensor]] = {name: [] for name in names}

    def recorded(name: str) -> RemovableHandle:
        return model.get_submodule(name).register_forward_hook(lambda *given: outputs[name].append(given[-1]))

    handles = [recorded(name) for name in names]
    with torch.no_grad():
        for x, _ in batches:
            model(x)
    for handle in handles:
        handle.remove()
    return {name: torch.cat(parts) for name, parts in outputs.items()}


def worst_gap(states: Tensor, z: Tensor) -> float:
    moments = ClassMoments.fit(states, z, dim=states.shape[-1])
    return float((moments.means - moments.mean).norm(dim=1).max() / moments.total.trace().sqrt())


def test_a_transformer_is_scrubbed_layer_by_layer() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", depth=4, img_size=32, patch_size=8, num_classes=3).eval()
    z = torch.arange(60) % 3
    x = torch.randn(60, 3, 32, 32) + z[:, None, None, None]
    batches = [(x[:40], z[:40]), (x[40:], z[40:])]
    assert min(worst_gap(states, z) for states in states_of(model, batches, BLOCKS).values()) > 0.1
    fitted = fit_layers(model, batches, BLOCKS, num_classes=3)
    assert list(fitted) == BLOCKS
    before = model(x)
    with erase(model, fitted) as scrubbed:
        after = scrubbed(x)
        gaps = {name: worst_gap(states, z) for name, states in states_of(model, batches, BLOCKS).items()}
    assert max(gaps.values()) < 1e-4
    assert not torch.allclose(after, before)
    assert torch.equal(model(x), before)  # the hooks are gone


class Two(nn.Module):
    """Gives two things, of which the first is the states."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, str]:
        return self.layer(x), "cache"


class Shift(IdentityEraser):
    version = 1

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        return 2 * x


def test_of_several_outputs_the_first_is_erased_and_gradients_pass() -> None:
    two, x = Two(), torch.randn(3, 4)
    model = nn.Sequential(two)
    eraser = Shift(torch.zeros(4), 2)
    (expected, _) = model(x)
    with erase(model, {"0": eraser}):
        states, cache = model(x)
        states.sum().backward()
    assert cache == "cache"
    torch.testing.assert_close(states, 2 * expected)
    assert two.layer.bias.grad is not None
    assert torch.equal(two.layer.bias.grad, torch.full((4,), 6.0))


class Shared(nn.Module):
    """One layer that runs twice, and one that never does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.idle = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x))


@pytest.mark.parametrize(("name", "times"), [("layer", 2), ("idle", 0)])
def test_a_module_that_does_not_run_once_is_refused(name: str, times: int) -> None:
    batches = [(torch.randn(8, 4), torch.arange(8) % 2)]
    with pytest.raises(ValueError, match=f"{name} runs {times} times in a pass: only what runs once"):
        fit_layers(Shared(), batches, [name], num_classes=2)


@pytest.mark.parametrize(("shape", "dim"), [((5,), 5), ((4, 5), 5), ((3, 2, 5), 30)])
def test_three_axes_are_tokens_and_others_whole_examples(shape: tuple[int, ...], dim: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(90, *shape)
    (eraser,) = fit_layers(nn.Sequential(nn.Identity()), [(x, torch.arange(90) % 3)], ["0"], num_classes=3).values()
    assert eraser.mean.shape == (dim,)
    torch.testing.assert_close(eraser.mean, x.reshape(-1, dim).mean(0), rtol=0, atol=1e-5)
