"""Options that count towards the identity of a run."""

from conf.run_identity import hashed
from conf.schema import validate
from tests.conf.test_schema import GOOD, Options, Own


def test_what_is_unhashed_is_no_part_of_an_identity_at_any_depth() -> None:
    checked = validate(GOOD, Own)
    assert hashed(checked.plain["part"], Options) == GOOD["part"] | {"pair": [1.0, 2.0]}
