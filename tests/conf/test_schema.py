"""Configurations against their schema: types are converted, classes imported with care, nothing else passes."""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from conf.check import ConfigError, keyword_only, unknown_key
from conf.identity import hashed, later, only_with, unhashed
from conf.schema import Config, validate
from conf.target import Target
from models.mlp import MLP
from train.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class Group:
    count: int
    buffer: int = unhashed(3)

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"part.group.count={self.count}: must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Stands for a section."""

    width: int
    rate: float
    pair: tuple[float, float]
    kind: Literal["a", "b"]
    size: int | None
    group: Group
    _quiet: bool = unhashed(False)


@dataclass(frozen=True, kw_only=True)
class Own(Config):
    part: Options


GOOD = {
    "dataset": {
        "name": "d", "_target_": "erasure.datasets.digits.Digits", "flip": False, "validation_size": None,
        "test_fraction": 0.2, "split_seed": 0, "normalize": "none",
    },
    "eraser": {"name": "e", "_target_": "erasure.LeaceEraser", "rank_tolerance": 1},
    "model": {"name": "m", "_target_": "models.polynomial.PolynomialClassifier", "degree": 1, "sketch": None},
    "part": {"width": 3, "rate": 1, "pair": [1, 2], "kind": "a", "size": None, "group": {"count": 1}},
    "seeds": [0], "device": "cpu", "dtype": "float32", "runs_dir": "r", "cache_dir": "c",
}  # fmt: skip


def changed(section: str, **values):
    return GOOD | {section: GOOD[section] | values}


def test_values_take_the_types_of_the_signature() -> None:
    checked = validate(GOOD, Own)
    assert checked.part == Options(width=3, rate=1.0, pair=(1.0, 2.0), kind="a", size=None, group=Group(count=1))
    assert isinstance(checked.part.rate, float)
    assert checked.eraser["rank_tolerance"] == 1.0
    group = {"count": 1, "buffer": 3}
    assert checked.plain["part"] == {
        "width": 3, "rate": 1.0, "pair": [1.0, 2.0], "kind": "a", "size": None, "group": group, "_quiet": False
    }  # fmt: skip
    assert validate(checked.plain, Own) == checked


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"width": "three"}, "part.width=three: input should be a valid integer"),
        ({"pair": [1]}, r"part.pair\[1\]=\[1\]: field required"),
        ({"kind": "c"}, "part.kind=c: input should be 'a' or 'b'"),
        ({"witdh": 3}, "unknown key part.witdh: did you mean width"),
        ({"group": {"cuont": 1}}, "unknown key part.group.cuont: did you mean count"),
        ({"group": {}}, "part.group.count is missing: set it with part.group.count=VALUE"),
        ({"group": {"count": "x"}}, "part.group.count=x: input should be a valid integer"),
        ({"group": {"count": 0}}, "part.group.count=0: must be at least 1"),
        ({"group": [1]}, r"part.group=\[1\]: it has options of its own: set part.group.count, part.group.buffer"),
    ],
)
def test_anything_else_is_refused_in_one_line(values: dict, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        validate(changed("part", **values), Own)


def test_what_came_later_is_part_of_an_identity_where_it_matters() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Grown:
        width: int
        code: str = later("blocks")
        batch: int = field(default=4, metadata=only_with(code="replay"))

    assert hashed({"width": 3, "code": "blocks"}, Grown) == hashed({"width": 3}, Grown) == {"width": 3}
    assert hashed({"width": 3, "code": "replay"}, Grown) == {"width": 3, "code": "replay"}
    assert hashed({"width": 3, "code": "blocks", "batch": 4}, Grown) == {"width": 3}
    assert hashed(replayed := {"width": 3, "code": "replay", "batch": 4}, Grown) == replayed


def test_what_is_unhashed_is_no_part_of_an_identity_at_any_depth() -> None:
    checked = validate(GOOD, Own)
    assert hashed(checked.plain["part"], Options) == GOOD["part"] | {"pair": [1.0, 2.0]}


def test_sections_must_be_there_and_nothing_else() -> None:
    with pytest.raises(ConfigError, match="section 'model' is missing"):
        validate({key: value for key, value in GOOD.items() if key != "model"}, Own)
    with pytest.raises(ConfigError, match="unknown key part"):
        validate(GOOD, Config)
    with pytest.raises(ConfigError, match=r"model\.name is missing"):
        validate(GOOD | {"model": {"_target_": "models.polynomial.PolynomialClassifier"}}, Own)


def test_a_target_builds_its_class_from_its_options() -> None:
    options = {"width": 4, "depth": 1, "activation": "relu", "parametrization": "mup"}
    model = Target({"name": "m", "_target_": "models.mlp.MLP", **options})
    assert model.build(MLP, (1, 2, 2), 3).readout.weight.shape == (3, 4)
    assert Target(GOOD["eraser"]).options == {"rank_tolerance": 1}
    with pytest.raises(ConfigError, match=r"models.mlp.MLP: must be a subclass of train.settings.TrainSettings"):
        model.build(TrainSettings)
    with pytest.raises(ConfigError, match=r"_target_=no\.such: cannot be imported"):
        Target({"_target_": "no.such"}).resolve()


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
    (tmp_path / "own_broken.py").write_text("raise RuntimeError('not today')\n")
    checked = validate(changed("model", _target_="own_models.Own"), Own)
    assert checked.model["_target_"] == "own_models.Own"
    with pytest.raises(ConfigError, match=r"own_models\.Own: must be a subclass of erasure\.eraser\.Eraser$"):
        validate(changed("eraser", _target_="own_models.Own"), Own)
    with pytest.raises(ConfigError, match=r"own_broken\.Own: cannot be imported \(not today\)"):
        validate(changed("model", _target_="own_broken.Own"), Own)


def test_keyword_only_arguments_of_a_dataclass_and_unknown_keys() -> None:
    assert keyword_only(TrainSettings)["lr"] is float
    assert unknown_key("zzz", ["lr"]) == "unknown key zzz: choose from lr"
    assert unknown_key("lrr", ["lr", "b"]) == "unknown key lrr: did you mean lr? choose from b, lr"
