"""The status of a sweep from disk alone, and what is left to do of it."""

import functools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from conf.compose import unchecked
from harness.run_directory import Run
from mdl.__main__ import COMMAND as MDL
from scripts.manage_sweep.__main__ import main as sweep
from scripts.manage_sweep.status import jobs_by_id
from tests.made_up_runs import made_up

OVERRIDES = ["eraser=control,leace,qleace", "model=linear,mlp", "seeds=[0]", "train.lr=0.01"]


@functools.cache
def names() -> list[str]:
    return [*jobs_by_id(MDL, OVERRIDES)]


def runs_in(root: Path) -> list[Run]:
    return [Run(root, name) for name in names()]


@pytest.fixture
def half_done(tmp_path: Path) -> Path:
    """Six runs: two have finished, one failed, one was interrupted; one of the two others runs."""
    root = tmp_path / "runs"
    first, second, third, fourth, fifth, _ = runs_in(root)
    for run in (first, second, third, fourth, fifth):
        run.start("a: 1\n")
    first.finish(made_up(first.id))
    second.finish(made_up(second.id))
    third.fail(RuntimeError("the loss is not finite"))
    fourth.fail(SystemExit(143))
    (fifth.directory / "run.lock").write_text(json.dumps({"token": "x", "host": "node7", "pid": 12}))
    return root


def test_states_and_missing_runs_of_a_sweep(half_done: Path, capsys) -> None:
    assert sweep(["status", str(half_done), "--", *OVERRIDES]) == 1
    out = capsys.readouterr().out
    assert "6 runs: 2 finished, 1 running, 1 failed, 1 interrupted, 1 missing" in out
    assert "RuntimeError: the loss is not finite" in out
    assert re.search(r"process 12 on node7, heartbeat \d+ s ago", out)
    assert sweep(["status", str(half_done), "--", *OVERRIDES, "--yes"]) == 2
    assert capsys.readouterr().err == "--yes: goes before --, where the overrides begin\n"
    assert sweep(["status", str(half_done)]) == 1
    assert "5 runs: 2 finished, 1 running, 1 failed, 1 interrupted" in capsys.readouterr().out
    for run in runs_in(half_done):
        run.start("")
        run.finish(made_up(run.id))
    assert sweep(["status", str(half_done), "--", "python", "-m", "mdl", "-m", *OVERRIDES]) == 0


def test_the_time_of_runs_that_are_left_is_that_of_finished_runs_of_their_kind(tmp_path: Path, capsys) -> None:
    linear, _, leace_linear, mlp, *_ = runs_in(tmp_path)
    assert [run.id.split("-")[3] for run in (linear, leace_linear, mlp)] == ["linear", "linear", "mlp"]
    for run, seconds in ((linear, 100.0), (leace_linear, 300.0)):
        run.start("a: 1\n")
        result = made_up(run.id)
        run.finish(replace(result, timing=replace(result.timing, seconds=seconds)))
    assert sweep(["status", str(tmp_path), "--", *OVERRIDES]) == 1
    said = "one run: about 3:20 of computing, as finished runs of their dataset and model took; no estimate for 3"
    assert said in capsys.readouterr().out


def test_a_refused_configuration_leaves_no_directory_and_counts_as_failed(command, capsys) -> None:
    tiny = ["model=linear", "train=quick", "train.max_epochs=1", "mdl.num_chunks=2,500", "seeds=[0]"]
    tiny += ["logger.mode=disabled", "eraser=control"]
    refused = command(MDL, "-m", *tiny)
    assert refused.code == 2
    assert "mdl.num_chunks=500 chunks of at least mdl.min_chunk=27 examples need 13,500" in refused.err
    (directory,) = Path("runs").glob("mdl-*")
    assert (directory / "result.json").exists()
    assert sweep(["status", "runs", "--", *tiny]) == 1
    out = capsys.readouterr().out
    assert "2 runs: 1 finished, 1 failed" in out
    assert "mdl.num_chunks=500 chunks of at least" in out
    assert " about " not in out
    assert command(MDL, *[word.replace("2,500", "500") for word in tiny]).code == 2
    assert [*Path("runs").glob("mdl-*")] == [directory]


def test_discard_lists_failed_runs_and_deletes_them_when_told(half_done: Path, capsys) -> None:
    first, _, third, *_ = runs = runs_in(half_done)
    damaged = first.directory / "result.json"
    damaged.write_text(damaged.read_text().replace("1.0", "2.0", 1))  # a finished run's result: not to be deleted
    before = {run.id for run in runs if run.directory.exists()}
    assert sweep(["discard", str(half_done)]) == 0
    said = capsys.readouterr().out
    assert f"failed: {third.id}: RuntimeError: the loss is not finite" in said
    assert "1 failed runs; nothing is deleted yet: add --yes" in said
    assert {run.id for run in runs if run.directory.exists()} == before
    with third.claim():
        sweep(["discard", str(half_done), "--yes"])
        assert third.directory.exists()  # somebody works on it
    capsys.readouterr()
    assert sweep(["discard", str(half_done), "--yes"]) == 0
    assert f"deleted: {third.id}" in capsys.readouterr().out
    assert {run.id for run in runs if run.directory.exists()} == before - {third.id}


@pytest.mark.parametrize("word", ["hydra/launcher=nope", "hydra.launcher.nope=1", "hydra.nope=1"])
def test_options_of_hydra_that_do_not_exist_are_refused(word: str, tmp_path: Path, capsys) -> None:
    assert sweep(["status", str(tmp_path), "--", word, "eraser=control"]) == 2
    assert "nope" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "count"),
    [
        (["eraser=leace", "model.width=8,16", "train=quick", "seeds=[0],[1,2]"], 4),
        (["+experiment=digits_all", "eraser=leace", "seeds=[0]"], 4),
        (["dataset=digits", "mdl=quick,default", "train.betas=[0.5,0.9]"], 2),
    ],
)
def test_jobs_are_those_of_hydra_each_composed_in_full(overrides: list[str], count: int) -> None:
    """Fast code against the slow reference."""
    jobs = jobs_by_id(MDL, overrides)
    expected = [MDL.run_directory(unchecked("mdl", job)).name for job in jobs.values()]
    assert [*jobs] == expected
    assert len(jobs) == count


def test_wrong_words_are_one_line(tmp_path: Path, capsys) -> None:
    assert sweep(["status", str(tmp_path), "--", "eraser=laece"]) == 2
    assert "unknown eraser=laece: did you mean leace?" in capsys.readouterr().err
    for word in ("hydra/launcher=nope", "hydra.launcher.workers=2"):  # as the sweep itself does
        assert sweep(["status", str(tmp_path), "--", word]) == 2
        assert "unknown " in capsys.readouterr().err
    assert sweep(["status", str(tmp_path)]) == 0
    assert "no runs" in capsys.readouterr().out
