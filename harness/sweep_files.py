"""The files of a sweep: its command line, and the errors of failed runs."""

import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conf.command_process import FAILED
from conf.groups import user_folders

_ELSEWHERE = ("hydra", "runs_dir=", "cache_dir=", "device=", "logger.")  # options that do not identify a sweep


@dataclass(frozen=True)
class SweepJob:
    """A job of a sweep, and its run at the launch of the sweep."""

    number: int
    overrides: list[str]
    run: Path


class Sweep:
    """The directory runs/sweeps/NAME: sweep.json, error-RUN.json of each failed run, tables and figure.

    NAME is derived from the command line, so that the same command uses the same directory. Finished runs are not
    listed here, because they have a result.json.

    Attributes:
        jobs: jobs that this process launched; another process may launch others of the same command line.
        detached: whether the jobs continue after this process.
    """

    def __init__(self, directory: Path, command: str, overrides: Sequence[str]) -> None:
        self.directory = directory
        self.jobs: Sequence[SweepJob] = ()
        self.detached = False
        self._command, self._overrides = command, list(overrides)

    @property
    def status_command(self) -> str:
        """The command that shows the progress of the sweep's runs."""
        words = [o for o in self._overrides if not o.lstrip("+~").startswith(("hydra", "runs_dir="))]
        program = ["python", "-m", "scripts.manage_sweep", "status", str(self.directory.parent.parent)]
        choices = [word for folder in user_folders() for word in ("--config-dir", str(folder))]
        return shlex.join([*program, "--", self._command, *choices, *words])

    def begin(self, jobs: Sequence[SweepJob]) -> None:
        """Write the command line to sweep.json, and delete the errors of earlier launches.

        Raises:
            ValueError: the directory is or contains a link, so that files would be written elsewhere.
            OSError: the directory cannot be written.
        """
        from erasure.store.atomic_files import write_text  # and so torch
        from erasure.store.regular_files import require_plain_folder

        if self.directory.parent.is_symlink():
            raise ValueError(f"{self.directory.parent} is a link, and is not written through: delete it")
        require_plain_folder(self.directory)
        request = {"command": self._command, "overrides": self._overrides}
        write_text(self.directory / "sweep.json", json.dumps(request, indent=1))
        for path in self.directory.glob("error-*.json"):
            path.unlink(missing_ok=True)
        self.jobs = jobs

    def fail(self, run: str, error: str, exit_code: int) -> None:
        """Record the error of a failed run."""
        from erasure.store.checked_files import write_json

        write_json(self._error(run), {"error": error, "exit_code": exit_code})

    def failed(self, run: str) -> bool:
        """Return whether a run has failed since the latest launch."""
        return self._error(run).exists()

    def error_of(self, run: str) -> tuple[str, int]:
        """Return why a run has no result, and the exit code."""
        from erasure.store.checked_files import read_json

        try:
            noted = read_json(self._error(run))
            return str(noted["error"]), int(noted["exit_code"])
        except FileNotFoundError:
            return f"no result or error recorded; probably killed: launch the sweep again to continue {run}", FAILED
        except (ValueError, KeyError, TypeError) as error:
            return f"{error}: launch the sweep again", FAILED

    def _error(self, run: str) -> Path:
        return self.directory / f"error-{run}.json"


def sweep_name(command: str, overrides: Sequence[str]) -> str:
    """Return the name of a sweep's folder and W&B group: command, experiment, and a digest of the overrides.

    The name is the same for every launch of the sweep, on any machine and with any launcher.
    """
    requested = sorted(override for override in overrides if not override.lstrip("+~").startswith(_ELSEWHERE))
    experiments = [override.partition("=")[2] for override in requested if override.startswith("+experiment=")]
    digest = hashlib.sha256("\n".join(requested).encode()).hexdigest()[:8]
    return re.sub(r"[^\w.,-]+", "_", "-".join([command, *experiments, digest]))
