"""A run of `python -m mdl` that kills itself (SIGKILL) at a named point."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import erasure.store.checked_files
import train.checkpoint
from harness.command import main
from mdl.__main__ import COMMAND
from train.schedule_free import ScheduleFree

CHECKPOINTS = 3  # the one that is hit: there are others to fall back to
STEPS = 60  # optimiser steps before death mid-epoch


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL returned")


def arm(point: str) -> None:
    """Die at the point: "mid_write", "before_rename" or "after_rename" of a checkpoint, or "mid_epoch"."""
    train.checkpoint._MAX_SHARE = 1e9  # save before every step, however long that takes
    seen, real_save, real_replace, real_step = (
        [0],
        erasure.store.checked_files.save_file,
        Path.replace,
        ScheduleFree.step,
    )

    def is_the_one(path: Path) -> bool:
        seen[0] += ".checkpoint-" in f".{path.name}"
        return seen[0] == CHECKPOINTS

    def save_file(tensors, path: Path, metadata) -> None:
        real_save(tensors, path, metadata=metadata)
        if is_the_one(path):
            part = Path(path).rename(Path(path).with_name(".tmpPEVl13"))  # where safetensors writes before it renames
            os.truncate(part, part.stat().st_size // 2)
            die()

    def replace(self: Path, target: str | os.PathLike[str]) -> Path:
        the_one = is_the_one(Path(target))
        if the_one and point == "before_rename":
            die()
        replaced = real_replace(self, target)
        if the_one:
            die()
        return replaced

    def step(self: ScheduleFree, gradients) -> None:
        seen[0] += 1
        if seen[0] == STEPS:
            die()
        real_step(self, gradients)

    if point == "mid_write":
        erasure.store.checked_files.save_file = save_file
    elif point == "mid_epoch":
        ScheduleFree.step = step
    else:
        Path.replace = replace


def run(point: str, arguments: Sequence[str]) -> None:
    """Run `python -m mdl ARGUMENTS` until the point, in a process of its own."""
    arm(point)
    sys.argv = ["mdl", *arguments]
    main(COMMAND)
