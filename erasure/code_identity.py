"""Identity of the code of a class: its declared version, or a digest of its source and of its imports."""

import ast
import functools
import hashlib
import importlib.util
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

_INSTALLED = {"site-packages", "dist-packages"}  # folders of installed packages


def code_identity(defined: type) -> dict[str, int | str]:
    """Return the qualified name of a class and the identity of its code.

    A class with `version: ClassVar[int]` in its body is identified by that number, which must be raised when its
    results change. For other classes, the module and all modules that it imports, directly or indirectly, are digested
    as syntax trees without comments, formatting and docstrings. The standard library and installed packages are
    excluded.

    Returns:
        {"package.module.Class": version}, or {"package.module.Class": digest, "module that it imports": digest, ...}.

    Raises:
        ValueError: a class with neither a version nor a source file.
    """
    name = f"{defined.__module__}.{defined.__qualname__}"
    if "version" in vars(defined):
        return {name: vars(defined)["version"]}
    module = sys.modules[defined.__module__]
    if getattr(module, "__file__", None) is None:
        raise ValueError(f"{name} has no source file that identifies it: give it a `version: ClassVar[int]`")
    digests = dict(_digests(module))
    return {name: digests.pop(module.__name__), **digests}


@functools.cache  # keyed by module object, because the source is that of the imported module
def _digests(module: ModuleType) -> dict[str, str]:
    """Return digests of the source of a module and of every module it imports, directly or indirectly, by name."""
    assert module.__file__ is not None
    digests: dict[str, str] = {}
    left = [(module.__name__, Path(module.__file__), module.__package__ or "")]
    while left:
        name, path, package = left.pop()
        if name not in digests:
            tree = ast.parse(path.read_bytes()) if path.suffix == ".py" else None
            content = path.read_bytes() if tree is None else _normalised(tree)
            digests[name] = hashlib.sha256(content).hexdigest()[:16]
            left += [] if tree is None else filter(None, map(_project_module, _imported(tree, package)))
    return dict(sorted(digests.items()))


def _normalised(tree: ast.Module) -> bytes:
    """Return the source of a syntax tree, without docstrings."""
    for node in ast.walk(tree):
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documented and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.unparse(tree).encode()


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the possible module names of all import statements."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:  # `import a.b` also makes the attributes of `a` available
                yield from itertools.accumulate(alias.name.split("."), "{}.{}".format)
        elif isinstance(node, ast.ImportFrom):
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from (source, *(f"{source}.{alias.name}" for alias in node.names))


def _project_module(name: str) -> tuple[str, Path, str] | None:
    """Return the name, file and package of a module; None if it is missing, installed or not a module."""
    if name.partition(".")[0] in sys.stdlib_module_names:
        return None
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):  # an optional import, a module's attribute, or no `__spec__`
        return None
    if spec is None or spec.origin is None or not spec.has_location or _INSTALLED & set(Path(spec.origin).parts):
        return None
    return name, Path(spec.origin), name if spec.submodule_search_locations is not None else spec.parent or ""
