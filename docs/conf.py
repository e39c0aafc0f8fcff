"""The documentation site: `uv run --group docs sphinx-build -W docs build/site`."""

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

project = "erasure-mdl"
copyright = "its authors, MIT licence"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx-mathjax-offline"]
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "erasure-mdl"
default_role = "literal"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_use_ivar = True


def escaped(_app: object, _kind: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Docstrings are plain text with `code` and formulas: what is markup by accident is none."""
    lines[:] = [
        "".join(part if i % 2 else re.sub(r"([*|\\]|(?<=\w)_(?!\w))", r"\\\1", part) for i, part in enumerate(parts))
        for parts in (re.split(r"(`[^`]*`)", line) for line in lines)
    ]


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", escaped, priority=400)  # before the sections are read
