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
        ConfigError: a file has other sections than these two, or their entries are not texts.
        yaml.YAMLError: a file is not valid YAML.
    """
    return _merged(tuple(path for folder in folders() if (path := folder / "display_names.yaml").is_file()))


@functools.cache
def _merged(files: Sequence[Path]) -> Sections:
    """Return the merged entries of files; later files take precedence."""
    merged: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    kind = section_of(dict.fromkeys(_SECTIONS, NotRequired[dict[str, str]]))
    for path in files:
        with path.open("rb") as file:  # YAML errors contain the name of an open file
            content = yaml.safe_load(file)
        if not isinstance(content, dict):
            raise ConfigError(f"{path}: has no sections: write names: {{leace: LEACE}}, or delete the file")
        for section, entries in check(f"{path}: ", {str(key): value for key, value in content.items()}, kind).items():
            merged[section] |= entries
        for name, colour in merged["eraser_colours"].items():
            if not re.fullmatch(r"#[0-9A-Fa-f]{6}", colour):
                from matplotlib.colors import is_color_like  # takes a tenth of a second

                if not is_color_like(colour):
                    raise ConfigError(f"{path}: eraser_colours: {name} is {colour}, no colour of Matplotlib, as 'red'")
    return merged
