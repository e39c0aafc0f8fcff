"""Erasers and networks in a repository of the user's own, which also has a train.py, a models/ and a conf/."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conf.compose import composed
from conf.groups import choices
from mdl.__main__ import COMMAND as MDL
from mdl.settings import MdlConfig
from tests.conftest import ERASER

CHECKOUT = Path(__file__).parents[2]
TINY = [
    "model=net",
    "+model.act=ReLU",
    "train=quick",
    "train.max_epochs=1",
    "mdl.num_chunks=2",
    "seeds=[0]",
    "logger.mode=disabled",
]

NETWORK = """
from torch import nn

def net(input_shape: list[int], num_classes: int, width: int, act: str = "GELU") -> nn.Module:
    inputs = input_shape[1] ** 2
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), getattr(nn, act)(), nn.Linear(width, num_classes))
"""


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    for name, text in {
        "train.py": "raise RuntimeError('their train.py was imported')",
        "conf/__init__.py": "raise RuntimeError('their conf/ was imported')",
        "models/__init__.py": "raise RuntimeError('their models/ was imported')",
        "mine.py": ERASER.format(name="Mine", result="x * 0 + self.mean"),
        "mynets.py": NETWORK,
        "conf/model/net.yaml": "# of mynets\nname: net\n_target_: mynets.net\nwidth: 4\n",
        "conf/eraser/mine.yaml": "# to the mean\nname: mine\n_target_: mine.Mine\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def started(theirs: Path, at: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{theirs}{os.pathsep}{CHECKOUT}"}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=at, env=environment, capture_output=True, text=True, check=False
    )


def test_an_eraser_and_a_network_of_theirs_are_run_and_found(theirs: Path) -> None:
    mine = [f"--config-dir={theirs}/conf", "eraser=mine"]
    run = [*mine, *TINY, f"runs_dir={theirs}/runs", f"cache_dir={theirs}/cache"]
    outcome = started(theirs, theirs, "mdl", *run)  # in the middle of what is theirs
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.startswith("mdl-digits-mine-net-")
    assert "mynets.net: without μP, one train.lr need not suit all widths" in outcome.stderr
    (result,) = theirs.glob("runs/mdl-*/result.json")
    assert json.loads(result.read_text())["config"]["model"]["act"] == "ReLU"  # which the YAML file leaves out
    status = started(theirs, CHECKOUT, "scripts.manage_sweep", "status", f"{theirs}/runs", "--", *run)
    assert "1 run: 1 finished" in status.stdout, status.stderr


def test_a_mistake_in_their_network_keeps_its_traceback(theirs: Path) -> None:
    (theirs / "mynets.py").write_text(
        NETWORK.replace("    inputs =", "    if width == 4:\n        raise ValueError('width too small')\n    inputs =")
    )
    run = [f"--config-dir={theirs}/conf", *TINY, f"runs_dir={theirs}/runs", f"cache_dir={theirs}/cache"]
    outcome = started(theirs, theirs, "mdl", "eraser=control", *run)
    (log,) = theirs.glob("runs/mdl-*/log.txt")
    assert outcome.returncode == 1
    assert f"width too small; in mynets.net(width=4, act=ReLU); traceback in {log}\n" in outcome.stderr
    assert "raise ValueError('width too small')" in log.read_text()


def test_an_option_that_a_yaml_file_of_theirs_does_not_list_is_added_with_a_plus(
    command, written, tmp_path: Path
) -> None:
    written("def Mine(input_shape: list[int], num_classes: int, *, width: int = 32): ...")
    (tmp_path / "theirs/model").mkdir(parents=True)
    (tmp_path / "theirs/model/net.yaml").write_text("name: net\n_target_: mine.Mine\n")
    refused = command(MDL, "--config-dir=theirs", "model=net", "model.width=64")
    assert refused.code == 2
    assert refused.err.endswith("; one that its file does not list is added by +model.width=VALUE\n")
    assert composed("mdl", ["model=net", "+model.width=64"], MdlConfig).model["width"] == 64
    assert "width" not in composed("mdl", ["model=net"], MdlConfig).model
    refused = command(MDL, "--config-dir=theirs", "model=net", "+model.widht=64")
    assert (refused.code, refused.err) == (2, "unknown key model.widht: did you mean width? choose from width\n")


def test_a_class_of_theirs_that_cannot_be_imported_is_named(command, tmp_path: Path) -> None:
    (tmp_path / "theirs/model").mkdir(parents=True)
    (tmp_path / "theirs/model/net.yaml").write_text("name: net\n_target_: my_nets.Net\n")
    refused = command(MDL, "--config-dir=theirs", "model=net")
    reason = "cannot be imported (No module named 'my_nets'; add the folder that holds it to PYTHONPATH)"
    assert (refused.code, refused.err) == (2, f"_target_=my_nets.Net: {reason}\n")


def test_the_processes_of_a_sweep_import_nothing_of_theirs(theirs: Path) -> None:
    (theirs / "conf/__init__.py").unlink()
    words = [f"--config-dir={theirs}/conf", "eraser=control", *TINY, "hydra/launcher=local"]
    outcome = started(theirs, theirs, "mdl", "-m", *words)
    assert outcome.stdout.splitlines()[-1] == "1 of 1 runs finished", outcome.stderr


@pytest.mark.parametrize(
    ("hiding", "package", "imported"),
    [
        ("conf/__init__.py", "conf", "train import fit"),
        ("train.py", "train", "sample_info import unique_information"),
    ],
)
def test_a_package_of_ours_that_theirs_hides_is_named(theirs: Path, hiding: str, package: str, imported: str) -> None:
    for other in {"conf/__init__.py", "models/__init__.py", "train.py"} - {hiding}:
        (theirs / other).unlink()
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-c", f"from {imported}"]
    refused = subprocess.run(command, cwd=theirs, env=environment, capture_output=True, text=True, check=False)
    assert refused.stderr.splitlines()[-1] == (  # `erasure.checkout`
        f"ImportError: {theirs}/{hiding} hides the package {package} of {CHECKOUT}: rename it, or start Python where "
        "it is not imported"
    )


@pytest.mark.parametrize(
    ("program", "read"), [("mdl", True), (str(CHECKOUT / "mdl/__main__.py"), True), ("train.py", False)]
)
def test_the_command_line_of_another_program_names_no_folder_of_ours(
    theirs: Path, monkeypatch, program: str, read: bool
) -> None:
    """Their Hydra program may have --config-dir as well, and call us as a library."""
    monkeypatch.chdir(theirs)
    monkeypatch.setattr(sys, "argv", [program, f"--config-dir={theirs}/conf"])
    assert ("mine" in choices("eraser")) == read
