"""hydra/launcher=slurm_debug: the cluster's code path, on this machine."""

from pathlib import Path

import pytest
from hydra.core.plugins import Plugins

import harness.job
from conf.sweep import Sweep, read_json
from harness.run import LOCK, Run
from mdl.__main__ import VERB as MDL

TINY = ["model=linear", "train=quick", "train.max_epochs=2", "mdl.num_chunks=2", "seeds=[0]", "logger.mode=disabled"]
DEBUG = ["-m", "hydra/launcher=slurm_debug"]


@pytest.fixture
def local_array() -> type:
    """The launcher's class as Hydra knows it: it loads its plugins' modules itself, and anew."""
    return Plugins.instance().class_name_to_class["hydra_plugins.erasure_mdl.launcher.LocalArray"]


def test_jobs_in_processes_of_their_own_one_of_which_fails_end_in_one_table(command, local_array, monkeypatch) -> None:
    outcome = command(MDL, *DEBUG, "eraser=control", "train.lr=1e38,0.005", *TINY)
    assert outcome.code == 1, outcome.err
    assert "1 of 2 runs finished, 1 failed" in outcome.out
    assert "failed: eraser=control train.lr=1e+38" in outcome.err
    assert "the loss is not finite" in outcome.err
    assert "bits per label" in outcome.out
    sweep = Sweep.current
    assert sweep is not None
    plan = read_json(sweep.directory / "plan.json")
    assert [Path(job["run"]).exists() for job in plan] == [True, True]
    assert [outcome["exit_code"] for outcome in sweep.outcomes()] == [1, 0]
    results = [path.read_bytes() for path in sweep.directory.rglob("*_result.pkl")]
    assert sum(b"error" in content for content in results) == 1  # submitit, too, was told of the failure

    submitted = []
    monkeypatch.setattr(local_array, "_executor", lambda _: submitted.append("an executor"))
    again = command(MDL, *DEBUG, "eraser=control", "train.lr=0.005", *TINY)
    assert again.code == 0, again.err
    assert submitted == []


def test_bad_input_anywhere_in_the_sweep_is_refused_before_anything_is_submitted(
    command, local_array, monkeypatch
) -> None:
    monkeypatch.setattr(local_array, "_executor", lambda _: pytest.fail("submitted"))
    outcome = command(MDL, *DEBUG, "train.batch_size=64,0", *TINY)
    assert outcome.code == 2
    (line,) = outcome.err.strip().splitlines()[-1:]
    assert "train.batch_size=0: must be at least 1; nothing was submitted" in line


def test_what_was_edited_while_the_sweep_waited_is_not_computed(command, local_array, monkeypatch) -> None:
    submit = local_array._submit

    def edited(launcher, left):
        monkeypatch.setenv("DIGITS", "other")
        return submit(launcher, left)

    monkeypatch.setenv("DIGITS", "some")
    monkeypatch.setattr(local_array, "_submit", edited)
    outcome = command(MDL, *DEBUG, *TINY, "dataset.name=${oc.env:DIGITS}")
    assert outcome.code == 2
    assert Sweep.current is not None
    (plan,) = read_json(Sweep.current.directory / "plan.json")
    assert f"was planned as {Path(plan['run']).name}: its configuration, data or code has changed" in outcome.err
    assert not list(Path("runs").glob("mdl-*"))


def test_what_was_edited_while_a_sweep_goes_on_in_this_process_is_not_computed(command, monkeypatch) -> None:
    own = harness.job.Work.carry_out

    def carry_out(*arguments, **options):
        monkeypatch.setenv("DIGITS", "other")
        return own(*arguments, **options)

    monkeypatch.setenv("DIGITS", "some")
    monkeypatch.setattr("harness.job.Work.carry_out", carry_out)
    outcome = command(MDL, "-m", "eraser=control,leace", *TINY, "dataset.name=${oc.env:DIGITS}")
    assert outcome.code == 2
    assert "1 of 2 runs finished, 1 failed" in outcome.out
    assert "its configuration, data or code has changed" in outcome.err
    assert [path.name.split("-")[1] for path in Path("runs").glob("mdl-*")] == ["some"]


def test_where_the_precision_of_tasks_cannot_be_known_it_has_to_be_said(command) -> None:
    outcome = command(MDL, "-m", "hydra/launcher=slurm", *TINY)
    assert outcome.code == 2
    assert "device=auto: where tasks run there may be another kind of device" in outcome.err.strip().splitlines()[-1]
    assert outcome.err.strip().endswith("nothing was submitted")


def test_where_there_is_no_slurm_it_says_so_in_one_line(command, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = command(MDL, "-m", "hydra/launcher=slurm", "device=cpu", *TINY)
    assert outcome.code == 2
    assert 'slurm does not take the sweep: Could not detect "srun"' in outcome.err.strip().splitlines()[-1]


def test_a_run_that_another_process_computes_is_left_to_it(command, local_array, monkeypatch) -> None:
    monkeypatch.setattr(local_array, "_executor", lambda _: pytest.fail("submitted"))
    with monkeypatch.context() as patched:  # as a job: only to learn the run's name
        patched.setattr(local_array, "_wait", lambda *_: None)
        patched.setattr(local_array, "_executor", lambda _: type("E", (), {"map_array": lambda *_: []})())
        command(MDL, *DEBUG, *TINY)
    assert Sweep.current is not None
    directory = Path(read_json(Sweep.current.directory / "plan.json")[0]["run"])
    run = Run(directory.parent, directory.name)
    with run.exclusive():
        outcome = command(MDL, *DEBUG, *TINY)
    assert outcome.code == 1
    assert "runs already (process" in outcome.err
    assert not (directory / LOCK).exists()


def test_a_job_that_leaves_no_word_is_named(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "2026")
    sweep.ask("mdl", ["eraser=control,leace", "hydra/launcher=slurm"])
    sweep.plan([(["eraser=control"], tmp_path / "a"), (["eraser=leace"], tmp_path / "b")])
    sweep.record(0, {"overrides": ["eraser=control"], "exit_code": 0, "run_id": "a", "result": "a/result.json"})
    first, second = sweep.outcomes()
    assert first["exit_code"] == 0
    assert second["exit_code"] == 1
    assert "ended without a word: killed? launch the sweep again to continue b" in second["error"]


def test_a_sweep_has_one_name_however_and_wherever_it_is_launched(tmp_path: Path) -> None:
    def name(*overrides: str) -> str:
        sweep = Sweep(tmp_path / str(len(list(tmp_path.iterdir()))))
        sweep.ask("mdl", overrides)
        return sweep.name

    here = name("eraser=control,leace", "seeds=[0]")
    assert here.startswith("mdl-")
    assert name("seeds=[0]", "eraser=control,leace", "hydra/launcher=slurm", "runs_dir=/scratch") == here
    assert name("eraser=control,leace", "seeds=[1]") != here
    assert name("+experiment=table16").startswith("mdl-table16-")
    assert Sweep(tmp_path / "unasked").name == "unasked"
