"""Sweeps on a cluster that is made up: up to their submission, and the signals that requeue or end a task."""

import logging
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.run_directory import LOCK
from hydra_plugins.erasure_mdl.slurm import requeue_on_signals
from mdl.__main__ import COMMAND as MDL
from tests.hydra_plugins.conftest import SLURM, TINY, run_of

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture
def requeued() -> Iterator[list[int]]:
    """Signals that submitit's own handler was called with; handlers are put back."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    calls: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, _: calls.append(number))
    signal.signal(signal.SIGTERM, lambda *_: None)  # submitit ignores it
    yield calls
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """A function that submits a sweep to SLURM's commands, here made up, and returns the scripts that sbatch got."""
    folder, scripts = tmp_path / "commands", tmp_path / "scripts"
    folder.mkdir()
    scripts.mkdir()

    def submit(command: Callable, *overrides: str, scontrol: str = "echo MaxArraySize = 77") -> list[str]:
        for name, lines in {
            "srun": "",
            "scontrol": scontrol,
            "sbatch": f'n=$(ls {scripts} | wc -l)\ncp "$1" {scripts}/$n\necho Submitted batch job $((n + 1))',
        }.items():
            (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        outcome = command(MDL, *SLURM, "hydra.launcher.wait=false", *overrides, *TINY)
        assert outcome.code == 0, outcome.err
        return [path.read_text() for path in sorted(scripts.iterdir())]

    return submit


def in_slurm(monkeypatch: pytest.MonkeyPatch, folder: Path, state: str | None) -> Path:
    """Pretend to be task 3 of array 7 in this state, of a cluster without squeue if None; what squeue is asked."""
    asked = folder / "asked"
    if state is not None:
        squeue = folder / "squeue"
        squeue.write_text(f"#!/bin/sh\necho $* >> {asked}\necho {state}\n")
        squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    for name, value in {"SUBMITIT_EXECUTOR": "slurm", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}.items():
        monkeypatch.setenv(name, value)
    return asked


@pytest.mark.parametrize("number", SIGNALS)
def test_any_of_three_signals_requeues_and_what_follows_is_ignored(number: signal.Signals, requeued) -> None:
    requeue_on_signals()
    signal.raise_signal(number)
    assert requeued == [number]
    signal.raise_signal(signal.SIGTERM)  # SLURM's own, to the job that has been requeued
    assert requeued == [number]


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETING", "", None])
def test_a_job_that_slurm_is_ending_is_not_requeued(state: str | None, requeued, monkeypatch, tmp_path) -> None:
    asked = in_slurm(monkeypatch, tmp_path, state)
    requeue_on_signals()
    with pytest.raises(SystemExit) as ended:
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert requeued == []
    assert state is None or asked.read_text() == "--noheader --jobs 7_3 --format %T\n"


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED"])
def test_a_job_that_slurm_means_to_run_is_requeued_on_sigterm(state: str, requeued, monkeypatch, tmp_path) -> None:
    in_slurm(monkeypatch, tmp_path, state)
    requeue_on_signals()
    signal.raise_signal(signal.SIGTERM)
    assert requeued == [signal.SIGTERM]


def test_a_process_of_another_launcher_within_a_job_of_slurm_asks_nobody(requeued, monkeypatch, tmp_path) -> None:
    asked = in_slurm(monkeypatch, tmp_path, "CANCELLED")
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "local")
    requeue_on_signals()
    signal.raise_signal(signal.SIGTERM)
    assert requeued == [signal.SIGTERM]
    assert not asked.exists()


def test_where_the_precision_of_tasks_cannot_be_known_it_has_to_be_said(command) -> None:
    outcome = command(MDL, "-m", "hydra/launcher=slurm", *TINY)
    assert outcome.code == 2
    assert "device=auto: where tasks run there may be another kind of device" in outcome.err.strip().splitlines()[-1]
    assert outcome.err.strip().endswith("nothing was started")


def test_where_there_is_no_slurm_it_says_so_in_one_line(command, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = command(MDL, "-m", "hydra/launcher=slurm", "device=cpu", *TINY)
    assert outcome.code == 2
    assert 'slurm does not take the sweep: Could not detect "srun"' in outcome.err.strip().splitlines()[-1]


def test_submitits_options_reach_the_cluster_and_ours_do_not(command, cluster) -> None:
    options = ("partition=gpu", "timeout_min=90", "mem_gb=3", "cpus_per_task=5", "array_parallelism=2")
    new = (
        "hydra.launcher.setup=[module load cuda]",
        "+hydra.launcher.mail_type=END",
        "+hydra.launcher.srun_args=[-vv]",
        "train.lr=0.001,0.002,0.003",
    )
    (script,) = cluster(command, *(f"hydra.launcher.{option}" for option in options), *new)
    lines = script.splitlines()
    expected = (
        "partition=gpu", "time=90", "mem=3GB", "cpus-per-task=5", "array=0-2%2", "job-name=mdl", "mail-type=END",
        "signal=USR2@120",
    )  # fmt: skip
    assert [f"#SBATCH --{option}" for option in expected if f"#SBATCH --{option}" not in lines] == []
    assert "module load cuda" in lines
    assert "-vv" in next(line for line in lines if line.startswith("srun "))
    assert not [line for line in lines if "--wait" in line or "timeout_min" in line]


def test_an_option_that_submitit_does_not_have_is_refused_in_one_line(command, cluster) -> None:
    cluster(command)
    outcome = command(MDL, *SLURM, "+hydra.launcher.color=red", *TINY)
    assert outcome.code == 2
    (line,) = outcome.err.strip().splitlines()
    assert re.match(r"hydra\.launcher: Unknown argument 'color' .*Valid arguments: .*; nothing was started$", line)


@pytest.mark.parametrize("scontrol", ["echo slurm_load_ctl_conf error: down >&2; exit 1", "exit 1", "echo no such"])
def test_where_scontrol_fails_arrays_are_of_slurms_default_size(command, cluster, scontrol: str) -> None:
    (script,) = cluster(command, "train.lr=0.001,0.002", scontrol=scontrol)
    assert "#SBATCH --array=0-1%2" in script.splitlines()


def test_a_cluster_is_not_given_a_run_that_another_process_computes(command, cluster) -> None:
    scripts = cluster(command)
    run = run_of("device=cpu", *TINY)
    with run.claim():
        outcome = command(MDL, *SLURM, *TINY)
    assert outcome.code == 1
    assert "runs already (process" in outcome.err
    assert not (run.directory / LOCK).exists()
    assert len(scripts) == len(cluster(command)) - 1  # only this last launch has submitted another


def test_a_sweep_may_be_left_to_the_cluster(command, cluster) -> None:
    cluster(command)
    outcome = command(MDL, *SLURM, "hydra.launcher.wait=false", "eraser=control,leace", *TINY)
    assert outcome.code == 0, outcome.err
    line = outcome.out.strip().splitlines()[-1]
    assert line.startswith("to look at it: python -m scripts.manage_sweep status ")
    assert line.endswith(" ".join(["-- mdl device=cpu eraser=control,leace", *TINY[:4], "'seeds=[0]'", TINY[-1]]))


def test_more_jobs_than_an_array_may_have_become_several(command, cluster, caplog) -> None:
    caplog.set_level(logging.INFO)
    six = "train.lr=0.001,0.002,0.003,0.004,0.005,0.006"
    scripts = cluster(command, six, scontrol="echo 'MaxArraySize            = 2'")
    arrays = [re.findall(r"^#SBATCH --array=(\d+-\d+)", script, re.MULTILINE) for script in scripts]
    assert arrays == [["0-1"]] * 3
    assert "submitted 6 jobs as 1, 2, 3" in caplog.text
