"""The architecture: who imports whom, and what is installed."""

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

from conf.commands import COMMANDS, config_of, report_module, result_type
from conf.target_class import TARGETS, imported
from harness.result import Result

REPOSITORY = Path(__file__).parents[1]

# a package imports those of the layers before its own; mdl and sample_info do not import one another
LAYERS = (
    ("erasure",),
    ("conf", "models"),
    ("harness",),
    ("train", "hydra_plugins"),
    ("mdl", "sample_info"),
    ("scripts",),
)
COMMANDS_BENEATH = ("scripts.benchmarks.", "scripts.studies.")


def imports_of(text: str) -> Iterator[str]:
    """Yield the modules and the names in them that a file imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


FILES = subprocess.check_output(["git", "ls-files", "*.py"], cwd=REPOSITORY, text=True).splitlines()
TEXTS = {path: (REPOSITORY / path).read_text() for path in FILES if (REPOSITORY / path).exists()}
SOURCE = {path: text for path, text in TEXTS.items() if not path.startswith(("tests/", "docs/"))}
IMPORTS = {path: {*imports_of(text)} for path, text in SOURCE.items()}
PACKAGES = {path.split("/")[0] for path in SOURCE if "/" in path}


def test_a_package_imports_only_packages_of_the_layers_before_its_own() -> None:
    assert {package for layer in LAYERS for package in layer} == PACKAGES
    before: set[str] = set()
    for layer in LAYERS:
        for path, names in IMPORTS.items():
            if (package := path.split("/")[0]) in layer:
                others = {name.split(".")[0] for name in names} & PACKAGES - {package}
                assert others <= before, f"{path} imports {others - before}"
        before |= {*layer}


def test_what_is_imported_by_name_is_named_in_one_place() -> None:
    by_name = {
        path for path, names in IMPORTS.items() if names & {"importlib", "pkgutil", "conf.target_class.imported"}
    }
    assert by_name == {"conf/target_class.py", "conf/commands.py", "scripts/benchmarks/trak_and_ekfac.py"}
    for name in TARGETS.values():
        assert callable(imported(name))
    for name in COMMANDS:
        assert name in config_of(name).sections()
        assert issubclass(result_type(name), Result)
        assert callable(report_module(name).sections)


def test_no_command_imports_a_benchmark_or_a_study() -> None:
    for path, names in IMPORTS.items():
        if not path.startswith(("scripts/benchmarks/", "scripts/studies/")):
            assert not [name for name in names if f"{name}.".startswith(COMMANDS_BENEATH)], path


def test_only_erasure_is_installed() -> None:
    built = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert built["packages"] == ["erasure"]
