"""Names that tables and figures show, and colours of erasers: display_names.yaml, of this project and of the user."""

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from conf.check import ConfigError, unknown_key, written
from conf.groups import folders

_EXAMPLES = {"names": "LEACE", "eraser_colours": "#0072B2"}  # of each section, for messages


def display() -> Mapping[str, Mapping[str, str]]:
    """Return `names` and `eraser_colours` of conf/display_names.yaml, with those of the user's folders.

    Raises:
        ConfigError: a file of the user's has other contents; says which.
        yaml.YAMLError: it is no YAML.
    """
    files = [path for folder in folders() if (path := folder / "display_names.yaml").is_file()]
    return _merged(tuple((path, path.stat().st_mtime_ns) for path in files))


@functools.cache
def _merged(files: Sequence[tuple[Path, int]]) -> Mapping[str, Mapping[str, str]]:
    """Return the entries of files, with their times of change; later files replace entries of earlier ones."""
    merged: dict[str, dict[str, str]] = {section: {} for section in _EXAMPLES}
    for path, _ in files:
        for section, entries in _read(path).items():
            merged[section] |= entries
    return merged


def _read(path: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the sections of a file; raise as `display` does."""
    try:
        with path.open(encoding="utf-8") as file:  # whose name errors of YAML tell
            content = yaml.safe_load(file)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is no text in UTF-8 ({error.reason}): save it again") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: has no sections: {_example('names')}, or delete the file")
    for section, entries in content.items():
        if section not in _EXAMPLES:
            raise ConfigError(f"{path}: {unknown_key(str(section), [*_EXAMPLES], 'section ')}")
        if not isinstance(entries, dict):
            raise ConfigError(f"{path}: {section} has no entries: {_example(section)}, or leave it out")
        for name, text in entries.items():
            _require_entry(f"{path}: {section}", section, name, text)
    return content


def _example(section: str) -> str:
    return f"write {section}: {{leace: '{_EXAMPLES[section]}'}}"


def _require_entry(where: str, section: str, name: Any, text: Any) -> None:
    """Refuse what is no text, and no colour where one is needed."""
    if not isinstance(name, str):
        raise ConfigError(f"{where}: the name {written(name)} is no text: put it in quotes, '{written(name)}'")
    if not isinstance(text, str) or not text.strip():
        quoted = isinstance(text, bool | int | float)
        remedy = f"put it in quotes, {name}: '{written(text)}'" if quoted else _example(section)
        raise ConfigError(f"{where}: {name} is {written(text) or 'empty'}, and must be a text: {remedy}")
    if section == "eraser_colours" and not re.fullmatch(r"#[0-9A-Fa-f]{6}", text):
        from matplotlib.colors import is_color_like

        if not is_color_like(text):
            raise ConfigError(f"{where}: {name} is {text}, and must be a colour of Matplotlib: '#0072B2', 'red'")
