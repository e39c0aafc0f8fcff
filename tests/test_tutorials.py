"""Tutorials say what happens: their code is run, page by page, and prints what stands beneath it."""

import contextlib
import io
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot

ROOT = Path(__file__).parent.parent
MODULE = re.compile(r'(?:PYTHONPATH="(\w+):\$PYTHONPATH" )?python -m (.*)')
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e-\d+)?")
PAGES = [page for page in sorted((ROOT / "docs/tutorials").glob("*.md")) if page.stem != "index"]


def ran_python(code: str, names: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, names)
    return printed.getvalue()


def ran_shell(code: str) -> str:
    """Run a block of shell; commands that are alone on a line in this process, which has imported what they need."""
    lines = code.replace("\\\n", " ").splitlines()
    if not any(MODULE.match(line) for line in lines):
        return in_bash(code)
    return "".join(in_process(*match.groups()) if (match := MODULE.match(line)) else in_bash(line) for line in lines)


def in_process(folder: str | None, command: str) -> str:
    module, *words = shlex.split(command)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        if folder:
            patch.syspath_prepend(Path(folder).absolute())
        patch.setattr(sys, "argv", [module, *words])
        patch.setenv("COLUMNS", "200")
        path = ROOT / module.replace(".", "/")
        package = path / "__main__.py"
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(package if package.exists() else path.with_suffix(".py")), run_name="__main__")
    assert not ended.value.code
    return printed.getvalue()


def in_bash(code: str) -> str:
    binary = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{binary}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    ended = subprocess.run(["bash", "-ec", code], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_stands_on_the_page_happens(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed, checked = "", 0
    for language, code in re.findall(r"^```(python|bash|text)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        if language == "text":
            assert set(code.splitlines()) <= set(printed.splitlines()), printed
            checked += 1
        else:
            printed = ran_python(code, names) if language == "python" else ran_shell(code)
    assert checked


def test_the_notebook_prints_what_is_stored_in_it_and_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = json.loads((ROOT / "docs/tutorials/codelength.ipynb").read_text())
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            printed = ran_python("".join(cell["source"]), names)
            stored = "".join(line for output in cell["outputs"] for line in output.get("text", []))
            assert NUMBER.sub("", printed) == NUMBER.sub("", stored)
            # the threads of the machine move the network that the notebook trains
            expected = [*map(float, NUMBER.findall(stored))]
            assert [*map(float, NUMBER.findall(printed))] == pytest.approx(expected, rel=0.1, abs=0.05), printed
    assert [len(ax.lines) for ax in names["figure"].axes] == [4, 4]  # before, after and the uniform code of each
    pyplot.close(names["figure"])
