"""States of the runs of a sweep: finished, running, failed, missing."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from rich import box
from rich.table import Table
from rich.text import Text

from conf.compose import jobs_of
from conf.terminal import printable
from erasure.progress import console, duration
from erasure.store.lease_holder import file_system_time
from harness.command import Command
from harness.run_ids import RUN_ID
from harness.run_state import Name, State, seconds_left, state_of
from harness.sweep_files import Sweep

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
    """Return the runs of a sweep, in `root`; a run that was refused at launch has failed."""
    now, jobs = file_system_time(root), jobs_by_id(command, overrides)
    states = {name: state_of(root / name, now) for name in jobs}
    if missing := [name for name, state in states.items() if state.name == "missing"]:
        refused = _refused(root)
        states |= {name: State("failed", refused[name]) for name in missing if name in refused}
    return [SweepRun(root / name, states[name]) for name in jobs]


def _refused(root: Path) -> dict[str, str]:
    """Return why the sweeps below `root` refused runs."""
    refused: dict[str, str] = {}
    for directory in root.glob("sweeps/*"):
        with contextlib.suppress(ValueError, OSError):
            refused |= Sweep(directory).refused()
    return refused


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
    if line := cost(runs):
        print(line)


def cost(runs: Sequence[SweepRun]) -> str:
    """Return a line with the time used by finished runs, and the estimated time left.

    A run takes the mean of finished runs of its dataset and model, less the time it has used. Failed runs do not count.
    """
    finished = {run.directory.name: run.state for run in runs if run.state.name == "finished"}
    if not finished:
        return ""
    used = sum(state.seconds for state in finished.values())
    left = {
        run.directory.name: run.state.seconds for run in runs if run.state.name in ("running", "interrupted", "missing")
    }
    known = seconds_left(left, finished)
    line = f"device time: {duration(used)} used by finished runs"
    if known:
        at_once = max(1, sum(run.state.name == "running" for run in runs))
        line += f", about {duration(sum(known))} left, or {duration(sum(known) / at_once)} with {at_once} at a time"
    if unknown := len(left) - len(known):
        line += f"; no time estimate yet for {unknown} runs: no run of their dataset and model has finished"
    return line


def _lines(runs: Sequence[SweepRun]) -> Iterator[tuple[str, str, str]]:
    for name in get_args(Name)[1:]:
        in_state = [run for run in runs if run.state.name == name]
        for run in in_state[:_SHOWN]:
            yield name, run.directory.name, run.state.detail
        if len(in_state) > _SHOWN:
            yield name, f"and {len(in_state) - _SHOWN:,} more", ""
