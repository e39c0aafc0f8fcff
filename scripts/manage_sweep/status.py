"""States of the runs of a sweep: finished, running, failed, missing."""

import contextlib
import glob
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from rich import box
from rich.table import Table
from rich.text import Text

from conf.command_process import BAD_CONFIG
from conf.compose import jobs_of
from conf.terminal import printable
from erasure.progress import console
from erasure.store.checked_files import read_json
from erasure.store.lease_holder import file_system_time
from harness.command import Command
from harness.run_ids import RUN_ID
from harness.run_state import Name, State, expected_time, state_of

_SHOWN = 50  # lines per state


class SweepRun(NamedTuple):
    """A run's directory and its state."""

    directory: Path
    state: State


def on_disk(root: Path) -> list[SweepRun]:
    now = file_system_time(root)
    names = sorted(path.name for path in root.iterdir() if _may_be_run(path))
    runs = (SweepRun(root / name, state_of(root / name, now)) for name in names if not name.startswith("."))
    return [run for run in runs if run.state.name != "missing"]  # no folders of sweeps or reports


def _may_be_run(path: Path) -> bool:
    """Whether a path is a folder, or a link with a run's name; links are never followed."""
    return RUN_ID.fullmatch(path.name) is not None if path.is_symlink() else path.is_dir()


def of_sweep(command: Command, overrides: Sequence[str], root: Path) -> list[SweepRun]:
    """Return the runs of a sweep, in `root`; a run that was refused at a launch has failed."""
    now = file_system_time(root)
    runs = [SweepRun(root / name, state_of(root / name, now)) for name in jobs_by_id(command, overrides)]
    return [_refused(run) if run.state.name == "missing" else run for run in runs]


def _refused(run: SweepRun) -> SweepRun:
    """Return a missing run as failed if a sweep has recorded its error: it was refused, and leaves no directory."""
    for path in run.directory.parent.glob(f"sweeps/*/error-{glob.escape(run.directory.name)}.json"):
        with contextlib.suppress(ValueError, OSError):
            if (noted := read_json(path)).get("exit_code") == BAD_CONFIG:
                return SweepRun(run.directory, State("failed", str(noted.get("error"))))
    return run


def jobs_by_id(command: Command, overrides: Sequence[str]) -> dict[str, list[str]]:
    """Return the overrides of a sweep's runs, by run id; equal jobs count once."""
    return {command.run_directory(config).name: job for job, config in jobs_of(command.name, overrides)}


def print_status(runs: Sequence[SweepRun]) -> None:
    """Print counts, and a line for each unfinished run."""
    counts = Counter(run.state.name for run in runs)
    output = console(min_width=160)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("state", "run", "detail"):
        table.add_column(heading, overflow="fold")
    for cells in _lines(runs):
        table.add_row(*(Text(printable(cell)) for cell in cells))
    if table.row_count:
        output.print(table)
    summary = ", ".join(f"{counts[name]:,} {name}" for name in get_args(Name) if counts[name])
    print(f"{len(runs):,} run{'s' * (len(runs) > 1)}: {summary}" if runs else "no runs")
    left = [run.directory for run in runs if run.state.name not in ("finished", "failed")]
    if left and (line := expected_time(left)):
        print(line)


def _lines(runs: Sequence[SweepRun]) -> Iterator[tuple[str, str, str]]:
    for name in get_args(Name)[1:]:
        in_state = [run for run in runs if run.state.name == name]
        for run in in_state[:_SHOWN]:
            yield name, run.directory.name, run.state.detail
        if len(in_state) > _SHOWN:
            yield name, f"and {len(in_state) - _SHOWN:,} more", ""
