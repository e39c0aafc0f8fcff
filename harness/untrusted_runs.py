"""Safe search for run directories and reading of their files, which may be untrusted.

Every command that reads runs of others (reports, dashboards, the state of a sweep) uses this module, so that a run
directory can neither stop the command, nor make it read or write elsewhere.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from conf import Options
from conf.check import LARGEST_WHOLE
from conf.commands import COMMANDS, config_of
from conf.target_class import TARGETS
from conf.terminal import printable
from erasure.store.regular_files import read_regular
from harness.result import Result, command_in, result_of
from harness.run_directory import CONFIG, RESULT, STATE
from harness.run_ids import command_of, require_run_id

RUN_FILES = {CONFIG, STATE, RESULT}  # a folder with any of these files is a run directory

_LONGEST_LINE = 600  # characters of a remark
_LARGEST_CONFIG = 2**18  # bytes; usually about 3,000
_LONGEST_NAME, _LONGEST_TEXT = 200, 4096  # characters; 4,096 is the length of the longest path
_DEEPEST, _MOST_IN_CONFIG, _MOST = 30, 10_000, 5_000_000  # levels of nesting; values in a configuration, in all
_MOST_SEEDS = 1000  # each seed is a line in figures
_LARGEST = 1e100  # largest number; its square is finite
_PLAIN = (
    f"whole numbers are at most 2^53, others {_LARGEST:g}, texts have at most {_LONGEST_TEXT:,} characters of Unicode"
)
Note = Callable[[str], object]  # function that takes a line on a run or file that is left out


def one_line(remark: str) -> str:
    """Return a remark, which may quote untrusted text, as one line, truncated in the middle if it is long."""
    half = _LONGEST_LINE // 2
    return printable(remark if len(remark) <= _LONGEST_LINE else f"{remark[:half]} … {remark[-half:]}")


def run_directories(root: Path, note: Note = lambda _: None) -> Iterator[Path]:
    """Yield the run directories in `root`, including `root` itself, in the order of their names.

    Args:
        root: folder to search; links to folders are not followed.
        note: called with one line about each folder that cannot be searched, and each link that leads elsewhere.
    """
    top, folders = Path(os.path.realpath(root)), [root]
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
            if entry.is_symlink() and leads_out(Path(entry.path), top):
                note(f"{entry.path}: a link to another folder, which is not followed: search that folder itself")


def leads_out(link: Path, top: Path) -> bool:
    """Return whether a link leads to a folder outside `top`."""
    inner = os.path.isdir(link)  # noqa: PTH112 (False where access is denied)
    return inner and not Path(os.path.realpath(link)).is_relative_to(top)


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


def believed_result(values: Options, directory: Path) -> Result:
    """Return a run's result from the content of its result.json.

    Raises:
        ValueError: the content was not written by a run with the directory's name.
    """
    require_plain(values, _MOST)
    require_config(values.get("config"), command_in(values))
    result = result_of(values)
    result.require_consistent()
    require_run_id(directory.name)
    if result.run_id != directory.name or command_of(directory.name) != result.command:
        raise ValueError(f"is of the run {result.run_id[:200]!r}: give its directory that name")
    return result


def require_config(config: Any, command: str) -> None:
    """Refuse a configuration that tables cannot show.

    Args:
        config: a run's configuration.
        command: the run's command.

    Raises:
        ValueError: the command does not exist, or a section has another type; the message names it.
    """
    require_plain(config, _MOST_IN_CONFIG)
    if not isinstance(config, dict):
        raise ValueError(f"config is {config!r:.60}, not sections of options")
    if command not in COMMANDS:
        raise ValueError(f"is of the command {command[:_LONGEST_NAME]!r}, not one of {', '.join(COMMANDS)}")
    sections = config_of(command).sections()
    for section in (*TARGETS, *sections, *(["logger"] if "logger" in config else [])):
        if not isinstance(config.get(section), Mapping):
            raise ValueError(f"config.{section} is {config.get(section)!r:.60}, not a section of options")
    for part in TARGETS:
        name = config[part].get("name")
        if not (isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable() and "\\" not in name):
            allowed = f"a name of 1 to {_LONGEST_NAME} printable characters without backslashes"
            raise ValueError(f"config.{part}.name is {name!r:.60}, not {allowed}")
    seeds = config.get("seeds")
    if not (isinstance(seeds, list) and seeds and all(type(seed) is int and seed >= 0 for seed in seeds)):
        raise ValueError(f"config.seeds is {seeds!r:.60}, not a list of whole numbers")
    if len(seeds) > _MOST_SEEDS:
        raise ValueError(f"config.seeds are {len(seeds):,}: at most {_MOST_SEEDS:,}, each a line in figures")


def require_plain(values: Any, most: int) -> None:
    """Refuse values that JSON cannot hold, and more, deeper, longer or larger values than any run writes.

    Raises:
        ValueError: there is such a value.
    """
    left, count = [("", values, 0)], 0
    while left:
        key, value, depth = left.pop()
        count += 1
        if count > most or depth > _DEEPEST:
            raise ValueError(f"holds more than {most:,} values, or more than {_DEEPEST} within each other")
        if isinstance(value, (list, tuple)):
            left += [(key, entry, depth + 1) for entry in value]
        elif isinstance(value, dict):
            if wrong := [key for key in value if not isinstance(key, str)]:
                raise ValueError(f"holds the key {wrong[0]!r:.60}, which is no text")
            left += [(name, entry, depth + 1) for name, each in value.items() for entry in (name, each)]
        elif not (value is None or _is_plain(value)):
            where = f" in {key:.{_LONGEST_NAME}}" if key else ""
            raise ValueError(f"holds the value {value!r:.60}{where}, which no run writes: {_PLAIN}")


def _is_plain(value: Any) -> bool:
    """Return whether a value is a number, or a text of usual size that can be written to a file."""
    if isinstance(value, str):
        return len(value) <= _LONGEST_TEXT and not re.search("[\ud800-\udfff]", value)
    if isinstance(value, int):
        return abs(value) <= LARGEST_WHOLE
    return isinstance(value, float) and abs(value) <= _LARGEST
