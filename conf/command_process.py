"""The process of a command: its environment, its folders, and its exit code."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from conf.check import ConfigError
from conf.error_messages import explain

FAILED, BAD_CONFIG, INTERRUPTED = 1, 2, 130  # exit codes


def require_current_folder() -> None:
    """End the process with one line if the current folder was deleted: torch cannot be imported there."""
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        print("the current folder was deleted: go to one that exists, with cd", file=sys.stderr)
        sys.exit(BAD_CONFIG)


def let_threads_sleep() -> None:
    """Let torch's threads sleep while they wait for each other, unless OMP_WAIT_POLICY is set.

    By default they spin for some milliseconds, and may occupy the core that the other thread needs. Call this before
    torch is imported.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def exit_code(work: Callable[[], int], command: str, overrides: Sequence[str] | None = None) -> int:
    """Run a command, report an error in one line, and return the exit code.

    It is 2 for a configuration or data that cannot be used, 1 for files that cannot be read, written or fetched, and
    130 for Ctrl-C.
    """
    try:
        code = work()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # a pager or `head` has ended; Python would print an error when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        line, code = "interrupted: launch the same command again to continue", INTERRUPTED
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
        line, code = explain(error, command, overrides), BAD_CONFIG
    except (OSError, MemoryError) as error:
        line, code = explain(error, command, overrides), FAILED
    print(line, file=sys.stderr, flush=True)
    return code


def make_folder(key: str, folder: str) -> None:
    """Make the folder that an option names, unless it is there.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        Path(folder).expanduser().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{key}={folder}: cannot be made ({error.strerror}): choose another folder, {key}=FOLDER"
        ) from error
