"""Configuration: groups of YAML files, one folder per exchangeable part; their schema; the command line."""

from collections.abc import Mapping
from typing import Any

Options = dict[str, Any]  # options of a run (by section) or of one section: plain values, as in YAML and JSON


def flatten(value: Any, prefix: str = "") -> Options:
    """Return nested options by their dotted names, e.g. {"train.published.backtrack": True}."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    inner = (flatten(each, f"{prefix}.{key}" if prefix else str(key)) for key, each in value.items())
    return dict(item for flat in inner for item in flat.items())
