"""Erasers and models in a repository of the user's own, which also has a train.py, a models/ and a conf/."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ERASER

CHECKOUT = Path(__file__).parents[2]
TINY = ["model=linear", "train=quick", "train.max_epochs=1", "mdl.num_chunks=2", "seeds=[0]", "logger.mode=disabled"]


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    for name, text in {
        "train.py": "raise RuntimeError('their train.py was imported')",
        "models/__init__.py": "raise RuntimeError('their models/ was imported')",
        "mine.py": ERASER.format(name="Mine", result="x * 0 + self.mean"),
        "conf/eraser/mine.yaml": "# to the mean\nname: mine\n_target_: mine.Mine\n",
        "conf/model/theirs.yaml": "# of models/\nname: theirs\n_target_: models.theirs.Theirs\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def started(theirs: Path, at: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{theirs}{os.pathsep}{CHECKOUT}"}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=at, env=environment, capture_output=True, text=True, check=False
    )


def test_an_eraser_of_theirs_is_listed_run_and_found(theirs: Path) -> None:
    mine = [f"--config-dir={theirs}/conf", "eraser=mine"]
    shown = started(theirs, CHECKOUT, "mdl", *mine, "--help", "eraser")
    assert "* mine              to the mean" in shown.stdout, shown.stderr
    run = [*mine, *TINY, f"runs_dir={theirs}/runs", f"cache_dir={theirs}/cache"]
    outcome = started(theirs, theirs, "mdl", *run)  # in the middle of what is theirs
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.startswith("mdl-digits-mine-linear-")
    (result,) = theirs.glob("runs/mdl-*/result.json")
    result.unlink()
    words = ["scripts.manage_sweep", "status", f"{theirs}/runs", "--retry-failed", "--", f"--config-dir={theirs}/conf"]
    left = started(theirs, CHECKOUT, *words)  # of which only the run's directory tells
    assert f"python -m mdl --config-dir={theirs}/conf dataset=digits eraser=mine" in left.stdout, left.stderr


def test_a_package_of_theirs_that_ours_hides_is_named(theirs: Path) -> None:
    refused = started(theirs, CHECKOUT, "mdl", "--config-dir", f"{theirs}/conf", "model=theirs", "eraser=control")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1] == (
        "_target_=models.theirs.Theirs: cannot be imported (No module named 'models.theirs'; "
        f"models is {CHECKOUT}/models: a package of yours needs another name)"
    )
