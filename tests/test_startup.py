"""Imports of a command before it computes: nothing heavy where nothing is computed, so that it answers at once."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conf.commands import COMMANDS
from harness.command import Command
from mdl.__main__ import COMMAND as MDL
from sample_info.__main__ import COMMAND as SAMPLE_INFO

HEAVY = {
    "torch", "timm", "sklearn", "scipy", "torchvision", "datasets", "wandb", "matplotlib", "pandas", "sympy",
}  # fmt: skip
# what computes, and another command: a finished run has no use for them
COMPUTING = {
    "mdl.block_code",
    "mdl.kernel_code",
    "mdl.replay_code",
    "sample_info.scores_run",
    "sample_info.__main__",
}
TELL = """
import runpy, sys
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
finally:
    print("imported", *sys.modules)
"""
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}  # YAML files are in UTF-8 all the same
QUICK = ["model=linear", "train.max_epochs=2", "mdl.num_chunks=2", "seeds=[0]", "logger.mode=disabled"]


def heavy(command: str, *arguments: str) -> tuple[str, set[str]]:
    """Run a command in a fresh process; return what it prints and which of the above it has imported by its end."""
    code = TELL.replace("sys.argv[0]", repr(command))
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **ASCII},
        capture_output=True,
        text=True,
    )
    shown, _, modules = done.stdout.partition("imported ")
    return shown + done.stderr, (HEAVY | COMPUTING) & set(modules.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_imports_nothing_heavy(command: str) -> None:
    shown, imported = heavy(command, "--help")
    assert f"python -m {command}" in shown
    assert imported == set()


@pytest.mark.parametrize("words", [["mdl"], ["train"], ["sample_info"], ["mdl", "-m", "seeds=[0],[1]"]])
def test_a_wrong_key_is_told_before_anything_heavy_is_imported(words: list[str]) -> None:
    shown, imported = heavy(*words, "model.widht=64")
    assert "did you mean width?" in shown
    assert imported == set()


@pytest.mark.parametrize(
    ("launched", "options"),
    [(MDL, ["eraser=leace", *QUICK]), (SAMPLE_INFO, ["model.width=8", "sample_info.examples=20", QUICK[-1]])],
    ids=["mdl", "sample_info"],
)
def test_a_finished_run_imports_nothing_that_computes_or_draws(
    command: Callable, tmp_path: Path, launched: Command, options: list[str]
) -> None:
    run = [*options, f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache"]
    assert command(launched, *run).code == 0
    shown, imported = heavy(launched.name, *run)
    assert "has finished before" in shown
    assert f"tables: {tmp_path}/runs/{launched.name}" in shown
    assert imported == {"torch"}


def test_sample_info_imports_torch_alone_before_it_computes() -> None:
    shown, imported = heavy("sample_info", "sample_info.initial_weights=nowhere")
    assert "there is no nowhere" in shown
    assert imported == {"torch"}
