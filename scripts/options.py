"""The command line of the commands beside the commands."""

import argparse
from typing import NoReturn

from conf.errors import print_anywhere


class _Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """The module's text as it stands, and behind every option its default, where there is one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        bare = action.default in (None, False, "")
        return action.help if bare else super()._get_help_string(action)


class _Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def parser(name: str, doc: str | None, **defaults: object) -> argparse.ArgumentParser:
    """Make the parser of `python -m scripts.NAME`, which may print anything then.

    Args:
        name: of the module below scripts.
        doc: the module's, which describes it.
        defaults: by option, which is of the default's type.
    """
    print_anywhere()
    made = _Parser(f"python -m scripts.{name}", description=doc, formatter_class=_Help)
    for key, value in defaults.items():
        made.add_argument(f"--{key.replace('_', '-')}", type=type(value), default=value, help="default: %(default)s")
    return made
