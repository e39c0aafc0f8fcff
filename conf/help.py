"""--help: one page about a command, or one topic: a group's choices, or the command's experiments."""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from conf.check import HIDDEN, ConfigError, unknown_key
from conf.groups import CONF, choices, chosen, file_of, without_config_dir

_HIDDEN = {"defaults", "hydra", *HIDDEN}  # keys that users do not set on the command line
_WIDTH, _COMMENTS = 118, 38  # line length, and the column of comments
_EXPERIMENTS, _LAUNCHER = "experiments", "hydra/launcher"


def help_text(command: str, purpose: str, words: Sequence[str] = ()) -> str:
    """Return the help page of a command, or of a topic if the words name one.

    Args:
        command: the command's name.
        purpose: one line on what the command does.
        words: words of the command line; overrides among them determine the keys to show.

    Raises:
        ConfigError: the topic does not exist.
    """
    words, _ = without_config_dir(words)
    overrides = [word for word in words if "=" in word]
    selected = {group: selection[0] for group, selection in chosen(command, overrides).items()}
    if unknown := [pair for pair in selected.items() if pair[1] not in choices(pair[0])]:
        group, choice = unknown[0]
        raise ConfigError(unknown_key(choice, choices(group), f"{group}="))
    named = [value for key, _, value in (word.partition("=") for word in overrides) if key == _LAUNCHER]
    selected[_LAUNCHER] = named[-1] if named else "in_process"
    for topic in (word for word in words if word not in overrides and not word.startswith("-")):
        if topic not in (*selected, _EXPERIMENTS):
            raise ConfigError(unknown_key(topic, [*selected, _EXPERIMENTS], "help topic "))
        return _experiments(command) if topic == _EXPERIMENTS else _choices(command, topic, selected[topic])
    return _page(command, purpose, selected)


def _page(command: str, purpose: str, selected: dict[str, str]) -> str:
    lines = [
        f"python -m {command}: {purpose}",
        f"  python -m {command} GROUP=CHOICE ... KEY=VALUE ...                one run",
        f"  python -m {command} -m GROUP=CHOICE,CHOICE KEY=VALUE,VALUE ...    a sweep over all combinations",
        f"  python -m {command} -m +experiment=NAME                           a ready-made sweep: --help experiments",
        "",
        "Groups and their choices (* chosen here); --help GROUP describes each choice:",
    ]
    for group, choice in selected.items():
        names = ", ".join(f"*{name}" if name == choice else name for name in choices(group))
        first = f"  {group + '=':<16}"
        lines += textwrap.wrap(names, _WIDTH, initial_indent=first, subsequent_indent=" " * len(first))
    lines += ["", "Keys of the choices made, with their values; GROUP=CHOICE --help shows those of another choice:"]
    for group, choice in selected.items():
        lines += _option_lines(group, choice)
    lines += [_aligned(f"  {line}") for line in _key_lines(CONF / "base.yaml", CONF / f"{command}.yaml")]
    lines += [
        "",
        f"Example: python -m {command} -m eraser=control,leace model=linear,mlp",
        "Results go to runs/; a finished run is not computed again. Exit codes: 0 finished, 1 a run failed,",
        "2 a configuration that cannot be run, 130 interrupted.",
    ]
    return "\n".join(lines)


def _option_lines(group: str, choice: str) -> list[str]:
    return [_aligned(f"  {group.replace('/', '.')}.{line}") for line in _options(group, choice)]


def _aligned(line: str) -> str:
    """Return a line with its comment moved to the common column."""
    said, hash_, comment = line.partition(" # ")
    return f"{said:<{_COMMENTS}}{hash_}{comment}"


def _choices(command: str, group: str, selected: str) -> str:
    """Return a group's choices, one per line, and for the group of launchers also their keys."""
    sweep = "-m " if group == _LAUNCHER else ""
    lines = [f"python -m {command} {sweep}{group}=CHOICE, one of (* chosen here):"]
    lines += [f"  {'*' if name == selected else ' '} {name:<17} {_title(group, name)}" for name in choices(group)]
    for name in choices(group) if group == _LAUNCHER else []:
        lines += ["", f"Keys of {group}={name}:", *_option_lines(group, name)] if _options(group, name) else []
    return "\n".join(lines)


def _experiments(command: str) -> str:
    """Return the experiments of a command, one per line: those whose files name this command or none."""
    lines = [f"Ready-made sweeps; start one with python -m {command} -m +experiment=NAME:"]
    for name in choices("experiment"):
        named = re.findall(r"^# python -m (\w+) ", "\n".join(_lines(file_of("experiment", name))), re.MULTILINE)
        if not named or command in named:
            lines.append(f"  {name:<17} {_title('experiment', name)}")
    return "\n".join(lines)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _title(group: str, choice: str) -> str:
    """Return a YAML file's opening comment."""
    lines = _lines(file_of(group, choice))
    comments = [line[2:] for line in lines if line.startswith("# ") and not line.startswith("# @")]
    return comments[0] if comments else ""


def _options(group: str, choice: str) -> list[str]:
    """Return the keys of a choice and of the choices that it builds on, one per line."""
    path = file_of(group, choice)
    defaults = [line[4:] for line in _lines(path) if line.startswith("  - ") and "_self_" not in line]
    parents = [file_of(group, entry) for entry in defaults if "@" not in entry]
    placed = [entry.partition("@")[2].partition(": ") for entry in defaults if "@" in entry]
    whole = [f"{key}.*: keys of {group}={choice}; another: {group}@{group}.{key}=CHOICE" for key, _, choice in placed]
    return whole + _key_lines(*parents, path)


def _key_lines(*paths: Path) -> list[str]:
    """Return lines `key: value  # comment`; later files replace values, and keep earlier comments if they have none."""
    lines: dict[str, str] = {}
    for path in paths:
        groups: list[str] = []  # groups that contain the line, by indentation of two
        for line in _lines(path):
            key, colon, value = line.strip().partition(":")
            groups = groups[: (len(line) - len(line.lstrip())) // 2]
            if not colon or not key.isidentifier():
                continue
            full_key = ".".join([*groups, key])
            groups.append(key)  # in case it is a group
            if _HIDDEN & {*groups} or not value.strip():
                continue
            value, _, comment = value.partition(" # ")
            comment = comment or lines.get(full_key, "").partition(" # ")[2]
            lines[full_key] = f"{full_key}: {value.strip()}" + (f" # {comment.strip()}" if comment else "")
    return list(lines.values())
