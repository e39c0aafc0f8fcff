"""Names in tables and figures, and colours of erasers, from this project's and the user's display_names.yaml."""

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NotRequired

import yaml

from conf.check import ConfigError, check, section_of
from conf.groups import folders

Sections = Mapping[str, Mapping[str, str]]
_SECTIONS = ("names", "eraser_colours")


def display() -> Sections:
    """Return `names` and `eraser_colours` of conf/display_names.yaml and of the files in the user's folders.

    Raises:
        ConfigError: a file has invalid contents; the message names them.
        yaml.YAMLError: a file is not valid YAML.
    """
    files = [path for folder in folders() if (path := folder / "display_names.yaml").is_file()]
    return _merged(tuple((path, path.stat().st_mtime_ns) for path in files))


@functools.cache
def _merged(files: Sequence[tuple[Path, int]]) -> Sections:
    """Return the merged entries of files, given with their modification times; later files take precedence."""
    merged: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for path, _ in files:
        for section, entries in _read(path).items():
            merged[section] |= entries
    return merged


def _read(path: Path) -> Sections:
    """Return the sections of a file; raises the errors of `display`."""
    try:
        with path.open(encoding="utf-8") as file:  # YAML errors contain the name of an open file
            content = yaml.safe_load(file)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is no text in UTF-8 ({error.reason}): save it again") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: has no sections: write names: {{leace: LEACE}}, or delete the file")
    kind = section_of(dict.fromkeys(_SECTIONS, NotRequired[dict[str, str]]))
    sections = check(f"{path}: ", {str(key): value for key, value in content.items()}, kind)
    for section, entries in sections.items():
        for name, text in entries.items():
            if not text.strip():
                raise ConfigError(f"{path}: {section}: {name} is empty: write a text, or leave it out")
    for name, colour in sections.get("eraser_colours", {}).items():
        if not re.fullmatch(r"#[0-9A-Fa-f]{6}", colour):
            from matplotlib.colors import is_color_like

            if not is_color_like(colour):
                raise ConfigError(f"{path}: eraser_colours: {name} is {colour}, and no colour of Matplotlib, as 'red'")
    return sections
