"""Attached erasers are the first to see states, say where they see none, and leave nothing behind."""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from erasure import IdentityEraser, LeaceEraser, attach, erase, fit_layers, fold_layers


class Partly(nn.Module):
    """A layer that runs, and one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.idle = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Shift(IdentityEraser):
    version = 1

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        return 2 * x


def test_a_module_that_does_not_run_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    model, eraser = Partly(), LeaceEraser.fit(torch.randn(8, 4), torch.arange(8) % 2)
    with erase(model, {"idle": eraser}):
        model(torch.randn(3, 4))
        assert "idle did not run, so nothing is erased there" in caplog.text
        model(torch.randn(3, 4))
    assert len(caplog.records) == 1
    with erase(model, {"idle": eraser}):
        model.idle(torch.randn(3, 4))
    assert len(caplog.records) == 1


def hooks_of(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_an_error_leaves_nothing_behind() -> None:
    model, x, z = nn.Sequential(nn.Linear(6, 6), nn.ReLU()).eval(), torch.randn(60, 6), torch.arange(60) % 2
    eraser, before = LeaceEraser.fit(model(x).detach(), z), model(x)
    for wrong in ({"0": eraser, "typo": eraser}, {"0": eraser, "1": lambda x: x}, {"0": eraser, "1": LeaceEraser}):
        with pytest.raises(ValueError, match=r"no module 'typo'|erasers\['1'\] is .*: give a fitted eraser"):
            attach(model, wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(KeyError), erase(model, {"0": eraser}):
        raise KeyError
    for batches in ([(x, z), (x[:, :5], z)], [(x, z), (x, z[:50])]):
        with pytest.raises((ValueError, RuntimeError)):
            fit_layers(model, batches, ["0", "1"], num_classes=2)
    assert hooks_of(model) == 0
    assert "forward" not in vars(model[0])
    assert torch.equal(model(x), before)


def test_attached_erasers_come_first_in_the_order_of_attachment_until_they_are_removed() -> None:
    model, x = nn.Sequential(nn.Identity()), torch.randn(5, 4)
    seen = list[Tensor]()
    model[0].register_forward_hook(lambda *arguments: seen.append(arguments[-1]))
    first, second = attach(model, {"0": Shift(torch.zeros(4), 2)}), attach(model, {"0": Plus(torch.zeros(4), 2)})
    assert torch.equal(model(x), 2 * x + 1)
    assert torch.equal(seen[0], 2 * x + 1)
    first.remove()
    first.remove()
    assert torch.equal(model(x), x + 1)
    second.remove()
    assert torch.equal(model(x), x)


def test_a_copy_has_no_erasers(caplog: pytest.LogCaptureFixture) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), torch.randn(20, 4)
    plain = model(x)
    eraser = LeaceEraser.fit(x, torch.arange(20) % 2).to(torch.float32)
    with erase(model, {"0": eraser}):
        copied, erased = copy.deepcopy(model), model(x)
        folded = fold_layers(model, {"0": eraser}, x)
        for part in (model, model[0]):
            with pytest.raises(ValueError, match=r"erasers are attached to the network: call .remove\(\)"):
                pickle.dumps(part)
    pickle.dumps(model)
    assert torch.equal(model(x), plain)
    assert not torch.allclose(plain, erased)
    for _ in range(2):
        assert torch.equal(copied(x), plain)
    torch.testing.assert_close(folded(x), erased, rtol=0, atol=1e-5)
    with erase(copied, {"0": eraser}):
        assert torch.equal(copied(x), erased)
    assert torch.equal(copied(x), model(x))
    assert not caplog.records


class Plus(Shift):
    version = 1

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        return x + 1
