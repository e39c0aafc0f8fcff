"""The single-node cluster of `.ci/slurm`, and a sweep on it that can be watched and disturbed."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mdl.__main__ import COMMAND as MDL
from scripts.manage_sweep.status import jobs_by_id
from tests.conftest import REPOSITORY

SCRIPT = REPOSITORY / ".ci" / "slurm"


def reason_to_skip() -> str:
    """Why there is no cluster to test with; empty if there is one, and it is not shared with other tests."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return "needs the cluster to itself: pytest -n 0 tests/cluster/test_slurm.py, after .ci/slurm start"
    status = subprocess.run([SCRIPT, "status"], capture_output=True, text=True, check=False)
    return "" if status.returncode == 0 else "no SLURM runs here: start one with .ci/slurm start (as root, on Debian)"


def environment() -> dict[str, str]:
    """This process's, with SLURM's commands pointed at the cluster."""
    line = subprocess.run([SCRIPT, "env"], capture_output=True, text=True, check=True).stdout
    return {**os.environ, "SLURM_CONF": line.partition("=")[2].strip()}


def slurm(*command: str) -> str:
    """The output of one of SLURM's commands."""
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout.strip()


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = 180.0) -> Any:
    """The first true value of `condition`."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.1)
    return value


class ArraySweep:
    """`python -m mdl -m hydra/launcher=slurm ...` in a process of its own."""

    def __init__(self, directory: Path, *overrides: str) -> None:
        self.runs, self._log = directory / "runs", directory / f"driver-{time.time_ns()}.log"
        self._arguments = [
            "hydra/launcher=slurm",
            "device=cpu",
            "hydra.launcher.cpus_per_task=1",
            "hydra.launcher.mem_gb=1",
            *overrides,
        ]
        where = [f"runs_dir={self.runs}", f"cache_dir={directory / 'cache'}"]
        with self._log.open("w") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "mdl", "-m", *self._arguments, *where],
                cwd=REPOSITORY, env=environment(), stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    @property
    def log(self) -> str:
        return self._log.read_text()

    def job(self) -> str:
        """The array's job id, once it is submitted."""

        def submitted() -> re.Match[str] | None:
            match = re.search(r"submitted \d+ jobs as (\d+);", self.log)
            assert match or self._driver.poll() is None, self.log
            return match

        return wait_until(submitted, "submission")[1]

    def plan(self) -> Sequence[Path]:
        """Run directories, in the order of the array's tasks."""
        return [self.runs / name for name in jobs_by_id(MDL, self._arguments)]

    def wait(self, timeout_s: float = 180.0) -> int:
        """The driver's exit code."""
        return self._driver.wait(timeout_s)


def checkpointed(run: Path) -> bool:
    """Whether the run has saved its last training, of all examples, and is still at it."""
    return any(run.glob("checkpoint-1295-*"))


def files(runs: Path) -> set[str]:
    """Names of all files in run directories."""
    return {path.name for run in runs.glob("mdl-*") for path in run.iterdir()}
