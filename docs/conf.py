"""The documentation site: `uv run --group docs sphinx-build -W docs build/site`."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

project = "erasure-mdl"
copyright = "its authors, MIT licence"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx-mathjax-offline",
]
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "erasure-mdl"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["tables.js"]
default_role = "literal"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 90
autodoc_member_order = "bysource"
napoleon_use_ivar = True


def repository() -> str:
    """Return the address of the repository: `DOCS_REPOSITORY`, or that of the remote `origin`; "" if there is none."""
    if address := os.environ.get("DOCS_REPOSITORY"):
        return address
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    try:
        address = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        return ""
    address = re.sub(r"^git@([^:]+):", r"https://\1/", address).removesuffix(".git")
    return address if re.fullmatch(r"https://[\w.-]+/[\w./-]+", address) else ""  # no folder, and no password in it


templates_path = ["_templates"]
html_context = {"repository": repository()}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/repository.html",
        "sidebar/scroll-end.html",
    ]
}


def escaped(_app: object, _kind: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Docstrings are plain text with `code` and formulas: markup by accident is escaped, pages become links."""
    lines[:] = [
        "".join(part if i % 2 else plain(part) for i, part in enumerate(parts))
        for parts in (re.split(r"(`[^`]*`)", line) for line in lines)
    ]


def plain(text: str) -> str:
    """Escape markup in text without code, and link pages of the documentation, as docs/orders.md, by their titles."""
    text = re.sub(r"([*|\\]|(?<=\w)_(?!\w))", r"\\\1", text)
    return re.sub(r"\bdocs/([\w/]+)\.md", r":doc:`/\1`", text)


class CommandHelp(SphinxDirective):
    """The output of its content, `python -m NAME --help [TOPIC]`, from the YAML files and the schema of the command."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        from conf.commands import command_named
        from conf.help import help_text

        name, _, *topic = self.content[0].removeprefix("python -m ").split()
        text = help_text(name, command_named(name).purpose, topic)
        return [nodes.literal_block(text, text, language="none")]


def setup(app: Any) -> None:
    app.add_directive("command-help", CommandHelp)
    app.connect("autodoc-process-docstring", escaped, priority=400)  # before the sections are read
