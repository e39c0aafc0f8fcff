"""Commands that compute a run again, or go on with it."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from conf.compose import composed
from scripts.sweep.status import Found
from scripts.sweep.wanted import verb_named

_NAMED = ("dataset", "eraser", "model")


def command(run: Found, runs_dir: Path) -> list[str]:
    """What to type for this run: python -m VERB OVERRIDES, with its result in `runs_dir`.

    Raises:
        ValueError: no sweep says which overrides make it, and its configuration cannot be read.
    """
    verb = run.directory.name.partition("-")[0]
    overrides = run.overrides if run.overrides is not None else _overrides(verb, run.directory)
    overrides = [override for override in overrides if not override.startswith("runs_dir=")]
    return ["python", "-m", verb, *overrides, *([] if str(runs_dir) == "runs" else [f"runs_dir={runs_dir}"])]


def launch(commands: Sequence[Sequence[str]]) -> int:
    """Run them one after another; 0 if all ended with 0."""
    code = 0
    for words in commands:
        print(f"\n$ {shlex.join(words)}", flush=True)
        code = subprocess.run([sys.executable, *words[1:]], check=False).returncode or code
    return code


def _overrides(verb: str, directory: Path) -> list[str]:
    """Overrides that give a run's own configuration: its choices, and values in which it differs from them."""
    try:
        config = yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8"))
        choices = [f"{part}={config[part]['name']}" for part in _NAMED]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ValueError(f"{directory}: its config.yaml cannot be read ({error})") from error
    default = composed(verb, choices, verb_named(verb).sections)
    return [*choices, *(f"{key}={_value(value)}" for key, value in _differences(default, config))]


def _differences(default: Mapping[str, Any], config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and isinstance(default.get(key), Mapping):
            yield from _differences(default[key], value, f"{prefix}{key}.")
        elif _plain(value) != _plain(default.get(key)):
            yield f"{prefix}{key}", value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _value(value: Any) -> str:
    """A value in the grammar of Hydra's command line."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(_value(entry) for entry in value)}]"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return json.dumps(value)  # null, true, numbers
