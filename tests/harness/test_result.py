"""Contents of result.json: what is refused and how that is said, and results of several seeds together."""

from pathlib import Path

import pytest

from erasure.store.checked_files import DamagedFileError, write_json
from harness.result import VERSION, as_json, read_result, result_of
from tests.made_up_runs import made_up

MDL = {
    "command": "mdl",
    "seeds": [3, 5],
    "train_size": 20,
    "mdl": {"bits_per_sample": [1.5, 2.0], "total_bits": [30.0, 40.0], "published": [1.0, 2.0]},
    "curve": [
        {
            "n": 10,
            "ce_next_bits": [1.0, 2.0],
            "ce_test_bits": [1.0, 2.0],
            "epochs": [4, 5],
            "left_plateau": [True, False],
        },
        {"n": 20, "ce_next_bits": None, "ce_test_bits": [0.5, 1.5], "epochs": [6, 7], "left_plateau": [False, False]},
    ],
    "final": {"loss_bits": [0.5, 1.5], "accuracy": [0.5, 0.5]},
}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    for result in (made_up(), made_up(**MDL)):
        path = tmp_path / result.run_id / "result.json"
        path.parent.mkdir()
        write_json(path, as_json(result))
        assert read_result(path) == result
        path.parent.rename(tmp_path / "renamed")
        with pytest.raises(DamagedFileError, match=f"is of the run {result.run_id}: give its directory that name, or"):
            read_result(tmp_path / "renamed" / "result.json")
        (tmp_path / "renamed").rename(path.parent)
    assert "sharp_drop" not in as_json(made_up())  # a key that the run does not have, not one that is null
    assert as_json(made_up(**MDL))["curve"][1]["ce_next_bits"] is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": [0, 1, 2]}, "has 1 numbers for 3 seeds"),
        ({"final": {"loss_bits": [1.0]}}, "lacks final.accuracy"),
        ({"label_entropy_bits": "much"}, "label_entropy_bits holds 'much'"),
        ({"label_entropy_bits": float("nan")}, "holds the value nan in label_entropy_bits, which no run writes"),
        ({"config": {"dataset": {"name": "d"}}}, "config.eraser is None, not a section of options"),
        ({"command": "mld"}, "is of the command 'mld', not one of mdl, train, sample_info"),
        ({"config": made_up().config | {"logger": "offline"}}, "config.logger is 'offline', not a section of options"),
        ({"run_id": "../x"}, "'../x' is no run's name"),
        ({"run_id": "mdl-d-control-m-00000000"}, "is of the command train, and of the run mdl-d-control-m-00000000"),
        ({"version": VERSION + 1}, "and this code reads up to"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(changes: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        result_of(as_json(made_up()) | changes)
    assert "\n" not in str(caught.value)


def test_the_file_is_named_and_unknown_keys_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    values = as_json(made_up()) | {"flavour": "vanilla"}
    assert result_of(values) == made_up()
    del values["certificate"]
    write_json(path, values)
    with pytest.raises(DamagedFileError, match=r"no result of this version: lacks certificate; launch the run again"):
        read_result(path)
