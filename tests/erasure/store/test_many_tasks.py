"""An array's tasks all want the same erased dataset: it is built once, whoever dies, and without flock."""

import fcntl
import os
import signal
import socket
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
import torch

from erasure import LeaceEraser
from erasure.datasets.digits import Digits
from erasure.pipeline import erased_dataset
from erasure.store.cache import Cache
from tests.processes import PROCESSES

TASKS = 6
LEASE_S = 4.0  # a builder may have to wait for a busy machine


def refuse(*_: object) -> None:
    raise OSError("no locks available")


def want(folder: Path, start: Barrier, dies_as: str | None) -> None:
    """Fetch the erased digits as a task does. `dies_as`: in mid-build, as a process of the machine of that name."""
    for function in ("flock", "lockf", "fcntl"):
        setattr(fcntl, function, refuse)
    os.lockf = refuse
    fit = LeaceEraser.from_moments

    def fit_and_note(*arguments: Any, **options: Any) -> LeaceEraser:
        (folder / f"build-{os.getpid()}").touch()
        if dies_as:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.3)
        return fit(*arguments, **options)

    LeaceEraser.from_moments = staticmethod(fit_and_note)  # type: ignore[assignment]
    if dies_as:
        socket.gethostname = lambda: dies_as
    source = Digits(name="digits", flip=False, validation_size=None, test_fraction=0.2, split_seed=0)
    start.wait(60)
    started = time.monotonic()
    erased = erased_dataset(
        source, LeaceEraser, {}, dtype=torch.float32, cache=Cache(folder / "cache", lease_s=LEASE_S)
    )
    total = float(erased.splits["train"].images.double().sum())
    (folder / f"got-{os.getpid()}").write_text(f"{total} {time.monotonic() - started}")


def run_tasks(folder: Path, count: int, dies_as: str | None = None) -> list[int | None]:
    start = PROCESSES.Barrier(count)
    tasks = [PROCESSES.Process(target=want, args=(folder, start, dies_as)) for _ in range(count)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join(90)
    return [task.exitcode for task in tasks]


@pytest.mark.usefixtures("digits_source")  # skipped without the digits
def test_many_tasks_build_an_erased_dataset_once_though_the_builders_machine_died(tmp_path: Path) -> None:
    """The first builder's lease names a process that cannot be looked for: only its heartbeat tells."""
    assert run_tasks(tmp_path, 1, dies_as="node7") == [-signal.SIGKILL]
    (lock,) = (tmp_path / "cache").glob("*.lock")
    assert "node7" in lock.read_text()
    (note,) = tmp_path.glob("build-*")
    note.unlink()
    assert run_tasks(tmp_path, TASKS) == [0] * TASKS
    assert len(list(tmp_path.glob("build-*"))) == 1
    got = [path.read_text().split() for path in tmp_path.glob("got-*")]
    assert len(got) == TASKS
    assert len({total for total, _ in got}) == 1
    assert max(float(seconds) for _, seconds in got) >= LEASE_S  # they did wait for the dead builder
    (entry,) = (tmp_path / "cache").iterdir()
    assert entry.suffix == ".safetensors"
