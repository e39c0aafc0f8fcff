"""Classes that a configuration names: built from its options, imported with care."""

import re
import sys
from pathlib import Path

import pytest

from conf.check import ConfigError
from conf.schema import validate
from conf.target_class import Target
from erasure.eraser import Eraser
from models.classifier import Model
from models.mlp import MLP
from tests.conf.test_schema import GOOD, Own, changed
from train.settings import TrainSettings

OWN_NETWORKS = """
from models.classifier import Classifier
neither = 3
class Abstract(Classifier): forward = None
class Network(Abstract): reset_parameters = None
class Untyped(Network):
    def __init__(self, input_shape, num_classes, *, degree, sketch: None): ...
class Positional(Network):
    def __init__(self, input_shape, num_classes, degree: int, *, sketch: None): ...
"""
NESTED = """
import typing
from models.classifier import Classifier, Model
class Mine(Classifier):
    def __init__(self, input_shape, num_classes, *, net: Model, more: typing.Mapping[str, Model],
                 width: int, sizes: typing.Mapping[str, int], rest: typing.Mapping): ...
"""
REFUSED_NETWORKS = {
    "Abstract": "own_networks.Abstract: has no reset_parameters: every model defines it",
    "neither": r"own_networks.neither: must be a subclass of .*Model, a torch.nn.Module or a function that makes one$",
    "Untyped": "own_networks.Untyped: option degree has no type: write one, e.g. degree: int",
    "Positional": r"unknown key model.degree: choose from sketch",
}


def test_a_target_builds_its_class_from_its_options() -> None:
    options = {"width": 4, "depth": 1, "activation": "relu", "parametrization": "mup"}
    model = Target({"name": "m", "_target_": "models.mlp.MLP", **options}, MLP)
    assert model.build((1, 2, 2), 3).readout.weight.shape == (3, 4)
    assert Target(GOOD["eraser"], Eraser).options == {"rank_tolerance": 0}
    with pytest.raises(ConfigError, match=r"models.mlp.MLP: must be a subclass of train.settings.TrainSettings"):
        Target(model.section, TrainSettings).resolve()


def test_options_hold_sections_where_their_type_is_a_class_of_sections(written) -> None:
    written(NESTED)
    target = Target({"name": "m", "_target_": "mine.Mine"}, Model)
    assert target.nested == {"net": ("model", False), "more": ("model", True)}


@pytest.mark.parametrize("path", ["this.s", "antigravity.x", "idlelib.pyshell.main", "isympy.x", "__main__.main", ""])
@pytest.mark.parametrize("section", ["dataset", "eraser", "model"])
def test_an_installed_module_is_not_imported_for_a_configuration(section: str, path: str) -> None:
    before = set(sys.modules)
    with pytest.raises(ConfigError, match=rf"_target_={re.escape(path)}: must be a subclass of .*an installed package"):
        validate(changed(section, _target_=path), Own)
    assert path.partition(".")[0] not in set(sys.modules) - before


def test_a_module_of_the_users_own_is_imported_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_models.py").write_text("from models.polynomial import PolynomialClassifier as Own\n")
    (tmp_path / "own_networks.py").write_text(OWN_NETWORKS)
    for name, line in REFUSED_NETWORKS.items():
        with pytest.raises(ConfigError, match=line):
            validate(changed("model", _target_=f"own_networks.{name}"), Own)
    (tmp_path / "own_broken.py").write_text("raise RuntimeError('not today')\n")
    checked = validate(changed("model", _target_="own_models.Own"), Own)
    assert checked.model["_target_"] == "own_models.Own"
    with pytest.raises(ConfigError, match=r"own_models\.Own: must be a subclass of erasure\.eraser\.Eraser$"):
        validate(changed("eraser", _target_="own_models.Own"), Own)
    with pytest.raises(ConfigError, match=r"own_broken\.Own: cannot be imported \(not today\)"):
        validate(changed("model", _target_="own_broken.Own"), Own)
