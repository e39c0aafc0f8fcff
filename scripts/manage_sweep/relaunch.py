"""Commands that continue a run, from its configuration, which anybody may have written; nothing is launched."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from conf import Options
from conf.commands import config_of
from conf.compose import composed, override_value, unchecked
from conf.error_messages import explain
from conf.groups import choices, preset, user_folders
from conf.schema import TARGETS, ConfigError, validate
from conf.target_class import require_listed
from conf.terminal import printable
from harness.command import Command
from harness.run_ids import command_of
from harness.untrusted_runs import read_config
from scripts.commands import command_named
from scripts.manage_sweep.status import SweepRun

_YOURS = ("runs_dir", "cache_dir", "logger")  # where a run's files go: the user says so, no run directory does


def launch_command(run: SweepRun, runs_dir: Path) -> list[str]:
    """Return the command of this run: python -m COMMAND OVERRIDES, with its result in `runs_dir`.

    Raises:
        ValueError: not a run's name; or no overrides are known and the configuration is not valid.
    """
    command = command_of(run.directory.name)
    try:
        known = command_named(command)
        overrides = _overrides(known, run.directory) if run.overrides is None else run.overrides
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise ValueError(f"{run.directory}: not launched: {explain(error, command, [])}") from error
    overrides = [override for override in overrides if not override.startswith("runs_dir=")]
    if any(override.startswith("+experiment=") for override in overrides):
        overrides.append("hydra.sweeper.params=null")  # one run of the experiment
    if str(runs_dir) != "runs":
        overrides.append(f"runs_dir={override_value(str(runs_dir))}")
    words = ["python", "-m", command, *(f"--config-dir={folder}" for folder in user_folders()), *overrides]
    if odd := [word for word in words if word != printable(word)]:
        raise ValueError(f"{run.directory}: not launched: {printable(odd[0])!r} has characters that no terminal shows")
    return words


def _overrides(command: Command, directory: Path) -> list[str]:
    """Return overrides that give a run's configuration: its choices and all values that differ from them.

    `_YOURS` are left out: a directory of somebody else's does not say where the user's files go.

    Raises:
        ValueError: the configuration cannot be read, or is not valid for this command.
    """
    try:
        read = read_config(directory)
        require_listed(read)
        config = validate(read, config_of(command.name))
        names = [f"{part}={_choice(part, getattr(config, part))}" for part in TARGETS]
        defaults: Any = OmegaConf.to_container(unchecked(command.name, names), resolve=True)
        asked = {key: value for key, value in config.plain.items() if key not in _YOURS}
        overrides = [*names, *(f"{key}={override_value(value)}" for key, value in _differences(defaults, asked))]
        made = composed(command.name, overrides, type(config))
        if made != replace(config, **{key: getattr(made, key) for key in _YOURS}):
            raise ConfigError("no command line gives it")
    except (OSError, AttributeError, TypeError, RecursionError, ValueError) as error:
        raise ValueError(f"its config.yaml cannot be used ({' '.join(str(error).split())})") from error
    return overrides


def _choice(part: str, section: Options) -> str:
    """Return the choice of a group to start from: of its class, by name, or with the fewest values to change."""
    presets = {choice: preset(part, choice) for choice in choices(part)}
    alike = [choice for choice, values in presets.items() if values.get("_target_") == section["_target_"]]
    if not alike:
        raise ConfigError(f"{part}._target_={section['_target_']}: no YAML file in conf/{part}/ names this class")

    def changes(choice: str) -> tuple[bool, int]:
        return choice != section["name"], sum(presets[choice].get(key) != value for key, value in section.items())

    return min(alike, key=changes)


def _differences(default: Options, config: Options, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict) and isinstance(default.get(key), dict):
            yield from _differences(default[key], value, f"{prefix}{key}.")
        elif _plain(value) != _plain(default.get(key)):
            yield f"{prefix}{key}", value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
