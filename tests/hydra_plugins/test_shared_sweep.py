"""The order in which jobs come that other processes compute as well."""

import logging
import threading
from contextlib import ExitStack
from pathlib import Path

from harness.run_directory import Run
from harness.sweep_files import Sweep, SweepJob
from hydra_plugins.erasure_mdl.shared_sweep import in_turn
from tests.hydra_plugins.conftest import finish

RUNS = [f"train-digits-{eraser}-mlp-00000000" for eraser in ("control", "leace", "qleace")]


def test_a_job_that_was_passed_over_comes_again_until_its_run_has_ended(tmp_path: Path) -> None:
    sweep, given = Sweep(tmp_path / "sweep", "mdl", []), []
    a, b, c = (SweepJob(number, [], tmp_path / run) for number, run in enumerate(RUNS))
    sweep.fail(RUNS[1], "no memory", 1)  # in another process, which may have less
    finish(c)
    for job in in_turn([a, b, c], sweep):
        given.append(job.number)
        if given != [0]:  # the first time another process was faster
            finish(job)
    assert given == [0, 1, 0]


def test_a_run_that_another_process_computes_comes_last_once_it_is_free(tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    given, elsewhere = [], ExitStack()
    elsewhere.enter_context(Run(tmp_path, RUNS[0]).claim())
    sweep = Sweep(tmp_path / "sweep", "mdl", [])
    for job in in_turn([SweepJob(number, [], tmp_path / RUNS[number]) for number in (0, 1)], sweep):
        given.append(job.number)
        finish(job)
        threading.Timer(0.2, elsewhere.close).start()  # while this process waits
    assert given == [1, 0]
    assert caplog.messages == ["waiting for 1 runs that other processes compute"]
