"""Show the state of a sweep from disk, and delete failed runs. To continue a sweep, launch its command again.

python -m scripts.manage_sweep status runs/                                   every run below runs/
python -m scripts.manage_sweep status runs/ -- eraser=control,leace seeds=[0] the runs of a sweep, also missing ones
python -m scripts.manage_sweep discard runs/                                  failed runs; --yes deletes them

Overrides are those of python -m mdl -m, or the whole command. Exit code 0 if all runs have finished.
"""

import argparse
import functools
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from conf.check import ConfigError
from conf.command_process import exit_code
from conf.commands import COMMANDS, command_named, config_of
from conf.groups import without_config_dir
from conf.terminal import printable, show_log
from erasure.store.regular_files import DamagedFileError
from harness.device_and_precision import pick_device
from harness.run_directory import RESULT, Run
from harness.run_state import read_state
from scripts.command_line import argument_parser, runs_folder
from scripts.manage_sweep.status import SweepRun, of_sweep, on_disk, print_status


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    words, overrides = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    options = _options(words)
    command, overrides = _of_command(without_config_dir(overrides)[0])
    show_log(logging.WARNING)
    return exit_code(functools.partial(_status, options, command, overrides), command, overrides)


def _status(options: argparse.Namespace, command: str, overrides: Sequence[str]) -> int:
    if late := [word for word in overrides if word.startswith("-")]:
        raise ConfigError(f"{late[0]}: goes before --, where the overrides begin")
    runs = of_sweep(command_named(command), overrides, options.runs) if overrides else on_disk(options.runs)
    if options.action == "discard":
        _discard(runs, delete=options.yes)
        return 0
    print_status(runs)
    device_unset = "train" in config_of(command).sections() and not any(o.startswith("device=") for o in overrides)
    if device_unset and any(run.state.name == "missing" for run in runs):
        device = pick_device("auto").type
        print(f"device=auto is {device} here; elsewhere train.precision=auto may make other runs: set device=…")
    return 0 if all(run.state.name == "finished" for run in runs) else 1


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argument_parser("manage_sweep", __doc__)
    parser.add_argument("action", choices=["status", "discard"])
    parser.add_argument("runs", type=runs_folder, help="the sweep's runs_dir")
    parser.add_argument(
        "--yes", action="store_true", help="with discard: delete the failed runs instead of listing them"
    )
    options = parser.parse_args(words)
    if options.action == "status" and options.yes:
        parser.error("--yes goes with discard")
    return options


def _of_command(words: list[str]) -> tuple[str, list[str]]:
    """Return command and overrides of a command line, or of its end; mdl if it names no command."""
    words = [word for word in words if word not in ("uv", "run", "python", "-m", "--multirun")]
    return (words[0], words[1:]) if words and words[0] in COMMANDS else ("mdl", words)


def _discard(runs: Sequence[SweepRun], *, delete: bool) -> None:
    """Print the runs that ended by an error, and delete them if `delete` is set; a run with a result is kept."""
    count = 0
    for run in runs:
        if run.state.name != "failed" or not _ended_by_error(run.directory):
            continue
        if delete and not Run(run.directory.parent, run.directory.name).discard():
            print(f"kept, another process works on it: {printable(run.directory.name)}")
            continue
        count += 1
        print(f"{'deleted' if delete else 'failed'}: {printable(f'{run.directory.name}: {run.state.detail}')}")
    hint = "" if delete or not count else "; nothing is deleted yet: add --yes"
    print(f"{count:,} failed runs{' deleted' if delete else ''}{hint}")


def _ended_by_error(directory: Path) -> bool:
    """Whether a run's state file says "failed", and there is no result."""
    if directory.is_symlink() or (directory / RESULT).exists():
        return False
    try:
        return read_state(directory)[0] == "failed"
    except (DamagedFileError, OSError):
        return False


if __name__ == "__main__":
    raise SystemExit(main())
