"""Sweeps through a real SLURM (.ci/slurm): arrays, preemption, requeue, kills. .ci/run starts it; skipped elsewhere."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.run_directory import LOCK
from scripts.studies.killed_tasks import LEFT, numbers
from tests.cluster.sweep_on_slurm import (
    ArraySweep,
    checkpointed,
    environment,
    files,
    reason_to_skip,
    slurm,
    wait_until,
)
from tests.conftest import REPOSITORY

no_cluster = reason_to_skip()
pytestmark = pytest.mark.skipif(bool(no_cluster), reason=no_cluster)

# trainings of one length, of which the last takes most of a run: all are in it at once, and long enough to be disturbed
SWEEP = [
    "eraser=control,leace", "model=mlp", "model.width=96,128", "train=quick", "train.stack=all",
    "train.patience_steps=1000000", "train.max_epochs=400", "train.checkpoint_every_s=0.2", "mdl=quick", "seeds=[0]",
    "logger.mode=disabled",
]  # fmt: skip


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """The numbers of the same sweep from one shell, undisturbed."""
    directory = tmp_path_factory.mktemp("one-shell")
    where = [f"runs_dir={directory / 'runs'}", f"cache_dir={directory / 'cache'}"]
    command = [sys.executable, "-m", "mdl", "-m", *SWEEP, *where]
    subprocess.run(command, cwd=REPOSITORY, env=environment(), check=True, capture_output=True)
    undisturbed = numbers(directory / "runs")
    assert len(undisturbed) == 4
    return undisturbed


def states(job: str) -> dict[str, str]:
    """Task -> state in SLURM's accounting."""
    lines = slurm("sacct", "-X", "-n", "-P", "-D", "-j", job, "-o", "JobID,State").splitlines()
    return dict(line.split("|") for line in lines)


def test_requeued_and_preempted_tasks_end_with_the_numbers_of_undisturbed_ones(expected, tmp_path: Path) -> None:
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
    completed = {f"{job}_{task}": "COMPLETED" for task in range(4)}  # one array
    wait_until(lambda: states(job) == completed, "accounting")
    assert "4 of 4 runs finished" in sweep.log
    assert "Δ to control" in sweep.log
    assert numbers(sweep.runs) == expected
    assert files(sweep.runs) == LEFT
    for task in range(4):
        restarts = slurm("scontrol", "show", "job", f"{job}_{task}")
        assert "Restarts=0" not in restarts, restarts
    wait_until(lambda: states(urgent) == {urgent: "COMPLETED"}, "accounting of the urgent job")
    for run in runs:
        assert "continuing at training size" in (run / "log.txt").read_text()
    for task, run in enumerate(runs):
        print(f"task {task}, {run.name}: requeued, continued, equal to the bit")


def test_killed_and_cancelled_tasks_are_named_and_the_same_command_finishes_them(expected, tmp_path: Path) -> None:
    sweep = ArraySweep(tmp_path, *SWEEP)
    job, runs = sweep.job(), sweep.plan()
    for run in (runs[1], runs[3]):
        wait_until(lambda run=run: checkpointed(run), f"a checkpoint of {run.name}")
    os.kill(json.loads((runs[1] / LOCK).read_text())["pid"], signal.SIGKILL)
    slurm("scancel", f"{job}_3")
    assert sweep.wait() == 1, sweep.log
    assert "2 of 4 runs finished, 2 failed" in sweep.log
    for run in (runs[1], runs[3]):
        assert (
            f"no result or error recorded; probably killed: launch the sweep again to continue {run.name}" in sweep.log
        )
        assert not (run / "result.json").exists()
    wait_until(lambda: sorted(states(job).values())[-2:] == ["COMPLETED", "FAILED"], "accounting")
    again = ArraySweep(tmp_path, *SWEEP)
    assert again.wait() == 0, again.log
    assert "2 of 4 runs have finished before" in again.log
    assert numbers(sweep.runs) == expected
    assert files(sweep.runs) == LEFT
