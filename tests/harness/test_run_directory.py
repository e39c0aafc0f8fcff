"""A run's files and state; one process at a time computes it, and one that was taken for dead writes nothing more."""

import csv
import json
import logging
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest

from conf.compose import composed
from erasure.store.checked_files import DamagedFileError, sealed
from erasure.store.lease import Lease, LeaseLostError
from harness.experiment import Experiment, log_file
from harness.loss_curves import CurveRow, LossCurve
from harness.result import as_json, read_result
from harness.results.arrange import arrange
from harness.results.columns import values
from harness.results.read import StoredRun
from harness.run_directory import LOCK, Run, whole_curves
from harness.run_state import state_of
from mdl.__main__ import COMMAND as MDL
from mdl.settings import MdlConfig
from tests.made_up_runs import MADE_UP, made_up


def test_parts_last_until_the_run_is_finished(tmp_path: Path) -> None:
    run = Run(tmp_path, MADE_UP)
    run.start("a: 1\n")
    assert run.result is None
    assert run.read_step("100") is None
    run.step("100", lambda: {"loss": 1.5})
    assert Run(tmp_path, MADE_UP).read_step("100") == {"loss": 1.5}
    run.finish(made_up())
    assert run.result == made_up()
    assert sorted(path.name for path in run.directory.iterdir()) == ["config.yaml", "result.json", "state.json"]


def test_seconds_are_those_of_all_attempts_at_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted run that continues reports the time of all its processes, not that of the last."""
    now = 100.0
    monkeypatch.setattr("harness.run_directory.time.monotonic", lambda: now)
    first, second = Run(tmp_path, MADE_UP), Run(tmp_path, MADE_UP)
    first.start("")
    now += 5
    first.step("10", lambda: {})
    now += 2
    first.fail(KeyboardInterrupt())
    now += 1000  # nobody works on it
    second.start("")
    now += 3
    second.step("20", lambda: {})
    now += 0.5
    assert second.seconds() == pytest.approx(10.5)
    second.finish(made_up())
    assert sorted(path.name for path in second.directory.iterdir()) == ["config.yaml", "result.json", "state.json"]


def test_curves_are_plain_csv(tmp_path: Path) -> None:
    run = Run(tmp_path, MADE_UP)
    run.save_curves([CurveRow(10, 0, 0, None, 3.3), CurveRow(10, 0, 1, 2.5, 2.0)])
    with (run.directory / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"n": "10", "seed": "0", "epoch": "0", "train_loss_bits": "", "validation_loss_bits": "3.3"}
    assert rows[1]["train_loss_bits"] == "2.5"
    run.save_curves([CurveRow(10, 0, 1, 1.23456789e-9, 3.32192809)])
    assert run.directory.joinpath("curves.csv").read_text().splitlines()[1] == "10,0,1,1.234568e-09,3.321928"


def test_no_digit_of_the_curves_changes_unnoticed(tmp_path: Path, caplog) -> None:
    run = Run(tmp_path, MADE_UP)
    run.save_curves([CurveRow(10, 0, 0, None, 3.3), CurveRow(10, 0, 1, 2.5, 2.0)])
    run.finish(made_up())
    result = run.result
    assert result is not None

    def curves() -> list[LossCurve]:
        (only,) = arrange([StoredRun(run.directory, result.config, result)])
        return values(only, "loss_curve")

    assert curves()[0].validation_bits.tolist() == [3.3, 2.0]
    path = run.directory / "curves.csv"
    path.write_text(path.read_text().replace(",2\n", ",1\n"))
    assert curves() == []
    assert "curves.csv was edited or damaged" in caplog.text
    with pytest.raises(DamagedFileError, match="left out"):
        whole_curves(run.directory, result)
    path.unlink()
    assert curves() == []


def test_a_failure_leaves_its_traceback_in_the_log(tmp_path: Path) -> None:
    run = Run(tmp_path, MADE_UP)

    def fail() -> None:
        run.directory.mkdir()
        with log_file(run.directory):
            logging.getLogger("test").warning("before it broke")
            raise RuntimeError("it broke")

    with pytest.raises(RuntimeError, match="it broke") as failed:
        fail()
    text = (run.directory / "log.txt").read_text()
    assert "before it broke" in text
    assert "Traceback" in text
    assert text.rstrip().endswith("RuntimeError: it broke")
    assert failed.value.__notes__ == [f"traceback in {run.directory / 'log.txt'}"]
    with pytest.raises(KeyboardInterrupt), log_file(run.directory):
        raise KeyboardInterrupt
    assert (run.directory / "log.txt").read_text() == text
    logging.getLogger("test").warning("after the run")
    assert "after the run" not in (run.directory / "log.txt").read_text()


NO_RESULT = ["", '{"run_id": "x", "bits": 0.5}', "[1]", sealed({"state": "finished"})]


@pytest.mark.parametrize("text", [*NO_RESULT, sealed(as_json(made_up("train-d-leace-m-00000000")))])
def test_a_result_that_is_not_the_runs_own_is_kept_aside_and_computed_again(tmp_path: Path, text: str, caplog) -> None:
    run = Run(tmp_path, MADE_UP)
    run.start("a: 1\n")
    (run.directory / "result.json").write_text(text)
    assert run.result is None
    run.start("a: 1\n")
    assert "result.json was edited, damaged or is another run's: kept as result.damaged-" in caplog.text
    run.finish(made_up(label_entropy_bits=3.25))
    assert run.result == made_up(label_entropy_bits=3.25)
    assert len(list(run.directory.glob("result.damaged-*.json"))) == 1


@pytest.mark.parametrize("text", NO_RESULT)
def test_what_is_no_result_is_named_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(
        ValueError, match=r"result\.json .*; launch the run again, which keeps this file aside"
    ) as caught:
        read_result(path)
    assert "\n" not in str(caught.value)
    assert state_of(tmp_path, 0).name == "failed"


def test_a_result_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    run = Run(tmp_path, MADE_UP)
    (run.directory / "result.json").mkdir(parents=True)  # a folder: permissions do not stop root
    with pytest.raises(ValueError, match=r"result\.json cannot be read \(Is a directory\): make it readable"):
        _ = run.result
    assert state_of(run.directory, 0).name == "failed"


def test_a_damaged_or_foreign_part_is_computed_again(tmp_path: Path, caplog) -> None:
    run = Run(tmp_path, MADE_UP)
    run.step("100", lambda: {"loss": [5.441]})
    path = run.directory / "step-100.json"
    whole = path.read_text()
    path.write_text(whole.replace("5.441", "3.441"))
    assert run.read_step("100") is None
    assert "step-100.json was edited or damaged" in caplog.text
    (run.directory / "step-200.json").write_text(whole)
    assert run.read_step("200") is None
    assert "belongs to another run or step" in caplog.text
    Run(tmp_path, "y").step("100", lambda: [1])
    path.write_bytes((tmp_path / "y" / "step-100.json").read_bytes())
    assert run.read_step("100") is None
    path.write_text(whole)
    assert run.read_step("100") == {"loss": [5.441]}


def test_the_second_task_waits_and_finds_the_result(tmp_path: Path) -> None:
    first, second, events = Run(tmp_path, MADE_UP), Run(tmp_path, MADE_UP), []

    def later() -> None:
        with second.claim():
            events.append(second.result)

    waiting = threading.Thread(target=later)
    with first.claim():
        first.start("a: 1\n")
        waiting.start()
        time.sleep(0.3)
        events.append("still computing")
        first.finish(made_up())
    waiting.join()
    assert events == ["still computing", made_up()]
    assert sorted(path.name for path in first.directory.iterdir()) == ["config.yaml", "result.json", "state.json"]


def test_who_was_taken_for_dead_writes_nothing_more(tmp_path: Path) -> None:
    run = Run(tmp_path, MADE_UP)

    def compute() -> None:
        with run.claim():
            run.start("a: 1\n")
            lock = run.directory / LOCK
            lock.write_text(json.dumps({"token": "theirs", "host": "node7", "pid": 12}))
            before = {path.name: path.read_text() for path in run.directory.iterdir()}
            for write in (
                lambda: run.step("10", lambda: {}),
                lambda: run.save_curves([]),
                lambda: run.finish(made_up()),
                lambda: run.start(""),
            ):
                with pytest.raises(LeaseLostError, match="process 12 on node7 has taken over"):
                    write()
            assert {path.name: path.read_text() for path in run.directory.iterdir()} == before

    compute()
    assert (run.directory / LOCK).exists()  # the other's


def test_a_command_leaves_state_and_log_to_the_process_that_has_taken_over(tmp_path: Path) -> None:
    words = ["eraser=control", "model=linear", "seeds=[0]", "train=quick", "mdl=quick", "logger.mode=disabled"]
    config = composed("mdl", [*words, f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache"], MdlConfig)
    left = {}

    def prepare(experiment: Experiment[MdlConfig]) -> Any:
        prepared, _ = MDL.prepare(experiment)

        def compute(_: object, run: Run, __: object) -> NoReturn:
            (run.directory / LOCK).write_text(json.dumps({"token": "theirs", "host": "node7", "pid": 12}))
            left.update({path.name: path.read_text() for path in run.directory.iterdir() if path.is_file()})
            run.save_curves([])
            raise AssertionError

        return prepared, compute

    experiment = MDL.experiment(config)
    with pytest.raises(LeaseLostError, match="process 12 on node7 has taken over"):
        experiment.carry_out(prepare, MDL.axes)
    assert {"state.json", "log.txt"} <= left.keys()
    assert {name: (experiment.run.directory / name).read_text() for name in left} == left


def test_what_a_process_leaves_that_dies_after_its_result_is_tidied_away(tmp_path: Path) -> None:
    run = Run(tmp_path, MADE_UP)
    run.start("a: 1\n")
    run.finish(made_up())
    (run.directory / ".result.json.ab.tmp").mkdir()
    for name in ("step-10.json", "checkpoint-10-0.3.safetensors", ".result.json.ab.tmp/x", f"{LOCK}.taken"):
        (run.directory / name).touch()
    with Lease(tmp_path / "lock") as lease:
        gone = json.loads(lease.path.read_text()) | {"pid": 2**22 + 1}
    (run.directory / LOCK).write_text(json.dumps(gone))
    run.tidy()
    assert sorted(path.name for path in run.directory.iterdir()) == ["config.yaml", "result.json", "state.json"]
