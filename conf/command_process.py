"""The process of a command: its environment, its folders, and its exit code."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import yaml
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from conf.check import ConfigError
from conf.commands import COMMANDS
from conf.error_messages import explain

FAILED, BAD_CONFIG, INTERRUPTED = 1, 2, 130  # exit codes
# packages of this project besides the commands
_PACKAGES = ("conf", "erasure", "harness", "hydra_plugins", "models", "scripts")
_INTERRUPTED = "interrupted: launch the same command again to continue"


def require_streams() -> None:
    """Write to nowhere what is printed to a stream that was closed, as `>&-` does.

    It would go to the next file that is opened, or to the other stream.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115


def interrupt_in_one_line() -> None:
    """Print one line, not a traceback, when Ctrl-C ends this process, also while it imports modules."""
    before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print(_INTERRUPTED, file=sys.stderr, flush=True)
        else:
            before(kind, error, trace)

    sys.excepthook = show


def let_threads_sleep() -> None:
    """Let torch's threads sleep while they wait for each other, unless OMP_WAIT_POLICY is set.

    By default, waiting threads spin for some milliseconds and may occupy the core that another thread needs. Call this
    function before torch is imported.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def exit_code(work: Callable[[], int], command: str, overrides: Sequence[str] | None = None) -> int:
    """Run a command, report an error in one line, and return the exit code.

    The exit code is 2 for an unusable configuration or unusable data, 1 for files that cannot be read, written or
    fetched, and 130 for Ctrl-C.
    """
    try:
        code = work()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # a pager or `head` has ended
        _drop_output()
        return FAILED
    except KeyboardInterrupt:
        line, code = _INTERRUPTED, INTERRUPTED
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
        line, code = explain(error, command, overrides), BAD_CONFIG
    except (OSError, MemoryError) as error:
        line, code = explain(error, command, overrides), FAILED
        try:
            sys.stdout.flush()
        except OSError:  # it goes to a full disk
            _drop_output()
    print(line, file=sys.stderr, flush=True)
    return code


def is_refusal(error: BaseException) -> bool:
    """Return whether this project's code has refused a value. Any other ValueError is a bug, perhaps in a user's code.

    The innermost frame of the traceback tells who raised the error.
    """
    if isinstance(error, OmegaConfBaseException):
        return True
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    project, file = Path(__file__).parents[1], Path(frame.tb_frame.f_code.co_filename if frame else __file__)
    is_ours = file.is_relative_to(project) and file.relative_to(project).parts[0] in (*COMMANDS, *_PACKAGES)
    return isinstance(error, ValueError) and is_ours


def _drop_output() -> None:
    """Write to nowhere what is left to print; Python would show an error when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def make_folder(key: str, folder: str) -> None:
    """Make the folder that an option names, unless it exists.

    Raises:
        ConfigError: the folder cannot be made.
    """
    try:
        Path(folder).expanduser().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{key}={folder}: cannot be made ({error.strerror}): choose another folder, {key}=FOLDER"
        ) from error
