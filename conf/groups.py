"""Groups of YAML files, their choices, and the keys of each choice, read without composing a configuration."""

import contextlib
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from conf import Options
from conf.commands import COMMANDS

CONF = Path(__file__).parent


def without_config_dir(words: Sequence[str]) -> tuple[list[str], list[Path]]:
    """Return the words of a command line without --config-dir, and the folders that it names."""
    others, folders, left = [], [], iter(words)
    for word in left:
        flag, equals, value = word.partition("=")
        if flag in ("--config-dir", "-cd"):
            folders.append(Path(value if equals else next(left, "")).absolute())
        else:
            others.append(word)
    return others, folders


def user_folders() -> list[Path]:
    """Return the user's folders of YAML files, which a command of this project was started with.

    The command line of another program, which imports this project as a library, is not ours to read.
    """
    program = Path(sys.argv[0]).absolute()
    package = program.relative_to(CONF.parent).parts[0] if CONF.parent in program.parents else sys.argv[0]
    return without_config_dir(sys.argv[1:])[1] if package in (*COMMANDS, "scripts") else []


def folders() -> list[Path]:
    """Return the folders of YAML files: first this project's, then the user's."""
    return [CONF, *user_folders()]


def search_path() -> list[str]:
    """Return the override that makes Hydra find the user's choices without --config-dir; empty if there are none."""
    places = ",".join(f"'file://{folder}'" for folder in user_folders())
    return [f"hydra.searchpath=[{places}]"] if places else []


def choices(group: str) -> list[str]:
    """Return the names that `group=` accepts."""
    paths = (path for folder in folders() for path in (folder / group).glob("*.yaml"))
    return sorted({path.stem for path in paths if path.is_file()})


def file_of(group: str, choice: str) -> Path:
    """Return a choice's file; this project's files take precedence over the user's."""
    files = (path for folder in folders() if (path := folder / group / f"{choice}.yaml").exists())
    return next(files, CONF / group / f"{choice}.yaml")


def is_ours(group: str, choice: str) -> bool:
    """Return whether a choice is this project's, not the user's."""
    return file_of(group, choice).is_relative_to(CONF)


def groups() -> list[str]:
    """Return the groups from which a run is composed, and the group of experiments."""
    return sorted(path.name for path in CONF.iterdir() if path.is_dir() and choices(path.name))


def keys(group: str, choice: str) -> Options:
    """Return the keys and default values of a choice and of the choices that it builds on."""
    content = OmegaConf.to_container(OmegaConf.load(file_of(group, choice)))
    assert isinstance(content, dict)
    merged: Options = {}
    for entry in content.pop("defaults", []):
        if "@_global_" in str(entry):  # variables are not keys of the choice
            continue
        if isinstance(entry, dict):  # {"/dataset@parts.mnist": "mnist"}: the keys of dataset=mnist below parts.mnist
            for where, parent in entry.items():
                other, _, key = where.removeprefix("/").partition("@")
                _section_at(merged, key).update(keys(other, parent))
        elif entry != "_self_":
            merged |= keys(group, entry)
    return merged | {str(key): value for key, value in content.items()}


preset = functools.cache(keys)  # for callers that ask often and do not change the result


def readable(group: str) -> dict[str, Options]:
    """Return the choices of a group with their keys; skip files of the user that are not valid choices."""
    found = {}
    for choice in choices(group):
        with contextlib.suppress(yaml.YAMLError, OmegaConfBaseException, ValueError, OSError, AssertionError):
            found[choice] = preset(group, choice)
    return found


def _section_at(nested: Options, key: str) -> Options:
    """Return the dictionary at a dotted key, created if it is missing."""
    for part in key.split("."):
        nested = nested.setdefault(part, {})
    return nested


def common_keys(command: str) -> list[str]:
    """Return a command's top-level keys that are not groups."""
    both = [OmegaConf.load(CONF / f"{name}.yaml") for name in ("base", command)]
    return list(dict.fromkeys(str(key) for content in both for key in content if key not in ("defaults", "hydra")))


def chosen(command: str, overrides: Sequence[str]) -> dict[str, list[str]]:
    """Return each group's choices on a command line: several in a sweep, the default if none is named."""
    entries = [e for name in ("base", command) for e in OmegaConf.load(CONF / f"{name}.yaml").defaults]
    pairs = [(str(key).removeprefix("override "), e[key]) for e in entries if not isinstance(e, str) for key in e]
    selected = {group: [choice] for group, choice in pairs if "/" not in group}
    for override in overrides:
        group, _, value = override.lstrip("+").partition("=")
        if group in selected:
            selected[group] = value.split(",")
    return selected
