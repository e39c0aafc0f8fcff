"""The commands `python -m NAME` that compute runs."""

from conf.check import ConfigError
from harness.command import Command
from mdl.__main__ import COMMAND as MDL
from sample_info.__main__ import COMMAND as SAMPLE_INFO
from train.__main__ import COMMAND as TRAIN

COMMANDS = {command.name: command for command in (MDL, SAMPLE_INFO, TRAIN)}


def command_named(name: str) -> Command:
    """Return the command `python -m NAME`.

    Raises:
        ConfigError: an unknown command.
    """
    if name not in COMMANDS:
        raise ConfigError(f"{name!r} is no command: choose from {', '.join(COMMANDS)}")
    return COMMANDS[name]
