"""The test files that are nearest to a module: of its name, then by how many imports lie between."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FARTHEST = 3  # imports


def nearest_tests(root: Path, module: str) -> list[str]:
    """Paths below `root` of the tests that reach the module (a path below `root`, too), nearest and narrowest first."""
    importers = _importers(root)
    breadth = Counter(name for names in importers.values() for name in names)
    distance = {name: 0 for name in importers if _named_after(name, module)}
    reached = {module}
    for step in range(1, FARTHEST + 1):
        reached = {name for each in reached for name in importers.get(each, ())}
        for name in reached:
            distance.setdefault(name, step)
    tests = [name for name in distance if Path(name).name.startswith("test_")]
    return sorted(tests, key=lambda name: (distance[name], Path(name).parts[1] != Path(module).parts[0], breadth[name]))


def _named_after(name: str, module: str) -> bool:
    test, tested = Path(name), Path(module)
    return test.parts[:2] == ("tests", tested.parts[0]) and test.stem == f"test_{tested.stem}"


@cache
def _importers(root: Path) -> dict[str, list[str]]:
    """For every Python file below `root`, those that import it."""
    found: dict[str, list[str]] = {}
    files = [
        path for path in root.rglob("*.py") if not any(part.startswith(".") for part in path.relative_to(root).parts)
    ]
    for path in sorted(files):
        name = str(path.relative_to(root))
        found.setdefault(name, [])
        for imported in set(_imported(root, path)):
            found.setdefault(imported, []).append(name)
    return found


def _imported(root: Path, path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(root, alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield from _files(root, f"{node.module}.{alias.name}") or _defined(root, node.module, alias.name)


def _files(root: Path, dotted: str) -> list[str]:
    name = dotted.replace(".", "/")
    return [each for each in (f"{name}.py", f"{name}/__init__.py") if (root / each).is_file()]


def _defined(root: Path, package: str, wanted: str) -> list[str]:
    """The file that a name comes from: what a package only passes on is not the package's own."""
    files = _files(root, package)
    if files and files[0].endswith("/__init__.py"):
        for node in ast.walk(ast.parse((root / files[0]).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and wanted in {alias.name for alias in node.names}:
                return _files(root, node.module)
    return files
