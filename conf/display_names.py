"""Names that tables and figures show, and colours of erasers: display_names.yaml, of this project and of the user."""

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
    """Return `names` and `eraser_colours` of conf/display_names.yaml, with those of the user's folders.

    Raises:
        ConfigError: a file of the user's has other contents; says which.
        yaml.YAMLError: it is no YAML.
    """
    files = [path for folder in folders() if (path := folder / "display_names.yaml").is_file()]
    return _merged(tuple((path, path.stat().st_mtime_ns) for path in files))


@functools.cache
def _merged(files: Sequence[tuple[Path, int]]) -> Sections:
    """Return the entries of files, with their times of change; later files replace entries of earlier ones."""
    merged: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for path, _ in files:
        for section, entries in _read(path).items():
            merged[section] |= entries
    return merged


def _read(path: Path) -> Sections:
    """Return the sections of a file; raise as `display` does."""
    try:
        with path.open(encoding="utf-8") as file:  # whose name errors of YAML tell
            content = yaml.safe_load(file)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is no text in UTF-8 ({error.reason}): save it again") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: has no sections: write names: {{leace: LEACE}}, or delete the file")
    kind = section_of(dict.fromkeys(_SECTIONS, NotRequired[dict[str, str]]))
    sections = check(f"{path}: ", {str(key): value for key, value in content.items()}, kind)
    for name, colour in sections.get("eraser_colours", {}).items():
        if not re.fullmatch(r"#[0-9A-Fa-f]{6}", colour):
            from matplotlib.colors import is_color_like

            if not is_color_like(colour):
                raise ConfigError(f"{path}: eraser_colours: {name} is {colour}, and no colour of Matplotlib, as 'red'")
    return sections
