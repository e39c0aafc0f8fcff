"""The files of a sweep: its command line, its runs, and the errors of failed runs."""

import hashlib
import json
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conf.command_process import BAD_CONFIG, FAILED

_ELSEWHERE = ("hydra", "runs_dir=", "cache_dir=", "device=", "logger.")  # options that do not identify a sweep
REQUEST, PLAN = "sweep.json", "plan.json"


@dataclass(frozen=True)
class SweepJob:
    """A job of a sweep, and its run at the launch of the sweep."""

    number: int
    overrides: list[str]
    run: Path


class Sweep:
    """The directory runs/sweeps/NAME: sweep.json, plan.json, error-RUN.json of each failed run, tables and figure.

    NAME is derived from the command line, so that the same command uses the same directory. Finished runs are not
    listed here, because they have a result.json.

    Attributes:
        jobs: jobs that this process launched; another process may launch others of the same command line.
        detached: whether the jobs continue after this process.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.jobs: Sequence[SweepJob] = ()
        self.detached = False

    @property
    def status_command(self) -> str:
        """The command that shows the progress of the sweep's runs."""
        request = json.loads((self.directory / REQUEST).read_text())
        words = [o for o in request["overrides"] if not o.lstrip("+~").startswith(("hydra", "runs_dir="))]
        program = ["python", "-m", "scripts.manage_sweep", "status", str(self.directory.parent.parent)]
        return shlex.join([*program, "--", request["command"], *words])

    def save_request(self, command: str, overrides: Sequence[str]) -> None:
        """Write the command line to sweep.json.

        Raises:
            ValueError: a folder is a link, so that files would be written elsewhere.
        """
        for folder in (self.directory.parent, self.directory):
            if folder.is_symlink():
                raise ValueError(
                    f"{folder} is a link, and is not written through: delete it, or choose another runs_dir"
                )
        self.directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.directory, prefix=".", suffix=".tmp") as folder:
            temporary = Path(folder) / REQUEST
            temporary.write_text(json.dumps({"command": command, "overrides": list(overrides)}, indent=1))
            temporary.replace(self.directory / REQUEST)

    def plan(self, jobs: Sequence[SweepJob]) -> None:
        """Write the jobs of this launch to plan.json, and delete the errors of earlier launches.

        Raises:
            ValueError: the directory contains a link, so that files could be written elsewhere.
        """
        from erasure.store.checked_files import write_json
        from erasure.store.regular_files import require_plain_folder

        require_plain_folder(self.directory)
        self.jobs = jobs
        write_json(self.directory / PLAN, {"jobs": [{"overrides": j.overrides, "run": str(j.run)} for j in jobs]})
        for path in self.directory.glob("error-*.json"):
            path.unlink(missing_ok=True)

    def planned(self) -> list[SweepJob]:
        """Return the jobs of the latest launch.

        Raises:
            ValueError: plan.json was not written by `plan`.
        """
        path = self.directory / PLAN
        jobs = _read(path, {"jobs": list})["jobs"]
        known = {"overrides": list, "run": str}
        if not all(_has(job, known) and all(isinstance(word, str) for word in job["overrides"]) for job in jobs):
            raise ValueError(f"{path} is no plan of a sweep: launch the sweep again")
        return [SweepJob(number, job["overrides"], Path(job["run"])) for number, job in enumerate(jobs)]

    def fail(self, run: str, error: str, exit_code: int) -> None:
        """Record the error of a failed run."""
        from erasure.store.checked_files import write_json

        write_json(self._error(run), {"error": error, "exit_code": exit_code})

    def failed(self, run: str) -> bool:
        """Return whether a run has failed since the latest launch."""
        return self._error(run).exists()

    def error_of(self, run: str) -> tuple[str, int]:
        """Return why a run has no result, and the exit code."""
        try:
            noted = _read(self._error(run), {"error": str, "exit_code": int})
        except FileNotFoundError:
            return f"no result or error recorded; probably killed: launch the sweep again to continue {run}", FAILED
        except ValueError as error:
            return f"{error}: launch the sweep again", FAILED
        return noted["error"], noted["exit_code"]

    def refused(self) -> dict[str, str]:
        """Return the errors of jobs whose configuration or data cannot be used, by run."""
        errors = {job.run.name: self.error_of(job.run.name) for job in self.planned()}
        return {run: error for run, (error, exit_code) in errors.items() if exit_code == BAD_CONFIG}

    def _error(self, run: str) -> Path:
        return self.directory / f"error-{run}.json"


def _read(path: Path, known: Mapping[str, type]) -> dict[str, Any]:
    """Read values from a file of a sweep, which may be untrusted.

    Raises:
        ValueError: the file is damaged, or a required value is missing or of another type.
        OSError: the file cannot be read.
    """
    from erasure.store.checked_files import read_json

    if not _has(values := read_json(path), known):
        raise ValueError(f"{path} lacks {' or '.join(known)}")
    return values


def _has(values: Any, known: Mapping[str, type]) -> bool:
    return isinstance(values, dict) and all(isinstance(values.get(key), kind) for key, kind in known.items())


def sweep_name(command: str, overrides: Sequence[str]) -> str:
    """Return the name of a sweep's folder and W&B group: command, experiment, and a digest of the overrides.

    The name is the same for every launch of the sweep, on any machine and with any launcher.
    """
    requested = sorted(override for override in overrides if not override.lstrip("+~").startswith(_ELSEWHERE))
    experiments = [override.partition("=")[2] for override in requested if override.startswith("+experiment=")]
    digest = hashlib.sha256("\n".join(requested).encode()).hexdigest()[:8]
    return re.sub(r"[^\w.,-]+", "_", "-".join([command, *experiments, digest]))
