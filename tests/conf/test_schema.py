"""Configurations against their schema: types are converted, and nothing else passes."""

from dataclasses import dataclass
from typing import Literal

import pytest

from conf.check import ConfigError
from conf.run_identity import unhashed
from conf.schema import Config, validate


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
    size: list[int | list[int]] | Literal["all"]
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
    "eraser": {"name": "e", "_target_": "erasure.LeaceEraser", "rank_tolerance": 0},
    "model": {"name": "m", "_target_": "models.polynomial.PolynomialClassifier", "degree": 1, "sketch": None},
    "part": {"width": 3, "rate": 1, "pair": [1, 2], "kind": "a", "size": "all", "group": {"count": 1}},
    "seeds": [0], "device": "cpu", "dtype": "float32", "runs_dir": "r", "cache_dir": "c",
}  # fmt: skip


def changed(section: str, **values):
    return GOOD | {section: GOOD[section] | values}


def test_values_take_the_types_of_the_signature() -> None:
    checked = validate(GOOD, Own)
    assert checked.part == Options(width=3, rate=1.0, pair=(1.0, 2.0), kind="a", size="all", group=Group(count=1))
    assert isinstance(checked.part.rate, float)
    assert checked.eraser["rank_tolerance"] == 0.0
    group = {"count": 1, "buffer": 3}
    assert checked.plain["part"] == {
        "width": 3, "rate": 1.0, "pair": [1.0, 2.0], "kind": "a", "size": "all", "group": group, "_quiet": False
    }  # fmt: skip
    assert validate(checked.plain, Own) == checked


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"width": "three"}, "part.width=three: must be a whole number"),
        ({"pair": [1]}, r"part.pair\[1\]=\[1\]: must be given"),
        ({"kind": "c"}, "part.kind=c: must be 'a' or 'b'"),
        ({"size": ["x"]}, r"part.size\[0\]=x: must be a whole number"),
        ({"witdh": 3}, "unknown key part.witdh: did you mean width"),
        ({"group": {"cuont": 1}}, "unknown key part.group.cuont: did you mean count"),
        ({"group": {}}, "part.group.count is missing: set it with part.group.count=VALUE"),
        ({"group": {"count": "x"}}, "part.group.count=x: must be a whole number"),
        ({"group": {"count": 0}}, "part.group.count=0: must be at least 1"),
        ({"group": [1]}, r"part.group=\[1\]: it has options of its own: set part.group.count, part.group.buffer"),
    ],
)
def test_anything_else_is_refused_in_one_line(values: dict, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        validate(changed("part", **values), Own)


def test_sections_must_be_there_and_nothing_else() -> None:
    with pytest.raises(ConfigError, match="section 'model' is missing"):
        validate({key: value for key, value in GOOD.items() if key != "model"}, Own)
    with pytest.raises(ConfigError, match="unknown key part"):
        validate(GOOD, Config)
    with pytest.raises(ConfigError, match=r"model\.name is missing"):
        validate(GOOD | {"model": {"_target_": "models.polynomial.PolynomialClassifier"}}, Own)
