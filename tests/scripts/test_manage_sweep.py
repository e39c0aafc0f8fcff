"""The status of a sweep from disk alone, and what is left to do of it."""

import csv
import functools
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from conf.commands import config_of
from conf.compose import composed, unchecked
from conf.groups import choices
from erasure.store.checked_files import read_json, sealed, write_json
from harness.run_directory import Run
from harness.run_state import State
from mdl.__main__ import COMMAND as MDL
from mdl.settings import MdlConfig
from scripts.manage_sweep.__main__ import main as sweep
from scripts.manage_sweep.relaunch import launch_command
from scripts.manage_sweep.status import SweepRun, jobs_by_id
from scripts.report import main as report
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
    assert sweep(["status", str(half_done), "--", *OVERRIDES, "--retry-failed"]) == 2
    assert capsys.readouterr().err == "--retry-failed: goes before --, where the overrides begin\n"
    assert sweep(["status", str(half_done)]) == 1
    assert "5 runs: 2 finished, 1 running, 1 failed, 1 interrupted" in capsys.readouterr().out
    for run in runs_in(half_done):
        run.start("")
        run.finish(made_up(run.id))
    assert sweep(["status", str(half_done), "--", "python", "-m", "mdl", "-m", *OVERRIDES]) == 0


def test_the_cost_so_far_and_to_the_end(tmp_path: Path, capsys) -> None:
    linear, _, leace_linear, mlp, *_ = runs = runs_in(tmp_path)
    assert [run.id.split("-")[3] for run in (linear, leace_linear, mlp)] == ["linear", "linear", "mlp"]
    for run, seconds in ((linear, 100.0), (leace_linear, 300.0)):
        run.start("a: 1\n")
        result = made_up(run.id)
        run.finish(replace(result, timing=replace(result.timing, seconds=seconds)))
    assert len(runs) == 6
    assert sweep(["status", str(tmp_path), "--", *OVERRIDES]) == 1
    said = (
        "device time: 6:40 used by finished runs, about 3:20 left, or 3:20 with 1 at a time; "
        "no time estimate yet for 3 runs"
    )
    assert said in capsys.readouterr().out


def test_the_time_left_is_what_runs_have_not_spent_and_failed_runs_need_none(tmp_path: Path, capsys) -> None:
    runs = {run.id.split("-")[2]: run for run in runs_in(tmp_path) if run.id.split("-")[3] == "linear"}
    for run in runs.values():
        run.start("a: 1\n")
    finished = made_up(runs["control"].id)
    runs["control"].finish(replace(finished, timing=replace(finished.timing, seconds=600.0)))
    (runs["leace"].directory / "part-10.json").write_text(
        sealed({"run": runs["leace"].id, "part": "10", "value": {}, "seconds": 450.0})
    )
    runs["leace"].fail(KeyboardInterrupt())
    runs["qleace"].fail(RuntimeError("the loss is not finite"))
    sweep(["status", str(tmp_path)])
    said = "device time: 10:00 used by finished runs, about 2:30 left, or 2:30 with 1 at a time\n"
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
    assert " left" not in out
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


def printed(out: str) -> list[list[str]]:
    """Return the overrides of the commands that were printed."""
    return [shlex.split(line)[3:] for line in out.splitlines() if line.startswith("python -m ")]


def test_retry_prints_exactly_what_is_left_and_launches_nothing(half_done: Path, capsys) -> None:
    before = sorted(half_done.rglob("*"))
    assert sweep(["status", str(half_done), "--retry-failed", "--", *OVERRIDES]) == 1
    _, _, third, fourth, _, sixth = runs_in(half_done)
    left = [job for words in printed(capsys.readouterr().out) for job in jobs_by_id(MDL, words)]
    assert left == [third.id, fourth.id, sixth.id]
    assert sorted(half_done.rglob("*")) == before
    sweep(["status", str(half_done), "--retry-failed", "--", "hydra/launcher=slurm", *OVERRIDES])
    assert f"python -m mdl -m hydra/launcher=slurm {shlex.join(OVERRIDES)}" in capsys.readouterr().out


def test_what_cannot_be_launched_from_here_is_named_and_counted(half_done: Path, command, capsys) -> None:
    tiny = ["model=linear", "train=quick", "train.lr=1e38", "mdl.num_chunks=2", "seeds=[3]", "logger.mode=disabled"]
    assert command(MDL, *tiny, f"runs_dir={half_done}").code == 1
    capsys.readouterr()
    assert sweep(["status", str(half_done), "--retry-failed"]) == 1
    shown = capsys.readouterr()
    assert "3 jobs are left, 2 of which cannot be launched from here:\n" in shown.out
    assert shown.out.count("python -m mdl") == 1
    assert "run these if you trust who wrote them" in shown.out
    assert shown.err.count(": not launched: its config.yaml cannot be used (") == 2


def test_a_folder_that_is_named_after_no_command_is_not_launched(tmp_path: Path, capsys) -> None:
    Run(tmp_path, "this").start("a: 1\n")
    assert sweep(["status", str(tmp_path), "--retry-failed"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"{tmp_path}/this: not launched: 'this' is no command: choose from mdl, train, sample_info"


@pytest.mark.parametrize("more", [["dataset.name=my digits"], ["model=timm", "model.architecture=test_resnet"]])
def test_a_failed_run_is_repeated_by_the_command_that_is_printed(more: list[str], command, capsys) -> None:
    tiny = ["model=linear", "train=quick", "train.lr=1e38", "mdl.num_chunks=2", "seeds=[3]", "logger.mode=disabled"]
    tiny += ["eraser=control", "train.betas=[0.8,0.99]", "cache_dir=elsewhere"]
    tried = command(MDL, *tiny, *more)
    assert "NonFiniteLossError" in tried.err
    (directory,) = Path("runs").iterdir()
    sweep(["status", "runs", "--retry-failed"])
    (words,) = printed(capsys.readouterr().out)
    assert not [word for word in words if word.startswith(("cache_dir", "runs_dir", "logger"))]
    again = command(MDL, *words, "logger.mode=disabled")
    assert again.err.splitlines()[-1] == tried.err.splitlines()[-1]
    assert [*Path("runs").iterdir()] == [directory]


def test_runs_stored_with_an_option_that_is_gone_are_shown_compared_and_continued(command, capsys) -> None:
    """`mdl.share` was stored with runs, and was no part of their ids."""
    tiny = ["model=linear", "train=quick", "train.max_epochs=1", "mdl.num_chunks=2", "seeds=[0]"]
    tiny += ["logger.mode=disabled"]
    assert command(MDL, "-m", "eraser=control,leace", *tiny).code == 0
    control, leace = sorted(Path("runs").glob("mdl-*"))
    for share, directory in ((False, control), (True, leace)):
        result = read_json(directory / "result.json")
        result["config"]["mdl"]["share"] = share
        write_json(directory / "result.json", result)
        (directory / "config.yaml").write_text(yaml.safe_dump(result["config"]))
    capsys.readouterr()
    assert sweep(["status", "runs", "--", "eraser=control,leace", *tiny]) == 0
    assert report(["runs", "--out", "report"]) == 0
    (table,) = Path("report/tables").glob("*.csv")  # one setting, not one for each value of the option
    assert [row["eraser"] for row in csv.DictReader(table.read_text().splitlines())] == ["control", "leace"]
    again = command(MDL, "eraser=leace", *tiny)
    assert "no finished control" not in again.out
    assert again.out.startswith(f"{leace.name}: ")

    (leace / "result.json").unlink()
    capsys.readouterr()
    assert sweep(["status", "runs", "--retry-failed"]) == 1
    (words,) = printed(capsys.readouterr().out)
    assert not [word for word in words if "share" in word]
    assert command(MDL, *words, "logger.mode=disabled").out.startswith(f"{leace.name}: ")


RELAUNCHED = [
    *(["mdl", f"dataset={name}", "dataset.name=mine"] for name in choices("dataset")),
    *(["mdl", f"eraser={name}"] for name in choices("eraser")),
    *(["train", f"model={name}"] for name in choices("model")),
    *(["mdl", f"train={name}", "model=mlp", f"mdl={preset}"] for name in choices("train") for preset in choices("mdl")),
    ["sample_info", "model=wide_mlp", "sample_info.classes=[1,2]"],
    ["train", "counterparts=[order1,swap]", "model=timm", "model.architecture=resnet50"],
    ["mdl", "dataset=mnist_svhn", "dataset.parts.mnist.root='a b,{c}'"],
]


@pytest.mark.parametrize("words", RELAUNCHED, ids=" ".join)
def test_every_choice_can_be_launched_again_from_its_configuration(words: list[str], tmp_path: Path) -> None:
    name, *overrides = words
    required = {"image_folder": "root=a", "hf": "path=a", "arrays": "path=a.npz"}
    for dataset, option in required.items():
        overrides += [f"dataset.{option}"] if f"dataset={dataset}" in words else []
    config = composed(name, [*overrides, "cache_dir=theirs", "logger.entity=theirs"], config_of(name))
    run = Run(tmp_path, f"{name}-a-b-c-0123456789")
    run.start(yaml.safe_dump(config.plain))
    again = launch_command(SweepRun(run.directory, State("failed")), tmp_path)
    made = composed(name, again[3:], config_of(name))
    assert made == replace(config, runs_dir=str(tmp_path), cache_dir="cache", logger=made.logger)
    assert made.logger.entity is None


def test_characters_that_no_terminal_shows_are_not_printed(tmp_path: Path, capsys) -> None:
    config = composed("mdl", ["dataset=image_folder", "dataset.root=a"], MdlConfig).plain
    config["dataset"]["root"] = "\x1b[2J'\n$(touch x)"
    run = Run(tmp_path, "mdl-a-b-c-0123456789")
    run.start(yaml.safe_dump(config))
    assert sweep(["status", str(tmp_path), "--retry-failed"]) == 1
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "has characters that no terminal shows" in shown.err
    assert "python -m" not in shown.out


@pytest.mark.parametrize("word", ["hydra/launcher=nope", "hydra.launcher.nope=1", "hydra.nope=1"])
def test_options_of_hydra_that_do_not_exist_are_refused(word: str, tmp_path: Path, capsys) -> None:
    assert sweep(["status", str(tmp_path), "--", word, "eraser=control"]) == 2
    assert "nope" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "count"),
    [
        (["eraser=control,leace", "model.width=8,16", "train=quick", "seeds=[0],[1,2]"], 8),
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
        assert "unknown hydra/launcher=" in capsys.readouterr().err
    assert sweep(["status", str(tmp_path)]) == 0
    assert "no runs" in capsys.readouterr().out


def test_one_run_of_an_experiment_is_a_command_that_runs(tmp_path: Path, capsys) -> None:
    asked = ["+experiment=digits_all", "eraser=control", "seeds=[0]"]
    sweep(["status", str(tmp_path), "--retry-failed", "--", *asked])
    commands = printed(capsys.readouterr().out)
    assert len(commands) > 1
    for words in commands:
        assert words[-3:-1] == ["seeds=[0]", "hydra.sweeper.params=null"], shlex.join(words)
