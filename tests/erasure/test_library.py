"""`erasure` stands alone, as it is in the wheel: README's use of it runs where there is nothing else of the project."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
OTHERS = sorted(
    path.parent.name for path in ROOT.glob("*/*.py") if path.parent.name not in ("erasure", "docs", "tests")
)

ALONE = """
import importlib.util, pkgutil, sys
sys.path = [place for place in sys.path if place != {root!r}]  # where an editable installation has the whole project
import torch
x, z = torch.randn(200, 3, 2), torch.arange(200) % 3
{snippet}
for name, erased in (("leace", x_erased), ("qleace", x_erased_twice)):
    flat = [erased[z == j].flatten(1).double() for j in range(3)]
    assert max((part.mean(0) - flat[0].mean(0)).abs().max() for part in flat) < 1e-6, name
    gap = max((part.T.cov(correction=0) - flat[0].T.cov(correction=0)).abs().max() for part in flat)
    assert (gap < 1e-5) == (name == "qleace"), (name, gap)
import erasure
for module in pkgutil.walk_packages(erasure.__path__, "erasure."):
    importlib.import_module(module.name)
assert [name for name in {others!r} if importlib.util.find_spec(name)] == []
"""


def test_it_imports_nothing_else_of_the_project(tmp_path: Path) -> None:
    assert "conf" in OTHERS
    shutil.copytree(ROOT / "erasure", tmp_path / "erasure")
    python = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    snippet = next(block for block in python if "LeaceEraser.from_moments" in block)
    code = ALONE.format(root=str(ROOT), snippet=snippet, others=OTHERS)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
