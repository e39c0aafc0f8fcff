"""One-line error messages with the value, the allowed values and the remedy."""

import errno
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import yaml
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from conf import flatten
from conf.check import HIDDEN, ConfigError, unknown_key
from conf.commands import config_of
from conf.compose import override_value, unchecked
from conf.groups import choices, chosen, common_keys, is_ours, keys, readable
from conf.schema import VARIABLES
from conf.terminal import printable

_REMEDIES = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "ask its owner for access"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space"),
}
_NO_MEMORY = r"(can't allocate|out of) memory"  # torch's, on a CPU or GPU
_LONGEST_WORD = 400  # characters; longer words are truncated in the middle


def explain(error: BaseException, command: str, overrides: Sequence[str] | None = None) -> str:
    """Explain an error in one line, in terms of the command line; long words are truncated in the middle."""
    line = _explained(error, command, sys.argv[1:] if overrides is None else overrides)
    return printable(re.sub(rf"\S{{{_LONGEST_WORD},}}", lambda word: f"{word[0][:60]}…{word[0][-60:]}", line))


def _explained(error: BaseException, command: str, overrides: Sequence[str]) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if several := re.search(r"Ambiguous value for argument '([^=']+)=([^']*)'", text):
        return _several_values(several[1], several[2], command)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options is not None:
        group, _, choice = error.missing_cfg_file.rpartition("/")
        return unknown_key(choice, list(error.options), what=f"{group}=")
    if missing := re.search(r"^Could not override '([^' ]*)", text):
        return _no_such_key(missing[1], command, overrides)
    if isinstance(error, (ConfigKeyError, ConfigAttributeError)) and error.full_key:  # in a sweep
        return _no_such_key(error.full_key, command, overrides)
    if "Config group override must be" in text:  # null or a number
        return f"{' '.join(overrides)}: a group takes the name of one of its choices (see --help)"
    if replaced := re.search(r"node `(\w+)` is not a container.*full_key: (\w+)", text):
        key, group = replaced.groups()
        return f"{group}.{key}: has options of its own: choose it with {group}@{group}.{key}=NAME"
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override, overrides)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem_mark.name}, line {error.problem_mark.line + 1}: no valid YAML ({error.problem})"
    if isinstance(error, OSError) and error.filename is not None:
        elsewhere = ", or choose others with runs_dir=FOLDER and cache_dir=FOLDER" if command else ""
        remedy = _REMEDIES.get(error.errno or 0)
        return f"{error.filename}: {error.strerror}" + (f"; {remedy}{elsewhere}" if remedy else "")
    if isinstance(error, OmegaConfBaseException) and error.full_key and error.msg:
        return f"{error.full_key}: {error.msg.splitlines()[0]}"
    if isinstance(error, ConfigError):
        return text
    if isinstance(error, (ValueError, OSError)):
        source = getattr(error, "source", None)  # of erasure.dataset.MissingDataError
        if source is not None and (fetch := _fetch_command(source)) is not None:
            return f"{getattr(error, 'problem', text)}: fetch it with {fetch}"
        return _in_keys(text.removeprefix(f"[Errno {getattr(error, 'errno', None)}] "), command, overrides)
    if isinstance(error, MemoryError) or re.search(_NO_MEMORY, text, re.IGNORECASE):
        asked = re.search(r"allocate ([\d.]+ \w+)", text)
        size = f" for {asked.group(1)} at once" if asked else ""
        return f"not enough memory{size}: choose a smaller model.width or model.depth, or fewer examples at a time"
    if isinstance(error, HydraException):
        reason = str(error.__cause__ or "").partition("\n")[0]
        return text.removeprefix("Error merging override ") + (f": {reason}" if reason else " (see --help)")
    return f"{type(error).__name__}: {_in_keys(text, command, overrides)}"


def _in_keys(text: str, command: str, overrides: Sequence[str]) -> str:
    """Replace the library's arguments by keys of the command line: `size=None` becomes `dataset.size=null`."""
    selected = chosen(command, overrides) if command else {}
    sections = {
        key: section
        for section in ("dataset", "eraser")
        for choice in {*selected.get(section, [])} & {*choices(section)}
        for key in keys(section, choice)
        if key not in HIDDEN
    }
    for section in config_of(command).sections() if command else ():
        for key, value in keys(section, "default").items():
            sections |= dict.fromkeys(value, f"{section}.{key}") if isinstance(value, dict) else {key: section}

    def in_section(match: re.Match[str]) -> str:
        key, none = match.groups()
        return f"{sections[key]}.{key}={'null' if none else ''}" if key in sections else match[0]

    return re.sub(r"(?<![^\s(])(\w+)=(None\b)?", in_section, text)


def _fetch_command(source: Any) -> str | None:
    """Return the command that fetches a dataset, or None if no choice names its class.

    The command uses the choice that needs the fewest changed values.
    """
    commands = []
    for choice, preset in readable("dataset").items():
        if preset.get("_target_") == f"{type(source).__module__}.{type(source).__qualname__}":
            values = {key: getattr(source, key) for key in preset if key != "_target_"}
            changed = {key: override_value(value) for key, value in values.items() if value != preset[key]}
            commands.append([f"dataset={choice}", *(f"dataset.{key}={value}" for key, value in changed.items())])
    return shlex.join(["python", "-m", "scripts.prepare_dataset", *min(commands, key=len)]) if commands else None


def _several_values(key: str, values: str, command: str) -> str:
    """Explain a comma in a key that takes one value: a list without brackets, or a sweep."""
    word = f"{key}={values}"
    if OmegaConf.is_list(OmegaConf.select(unchecked(command, []), key, throw_on_missing=False)):
        return f'{word}: must be a list: write "{key}=[{values}]"'
    sweep = f"python -m {command} -m {shlex.quote(word)}"
    return f"{word}: takes one value; several are a sweep, which needs -m: {sweep}"


def _unreadable(override: str, overrides: Sequence[str]) -> str:
    """Explain an override that Hydra cannot parse, and show the quotes that it needs."""
    key, equals, value = override.partition("=")
    if joined := _joined(override, overrides):
        return f"{override}: no blank after the comma: {joined}"
    if not equals:
        return f"{override}: nothing is set: write KEY=VALUE, e.g. model=mlp (see --help)"
    quoted = shlex.quote(f"{key}={override_value(value)}")
    return f"{override}: cannot be read; a text with such characters needs two kinds of quotes: {quoted}"


def _joined(refused: str, words: Sequence[str]) -> str:
    """Return the override that the shell split at blanks next to a comma, or an empty string."""
    joined = re.sub(r"\s*,\s*", ",", " ".join(words)).split(" ")
    part = refused.strip(",")
    return next((word for word in joined if word not in words and word.count("=") == 1 and part in word), "")


def _no_such_key(key: str, command: str, overrides: Sequence[str]) -> str:
    group, _, name = key.partition(".")
    if group == "hydra":
        return f"unknown key {key}: Hydra has no such option (see --help hydra/launcher)"
    if key == VARIABLES:
        return f"{key}=NAME: add +: +{key}=NAME"
    selected = chosen(command, overrides)
    if not name or group not in selected:
        holders = (one for one, named in selected.items() if any(key in keys(one, choice) for choice in named))
        if places := [f"{holder}.{key}" for holder in holders]:
            return f"unknown key {key}: did you mean {' or '.join(places)}?"
        return unknown_key(group, [*selected, VARIABLES, *common_keys(command)])
    for choice in selected[group]:
        options = [option for option in flatten(keys(group, choice)) if option.split(".")[-1] not in HIDDEN]
        if name not in options:
            added = "" if is_ours(group, choice) else f"; one that its file does not list is added by +{key}=VALUE"
            return unknown_key(name, options, f"{group}={choice} option ") + added
    return f"'{key}' cannot be set: it has no keys of its own"
