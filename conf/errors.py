"""What went wrong, in one line: the value, what is allowed, the remedy."""

import re
import sys
from collections.abc import Sequence

from hydra.errors import HydraException, MissingConfigException, OverrideParseException

from conf.groups import chosen, common_keys, groups, keys
from conf.schema import ConfigError, unknown_key


def explain(error: BaseException, verb: str, overrides: Sequence[str] | None = None) -> str:
    """One line about an error, Hydra's own retold in the terms of the command line."""
    overrides = sys.argv[1:] if overrides is None else overrides
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options is not None:
        group, _, choice = error.missing_cfg_file.rpartition("/")
        return unknown_key(choice, list(error.options), what=f"{group}=")
    if missing := re.search(r"Could not override '([^']+)'", text):
        return _no_such_key(missing.group(1), verb, overrides)
    if missing := re.search(r"interpolation: Missing mandatory value: (\S+)", text):
        return f"{missing.group(1)} is missing: set it with {missing.group(1)}=VALUE"
    if isinstance(error, OverrideParseException):
        return f"{error.override}: {text}"
    if isinstance(error, (ConfigError, ValueError, OSError)):
        return text
    if isinstance(error, HydraException):
        return re.sub(r" See https?://\S+.*", "", text)
    return f"{type(error).__name__}: {text}"


def _no_such_key(key: str, verb: str, overrides: Sequence[str]) -> str:
    group, _, name = key.partition(".")
    selected = chosen(verb, overrides)
    if not name or group not in selected:
        return unknown_key(group, [*groups(), *common_keys(verb)])
    for choice in selected[group]:
        own: object = keys(group, choice)
        for depth, part in enumerate(parts := name.split(".")):
            if not isinstance(own, dict):
                break
            if part not in own:
                options = [option for option in own if option not in ("name", "_target_")]
                place = "".join(f"{outer}." for outer in parts[:depth])
                return unknown_key(place + part, [place + option for option in options], f"{group}={choice} option ")
            own = own[part]
    return f"'{key}' cannot be set: it has no keys of its own"
