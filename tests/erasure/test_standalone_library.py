"""`erasure` stands alone, as it is in the wheel: without the rest of the project, and without what its extras bring."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import erasure

ROOT = Path(__file__).parents[2]
OTHERS = sorted(
    path.parent.name for path in ROOT.glob("*/*.py") if path.parent.name not in ("erasure", "docs", "tests")
)
OPTIONAL = ["PIL", "huggingface_hub", "pyarrow", "scipy", "sklearn", "torchvision"]
READERS = {
    "image_decoding": ("PIL", "images"),
    "datasets.image_folder": ("PIL", "images"),
    "datasets.hf": ("pyarrow", "hub"),
    "datasets.text": ("pyarrow", "hub"),
    "sklearn": ("sklearn", "sklearn"),
    **{f"datasets.{name}": ("torchvision", "torchvision") for name in ("cifar10", "joined_datasets", "mnist", "svhn")},
}

ALONE = """
import importlib, importlib.util, pathlib, pkgutil, sys
sys.path = [place for place in sys.path if not pathlib.Path(place, "harness").is_dir()]  # an editable installation's

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {optional!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, NotInstalled())
import torch
x, z = torch.randn(200, 3, 2), torch.arange(200) % 3
{snippet}
for name, erased in (("leace", x_erased), ("qleace", x_erased_twice)):
    flat = [erased[z == j].flatten(1).double() for j in range(3)]
    assert max((part.mean(0) - flat[0].mean(0)).abs().max() for part in flat) < 1e-6, name
    gap = max((part.T.cov(correction=0) - flat[0].T.cov(correction=0)).abs().max() for part in flat)
    assert (gap < 1e-5) == (name == "qleace"), (name, gap)
import erasure
messages = {{}}
for module in pkgutil.walk_packages(erasure.__path__, "erasure."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        messages[module.name] = str(error)
assert messages == {messages!r}, messages
from erasure.datasets.digits import Digits
try:
    Digits(name="digits", flip=False, validation_size=None, test_fraction=0.2, split_seed=0).load()
except ImportError as error:
    assert str(error) == "sklearn is not installed: pip install 'erasure-mdl[digits]'", error
else:
    raise AssertionError("scikit-learn is not there")
assert [name for name in {others!r} if importlib.util.find_spec(name)] == []
"""


def modules() -> Iterator[tuple[Path, ast.Module]]:
    return ((path, ast.parse(path.read_text())) for path in sorted((ROOT / "erasure").rglob("*.py")))


def test_it_needs_nothing_else_of_the_project_and_no_extra(tmp_path: Path) -> None:
    assert "conf" in OTHERS
    shutil.copytree(ROOT / "erasure", tmp_path / "erasure")
    python = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guide/library.md").read_text(), re.DOTALL)
    snippet = next(block for block in python if "LeaceEraser.from_moments" in block)
    messages = {
        f"erasure.{name}": f"{package} is not installed: pip install 'erasure-mdl[{extra}]'"
        for name, (package, extra) in READERS.items()
    }
    code = ALONE.format(snippet=snippet, others=OTHERS, optional=OPTIONAL, messages=messages)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_it_requires_what_it_imports() -> None:
    """Imports within `with needs(EXTRA):` aside, of which every extra has some."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {re.split(r"[<>=\[]", line)[0] for line in project["dependencies"]}
    imported, extras = set[str](), set[str]()
    for _, tree in modules():
        optional = set[ast.AST]()
        for node in ast.walk(tree):
            if isinstance(node, ast.With) and ast.unparse(node.items[0]).startswith("needs("):
                extras.add(ast.literal_eval(node.items[0].context_expr.args[0]))  # pyright: ignore[reportAttributeAccessIssue]
                optional |= {*node.body}
            if isinstance(node, ast.Import) and node not in optional:
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            if isinstance(node, ast.ImportFrom) and node not in optional:
                imported.add(str(node.module).partition(".")[0])
    assert imported - sys.stdlib_module_names - {"erasure"} == required
    assert extras == {*project["optional-dependencies"]}
    assert len(required) <= 5


def test_it_does_not_speak_of_the_command_line() -> None:
    """Keys of the configuration are written by conf/error_messages.py, which knows of them."""
    key = re.compile(r"\b(dataset|eraser)(\.[a-z_]+)?=[^=]|\bscripts\.|python -m|Hydra|YAML")
    mentions = [
        f"{path.name}: {node.value}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and key.search(node.value)
    ]
    assert mentions == []


def test_its_version_is_the_one_to_cite() -> None:
    assert f"\nversion: {erasure.__version__}\n" in (ROOT / "CITATION.cff").read_text()
