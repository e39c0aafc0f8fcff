"""The files of a sweep: its command line, the runs it asks for, and how each job ended. The driver may die."""

import hashlib
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, flag_override

from conf.check import ConfigError
from conf.errors import BAD_CONFIG

_ELSEWHERE = ("runs_dir=", "cache_dir=", "device=", "logger.")  # where and how a sweep runs
REQUEST, PLAN = "sweep.json", "plan.json"


class Sweep:
    """The directory runs/sweeps/<time>: sweep.json, plan.json, job-NNNNN.json, the tables and the figure.

    Attributes:
        detached: whether the jobs go on after this process.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.detached = False

    @property
    def name(self) -> str:
        """The sweep's name on W&B: its experiment or command, and a digest of its overrides.

        The same when it is launched again, wherever and through whatever launcher.
        """
        path = self.directory / REQUEST
        if not path.exists():
            return self.directory.name
        request = read_json(path)
        requested = sorted(o for o in request["overrides"] if not o.lstrip("+~").startswith(("hydra", *_ELSEWHERE)))
        experiments = [o.partition("=")[2] for o in requested if o.startswith("+experiment=")]
        digest = hashlib.sha256("\n".join(requested).encode()).hexdigest()[:8]
        return "-".join([request["verb"], *experiments, digest])

    @property
    def status_command(self) -> str:
        """The command that shows how far the sweep's runs are."""
        request = read_json(self.directory / REQUEST)
        words = [o for o in request["overrides"] if not o.lstrip("+~").startswith(("hydra", "runs_dir="))]
        runs = self.directory.parent.parent
        return shlex.join(["python", "-m", "scripts.sweep", "status", str(runs), "--", request["verb"], *words])

    def save_request(self, command: str, overrides: Sequence[str]) -> None:
        """Write sweep.json, the command line."""
        self._write(REQUEST, {"verb": command, "overrides": list(overrides)})

    def add_jobs(self, jobs: Sequence[tuple[Sequence[str], Path]]) -> None:
        """Add the overrides and run directory of each job of the next batch to plan.json."""
        further = [{"overrides": list(overrides), "run": str(run)} for overrides, run in jobs]
        self._write(PLAN, [*self._planned(), *further])

    def record(self, job: int, outcome: dict[str, Any]) -> None:
        """Write how a job ended, with a checksum: "overrides", "exit_code", and "run_id" and "result", or "error"."""
        from erasure.store.storage import write_json

        write_json(self._path(job), outcome)

    def recorded(self) -> set[int]:
        """Return the numbers of the jobs that have ended."""
        return {int(path.stem[4:]) for path in self.directory.glob("job-*.json") if re.fullmatch(r"job-\d+", path.stem)}

    def outcomes(self) -> list[dict[str, Any]]:
        """Return how every job ended; a planned job without a record counts as killed."""
        recorded = {job: _outcome(self._path(job)) for job in self.recorded()}
        for job, plan in enumerate(self._planned()):
            if job not in recorded:
                error = f"ended without a word: killed? launch the sweep again to continue {Path(plan['run']).name}"
                recorded[job] = {"overrides": plan["overrides"], "exit_code": 1, "error": error}
        return [recorded[job] for job in sorted(recorded)]

    def refused(self) -> dict[str, str]:
        """Return why jobs were refused, by the name of the run: their configuration or data cannot be used."""
        recorded = {job: _outcome(self._path(job)) for job in self.recorded()}
        return {
            Path(plan["run"]).name: recorded[job]["error"]
            for job, plan in enumerate(self._planned())
            if job in recorded and recorded[job]["exit_code"] == BAD_CONFIG
        }

    def _path(self, job: int) -> Path:
        return self.directory / f"job-{job:05}.json"

    def _planned(self) -> list[dict[str, Any]]:
        return read_json(self.directory / PLAN) if (self.directory / PLAN).exists() else []

    def _write(self, name: str, value: Any) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        temporary = self.directory / f".{name}.tmp"
        temporary.write_text(json.dumps(value, indent=1))
        temporary.replace(self.directory / name)


@dataclass
class SweepProcess:
    """The role of this process in a sweep.

    Attributes:
        driven: the sweep that this process drives, if any.
        directory_of: composed configuration -> run directory, for the command of this process; raises ConfigError.
        planned_run: id that the current job's run had when the sweep was launched; None outside a sweep.
        waits_for_others: whether the current job waits while another process computes its run; otherwise it ends
            without an outcome, and is tried again later.
    """

    driven: Sweep | None = None
    directory_of: Callable[[DictConfig], Path] | None = None
    planned_run: str | None = None
    waits_for_others: bool = True

    @property
    def sweep(self) -> Sweep:
        """The sweep that it drives."""
        assert self.driven is not None
        return self.driven

    def reset(self) -> None:
        vars(self).update(vars(SweepProcess()))


process = SweepProcess()  # the only one


def begin_sweep(config: DictConfig) -> None:
    """Make this process the driver of the sweep in hydra.sweep.dir, and note the sweep's command line there.

    Where that folder cannot be written, the sweep's files go to a temporary one: its runs may have finished all the
    same, and be somebody else's.
    """
    sweep = Sweep(Path(config.hydra.sweep.dir))
    parameters = [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()]
    words = [*parameters, *map(str, config.hydra.overrides.task)]
    try:
        sweep.save_request(config.hydra.job.config_name, words)
    except OSError as error:
        sweep = Sweep(Path(tempfile.mkdtemp(prefix="sweep-")))
        print(f"{error.filename}: {error.strerror}; tables go to {sweep.directory}", file=sys.stderr)
        sweep.save_request(config.hydra.job.config_name, words)
        with flag_override(config.hydra, ["readonly", "struct"], False):
            config.hydra.sweep.dir = str(sweep.directory)
            config.hydra.overrides.hydra.append(f"hydra.sweep.dir='{sweep.directory}'")  # for its jobs
    process.driven = sweep


def read_json(path: Path) -> Any:
    """Read one of a sweep's files.

    Raises:
        ConfigError: it is damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged ({error}): delete it, and launch the sweep again") from error


def _outcome(path: Path) -> dict[str, Any]:
    """Read how a job ended, as `Sweep.record` wrote it."""
    from erasure.store import storage

    try:
        outcome = storage.read_json(path)
        if "result" not in outcome and "error" not in outcome:
            raise KeyError("result")
        return outcome | {"overrides": list(outcome["overrides"]), "exit_code": int(outcome["exit_code"])}
    except (KeyError, TypeError, ValueError) as error:
        said = str(error) if str(path) in str(error) else f"{path} is damaged ({error})"
        return {"overrides": [], "exit_code": 1, "error": f"{said}: launch the sweep again"}
