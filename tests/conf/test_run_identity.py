"""Options that count towards the identity of a run."""

from dataclasses import dataclass

from conf.run_identity import hashed, later, only_with
from conf.schema import validate
from tests.conf.test_schema import GOOD, Options, Own


def test_what_came_later_is_part_of_an_identity_where_it_matters() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Grown:
        width: int
        code: str = later("blocks")
        batch: int = only_with(lambda: 4, code="replay")

    assert hashed({"width": 3, "code": "blocks"}, Grown) == hashed({"width": 3}, Grown) == {"width": 3}
    assert hashed({"width": 3, "code": "replay"}, Grown) == {"width": 3, "code": "replay"}
    assert hashed({"width": 3, "code": "blocks", "batch": 4}, Grown) == {"width": 3}
    assert hashed(replayed := {"width": 3, "code": "replay", "batch": 4}, Grown) == replayed


def test_what_is_unhashed_is_no_part_of_an_identity_at_any_depth() -> None:
    checked = validate(GOOD, Own)
    assert hashed(checked.plain["part"], Options) == GOOD["part"] | {"pair": [1.0, 2.0]}
