"""States between two stops of a pass: kept where there is room, and recomputed where there is none."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from erasure import LeaceEraser, erase, fit_layers
from erasure import layer_sweep as layer_sweep_module
from erasure.layer_sweep import Storage, restored

BATCHES = [(torch.randn(40, 4, generator=torch.Generator().manual_seed(i)), torch.arange(40) % 2) for i in range(3)]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).eval()


def test_what_is_stored_comes_back_as_a_copy() -> None:
    values = {"states": torch.randn(3, 4).bfloat16(), "cache": (torch.arange(3), None, "text")}
    stored = Storage().keep_all(values)
    back = restored(stored)
    assert torch.equal(back["states"], values["states"])
    assert torch.equal(back["cache"][0], values["cache"][0])
    assert back["cache"][1:] == (None, "text")
    back["states"].zero_()
    assert torch.equal(restored(stored)["states"], values["states"])


def test_erasers_are_the_same_without_room_for_states(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["0", "2", "4"]
    expected = fit_layers(network(), BATCHES, names, num_classes=2)
    monkeypatch.setattr(layer_sweep_module, "free_bytes", lambda _: 0.0)
    erasers = fit_layers(network(), BATCHES, names, num_classes=2)
    for name, eraser in erasers.items():
        for field, tensor in eraser.state_dict().items():
            assert torch.equal(tensor, expected[name].state_dict()[field])
    with pytest.raises(ValueError, match=r"batches cannot be stored \(no room for .*: pass a list, or fit one mod"):
        fit_layers(network(), iter(BATCHES), names, num_classes=2)
    one = fit_layers(network(), iter(BATCHES), ["0"], num_classes=2)["0"]
    assert torch.equal(one.mean, expected["0"].mean)


class Signed(nn.Module):
    """Its output has signs besides the states, for which NaN cannot stand."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        states = self.linear(x)
        return states, x > 0


class Gated(nn.Module):
    """Needs the signs of its first block after its second."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = Signed(), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        states, signs = self.first(x)
        return self.third(self.second(states) * (1 + signs))


def fitted_alone(model: nn.Module, names: list[str]) -> list[LeaceEraser]:
    """Fit erasers of modules one after another, each in full passes of a network that is erased up to there."""
    erasers: dict[str, LeaceEraser] = {}
    for name in names:
        states: list[Tensor] = []
        handle = model.get_submodule(name).register_forward_hook(lambda _, __, out, states=states: states.append(out))
        with erase(model, erasers), torch.no_grad():
            for x, _ in BATCHES:
                model(x)
        handle.remove()
        erasers[name] = LeaceEraser.fit(torch.cat(states), torch.cat([z for _, z in BATCHES])).to(torch.float32)
    return [*erasers.values()]


class Remembering(nn.Linear):
    """Leaves its output where the network reads it later."""

    kept: Tensor

    def forward(self, input: Tensor) -> Tensor:
        self.kept = super().forward(input)
        return self.kept


class Flagging(nn.Linear):
    """Leaves a flag that the network reads later, and that differs for the batch in the middle."""

    is_second = False

    def forward(self, input: Tensor) -> Tensor:
        self.is_second = torch.equal(input, BATCHES[1][0])
        return super().forward(input)


class Parts(nn.Module):
    """Linear layers a, b, c and o, joined in several ways that a pass must not resume through."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.a, self.b, self.c, self.o = Remembering(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.relu, self.kind = nn.ReLU(inplace=True), kind
        self.branches, self.flagging = Branches(), Flagging(4, 4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "in place":
            h = self.a(x)
            return self.o(self.c(self.relu(h)) + h)
        if self.kind == "twice":  # but once for the first batch
            h = self.branches(x, 0)
            return self.o(self.c(h if x is BATCHES[0][0] else h + self.branches(h, 1)))
        if self.kind == "flag":
            h = self.flagging(x)
            return self.o(self.b(h.cos() * (5 if self.flagging.is_second else 1)))
        r, h = self.a(x), self.b(x)
        if self.kind == "data":  # the memory of a tensor without values is missing
            self.mean.data = r.mean(0)
            return self.o(self.c(h) + self.mean)
        if self.kind == "attribute":
            return self.o(self.c(h) + self.a.kept)
        chosen = {
            "largest": lambda: (r.argmax(-1) == 0)[:, None],
            "sign": lambda: (r > 0).any(-1, keepdim=True),
            "branch": lambda: torch.tensor(bool(r.mean() < 9)),
            "rows": lambda: torch.zeros(len(r), 1).index_fill_(0, (r[:, 0] > 0).nonzero()[:, 0], 1.0) > 0,
            "numpy": lambda: torch.from_numpy(r.numpy().argmax(1) == 0)[:, None],
            "written": lambda: torch.zeros(r.shape).copy_(r)[:, :1] > 0,
            "list": lambda: torch.tensor([row[0] > 0 for row in r.tolist()])[:, None],
        }[self.kind]()
        return self.o(torch.where(chosen, self.c(h), -h))


class Branches(nn.ModuleList):
    """Runs one of its modules."""

    def __init__(self) -> None:
        super().__init__([nn.Linear(4, 4), nn.Tanh()])

    def forward(self, x: Tensor, branch: int) -> Tensor:
        return self[branch](x)


KINDS = ["signs", "traced", "in place", "attribute", "twice", "flag", "data"]
KINDS += ["largest", "sign", "branch", "rows", "numpy", "written", "list"]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
@pytest.mark.parametrize("kind", KINDS)
def test_states_are_those_of_full_passes_whatever_stands_between(kind: str) -> None:
    model, names = network(), ["0", "1", "4"]
    if kind == "signs":
        model, names = Gated().eval(), ["first.linear", "second", "third"]
    elif kind == "traced":
        traced: Any = torch.jit.trace(nn.Tanh(), torch.ones(40, 4))
        model.register_module("1", traced)
    else:
        torch.manual_seed(0)
        model = Parts(kind).eval()
        names = {"in place": ["relu", "o"], "twice": ["branches.0", "c", "o"], "flag": ["flagging", "b", "o"]}.get(
            kind, ["a", "b", "o"]
        )
    erasers = fit_layers(model, BATCHES, names, num_classes=2)
    for found, expected in zip(erasers.values(), fitted_alone(model, names), strict=True):
        for field, tensor in expected.state_dict().items():
            torch.testing.assert_close(found.state_dict()[field], tensor, rtol=1e-4, atol=1e-5)
