"""Runs killed by SIGKILL at named points end, launched again, with the numbers of an undisturbed run."""

import logging
from pathlib import Path

import pytest

from erasure.store.checked_files import read_json
from mdl.__main__ import COMMAND as MDL
from tests.processes import require_killed
from tests.train import killed_run

ARGUMENTS = [
    "model=linear", "eraser=control", "train=quick", "train.max_epochs=4", "mdl.num_chunks=2", "seeds=[0,1]",
    "train.stack=all", "train.checkpoint_every_s=0.001", "logger.mode=disabled",
]  # fmt: skip
NUMBERS = ("mdl", "curve", "final", "seeds", "run_id")


REPLAY = ["mdl.code=replay", "mdl.replay.batch=64", "mdl.replay.streams=15"]


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder where undisturbed runs are left for the tests that follow."""
    return tmp_path_factory.mktemp("undisturbed")


@pytest.mark.parametrize(
    ("point", "code"),
    [("mid_write", []), ("before_rename", []), ("after_rename", []), ("mid_epoch", []), ("mid_epoch", REPLAY)],
)
def test_a_killed_run_ends_with_the_numbers_of_an_undisturbed_one(
    point: str, code: list[str], shared_folder: Path, command, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    read = [word for word in ARGUMENTS if not (code and "max_epochs" in word)]  # replay has no epochs
    here = [*read, *code, f"cache_dir={tmp_path / 'cache'}"]
    runs = shared_folder / ("replay" if code else "blocks")
    assert command(MDL, *here, f"runs_dir={runs}").code == 0  # by the first of the tests
    require_killed(killed_run.run, point, [*here, f"runs_dir={tmp_path / 'killed'}"])
    (directory,) = (tmp_path / "killed").iterdir()
    assert not (directory / "result.json").exists()
    names = [path.name for path in directory.iterdir()]
    assert any(name.startswith("checkpoint-") for name in names)
    assert any(name.endswith(".tmp") for name in names) == (point != "mid_epoch")
    resumed = command(MDL, *here, "runs_dir=killed")
    assert resumed.code == 0, resumed.err
    assert f"continuing at {'label' if code else 'training size'}" in caplog.text
    undisturbed = read_json(runs / directory.name / "result.json")
    result = read_json(directory / "result.json")
    assert {name: result[name] for name in NUMBERS} == {name: undisturbed[name] for name in NUMBERS}
    curves = [run / "curves.csv" for run in (directory, runs / directory.name)]
    assert not code or not any(path.exists() for path in curves)  # nothing is trained to convergence
    assert code or curves[0].read_text() == curves[1].read_text()
    left = {"config.yaml", "result.json", "log.txt", "state.json"}
    assert not [name for name in (path.name for path in directory.iterdir()) if name.startswith((".", "checkpoint"))]
    assert left <= {path.name for path in directory.iterdir()}
