"""The commands `python -m NAME`: every NAME.yaml in this folder with a package of that name."""

import functools
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from conf import Options
from conf.check import ConfigError, keyword_only
from conf.groups import CONF
from conf.schema import Common, Section, hashed
from conf.target import TARGETS

if TYPE_CHECKING:
    from conf.cli import Command


def commands() -> list[str]:
    """Return the names of all commands."""
    return sorted(path.stem for path in CONF.glob("*.yaml") if path.stem != "base")


def command_named(name: str) -> "Command":
    """Import the command `python -m NAME`.

    Raises:
        ConfigError: there is none; nothing is imported.
    """
    if name not in commands():
        raise ConfigError(f"{name!r} is no command: choose from {', '.join(commands())}")
    return importlib.import_module(f"{name}.__main__").COMMAND


def identifying(config: Options) -> Options:
    """Return the part of a run's configuration that counts towards its identity: see `conf.schema.unhashed`."""
    counted = hashed({key: config[key] for key in (*TARGETS, *keyword_only(Common)) if key in config}, Common)
    for name, section in sections().items():
        if name in config and (own := hashed(config[name], section)):
            counted[name] = own
    return counted


@functools.cache
def sections() -> Mapping[str, Section]:
    """Return the sections of all commands, by name."""
    return {name: section for command in commands() for name, section in command_named(command).sections.items()}
