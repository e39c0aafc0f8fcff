"""The house in numbers and a picture: lines, files, functions, imports between packages, and start-up, beside its bars.

python -m scripts.studies.house                          # the table
python -m scripts.studies.house --out docs/house.png     # and the picture
python -m scripts.studies.house --startup                # and start-up, which takes a minute on a quiet machine
"""

import ast
import itertools
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from rich.markup import escape

from harness.style import figure_at
from harness.table import Table
from scripts.benchmarks import startup
from scripts.options import parser

# a package imports those that stand below it; conf, erasure and models nothing, mdl and sample_info not one another
FLOORS = (("conf", "erasure", "models"), ("harness",), ("train", "hydra_plugins"), ("mdl", "sample_info"), ("scripts",))
_UNTYPED = re.compile(r"\b(Mapping|dict)\[str, Any\]")
_STARTUP_BARS = {
    "python -m mdl model.widht=64": "≤ 0.4",
    "python -m mdl --help": "≤ 0.4",
    "a finished sweep of two": "≤ 1.3",
    "a finished python -m sample_info": "≤ 1.5",
}


class House:
    """A checkout's Python source; its tests and pages apart."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def source(self) -> Mapping[str, str]:
        """Text of every file that git knows, by path."""
        listed = subprocess.check_output(["git", "ls-files", "*.py"], cwd=self.root, text=True).splitlines()
        paths = [path for path in listed if not path.startswith(("tests/", "docs/")) and (self.root / path).exists()]
        return {path: (self.root / path).read_text() for path in paths}

    def files(self, package: str = "") -> list[int]:
        """Lines of every file, empty ones left out."""
        lines = [len(text.splitlines()) for path, text in self.source.items() if path.startswith(package)]
        return [count for count in lines if count]

    @cached_property
    def functions(self) -> Mapping[str, int]:
        """Lines of every function, by `path:line`."""
        found = {}
        for path, text in self.source.items():
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    found[f"{path}:{node.lineno}"] = (node.end_lineno or node.lineno) - node.lineno + 1
        return found

    @cached_property
    def imports(self) -> Mapping[str, frozenset[str]]:
        """The modules of this house that a file imports, dotted, wherever in the file it does."""
        found = {}
        for path, text in self.source.items():
            found[path] = frozenset(name for name in _imported(text) if name.split(".")[0] in self.packages)
        return found

    @property
    def packages(self) -> frozenset[str]:
        return frozenset(path.split("/")[0] for path in self.source if "/" in path)

    def neighbours(self, package: str) -> set[str]:
        """The other packages that a package imports."""
        files = [names for path, names in self.imports.items() if path.startswith(f"{package}/")]
        return {name.split(".")[0] for names in files for name in names} - {package}

    @property
    def wheel(self) -> list[str]:
        """The packages that are installed."""
        built = tomllib.loads((self.root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
        return built["packages"]

    def untyped(self) -> int:
        return sum(bool(_UNTYPED.search(line)) for text in self.source.values() for line in text.splitlines())


def _imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def measures(house: House) -> list[tuple[str, str, str]]:
    """What is measured, its value, and its bar."""
    files, functions = house.files(), [*house.functions.values()]
    ours = house.files("sample_info/")
    return [
        ("lines of source", f"{sum(files):,}", "≤ 14,500"),
        ("sample_info: files, lines", f"{len(ours)}, {sum(ours):,}", "≤ 24, ≤ 3,600"),
        ("lines of a file, 90th percentile", f"{np.percentile(files, 90):.0f}", "≤ 200"),
        ("lines of a function, 90th percentile", f"{np.percentile(functions, 90):.0f}", "≤ 20"),
        ("lines of a function, most", f"{max(functions)}", "≤ 50"),
        ("lines with Mapping[str, Any] or dict[str, Any]", f"{house.untyped()}", "≤ 60"),
        ("packages in the wheel", f"{len(house.wheel)}", "1"),
    ]


def draw(house: House, path: Path) -> None:
    """A box per package with its rooms and lines; an arrow per import that no longer way implies."""
    packages = [package for floor in FLOORS for package in floor if package in house.packages]
    floors = [[package for package in floor if package in packages] for floor in FLOORS]
    at = {
        package: (10 * (i + 1) / (len(floor) + 1), 1.5 * height)
        for height, floor in enumerate(floors)
        for i, package in enumerate(floor)
    }
    with figure_at(path, 9, 1.35 * len(floors)) as figure:
        ax = figure.subplots()
        ax.set(xlim=(0, 10), ylim=(-0.6, 1.5 * len(floors) - 0.9))
        ax.axis("off")
        boxes = {}
        for package, (x, y) in at.items():
            count = house.files(f"{package}/")
            rooms = sorted({path.split("/")[1] for path in house.source if re.match(f"{package}/[^/]+/", path)})
            text = f"{package}\n{sum(count):,} lines, {len(count)} files" + "\n" * bool(rooms) + " · ".join(rooms)
            around = {"boxstyle": "round,pad=0.5", "facecolor": "#eef3f8", "edgecolor": "#33526e"}
            boxes[package] = ax.text(x, y, text, ha="center", va="center", fontsize=8.5, bbox=around).get_bbox_patch()
        for above, below in arrows(house, packages):
            ends = {"patchA": boxes[above], "patchB": boxes[below]}
            ax.annotate("", at[below], at[above], arrowprops={"arrowstyle": "-|>", "color": "#33526e"} | ends)


def arrows(house: House, packages: Sequence[str]) -> set[tuple[str, str]]:
    """Imports (above, below) of which no third package tells."""
    direct = {package: house.neighbours(package) & set(packages) for package in packages}
    reach = {package: set(below) for package, below in direct.items()}
    for _, package in itertools.product(packages, packages):
        reach[package].update(*(reach[below] for below in reach[package] - {package}))
    return {
        (above, below)
        for above, others in direct.items()
        for below in others
        if not any(below in reach[other] for other in others - {below})
    }


def main(arguments: Sequence[str] | None = None) -> int:
    own = parser("studies.house", __doc__)
    own.add_argument("--root", type=Path, default=Path.cwd(), help="a git working tree")
    own.add_argument("--out", type=Path, help="the picture")
    own.add_argument("--startup", action="store_true", help="times the commands' start, too")
    options = own.parse_args(arguments)
    house = House(options.root)
    rows = measures(house)
    if options.startup:
        times = startup.multiples().items()
        rows += [
            (f"{name}, in import torch", f"{ratio:.2f}", _STARTUP_BARS.get(name, "")) for name, (_, ratio) in times
        ]
    Table("house", "", ("", "today", "bar"), [[*map(escape, row)] for row in rows]).show()
    if options.out:
        draw(house, options.out)
        print(f"figure: {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
