"""A command and its main program, which composes and checks a configuration, runs or sweeps, and summarises."""

import argparse
import contextlib
import functools
import gc
import logging
import os
import re
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from conf.check import ConfigError, unknown_key
from conf.command_process import (
    BAD_CONFIG,
    FAILED,
    exit_code,
    is_refusal,
    let_threads_sleep,
    require_streams,
)
from conf.commands import COMMANDS, config_of
from conf.compose import VERSION_BASE, typed_overrides
from conf.display_names import display
from conf.error_messages import explain
from conf.groups import CONF, choices
from conf.help import help_text
from conf.schema import plain, validate
from conf.terminal import print_anywhere, printable, show_log
from harness.sweep_files import Sweep

if TYPE_CHECKING:
    from harness.experiment import Experiment, Prepare

log = logging.getLogger(__name__)

TABLES = "table.md"  # file of a command's tables

# Hydra's flags, as arguments of argparse: https://hydra.cc/docs/advanced/hydra-command-line-flags/
_SWITCH, _TEXT = {"action": "store_true"}, dict[str, str]()
_FLAGS: dict[tuple[str, ...], Mapping[str, Any]] = {
    ("--help", "-h"): _SWITCH,
    ("--hydra-help",): _SWITCH,
    ("--version",): _SWITCH,
    ("--resolve",): _SWITCH,
    ("--run", "-r"): _SWITCH,
    ("--multirun", "-m"): _SWITCH,
    ("--shell-completion", "-sc"): _SWITCH,
    ("--package", "-p"): _TEXT,
    ("--config-path", "-cp"): _TEXT,
    ("--config-name", "-cn"): _TEXT,
    ("--config-dir", "-cd"): _TEXT,
    ("--experimental-rerun",): _TEXT,
    ("--cfg", "-c"): {"choices": ("job", "hydra", "all")},
    ("--info", "-i"): {
        "choices": ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath"),
        "nargs": "?",
        "const": "all",
    },
}


@dataclass(eq=False)
class Command:
    """A command `python -m NAME`, called by Hydra with the configuration of each run.

    Its functions import torch and other modules when called, so that help and key errors do not need them. Launchers
    pickle the command for other processes.

    Attributes:
        name: name of the package and of its primary configuration.
        purpose: one sentence for --help.
        experiment: returns the `harness.experiment.Experiment` of a configuration (`conf.commands.config_of`).
        prepare: loads an experiment's data, and returns it with the function that computes the result. It imports
            its modules when called, because a finished run needs none of them.
        headline: returns a result in one line.
        summarise: prints tables of finished runs, and writes them to table.md, with figures; takes the runs
            (`harness.results.read.StoredRun`) and the directory for files.
        axes: W&B metric patterns and the metric that is their x axis.
        sweep: the sweep that is carried out, set by the sweeper; None for a single run.
        exit_code: of a single run; 0 with --cfg, --info and the like.
    """

    name: str
    purpose: str
    experiment: "Callable[[Any], Experiment[Any]]"
    prepare: "Prepare"
    headline: Callable[[Any], str]
    summarise: Callable[[Sequence[Any], Path], None]
    axes: Mapping[str, str] = field(default_factory=dict)
    sweep: Sweep | None = field(default=None, init=False)
    exit_code: int = field(default=0, init=False)

    def run_directory(self, config: DictConfig) -> Path:
        """Return the run directory of a composed configuration.

        Raises:
            ConfigError: the configuration cannot be run.
        """
        return self._experiment(config).run.directory

    def _experiment(self, config: DictConfig) -> "Experiment[Any]":
        try:
            return self.experiment(validate(plain(config), config_of(self.name)))
        finally:
            if not gc.get_freeze_count():
                gc.freeze()  # later collections skip imported objects
            gc.enable()

    def __call__(self, config: DictConfig, planned: str = "", *, wait: bool = True) -> None:
        """Carry out one run, and show an error in one line. In a sweep, also record the error and raise it.

        Args:
            config: the composed configuration.
            planned: in a sweep, the run's id at the launch.
            wait: whether to wait while another process computes the run; if false, such a run is skipped.
        """
        print_anywhere()  # also in a sweep's other processes
        hydra_config = HydraConfig.get()
        # with hydra.job.chdir Hydra has changed the folder, but all paths are relative to this one
        os.chdir(hydra_config.runtime.cwd)
        overrides = typed_overrides(hydra_config.overrides)
        if self.sweep is not None:
            log.info("\n#%s  %s", hydra_config.job.num, "  ".join(overrides))
        try:
            self._carry_out(config, hydra_config, planned, wait=wait)
        except Exception as error:
            if self.sweep is None and isinstance(error, BrokenPipeError):
                self.exit_code = FAILED  # nobody reads the output any more
                return
            bad_config = is_refusal(error)
            line = explain(error, self.name, overrides)
            self.exit_code = BAD_CONFIG if bad_config else FAILED
            notes = getattr(error, "__notes__", [])
            if not (bad_config or notes or isinstance(error, (OSError, MemoryError))):  # log.txt lacks it
                print(printable(traceback.format_exc(), lines=True), end="", file=sys.stderr)
            _complain("; ".join([line, *([] if bad_config else notes)]))
            if self.sweep is not None:
                self.sweep.fail(planned, line, self.exit_code)
                raise

    def _carry_out(self, config: DictConfig, hydra_config: Any, planned: str, *, wait: bool) -> None:
        started, sweep = time.monotonic(), self.sweep
        if sweep is None and hydra_config.sweeper.get("params"):
            raise ConfigError("an experiment is a sweep: add -m (or leave +experiment out for a single run)")
        if sweep is None and (launcher := hydra_config.runtime.choices["hydra/launcher"]) != "in_process":
            raise ConfigError(f"hydra/launcher={launcher}: launches the runs of a sweep: add -m, or leave it out")
        experiment = self._experiment(config)
        if sweep is not None and (now := experiment.run.id) != planned:
            raise ConfigError(
                f"{now} was planned as {planned}: its configuration, data or code has changed meanwhile; "
                "undo that, or launch the sweep again"
            )
        run = experiment.run
        result = finished = run.result
        if result is not None:
            run.tidy()
            log.info("%s has finished before: nothing to compute", run.id)
        else:
            group = sweep.directory.name if sweep else None
            result = experiment.carry_out(self.prepare, self.axes, group, wait=wait)
        if result is None:
            log.info("another process computes %s: passed over", run.id)
            return
        with contextlib.nullcontext() if sweep is None else contextlib.suppress(OSError):  # the run has finished
            print(f"{result.run_id}: {self.headline(result)}  ({time.monotonic() - started:.0f} s)", flush=True)
        if sweep is None and finished and (run.directory / TABLES).exists() and any(run.directory.glob("*.png")):
            _name_tables(run.directory)
        elif sweep is None:
            self.exit_code = _summarise(self, {run.directory: result}, run.directory)


def main(command: Command) -> None:
    """Run a command from the command line, and end the process.

    Exit codes: 0 if all runs finished, 1 if a run failed or tables cannot be written, 2 if a configuration cannot be
    run, 130 if interrupted.
    """
    require_streams()
    let_threads_sleep()
    gc.disable()  # during imports, as scanning imported objects takes a tenth of the start-up time
    show_log(logging.INFO)
    print_anywhere()
    if {"--help", "-h"} & set(sys.argv[1:]):
        sys.exit(exit_code(functools.partial(_help, command), command.name))
    os.environ["HYDRA_FULL_ERROR"] = "1"  # raise errors instead of printing them
    try:
        sys.exit(exit_code(functools.partial(_run, replace(command)), command.name))
    finally:
        if "triton" in sys.modules:  # imported by timm's networks; at exit it would report frozen objects as leaks
            gc.unfreeze()


def _help(command: Command) -> int:
    print(help_text(command.name, command.purpose, sys.argv[1:]))
    return 0


def _run(command: Command) -> int:
    display()  # refuses an invalid file of the user before anything is computed
    sys.argv[1:] = _flags_first(command.name, sys.argv[1:])
    _require_launchers_by_name(sys.argv[1:])
    try:
        hydra.main(config_path=str(CONF), config_name=command.name, **VERSION_BASE)(command)()
    except (AssertionError, AttributeError, TypeError) as error:
        words = [word for word in sys.argv[1:] if re.match(r"[+~]*hydra\.(?!launcher)", word)]
        if not words:
            raise
        raise ConfigError(
            f"{' '.join(words)}: Hydra cannot use this value ({str(error) or 'see its documentation'})"
        ) from error
    return command.exit_code if command.sweep is None else end_sweep(command, command.sweep)


def _flags_first(command: str, words: Sequence[str]) -> list[str]:
    """Return the words of a command line with Hydra's flags before the overrides.

    Hydra's own parser refuses overrides on both sides of a flag, as in `eraser=leace -m seeds=[0],[1]`, with several
    lines, and ignores --package without --cfg.

    Raises:
        ConfigError: an unknown flag, a flag without its value, or the configuration of another command.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.error = _refuse
    for names, options in _FLAGS.items():
        parser.add_argument(*names, **options)
    parser.add_argument("overrides", nargs="*")
    given, unknown = parser.parse_known_intermixed_args(words)
    if unknown:
        flag = unknown[0].partition("=")[0]
        known = [names[0].removeprefix("--") for names in _FLAGS]
        name = flag.lstrip("-")
        raise ConfigError(unknown_key(name, known, what=f"option {flag.removesuffix(name)}"))
    if given.package and not given.cfg:
        raise ConfigError(f"--package={given.package}: goes with --cfg")
    if given.config_dir == "":
        raise ConfigError("--config-dir=: names no folder")
    if (config := given.config_name) is not None and config.removesuffix(".yaml") != command:
        instead = f"start python -m {config} instead" if config in COMMANDS else "leave it out"
        raise ConfigError(f"--config-name={config}: python -m {command} composes {command}.yaml: {instead}")
    flags = list(words)
    for override in given.overrides:
        flags.remove(override)
    return [*flags, *given.overrides]


def _refuse(message: str) -> NoReturn:
    raise ConfigError(f"{message} (see --help)")


def _require_launchers_by_name(words: Sequence[str]) -> None:
    """Refuse launchers and sweepers that are not this project's, as Hydra's would not skip finished runs."""
    for word in words:
        named = re.match(r"[+~]*hydra([./])(launcher|sweeper)(?:\._target_)?=(.*)", word)
        if named and (named[1] == "." or named[3] not in choices(f"hydra/{named[2]}")):
            names = ", ".join(f"hydra/{named[2]}={name}" for name in choices(f"hydra/{named[2]}"))
            raise ConfigError(f"{word}: choose how a sweep runs by name: {names}")


def end_sweep(command: Command, sweep: Sweep) -> int:
    """Show the sweep's tables and the errors of its jobs; return the exit code."""
    if sweep.detached:
        print(f"to look at it: {sweep.status_command}")
        return 0
    from harness.result import read_result
    from harness.run_directory import RESULT

    finished, failed = {}, []
    for job in sweep.jobs:
        try:
            finished[job.run] = read_result(job.run / RESULT)
        except FileNotFoundError:
            failed.append((job, *sweep.error_of(job.run.name)))
        except ValueError as error:
            failed.append((job, str(error), FAILED))
    codes = [code for _, _, code in failed]
    if finished:
        codes.append(_summarise(command, finished, sweep.directory))
    for job, error, _ in failed:
        _complain(f"failed: {' '.join(job.overrides)}: {error}")
    print(f"{len(finished)} of {len(sweep.jobs)} runs finished" + (f", {len(failed)} failed" if failed else ""))
    return max(codes, default=0)


def _summarise(command: Command, results: Mapping[Path, Any], directory: Path) -> int:
    """Print tables of results by their run directories, write tables and figures, and return the exit code."""
    from harness.results.read import StoredRun  # imports pandas, which a finished run does not need

    try:
        command.summarise([StoredRun(run, result.config, result) for run, result in results.items()], directory)
    except BrokenPipeError:
        raise  # nobody reads the output any more
    except OSError as error:
        _complain(f"results are saved, but not all tables and figures are written: {explain(error, command.name)}")
        return FAILED
    return 0


def _name_tables(directory: Path) -> None:
    """Print the paths of the tables and figures of an already finished run."""
    for path in sorted([*directory.glob("*.md"), *directory.glob("*.png")]):
        print(printable(f"{'tables' if path.suffix == '.md' else 'figure'}: {path}"))
    runs = shlex.quote(str(directory.parent))
    print(printable(f"made when the run ended; python -m scripts.report {runs} compares it with all runs"))


def _complain(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)
