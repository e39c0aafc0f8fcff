"""Safe search for run directories and reading of their files, which may be untrusted.

Every command that reads runs of others (reports, dashboards, the state of a sweep) uses this module, so that a run
directory can neither stop the command, nor make it read or write elsewhere.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from conf import Options
from conf.terminal import printable
from erasure.store.regular_files import read_regular
from harness.limits import require_config
from harness.run_directory import CONFIG, RESULT, STATE
from harness.run_ids import command_of

RUN_FILES = {CONFIG, STATE, RESULT}  # a folder with any of these files is a run directory

_LONGEST_LINE = 600  # characters of a remark
_LARGEST_CONFIG = 2**18  # bytes; usually about 3,000
Note = Callable[[str], object]  # function that takes a line on a run or file that is left out


def one_line(remark: str) -> str:
    """Return a remark, which may quote untrusted text, as one line, truncated in the middle if it is long."""
    half = _LONGEST_LINE // 2
    return printable(remark if len(remark) <= _LONGEST_LINE else f"{remark[:half]} … {remark[-half:]}")


def run_directories(root: Path, note: Note = lambda _: None) -> Iterator[Path]:
    """Yield the run directories in `root`, including `root` itself, in the order of their names.

    Args:
        root: folder to search; links to folders are not followed.
        note: called with one line about each folder that cannot be searched, and each link to a folder.
    """
    folders = [root]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                by_name = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            note(f"{folder}: cannot be searched ({error.strerror})")
            continue
        if any(entry.name in RUN_FILES and not entry.is_dir(follow_symlinks=False) for entry in by_name):
            yield folder
            continue
        shown = [entry for entry in by_name if not entry.name.startswith(".")]
        folders += [Path(entry.path) for entry in reversed(shown) if entry.is_dir(follow_symlinks=False)]
        for entry in shown:
            if entry.is_symlink() and os.path.isdir(entry.path):  # noqa: PTH112 (False where access is denied)
                note(f"{entry.path}: a link to a folder, which is not followed: search that folder itself")


def read_config(directory: Path) -> Options:
    """Read a run's config.yaml.

    Raises:
        ValueError: the file was not written by a run.
        OSError: the file cannot be read.
    """
    if directory.is_symlink():
        raise ValueError(f"{directory} is a link, which is not followed: give the folder that it leads to")
    text = read_regular(directory / CONFIG, _LARGEST_CONFIG)
    try:
        config = yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, OverflowError) as error:
        raise ValueError(f"{CONFIG} is damaged ({' '.join(str(error).split())[:160]})") from error
    require_config(config, command_of(directory.name))
    return config


class _Loader(yaml.SafeLoader):
    """YAML loader for files that runs write; libyaml's crashes on a file of 100,000 brackets."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Refuse merge keys: runs do not write "<<", which can blow up a small file."""
