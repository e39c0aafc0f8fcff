"""The name of a sweep's directory, and its files, which somebody else may have edited."""

from pathlib import Path
from typing import Any

import pytest

from erasure.store.checked_files import write_json
from harness.sweep_files import Sweep, SweepJob, sweep_name


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("no memory", "all is well", "was edited or damaged: its checksum does not match its content"),
        ('"digest"', '"other"', "has no checksum: it was edited, or something else wrote it"),
        ("{", "[{", "is damaged ("),
    ],
)
def test_an_edited_error_is_not_believed(tmp_path: Path, before: str, after: str, said: str) -> None:
    sweep, path = Sweep(tmp_path), tmp_path / "error-a.json"
    sweep.fail("a", "no memory", 2)
    assert sweep.error_of("a") == ("no memory", 2)
    path.write_text(path.read_text().replace(before, after, 1))
    error, exit_code = sweep.error_of("a")
    assert exit_code == 1
    assert error.startswith(f"{path} {said}")
    assert error.endswith("launch the sweep again")
    assert sweep.failed("a")


@pytest.mark.parametrize(
    "jobs",
    [None, 3, ["x"], [{}], [{"overrides": ["a"]}], [{"overrides": "a", "run": "b"}], [{"overrides": [1], "run": "b"}]],
)
def test_a_plan_that_is_none_is_one_line(tmp_path: Path, jobs: Any) -> None:
    write_json(tmp_path / "plan.json", {} if jobs is None else {"jobs": jobs})
    with pytest.raises(ValueError, match=r"plan\.json"):
        Sweep(tmp_path).planned()


def test_other_values_than_those_of_a_sweep_are_not_believed(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    sweep.plan([])
    write_json(tmp_path / "error-a.json", {"error": 3})
    error, exit_code = sweep.error_of("a")
    assert exit_code == 1
    assert "error-a.json lacks" in error


@pytest.mark.parametrize("linked", ["sweeps", "sweeps/mdl-x", "sweeps/mdl-x/.submitit"])
def test_a_sweep_is_not_written_through_a_link(tmp_path: Path, linked: str) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / linked).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / linked).symlink_to(tmp_path / "user")
    sweep = Sweep(tmp_path / "sweeps" / "mdl-x")

    def launch() -> None:
        sweep.save_request("mdl", [])
        sweep.plan([])

    with pytest.raises(ValueError, match=f"{linked} is a link"):
        launch()
    assert [*(tmp_path / "user").iterdir()] == []


def test_a_launch_forgets_the_errors_of_earlier_ones(tmp_path: Path) -> None:
    sweep, jobs = Sweep(tmp_path), [SweepJob(0, ["seeds=[0]"], tmp_path / "a"), SweepJob(1, [], tmp_path / "b")]
    sweep.plan(jobs)
    assert sweep.planned() == jobs
    sweep.fail("a", "mdl.num_chunks=500", 2)
    assert sweep.refused() == {"a": "mdl.num_chunks=500"}
    assert sweep.error_of("b") == (
        "no result or error recorded; probably killed: launch the sweep again to continue b",
        1,
    )
    Sweep(tmp_path).plan(jobs[1:])  # another process launches the same command line where another device is
    assert sweep.jobs == jobs, "those of this launch"
    assert not sweep.failed("a")
    assert sweep.planned() == [SweepJob(0, [], tmp_path / "b")]


def test_a_sweep_has_one_name_however_and_wherever_it_is_launched() -> None:
    name = sweep_name("mdl", ["eraser=control,leace", "seeds=[0]"])
    assert name.startswith("mdl-")
    elsewhere = ["seeds=[0]", "eraser=control,leace", "hydra/launcher=slurm", "runs_dir=/scratch"]
    assert sweep_name("mdl", elsewhere) == name
    assert sweep_name("mdl", ["eraser=control,leace", "seeds=[1]"]) != name
    assert sweep_name("mdl", ["+experiment=table16"]).startswith("mdl-table16-")
    assert "/" not in sweep_name("mdl", ["+experiment=mine/table"])
