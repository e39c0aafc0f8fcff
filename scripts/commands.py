"""The commands `python -m NAME` that compute runs."""

from conf import commands
from conf.check import ConfigError
from conf.target_class import imported
from harness.command import Command

COMMANDS: dict[str, Command] = {name: imported(f"{name}.__main__.COMMAND") for name in commands.COMMANDS}


def command_named(name: str) -> Command:
    """Return the command `python -m NAME`.

    Raises:
        ConfigError: an unknown command.
    """
    if name not in COMMANDS:
        raise ConfigError(f"{name!r} is no command: choose from {', '.join(COMMANDS)}")
    return COMMANDS[name]
