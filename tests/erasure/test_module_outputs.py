"""Inputs and outputs of modules keep their type: the first tensor of tuples, lists and mappings is replaced."""

from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from erasure import IdentityEraser, erase, fit_layers
from erasure.module_outputs import first_tensor

Pair = namedtuple("Pair", ["states", "cache"])


KINDS = {
    "tensor": lambda states: states,
    "tuple": lambda states: (states, "cache"),
    "list": lambda states: [states, "cache"],
    "named tuple": lambda states: Pair(states, "cache"),
    "dictionary": lambda states: {"states": states, "cache": "cache"},
    "ordered dictionary": lambda states: OrderedDict(states=states, cache="cache"),
}


class Giving(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Any:
        return KINDS[self.kind](x + 1)


class Doubled(IdentityEraser):
    version = 1

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        return 2 * x


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_tensor_is_replaced_wherever_it_stands(kind: str) -> None:
    model, x = nn.Sequential(Giving(kind)), torch.randn(5, 4)
    plain = model(x)
    with erase(model, {"0": Doubled(torch.zeros(4), 2)}):
        output = model(x)
    assert type(output) is type(plain)
    assert torch.equal(first_tensor(output, "0"), 2 * x + 2)
    assert torch.equal(first_tensor(plain, "0"), x + 1)
    if kind == "dataclass":
        assert output.again[0] is output.states
    if kind not in ("tensor", "dataclass"):
        assert list(output.values() if isinstance(output, dict) else output)[1] == "cache"
    fit_layers(model.eval(), [(torch.randn(8, 4), torch.arange(8) % 2)], ["0"], num_classes=2)


def test_what_holds_no_states_first_is_refused() -> None:
    for values, kind in (
        ((None, torch.ones(2)), "NoneType"),
        ({}, "NoneType"),
        (torch.arange(3), "a tensor of torch.int64"),
    ):
        with pytest.raises(ValueError, match=f"layer: the first of its states is {kind}, expected floating numbers"):
            first_tensor(values, "layer")
