"""Configuration: groups of YAML files, one folder per exchangeable part; their schema; the command line."""

from typing import Any

Options = dict[str, Any]  # options of a run (by section) or of one section: plain values, as in YAML and JSON
