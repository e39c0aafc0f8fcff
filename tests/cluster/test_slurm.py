"""Sweeps through a real SLURM (.ci/slurm): arrays, preemption, requeue, kills. .ci/run starts it; skipped elsewhere."""

import os
import signal
from pathlib import Path

import pytest
import torch

from erasure.storage import read_json
from mdl.__main__ import VERB as MDL
from tests.cluster.slurm import (
    ArraySweep,
    checkpointed,
    files,
    numbers,
    reason_to_skip,
    slurm,
    wait_until,
)
from train.run import LOCK

no_cluster = reason_to_skip()
pytestmark = pytest.mark.skipif(bool(no_cluster), reason=no_cluster)

SWEEP = [
    "eraser=control,leace", "model=linear,mlp", "train=quick", "train.stack=all", "train.patience=1000",
    "train.max_epochs=200", "train.checkpoint_every_s=0.2", "mdl=quick", "seeds=[0]", "logger.mode=disabled",
]  # fmt: skip
LEFT = {"config.yaml", "result.json", "curves.csv", "log.txt", "state.json"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ArraySweep]:
    """The sweep through SLURM as it should go."""
    directory = tmp_path_factory.mktemp("undisturbed")
    sweep = ArraySweep(directory, *SWEEP)
    assert sweep.wait() == 0, sweep.log
    return directory, sweep


def states(job: str) -> dict[str, str]:
    """Task -> state in SLURM's accounting."""
    lines = slurm("sacct", "-X", "-n", "-P", "-D", "-j", job, "-o", "JobID,State").splitlines()
    return dict(line.split("|") for line in lines)


def test_a_sweep_is_one_array_and_gives_the_numbers_of_one_shell(undisturbed, command) -> None:
    _, sweep = undisturbed
    job = sweep.job()
    assert states(job) == {f"{job}_{i}": "COMPLETED" for i in range(4)}
    assert "4 of 4 runs finished" in sweep.log
    assert "dataset · model" in sweep.log
    assert files(sweep.runs) == LEFT
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        local = command(MDL, "-m", "eraser=leace", "model=linear,mlp", *SWEEP[2:])
    finally:
        torch.set_num_threads(threads)
    assert local.code == 0, local.err
    here, there = numbers(Path("runs")), numbers(sweep.runs)
    assert (len(here), len(there)) == (2, 4)
    assert here == {run: there[run] for run in here}


def test_a_finished_sweep_submits_nothing(undisturbed) -> None:
    directory, _ = undisturbed
    again = ArraySweep(directory, *SWEEP)
    assert again.wait() == 0, again.log
    assert "4 of 4 runs have finished before, or run already" in again.log
    assert "submitted" not in again.log


def test_requeued_and_preempted_tasks_end_with_the_numbers_of_undisturbed_ones(undisturbed, tmp_path: Path) -> None:
    sweep = ArraySweep(tmp_path, *SWEEP)
    job, runs = sweep.job(), sweep.plan()
    for run in runs:
        wait_until(lambda run=run: checkpointed(run), f"a checkpoint of {run.name}")
    slurm("scontrol", "requeue", f"{job}_0")
    slurm("scancel", "--signal=USR1", f"{job}_1")
    slurm("scancel", "--signal=TERM", f"{job}_2")
    urgent = slurm(
        "sbatch", "--parsable", "-p", "urgent", "-c", "4", "--mem=100", "-o", "/dev/null", "--wrap", "sleep 1"
    )
    assert sweep.wait() == 0, sweep.log
    assert numbers(sweep.runs) == numbers(undisturbed[1].runs)
    assert files(sweep.runs) == LEFT
    for task in range(4):
        restarts = slurm("scontrol", "show", "job", f"{job}_{task}")
        assert "Restarts=0" not in restarts, restarts
    assert states(urgent) == {urgent: "COMPLETED"}
    for run in runs:
        assert "continuing at training size" in (run / "log.txt").read_text()
    for task, run in enumerate(runs):
        print(f"task {task}, {run.name}: requeued, continued, equal to the bit")


def test_killed_and_cancelled_tasks_are_named_and_the_same_command_finishes_them(undisturbed, tmp_path: Path) -> None:
    sweep = ArraySweep(tmp_path, *SWEEP)
    job, runs = sweep.job(), sweep.plan()
    for run in (runs[1], runs[3]):
        wait_until(lambda run=run: checkpointed(run), f"a checkpoint of {run.name}")
    os.kill(read_json(runs[1] / LOCK)["pid"], signal.SIGKILL)
    slurm("scancel", f"{job}_3")
    assert sweep.wait() == 1, sweep.log
    assert "2 of 4 runs finished, 2 failed" in sweep.log
    for run in (runs[1], runs[3]):
        assert f"ended without a word: killed? launch the sweep again to continue {run.name}" in sweep.log
        assert not (run / "result.json").exists()
    assert sorted(states(job).values())[-2:] == ["COMPLETED", "FAILED"]
    again = ArraySweep(tmp_path, *SWEEP)
    assert again.wait() == 0, again.log
    assert "2 of 4 runs have finished before, or run already" in again.log
    assert numbers(sweep.runs) == numbers(undisturbed[1].runs)
    assert files(sweep.runs) == LEFT


def test_what_sbatch_does_not_accept_is_one_line(tmp_path: Path) -> None:
    sweep = ArraySweep(tmp_path, *SWEEP, "hydra.launcher.partition=nowhere")
    assert sweep.wait() == 2
    (line,) = [line for line in sweep.log.splitlines() if "does not take the sweep" in line]
    assert "invalid partition specified" in line
    assert "Traceback" not in sweep.log
