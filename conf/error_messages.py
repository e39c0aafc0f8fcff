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

from conf.check import ConfigError, unknown_key
from conf.commands import config_of
from conf.compose import left_out_options, override_value, unchecked
from conf.groups import choices, chosen, common_keys, keys, readable
from conf.schema import VARIABLES
from conf.terminal import printable

_ELSEWHERE = "choose others with runs_dir=FOLDER and cache_dir=FOLDER"
_REMEDIES = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), f"ask its owner for access, or {_ELSEWHERE}"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), f"free some space, or {_ELSEWHERE}"),
    errno.ENAMETOOLONG: "choose a shorter one: most file systems take 255 bytes for a name, and 4,096 for a path",
}
_EXPERIMENT = "experiment"  # the group that a command line adds with +
# Hydra's text around the reason why an override cannot be parsed: before it in version 1.4, after it in 1.3 and 1.4
_AROUND_REASON = r"^Error when parsing index: \d+, string: .* out of \[.*\]\. | See https?://\S+.*"
_NO_MEMORY = r"(can't allocate|out of) memory"  # torch's, on a CPU or GPU
_LONGEST_WORD = 400  # characters; longer words are truncated in the middle


def explain(error: BaseException, command: str, overrides: Sequence[str] | None = None) -> str:
    """Explain an error in one line, in terms of the command line; long words are truncated in the middle."""
    several = re.search(r"Ambiguous value for argument '([^=']+)=([^']*)'", str(error))
    if several:
        line = _several_values(several[1], several[2], command, sweeps=overrides is None)
    else:
        line = _explained(error, command, sys.argv[1:] if overrides is None else overrides)
    return printable(re.sub(rf"\S{{{_LONGEST_WORD},}}", lambda word: f"{word[0][:60]}…{word[0][-60:]}", line))


def _explained(error: BaseException, command: str, overrides: Sequence[str]) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options is not None:
        group, _, choice = error.missing_cfg_file.rpartition("/")
        return unknown_key(choice, list(error.options), what=f"{group}=")
    if missing := re.search(r"^Could not override '([^' ]*)", text):
        return _no_such_key(missing[1], command, overrides)
    if isinstance(error, (ConfigKeyError, ConfigAttributeError)) and error.full_key:  # in a sweep
        return _no_such_key(error.full_key, command, overrides)
    if "Config group override must be" in text:
        return _no_choice(overrides)
    if replaced := re.search(r"node `(\w+)` is not a container.*full_key: (\w+)", text):
        key, group = replaced.groups()
        return f"{group}.{key}: has options of its own: choose it with {group}@{group}.{key}=NAME"
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override, re.sub(_AROUND_REASON, "", text), overrides)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem_mark.name}, line {error.problem_mark.line + 1}: no valid YAML ({error.problem})"
    if isinstance(error, OSError) and error.filename is not None:
        remedy = _REMEDIES.get(error.errno or 0, "")
        remedy = remedy if command else remedy.removesuffix(f", or {_ELSEWHERE}")  # scripts without these options
        return f"{error.filename}: {error.strerror}" + (f"; {remedy}" if remedy else "")
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
        return text.removeprefix("Error merging override ") + (reason and f": {reason}")
    return f"{type(error).__name__}: {_in_keys(text, command, overrides)}"


def _in_keys(text: str, command: str, overrides: Sequence[str]) -> str:
    """Replace the library's arguments by keys of the command line: `size=None` becomes `dataset.size=null`."""
    selected = chosen(command, overrides) if command else {}
    sections = {
        key: section
        for section in ("dataset", "eraser")
        for choice in {*selected.get(section, [])} & {*choices(section)}
        for key in keys(section, choice)
        if key not in ("name", "_target_")
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


def _several_values(key: str, values: str, command: str, *, sweeps: bool) -> str:
    """Explain a comma in a key that takes one value, and how to start a sweep if the command has sweeps."""
    word, default = f"{key}={values}", OmegaConf.select(unchecked(command, []), key, throw_on_missing=False)
    if not values.startswith("[") and OmegaConf.is_list(default):
        return f'{word}: must be a list: write "{key}=[{values}]"'
    remedy = f"several values are a sweep: add -m, python -m {command} -m {shlex.quote(word)}"
    quoted = f"if it is one value, {shlex.quote(f'{key}={override_value(values)}')}"
    is_text = "." in key and (default is None or isinstance(default, str))
    return f"{word}: {remedy if sweeps else 'takes one value'}{f'; or, {quoted}' if is_text else ''}"


def _unreadable(override: str, reason: str, overrides: Sequence[str]) -> str:
    """Explain an override that Hydra cannot parse, and show the quotes that it needs."""
    key, equals, value = override.partition("=")
    if joined := _joined(override, overrides):
        return f"{override}: no blank after the comma: {joined}"
    if override.startswith("-"):
        return f"{override}: there is no such option (see --help)"
    if not equals and not override.startswith("~"):
        return f"{override}: nothing is set: write KEY=VALUE, e.g. model=mlp (see --help)"
    if not equals or value.startswith(("[", "{")):
        return (
            f"{override}: {reason}; texts with other characters than letters and digits need quotes: 'KEY=[\"TEXT\"]'"
        )
    texts = [value] if "(" in value else value.split(",")
    if "" in texts:
        return f"{override}: a value is missing beside a comma"
    quoted = shlex.quote(f"{key}={','.join(map(override_value, texts))}")
    return f"{override}: write it in two kinds of quotes: {quoted}"


def _no_choice(overrides: Sequence[str]) -> str:
    """Explain a group that is set to null or a number, which Hydra does not accept as the name of a choice.

    Hydra also treats a word that begins with "=" as a group, one without a name.
    """
    of_groups = []
    for word in overrides:
        group, equals, value = word.lstrip("+~").partition("=")
        if equals and not group:
            return f"{word}: nothing is named before the =: write KEY=VALUE, e.g. model=mlp (see --help)"
        if (known := choices(group)) and override_value(value) != value:
            return unknown_key(value, known, f"{group}=")
        of_groups += [word] if known else []
    return f"{' '.join(of_groups)}: a group takes the name of one of its choices (see --help)"


def _joined(refused: str, words: Sequence[str]) -> str:
    """Return the override that the shell split at blanks next to a comma, or an empty string."""
    joined = re.sub(r"\s*,\s*", ",", " ".join(words)).split(" ")
    part = refused.strip(",")
    return next((word for word in joined if word not in words and word.count("=") == 1 and part in word), "")


def _no_such_key(key: str, command: str, overrides: Sequence[str]) -> str:
    group, _, name = key.partition(".")
    if key.startswith("hydra.launcher."):
        named = [word.partition("=")[2] for word in overrides if word.startswith("hydra/launcher=")]
        launcher = named[-1] if named else "in_process"
        options = keys("hydra/launcher", launcher) if launcher in choices("hydra/launcher") else {}
        known = [option for option in options if option not in ("name", "_target_")]
        option = key.removeprefix("hydra.launcher.")
        return f"{unknown_key(option, known, f'hydra/launcher={launcher} option ')}; see --help hydra/launcher"
    if group == "hydra":
        return f"unknown key {key}: Hydra has no such option"
    selected = chosen(command, overrides)
    if key == _EXPERIMENT:
        written = next((word for word in overrides if word.startswith(f"{key}=")), f"{key}=NAME")
        return f"{written}: add +: +{written}"
    if not name and key not in ("name", "_target_"):
        places = [f"{one}.{key}" for one, choices in selected.items() if any(key in keys(one, c) for c in choices)]
        if places:
            return f"unknown key {key}: did you mean {' or '.join(places)}?"
    if not name or group not in selected:
        return unknown_key(group, [*selected, VARIABLES, *common_keys(command)])
    for choice in selected[group]:
        try:
            options: object = keys(group, choice) | left_out_options(group, choice)
        except ConfigError as error:  # a class that cannot be imported may have this option
            return str(error)
        for depth, part in enumerate(parts := name.split(".")):
            if not isinstance(options, dict):
                break
            if part not in options:
                known = [option for option in options if option not in ("name", "_target_")]
                prefix = "".join(f"{outer}." for outer in parts[:depth])
                return unknown_key(prefix + part, [prefix + option for option in known], f"{group}={choice} option ")
            options = options[part]
    return f"'{key}' cannot be set: it has no keys of its own"
