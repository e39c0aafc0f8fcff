"""Commands that launch a run again, from its configuration; hostile run directories cause nothing else."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from conf import Options
from conf.command import Command
from conf.compose import composed, unchecked
from conf.error_messages import explain
from conf.groups import choices, user_folders
from conf.schema import TARGETS, ConfigError, validate
from conf.target_class import config_of, require_listed
from harness.untrusted_runs import read_config
from scripts.commands import command_named
from scripts.manage_sweep.status import SweepRun


def launch_command(run: SweepRun, runs_dir: Path) -> list[str]:
    """Return the command of this run: python -m COMMAND OVERRIDES, with its result in `runs_dir`.

    Raises:
        ValueError: not a run's name; or no overrides are known and the configuration is not valid.
    """
    command = run.directory.name.partition("-")[0]
    try:
        known = command_named(command)
        overrides = _overrides(known, run.directory) if run.overrides is None else run.overrides
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise ValueError(f"{run.directory}: not launched: {explain(error, command, [])}") from error
    overrides = [override for override in overrides if not override.startswith("runs_dir=")]
    if any(override.startswith("+experiment=") for override in overrides):
        overrides.append("hydra.sweeper.params=null")  # one run of the experiment
    folders = [f"--config-dir={folder}" for folder in user_folders()]
    return [
        "python",
        "-m",
        command,
        *folders,
        *overrides,
        *([] if str(runs_dir) == "runs" else [f"runs_dir={runs_dir}"]),
    ]


def launch(commands: Sequence[Sequence[str]]) -> int:
    code = 0
    for words in commands:
        print(f"\n$ {shlex.join(words)}", flush=True)
        code = subprocess.run([sys.executable, *words[1:]], check=False).returncode or code
    return code


def _overrides(command: Command, directory: Path) -> list[str]:
    """Return overrides that give exactly a run's configuration: its choices and all values that differ from them.

    Raises:
        ValueError: the configuration cannot be read, or is not valid for this command.
    """
    try:
        read = read_config(directory)
        require_listed(read)
        config = validate(read, config_of(command.name))
        names = [f"{part}={_choice(part, getattr(config, part))}" for part in TARGETS]
        defaults: Any = OmegaConf.to_container(unchecked(command.name, names), resolve=True)
        overrides = [*names, *(f"{key}={_value(value)}" for key, value in _differences(defaults, config.plain))]
        if composed(command.name, overrides, type(config)) != config:
            raise ConfigError("no command line gives it")
    except (OSError, AttributeError, TypeError, RecursionError, ValueError) as error:
        raise ValueError(f"its config.yaml cannot be used ({' '.join(str(error).split())})") from error
    return overrides


def _choice(part: str, section: Options) -> str:
    if section["name"] not in choices(part):
        raise ConfigError(f"{part}={section['name']} is not in conf/{part}/")
    return section["name"]


def _differences(default: Options, config: Options, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict) and isinstance(default.get(key), dict):
            yield from _differences(default[key], value, f"{prefix}{key}.")
        elif _plain(value) != _plain(default.get(key)):
            yield f"{prefix}{key}", value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _value(value: Any) -> str:
    """Write a value in the grammar of Hydra's command line."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(_value(entry) for entry in value)}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{_value(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return json.dumps(value)  # null, true, numbers
