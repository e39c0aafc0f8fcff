"""Ids of runs, which are the names of their directories: COMMAND-DATASET-ERASER-MODEL-DIGITS-DIGITS.

The first digits are a digest of what describes the run, the second of its code.
"""

import re
from collections.abc import Mapping

from conf import Options
from conf.target_class import TARGETS

RUN_ID = re.compile(r"[a-z_]+(-[A-Za-z0-9._]+){3}(-[0-9a-f]{8,16}){1,2}")  # earlier versions had no digits of the code
_LONGEST_SHOWN = 200  # characters


def run_id(command: str, described: Options, code: Mapping[str, int | str]) -> str:
    """Return the id of a run: readable names, a digest of what describes it, and one of its code."""
    from erasure.store.checked_files import fingerprint  # and so torch

    names = [re.sub(r"[^A-Za-z0-9.]+", "_", described[part]["name"]) for part in TARGETS]
    asked = fingerprint({"command": command, **described}, length=10)
    return "-".join([command, *names, asked, fingerprint(dict(code), length=8)])


def require_run_id(name: str) -> None:
    """Refuse a directory whose name is not that of a run.

    Raises:
        ValueError: names the directory.
    """
    if not RUN_ID.fullmatch(name):
        raise ValueError(
            f"{name[:_LONGEST_SHOWN]!r} is no run's name, which is COMMAND-DATASET-ERASER-MODEL-DIGITS-DIGITS"
        )


def command_of(run: str) -> str:
    """Return the command that a run id begins with; in an untrusted id it may not exist."""
    return run.partition("-")[0]


def kind_of(run: str) -> str:
    """Return command, dataset and model of a run: runs that share them take similar times."""
    command, dataset, _, model, *_ = [*run.split("-"), "", "", "", ""]
    return f"{command} {dataset} {model}"


def controls_of(command: str) -> str:
    """Return a pattern for the ids of a command's controls; it also matches networks called control."""
    return f"{command}-*-control-*"
