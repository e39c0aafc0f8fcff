"""Limits on the values in a run's config.yaml and result.json, which may be untrusted."""

import re
from collections.abc import Mapping
from typing import Any

from conf.check import LARGEST_WHOLE
from conf.commands import COMMANDS, config_of
from conf.target_class import TARGETS

_LONGEST_NAME, _LONGEST_TEXT = 200, 4096  # characters; 4,096 is the length of the longest path
_DEEPEST, _MOST_IN_CONFIG, _MOST = 30, 10_000, 5_000_000  # levels of nesting; values in a configuration, in all
_MOST_SEEDS = 1000  # each seed is a line in figures
_LARGEST = 1e100  # largest number; its square is finite
_PLAIN = (
    f"whole numbers are at most 2^53, others {_LARGEST:g}, texts have at most {_LONGEST_TEXT:,} characters of Unicode"
)


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


def require_plain(values: Any, most: int = _MOST) -> None:
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
