"""Search folders for runs, and refuse those that cannot be used."""

import math
import shutil
from pathlib import Path

import pytest

from harness.results.arrange import arrange, rows_of
from harness.results.read import read_runs
from harness.run_directory import Run
from tests.made_up_runs import edit_result, result_json, write_small_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def test_one_run_in_two_folders(runs, tmp_path) -> None:
    run = write_small_run(runs / "a")
    shutil.copytree(run.directory, runs / "b" / run.id)
    problems: list[str] = []
    assert len(read_runs([runs / "a", runs / "b", runs / "a"], problems.append)) == 1
    assert problems == []
    edit_result(Run(runs / "b", run.id), timing={"seconds": 1, "started": 1.9e9})
    (only,) = read_runs([runs], problems.append)
    assert only.directory == runs / "b" / run.id
    assert problems == [
        f"{run.directory}: differs from {runs / 'b' / run.id}, which has the same run id and is newer: left out"
    ]


def test_results_of_different_versions_are_named(runs) -> None:
    write_small_run(runs, "control")
    other = write_small_run(runs, "leace", versions={"erasure-mdl": "0.2.0"})
    problems: list[str] = []
    read_runs([runs], problems.append)
    (problem,) = problems
    assert "different versions" in problem
    assert problem.endswith(": 1 by 0.1.0 and 1 by 0.2.0")
    # the same configuration under another id: RESULTS_VERSION moved in between
    twin = runs / "mdl-digits-leace-mlp-0000000000"
    shutil.copytree(other.directory, twin)
    edit_result(Run(runs, twin.name), run_id=twin.name, timing={"seconds": 1, "started": 1.9e9})
    (block,) = arrange(read_runs([runs], problems.append), problems.append)
    assert {*rows_of(block)[1]["run_id"]} == {twin.name}
    assert f"{other.directory}: left out: {twin.name} has the same configuration and seeds" in problems[-1]


def test_runs_that_have_not_finished_are_named_and_of_no_version(runs) -> None:
    write_small_run(runs, "control")
    unfinished = write_small_run(runs, "leace")
    (unfinished.directory / "result.json").unlink()
    problems: list[str] = []
    assert len(read_runs([runs], problems.append)) == 2
    assert problems == [f"{unfinished.directory}: no result.json: unfinished, shown as incomplete"]


def test_what_labels_up_to_the_first_size_cost_is_a_codes_own_affair(runs) -> None:
    """Anything from nothing to the uniform code's price and the few bits that learning costs; no more, no less."""
    cheap, dear, free = (write_small_run(runs, eraser) for eraser in ("control", "leace", "qleace"))
    for run, change in ((cheap, -0.5), (dear, 1.2), (free, -1.2)):
        result = result_json(run)
        bits = change * result["curve"][0]["n"] * math.log2(result["num_classes"])
        more = {"total_bits": bits, "bits_per_sample": bits / result["train_size"]}
        edit_result(
            run, mdl=result["mdl"] | {key: [one + by for one in result["mdl"][key]] for key, by in more.items()}
        )
    problems: list[str] = []
    assert [run.id for run in read_runs([runs], problems.append)] == [cheap.id]
    assert sum("mixed units?" in problem for problem in problems) == 2
