"""Bad input ends within seconds in one clear line and a non-zero exit code, before anything is trained."""

import subprocess
import sys
from pathlib import Path

import pytest

from mdl.__main__ import VERB as MDL
from train.__main__ import VERB as TRAIN

REPOSITORY = Path(__file__).parents[2]

CASES = {
    "mistyped option": (
        ["model.widht=64"],
        "unknown model=mlp option widht: did you mean width? choose from activation,",
    ),
    "added key": (["+foo=1"], "unknown key foo: choose from cache_dir, dataset,"),
    "added option": (
        ["+model.widht=64"],
        "unknown key model.widht: did you mean width? choose from activation, depth,",
    ),
    "forced option": (["++train.lrr=1"], "unknown key train.lrr: did you mean lr?"),
    "mistyped choice": (
        ["eraser=laece"],
        "unknown eraser=laece: did you mean leace? choose from alf_cubic, alf_qleace, control",
    ),
    "choice by another name": (["eraser=none"], "unknown eraser=none: did you mean control?"),
    "choice in capitals": (["eraser=LEACE"], "unknown eraser=LEACE: did you mean leace?"),
    "choice as it is printed": (["eraser=ALF-QLEACE"], "unknown eraser=ALF-QLEACE: did you mean alf_qleace?"),
    "blank after a comma": (
        ["-m", "eraser=control,", "leace"],
        "eraser=control,: no blank after the comma: eraser=control,leace",
    ),
    "blank before a comma": (["seeds=[0", ",1]"], "seeds=[0: no blank after the comma: seeds=[0,1]"),
    "experiment without +": (["experiment=table16"], "experiment=table16: add +: +experiment=table16"),
    "several experiments without +": (
        ["-m", "experiment=fig3,fig4"],
        "experiment=fig3: add +: +experiment=fig3; nothing was started",
    ),
    "preset by another name": (["train=fast"], "unknown train=fast: did you mean quick?"),
    "option without its section": (["lr=0.1"], "unknown key lr: did you mean train.lr?"),
    "section's own key": (["name=x"], "unknown key name: choose from"),
    "sweep without -m": (
        ["eraser=leace,qleace"],
        "eraser=leace,qleace: several values are a sweep: add -m, python -m mdl",
    ),
    "mistyped group": (["modle=mlp"], "unknown key modle: did you mean model? choose from"),
    "mistyped section": (["modle.width=3"], "unknown key modle: did you mean model? choose from"),
    "mistyped experiment": (["+experiment=digit_all"], "unknown experiment=digit_all: did you mean digits_all?"),
    "experiment without -m": (["+experiment=digits_all"], "an experiment is a sweep: add -m"),
    "option of another choice": (["model=linear", "model.width=3"], "unknown model=linear option width: it has none"),
    "not a number": (["train.lr=fast"], "train.lr=fast: input should be a valid number"),
    "not a whole number": (["model.width=2.5"], "model.width=2.5: input should be a valid integer"),
    "not a choice": (["model.activation=tanh"], "model.activation=tanh: input should be 'relu', 'gelu' or 'swiglu'"),
    "out of range": (["train.patience_steps=0"], "train.patience_steps=0: must be at least 1"),
    "negative rate": (["train.lr=-1"], "train.lr=-1: must be a positive number"),
    "no such width": (["model.width=0"], "model.width=0: an MLP needs at least 1"),
    "no seeds": (["seeds=[]"], "seeds=[]: need at least one, all different and none negative"),
    "one seed twice": (["seeds=[1,1]"], "seeds=[1, 1]: need at least one, all different"),
    "seeds not a list": (["seeds=5"], "seeds=5: input should be a valid list"),
    "removed option": (["~model.width"], "model.width is missing: set it with model.width=VALUE"),
    "mandatory value": (["dataset=image_folder"], "dataset.root is missing: set it with dataset.root=VALUE"),
    "mistyped option of a part": (
        ["dataset=mnist_svhn", "dataset.parts.mnist.rot=x"],
        "unknown dataset=mnist_svhn option parts.mnist.rot: did you mean parts.mnist.root? choose from parts.mnist.",
    ),
    "no such part": (
        ["dataset=mnist_svhn", "dataset.parts.minst.root=x"],
        "unknown dataset=mnist_svhn option parts.minst: did you mean parts.mnist? choose from parts.mnist, parts.svhn",
    ),
    "part that is not here": (
        ["dataset=mnist_svhn", "dataset.parts.mnist.root=/nowhere"],
        "dataset mnist is not in /nowhere: fetch it with python -m scripts.prepare dataset=mnist dataset.root=/nowhere",
    ),
    "mandatory value elsewhere": (
        ["dataset=image_folder", "dataset.name=${dataset.root}"],
        "dataset.root is missing: set it with dataset.root=VALUE",
    ),
    "no such folder": (
        ["dataset=image_folder", "dataset.root=/nowhere"],
        "dataset.root=/nowhere: no folder /nowhere/train; expected images in /nowhere/train/<class>/*.png or *.jpg",
    ),
    "chunks that do not fit": (
        ["mdl.num_chunks=500"],
        "mdl.num_chunks=500 chunks of at least min_chunk=27 examples need 13,500 training examples",
    ),
    "no such device": (["device=cuda:77"], "device=cuda:77: this machine has"),
    "not a device": (["device=gpu"], "device=gpu: not a device; choose auto, cpu, cuda or cuda:N"),
    "no such class": (["model._target_=models.mlp.NoMLP"], "_target_=models.mlp.NoMLP: cannot be imported"),
    "not a model": (
        ["model=linear", "model._target_=erasure.LeaceEraser"],
        "_target_=erasure.LeaceEraser: must be a subclass of models.classifier.Model",
    ),
    "not ours to import": (
        ["model._target_=subprocess.Popen"],
        "_target_=subprocess.Popen: must be a subclass of models.classifier.Model, this project's or yours",
    ),
    "no class at all": (["model._target_=MLP"], "_target_=MLP: must be a subclass of models.classifier.Model"),
    "broken syntax": (["train.lr=[[1"], "train.lr=[[1: no viable alternative"),
    "validation too large": (
        ["dataset.validation_size=9999"],
        "dataset.validation_size=9999 must be between 1 and 1437",
    ),
    "logger mode": (["logger.mode=on"], "logger.mode=on: input should be 'online', 'offline' or 'disabled'"),
}


@pytest.mark.parametrize(("arguments", "line"), CASES.values(), ids=CASES)
def test_one_line_and_exit_code_2(command, arguments: list[str], line: str) -> None:
    outcome = command(MDL, *arguments, "logger.mode=disabled", *[a for a in arguments if a.startswith("logger")])
    complaint = outcome.err.strip().splitlines()[-1]
    assert complaint.startswith(line)
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
    assert outcome.out == ""
    assert not list(Path.cwd().glob("runs/*-*"))


def test_networks_that_import_triton_end_in_one_line_too() -> None:
    """At its end triton lists what it thinks has leaked: thirty lines below the one that says what to do."""
    command = [sys.executable, "-m", "train", "model=swinv2", "dataset=image_folder", "dataset.root=/nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 2
    assert done.stderr.startswith("dataset.root=/nowhere: no folder")
    assert len(done.stderr.splitlines()) == 1


def test_mdl_options_are_unknown_to_train(command) -> None:
    outcome = command(TRAIN, "mdl.num_chunks=3")
    assert outcome.code == 2
    assert outcome.err.startswith("unknown key mdl: ")


def test_a_sweep_is_checked_before_its_first_job_runs(command) -> None:
    outcome = command(MDL, "-m", "model=mlp,linear", "model.width=8,16")
    assert outcome.code == 2
    told = "unknown model=linear option width: it has none; nothing was started (as 1 others of the 4)"
    assert outcome.err.strip() == told
    assert not (Path.cwd() / "cache").exists()


def test_a_run_that_diverges_fails_with_exit_code_1_and_says_where_its_traceback_is(command) -> None:
    outcome = command(TRAIN, "train.lr=1e38", "train=quick", "logger.mode=disabled")
    assert outcome.code == 1
    last = outcome.err.strip().splitlines()[-1]
    assert "the loss is not finite" in last
    log = Path(last.rpartition("traceback in ")[2])
    assert "NonFiniteLossError" in log.read_text()
    assert '"state": "failed"' in (log.parent / "state.json").read_text()
