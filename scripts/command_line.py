"""The command line of `python -m scripts.NAME`: its parser and help, with errors in one line."""

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from conf.groups import without_config_dir
from conf.terminal import print_anywhere


class _Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Shows the module's text unchanged, and defaults after their options."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        bare = action.default in (None, False, "", ())
        return action.help if bare else super()._get_help_string(action)


class _Parser(argparse.ArgumentParser):
    """Takes overrides before, between and after options, and --config-dir, which `conf.groups` reads from sys.argv.

    A wrong argument is reported in one line, without the usage.
    """

    def parse_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        words, _ = without_config_dir(sys.argv[1:] if args is None else [*args])
        return self.parse_intermixed_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def runs_folder(text: str) -> Path:
    """Return the path of an existing folder of runs, as the type of an argument."""
    if not os.path.isdir(text):  # noqa: PTH112 (False for a name that is too long)
        raise argparse.ArgumentTypeError(f"{text}: no such folder; give the runs_dir of a command, by default runs/")
    return Path(text)


def figure_file(text: str) -> Path:
    """Return the path of a figure whose name tells a format that can be written, as the type of an argument."""
    from matplotlib.backend_bases import FigureCanvasBase

    if Path(text).suffix[1:] not in FigureCanvasBase.get_supported_filetypes():
        raise argparse.ArgumentTypeError(f"{text}: must be a figure's name, such as {Path(text).with_suffix('.svg')}")
    return Path(text)


def argument_parser(name: str, doc: str | None, **defaults: object) -> argparse.ArgumentParser:
    """Make the parser of `python -m scripts.NAME`; prepare stdout for any character.

    Args:
        name: of the module below scripts.
        doc: docstring of the module.
        defaults: options with defaults, which set their types.
    """
    print_anywhere()
    parser = _Parser(f"python -m scripts.{name}", description=doc, formatter_class=_Help)
    for key, value in defaults.items():
        parser.add_argument(f"--{key.replace('_', '-')}", type=type(value), default=value, help="default: %(default)s")
    return parser
