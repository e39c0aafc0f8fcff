"""Search for runs in folders: each run once, with remarks on runs that cannot be shown."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conf import Options
from erasure.store.regular_files import DamagedFileError
from harness.loss_curves import LossCurve, read_loss_curves
from harness.result import Result, read_result
from harness.run_directory import RESULT, whole_curves
from harness.run_ids import command_of, require_run_id
from harness.run_state import read_state
from harness.untrusted_runs import Note, read_config, run_directories

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredRun:
    """A run's directory and its content: the configuration and, if the run has finished, the result.

    Attributes:
        directory: directory from which it was read; need not be below the `runs_dir` of its configuration.
        config: configuration of the run.
        result: result of the run; None if it has not finished.
        state: "finished", "running", "failed", "interrupted", or "unfinished" if the state is unknown.
    """

    directory: Path
    config: Options
    result: Result | None
    state: str = "finished"

    @property
    def id(self) -> str:
        """Id of the run, which is the name of its directory."""
        return self.directory.name

    @property
    def command(self) -> str:
        return command_of(self.id) if self.result is None else self.result.command

    @property
    def seeds(self) -> Sequence[int]:
        return self.config["seeds"] if self.result is None else self.result.seeds

    @property
    def data_digest(self) -> str | None:
        """Digest of its dataset; None if it has not finished, and in results before version 0.4.0."""
        return None if self.result is None else self.result.data

    @property
    def code(self) -> Mapping[str, int | str]:
        """Versions and digests of the code that computed it, by name; empty if it has not finished."""
        return {} if self.result is None else self.result.code

    @property
    def started(self) -> float:
        """Start time of its last process; 0 if the run has not finished."""
        return 0.0 if self.result is None else self.result.timing.started

    def loss_curves(self, note: Note) -> dict[int, LossCurve]:
        """Return the loss curves of the training on everything by seed; note a damaged file, and return none."""
        try:
            path = whole_curves(self.directory, self.result)
            curves = {} if path is None else read_loss_curves(path)
            if not curves.keys() <= {*self.seeds}:
                raise ValueError(f"{path} is of other seeds")
        except (OSError, ValueError) as error:
            note(f"{self.directory}: no loss curves: {error}")
            return {}
        return curves


def read_runs(roots: Sequence[Path], note: Note = log.warning) -> list[StoredRun]:
    """Read every run below some folders once; note runs that are unfinished, unusable or of different versions."""
    by_id: dict[str, StoredRun] = {}
    for directory in dict.fromkeys(each.resolve() for root in roots for each in run_directories(root, note)):
        try:
            run = read_run(directory)
        except ValueError as error:
            note(str(error))
        else:
            by_id[run.id] = _better(by_id.get(run.id, run), run, note)
    for run in by_id.values():
        if run.result is None:
            note(f"{run.directory}: no result.json: {run.state}, shown as incomplete")
    results = (run.result for run in by_id.values() if run.result is not None)
    versions = Counter(str(result.versions.get("erasure-mdl")) for result in results)
    if len(versions) > 1:
        counts = " and ".join(f"{count} by {version}" for version, count in sorted(versions.items()))
        note(f"runs by different versions of erasure-mdl, whose code may differ: {counts}")
    return [*by_id.values()]


def read_run(directory: Path) -> StoredRun:
    """Read one run's directory.

    Raises:
        ValueError: the run has no readable result or configuration, or its result was edited, is damaged or
            contradicts itself.
    """
    try:
        result = read_result(directory / RESULT)
    except FileNotFoundError:
        return _unfinished(directory)
    return StoredRun(directory, result.config, result)


def _unfinished(directory: Path) -> StoredRun:
    """Return a run without result.json from its configuration and state."""
    try:
        require_run_id(directory.name)
        config = read_config(directory)
    except (OSError, ValueError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{directory}: no result.json, and no configuration ({reason})") from error
    try:
        state = read_state(directory)[0]
    except (OSError, DamagedFileError):
        state = "unfinished"
    return StoredRun(directory, config, None, state)


def _better(first: StoredRun, second: StoredRun, note: Note) -> StoredRun:
    """Return the better of two runs with the same id: a finished one, or the newer of two finished ones."""
    better, other = sorted((first, second), key=lambda run: (run.result is None, -run.started))
    if other.result is not None and other.result != better.result:
        note(f"{other.directory}: differs from {better.directory}, which has the same run id and is newer: left out")
    return better
