"""The name of a sweep's directory, and its files, which somebody else may have edited."""

from pathlib import Path

import pytest

from erasure.store.checked_files import write_json
from harness.sweep_files import Sweep, sweep_name


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("no memory", "all is well", "was edited or damaged: its checksum does not match its content"),
        ('"digest"', '"other"', "has no checksum: it was edited, or something else wrote it"),
        ("{", "[{", "is damaged ("),
    ],
)
def test_an_edited_error_is_not_believed(tmp_path: Path, before: str, after: str, said: str) -> None:
    sweep, path = Sweep(tmp_path, "mdl", []), tmp_path / "error-a.json"
    sweep.fail("a", "no memory", 2)
    assert sweep.error_of("a") == ("no memory", 2)
    path.write_text(path.read_text().replace(before, after, 1))
    error, exit_code = sweep.error_of("a")
    assert exit_code == 1
    assert error.startswith(f"{path} {said}")
    assert error.endswith("launch the sweep again")
    assert sweep.failed("a")


def test_other_values_than_those_of_a_sweep_are_not_believed(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "mdl", [])
    write_json(tmp_path / "error-a.json", {"error": 3})
    error, exit_code = sweep.error_of("a")
    assert exit_code == 1
    assert error.endswith("launch the sweep again")


@pytest.mark.parametrize("linked", ["sweeps", "sweeps/mdl-x", "sweeps/mdl-x/.submitit"])
def test_a_sweep_is_not_written_through_a_link(tmp_path: Path, linked: str) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / linked).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / linked).symlink_to(tmp_path / "user")
    sweep = Sweep(tmp_path / "sweeps" / "mdl-x", "mdl", [])

    with pytest.raises(ValueError, match=f"{linked} is a link"):
        sweep.begin([])
    assert [*(tmp_path / "user").iterdir()] == []


def test_a_launch_forgets_the_errors_of_earlier_ones(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "mdl", [])
    sweep.begin([])
    sweep.fail("a", "mdl.num_chunks=500", 2)
    assert sweep.error_of("a") == ("mdl.num_chunks=500", 2)
    lacking = "no result or error recorded; probably killed: launch the sweep again to continue b"
    assert sweep.error_of("b") == (lacking, 1)
    Sweep(tmp_path, "mdl", []).begin([])
    assert not sweep.failed("a")


def test_a_sweep_has_one_name_however_and_wherever_it_is_launched() -> None:
    name = sweep_name("mdl", ["eraser=control,leace", "seeds=[0]"])
    assert name.startswith("mdl-")
    elsewhere = ["seeds=[0]", "eraser=control,leace", "hydra/launcher=slurm", "runs_dir=/scratch"]
    assert sweep_name("mdl", elsewhere) == name
    assert sweep_name("mdl", ["eraser=control,leace", "seeds=[1]"]) != name
    assert sweep_name("mdl", ["+experiment=table16"]).startswith("mdl-table16-")
    assert "/" not in sweep_name("mdl", ["+experiment=mine/table"])
