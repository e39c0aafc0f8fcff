"""Classes and functions of a user's as models of a configuration; `tests/mdl/test_codelengths.py` trains them."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal

from conf.check import ConfigError
from conf.target_class import Target, check_target
from erasure.code_identity import code_identity
from models.any_module import AnyModule, model_class
from models.classifier import Classifier, is_repeatable
from models.mlp import MLP


class Net(nn.Module):
    """Takes what it is given: vectors [B, d] or images [B, C, H, W]."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, width: int = 3, layer: type = nn.Linear) -> None:
        super().__init__()
        self.input_shape, self.hidden = input_shape, layer(torch.Size(input_shape).numel(), width)
        self.drawn = nn.Parameter(torch.randn(width))  # without a reset_parameters
        self.out = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1:] == self.input_shape
        return self.out((self.hidden(x.flatten(1)) * self.drawn).relu())


def needs(*, width: int, part: nn.Module) -> nn.Module:
    raise AssertionError


def fixed(num_classes, width) -> nn.Module:
    return nn.Linear(3, width)


def section(name: str, **options: Any) -> dict[str, Any]:
    return {"name": "own", "_target_": f"{__name__}.{name}", **options}


@pytest.mark.parametrize(("dataset_shape", "shape"), [((1, 2, 2), (1, 2, 2)), ((5, 1, 1), (5,))])
def test_a_class_of_modules_gets_shape_and_classes_and_draws_the_same_again(dataset_shape: Any, shape: Any) -> None:
    checked = check_target("model", section("Net"), "model")
    assert checked == section("Net")
    model = Target(checked, Classifier).build(dataset_shape, 4)
    assert model(torch.zeros(2, *dataset_shape)).shape == (2, 4)
    assert model.get_submodule("network").input_shape == shape
    assert is_repeatable(model)
    drawn = []
    for seed in (0, 1):
        model.reset_parameters(torch.Generator().manual_seed(seed))
        drawn.append(model.get_parameter("network.drawn").detach().clone())
    assert not torch.equal(*drawn)
    wide = check_target("model", section("Net", width=7), "model")
    assert Target(wide, Classifier).build(dataset_shape, 4).get_parameter("network.drawn").shape == (7,)


class Zero(nn.Module):
    """Begins with outputs of zero."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.norm, self.out = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(self.hidden(x)))


def test_a_module_has_the_last_word_on_the_weights_of_its_parts_and_keeps_its_buffers() -> None:
    made = Zero()
    made.norm.get_buffer("running_mean").fill_(7)
    model = AnyModule(made, (3,), 2, training=False)
    model.reset_parameters(torch.Generator().manual_seed(1))
    assert model.get_parameter("network.hidden.weight").abs().min() > 0
    assert torch.equal(model.get_parameter("network.out.weight"), torch.zeros(2, 4))
    assert model.get_buffer("network.norm.running_mean").tolist() == [7] * 4


def test_buffers_that_share_memory_and_statistics_that_fit_the_given_weights_are_taken() -> None:
    parts = list[nn.Module]()
    for _ in range(3):  # weights of usual size overflow under these statistics
        linear, norm = nn.Linear(3, 3), nn.BatchNorm1d(3, eps=0)
        norm.get_buffer("running_var").fill_(1e-36)
        with torch.no_grad():
            linear.weight.mul_(1e-18)
            linear.get_parameter("bias").mul_(1e-18)
        parts += [linear, norm]
    made = nn.Sequential(*parts, nn.Linear(3, 2))
    made.register_buffer("ones", torch.ones(1).expand(5))
    model = AnyModule(made, (3,), 2, training=False)
    model.reset_parameters(torch.Generator().manual_seed(1))
    assert model.get_buffer("network.ones").tolist() == [1] * 5


def test_a_warning_names_the_random_buffers_that_seeds_share(caplog: pytest.LogCaptureFixture) -> None:
    AnyModule(lambda: nn.Sequential(orthogonal(nn.Linear(3, 3)), nn.Linear(3, 2)), (3,), 2)
    AnyModule(lambda: nn.Sequential(nn.Linear(3, 2), nn.Sequential()), (3,), 2)
    (warning,) = caplog.messages
    assert warning == "the network: all seeds share 0.parametrizations.weight.0.base, which is random and not trained"


def test_its_identity_is_that_of_its_own_source_and_of_who_initialises_it() -> None:
    resolved = Target(section("Net"), Classifier).resolve()
    assert f"{__name__}.Net" in code_identity(resolved)
    assert resolved.identity({"width": 3}) == {"width": 3, "any_module": AnyModule.version}
    versioned = model_class(type("Versioned", (Net,), {"version": 5, "__module__": __name__}))
    assert code_identity(versioned) == {f"{__name__}.Versioned": 5}
    assert model_class(MLP) is MLP


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (section("Net", widht=3), "widht: did you mean width"),
        (section("Net", width="x"), "width=x: must be a whole number"),
        (section("Net", layer="x"), "model.layer: choose from width"),
        (section("Net", num_classes=3), "num_classes"),
        (section("needs", width=3, part=1), "torch.nn.modules.module.Module.*: give options types that YAML has"),
        (section("fixed"), "width"),
        (
            section("fixed", width="x"),
            r"model=fixed: it cannot be called with width='x', num_classes=2 .*: correct them",
        ),
        (section("fixed", width=3), r"model=fixed: it fails on examples \[3, 5\]"),
    ],
)
def test_what_cannot_be_built_is_refused_in_a_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        Target(check_target("model", given, "model"), Classifier).build((5, 1, 1), 2)
    assert "\n" not in str(refusal.value)
    with pytest.raises(ConfigError, match="must be a subclass of erasure.eraser.Eraser"):
        check_target("eraser", given, "eraser")
