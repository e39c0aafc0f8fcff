"""The documentation site: `uv run --group docs sphinx-build -W docs build/site`."""

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

project = "erasure-mdl"
copyright = "its authors, MIT licence"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx-mathjax-offline"]
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "erasure-mdl"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["tables_and_figures.js"]
default_role = "literal"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_use_ivar = True


def escaped(_app: object, _kind: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Docstrings are plain text with `code` and formulas: markup by accident is escaped."""
    lines[:] = [
        "".join(part if i % 2 else re.sub(r"([*|\\]|(?<=\w)_(?!\w))", r"\\\1", part) for i, part in enumerate(parts))
        for parts in (re.split(r"(`[^`]*`)", line) for line in lines)
    ]


class CommandHelp(SphinxDirective):
    """The output of `python -m NAME --help [TOPIC]`, from the YAML files and the schema of the command."""

    required_arguments = 1
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        from conf.help import help_text
        from scripts.commands import command_named

        name, *topic = self.arguments
        text = help_text(name, command_named(name).purpose, topic)
        return [nodes.literal_block(text, text, language="none")]


def setup(app: Any) -> None:
    app.add_directive("command-help", CommandHelp)
    app.connect("autodoc-process-docstring", escaped, priority=400)  # before the sections are read
