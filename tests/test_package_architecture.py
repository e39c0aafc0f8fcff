"""The architecture: who imports whom, what is installed, and that every module has a test."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

from conf.target_class import CONFIGS, READ_RESULT, TARGETS, imported

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
# modules that no test imports, names or is called after: they are tested through the commands that use them
TESTED_THROUGH_OTHERS = {
    "erasure.moment_accumulator",
    "erasure.optional_packages",
    "hydra_plugins.erasure_mdl.sweeper",
}


def _imported(text: str) -> Iterator[str]:
    """Yield the modules and the names in them that a file imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


FILES = subprocess.check_output(["git", "ls-files", "*.py"], cwd=REPOSITORY, text=True).splitlines()
TEXTS = {path: (REPOSITORY / path).read_text() for path in FILES if (REPOSITORY / path).exists()}
TESTS = {
    path: text for path, text in TEXTS.items() if path.startswith("tests/") and path != f"tests/{Path(__file__).name}"
}
SOURCE = {path: text for path, text in TEXTS.items() if not path.startswith(("tests/", "docs/"))}
IMPORTS = {path: {*_imported(text)} for path, text in SOURCE.items()}
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
    assert by_name == {"conf/target_class.py", "conf/command.py", "scripts/benchmarks/trak_and_ekfac.py"}
    for name in (*TARGETS.values(), *CONFIGS.values(), READ_RESULT):
        assert callable(imported(name))


def test_no_command_imports_a_benchmark_or_a_study() -> None:
    for path, names in IMPORTS.items():
        if not path.startswith(("scripts/benchmarks/", "scripts/studies/")):
            assert not [name for name in names if f"{name}.".startswith(COMMANDS_BENEATH)], path


def test_only_erasure_is_installed() -> None:
    built = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert built["packages"] == ["erasure"]


def test_every_module_has_a_test_that_imports_it_names_it_or_is_called_after_it() -> None:
    text = "\n".join([*TESTS.values(), (REPOSITORY / ".ci/run").read_text()])
    known = {name for test in TESTS.values() for name in _imported(test)}
    called = {Path(path).stem for path in TESTS}
    words = set(re.findall(r"\w+(?:\.\w+)*", text))
    named = {".".join(word.split(".")[:end]) for word in words for end in range(1, word.count(".") + 2)}
    untested = set()
    for path in map(Path, SOURCE):
        module = ".".join(path.with_suffix("").parts)
        tested = module in known or f"test_{path.stem}" in called or module in named
        if not (tested or path.stem.startswith("__")):
            untested.add(module)
    assert untested == TESTED_THROUGH_OTHERS
