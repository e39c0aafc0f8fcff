"""Bad input ends within seconds in one clear line and a non-zero exit code, before anything is trained."""

import logging
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from conf.compose import composed
from conf.error_messages import explain
from conf.groups import CONF
from conf.target_class import Target
from erasure.dataset import MissingDataError, Source
from erasure.datasets.digits import Digits
from mdl.__main__ import COMMAND as MDL
from sample_info.__main__ import COMMAND as SAMPLE_INFO
from tests.erasure.made_up_datasets import FIRST_FILE, WRITERS, write
from train.__main__ import COMMAND as TRAIN
from train.settings import TrainConfig

REPOSITORY = Path(__file__).parents[2]

CASES = {
    "mistyped option": (
        ["model.widht=64"],
        "unknown model=mlp option widht: did you mean width? choose from activation,",
    ),
    "added key": (["+foo=1"], "unknown key foo: choose from cache_dir, dataset, device,"),
    "mistyped choice": (
        ["eraser=laece"],
        "unknown eraser=laece: did you mean leace? choose from alf_qleace, control",
    ),
    "blank after a comma": (
        ["-m", "eraser=control,", "leace"],
        "eraser=control,: no blank after the comma: eraser=control,leace",
    ),
    "experiment without +": (["experiment=table16"], "experiment=NAME: add +: +experiment=NAME"),
    "option without its section": (["lr=0.1"], "unknown key lr: did you mean train.lr?"),
    "sweep without -m": (
        ["eraser=leace,qleace"],
        "eraser=leace,qleace: takes one value; several are a sweep, which needs -m: python -m mdl -m ",
    ),
    "mistyped group": (["modle=mlp"], "unknown key modle: did you mean model? choose from"),
    "experiment without -m": (["+experiment=digits_all"], "an experiment is a sweep: add -m"),
    "out of range": (["train.patience_steps=0"], "train.patience_steps=0: must be at least 1"),
    "no seeds": (["seeds=[]"], "seeds=[]: need at least one, all different and none negative"),
    "seeds not a list": (["seeds=5"], 'seeds=5: must be a list: write "seeds=[5]", with commas between'),
    "seeds as a sweep": (["seeds=0,1"], 'seeds=0,1: must be a list: write "seeds=[0,1]"'),
    "mandatory value": (["dataset=image_folder"], "dataset.root is missing: set it with dataset.root=VALUE"),
    "mistyped option of a part": (
        ["dataset=mnist_svhn", "dataset.parts.mnist.rot=x"],
        "unknown dataset=mnist_svhn option parts.mnist.rot: did you mean parts.mnist.root? choose from ",
    ),
    "part that is not here": (
        ["dataset=mnist_svhn", "dataset.parts.mnist.root=/nowhere"],
        "dataset mnist is not in /nowhere: fetch it with "
        "python -m scripts.prepare_dataset dataset=mnist dataset.root=/nowhere",
    ),
    "no such device": (["device=cuda:77"], "device=cuda:77: this machine has"),
    "mistyped flag": (["--config-dri=x"], "unknown option --config-dri: did you mean config-dir? choose from cfg, "),
    "flag among overrides": (["seeds=[0]", "--config-dir", ".", "seeds=5"], "seeds=5: must be a list"),
    "no override": (["foo"], "foo: nothing is set: write KEY=VALUE, e.g. model=mlp (see --help)"),
    "sweep without values": (["-m", "model.width=range(5,5)"], "model.width=range(5,5): has no values"),
    "no folder": (["runs_dir="], "runs_dir=: names no folder: choose one, runs_dir=FOLDER"),
    "no name": (
        ["dataset.name="],
        "the configuration config.dataset.name is '', not a name of 1 to 200 ",
    ),
    "broken syntax": (["train.lr=[[1"], "train.lr=[[1: cannot be read"),
    "launcher without -m": (
        ["hydra/launcher=local"],
        "hydra/launcher=local: launches the runs of a sweep: add -m, or leave it out",
    ),
    "launcher by class": (
        ["-m", "hydra.launcher._target_=foo.Bar"],
        "hydra.launcher._target_=foo.Bar: choose how a sweep runs by name: hydra/launcher=in_process, hydra",
    ),
    "true as a number": (["model.width=true"], "model.width=true: must be a number"),
    "infinite": (["train.weight_decay=inf"], "train.weight_decay=inf: must be a finite number"),
    "no integer of JSON's": (["train.max_epochs=9007199254740993"], "train.max_epochs=9007199254740993: must be betw"),
    "number as a folder": (
        ["runs_dir=2026"],
        "runs_dir=2026: must be a text: put it in two kinds of quotes, \"runs_dir='",
    ),
    "nothing for the architecture": (
        ["train=published", "model=linear"],
        "train.lr=published: the paper's code has none for model=linear: choose from convnextv2, lenet, lenet_pub",
    ),
    "reference to nothing": (
        ["train.lr=${train.rate}"],
        "train.lr: Interpolation key 'train.rate' not found",
    ),
    "same run twice": (
        ["-m", "seeds=[0],[0]"],
        "seeds=[0] logger.mode=disabled: is the same run as seeds=[0] logger.mode=disabled: name one",
    ),
    "device without data": (["device=meta"], "device=meta: computes nothing here; choose auto, cpu, cuda or cuda:N"),
    "sweep of nothing": (["-m", "hydra.sweeper.params=5"], "hydra.sweeper.params=5: Hydra cannot use this value"),
    "null as a choice": (
        ["eraser=null"],
        "eraser=null logger.mode=disabled: a group takes the name of one of ",
    ),
    "help on no choice": (["--help", "model=nope"], "unknown model=nope: choose from cnn, "),
    "processes not a number": (
        ["-m", "hydra/launcher=local", "hydra.launcher.workers=foo"],
        "hydra.launcher.workers=foo: must be a whole number",
    ),
}


def test_information_of_hydra_is_shown(command, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    level = root.level
    for asked, shown in (("config", CONF.as_uri().removeprefix("file://")), ("plugins", "BasicLauncher")):
        with monkeypatch.context() as patch:
            patch.setattr(root, "handlers", [])  # Hydra adds one
            outcome = command(MDL, f"--info={asked}")
        root.setLevel(level)
        assert shown in outcome.out, asked
        assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize(("arguments", "line"), CASES.values(), ids=CASES)
def test_one_line_and_exit_code_2(command, arguments: list[str], line: str) -> None:
    outcome = command(MDL, *arguments, "logger.mode=disabled")
    complaint = outcome.err.strip().splitlines()[-1]
    assert f"{complaint}\n".startswith(line)
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
    assert outcome.out == ""
    assert not list(Path.cwd().glob("runs/*-*"))


ALTERNATIVES = {
    "kernel.projection=x": "must be 'auto' or 'exact'",
    "training.steps=x": "must be a whole number or 'converged'",
    "classes=x": "must be 'all' or a list: write \"sample_info.classes=[x]\", with commas between several values",
    "data.eraser_fit=x": "must be 'auto' or 'disjoint', 'refit' or 'scored'",
}


@pytest.mark.parametrize("option", ALTERNATIVES)
def test_all_that_a_value_may_be_is_named(command, option: str) -> None:
    outcome = command(SAMPLE_INFO, f"sample_info.{option}")
    assert (outcome.code, outcome.err) == (2, f"sample_info.{option}: {ALTERNATIVES[option]}\n")


def test_arguments_of_what_scores_are_told_as_keys(command) -> None:
    outcome = command(SAMPLE_INFO, "sample_info.classes=[4,99]")
    assert (outcome.code, outcome.err) == (
        2,
        "sample_info.classes=[4, 99]: digits has classes 0 to 9: choose some of these\n",
    )
    line = explain(ValueError("learning_rate=9: gradient descent diverges"), SAMPLE_INFO.name, [])
    assert line == "sample_info.training.learning_rate=9: gradient descent diverges"


@pytest.mark.parametrize("root", ["~/pictures", "it's", 'say "x"', "日本/a;b", "a,é"])
def test_a_path_that_hydra_cannot_read_is_shown_with_the_quotes_that_help(command, root: str) -> None:
    refused = command(TRAIN, "dataset=image_folder", f"dataset.root={root}")
    assert refused.code == 2
    assert refused.err.startswith(f"dataset.root={root}: ")
    if "," in root:  # several values, unless quoted
        return
    (word,) = shlex.split(refused.err.rpartition("two kinds of quotes: ")[2])
    expected = str(Path(root).expanduser())
    outcome = command(TRAIN, "dataset=image_folder", word)
    assert outcome.err.startswith(f"dataset.root={expected}: no folder {expected}/train")


BROKEN = {
    "lr: [1": "line 2: no valid YAML (expected ',' or ']', but got '<stream end>')",
    "lr: 1\nlr: 2": "line 2: no valid YAML (found duplicate key lr)",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_file_of_the_users_that_is_no_yaml_is_named(command, text: str) -> None:
    path = Path("mine/train/slow.yaml")
    path.parent.mkdir(parents=True)
    path.write_text(f"{text}\n")
    outcome = command(MDL, "--config-dir=mine", "train=slow")
    assert outcome.code == 2
    (line,) = outcome.err.strip().splitlines()
    assert line.startswith(str(path.absolute()))
    assert BROKEN[text] in line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "has no sections: write names: {leace: LEACE}, or delete the file"),
        ("names: {leace: 5}", "names[leace]=5: must be a text"),
        ("colours: {leace: red}", "unknown key"),
        ("eraser_colours: {a: blu}", "eraser_colours: a is blu, no colour of Matplotlib, as 'red'"),
    ],
)
def test_a_file_of_display_names_of_another_shape_is_refused_before_anything_is_computed(
    command, text: str, line: str
) -> None:
    path = Path("mine/display_names.yaml")
    path.parent.mkdir()
    path.write_text(text)
    outcome = command(MDL, "--config-dir=mine")
    assert outcome.code == 2
    assert str(path.absolute()) in outcome.err
    assert line in outcome.err
    assert not Path("runs").exists()


def test_a_broken_file_that_is_not_chosen_does_no_harm(command) -> None:
    Path("mine/train").mkdir(parents=True)
    Path("mine/train/broken.yaml").write_text("lr: [1\n")
    words = ["train=quick", "train.max_epochs=1", "model=linear", "eraser=control", "logger.mode=disabled"]
    outcome = command(TRAIN, "--config-dir=mine", *words)
    assert (outcome.code, outcome.err.count("saved, but not all")) == (0, 0)


@pytest.mark.parametrize("choice", WRITERS)
def test_damaged_files_are_named_with_the_command_that_fetches_them(
    choice: str, tmp_path, monkeypatch, command
) -> None:
    write(choice, tmp_path / "data", monkeypatch)
    first = tmp_path / "data" / FIRST_FILE[choice]
    first.write_bytes(first.read_bytes()[:-7])
    outcome = command(MDL, f"dataset={choice}")
    assert outcome.code == 2
    assert outcome.err == (
        f"data/{FIRST_FILE[choice]} is damaged (its checksum is not the published one): "
        f"fetch it with python -m scripts.prepare_dataset dataset={choice}\n"
    )


@pytest.mark.parametrize(
    "overrides",
    [
        ["dataset=cifar10", "dataset.root=/no where"],
        ["dataset=hf", "dataset.path=a/b", "dataset.test_split=null", "dataset.size=8"],
        ["dataset=mnist", 'dataset.root="a=b#c \\"d\\""'],
    ],
)
def test_the_command_that_fetches_a_dataset_gives_the_same_dataset(overrides: list[str]) -> None:
    def source(words: list[str]) -> Source:
        return Target(composed(TRAIN.name, words, TrainConfig).dataset, Source).build()

    line = explain(MissingDataError("it is gone", source(overrides)), TRAIN.name, [])
    message, _, command = line.partition(": fetch it with python -m scripts.prepare_dataset ")
    assert message == "it is gone"
    assert source(shlex.split(command)) == source(overrides)


def test_arguments_of_the_library_are_told_as_keys() -> None:
    def explained(line: str, *overrides: str) -> str:
        return explain(ValueError(line), MDL.name, overrides)

    line = "size=None: a/root=b is 3×4: choose with size=PIXELS or in root=FOLDER"
    assert explained(line) == line  # the digits have none of these
    assert explained(line, "dataset=image_folder") == (
        "dataset.size=null: a/root=b is 3×4: choose with dataset.size=PIXELS or in dataset.root=FOLDER"
    )
    assert explained("low=0.5 is left", "eraser=control,gradient") == "eraser.low=0.5 is left"
    assert explained("mdl.order=x", "eraser=gradient_orders") == "mdl.order=x"


OPTIONS = {
    "alf_qleace target=2": "target=2.0: a fraction between 0 and 1",
    "gradient_orders weights=[nan,1,1]": "eraser.weights[0]=nan: must be a finite number",
    "random_edit edit_size=2": "edit_size=2: a projection edits between 0 and 1",
}


@pytest.mark.parametrize("options", [*OPTIONS, "alf_qleace target=2 -m"])
def test_options_of_erasers_are_refused_before_data_is_loaded(command, monkeypatch, options: str) -> None:
    monkeypatch.setattr(Digits, "load", lambda _: pytest.fail("loaded"))
    eraser, option, *sweep = options.split()
    outcome = command(MDL, *sweep, f"eraser={eraser}", f"eraser.{option}", "logger.mode=disabled")
    assert outcome.code == 2
    (line,) = outcome.err.strip().splitlines()
    assert OPTIONS[f"{eraser} {option}"] in line
    assert not list(Path.cwd().rglob("config.yaml"))


LONG = "x" * 5000
TOO_LONG = [
    ["eraser=leace", f"dataset.name={LONG}"],
    [f"runs_dir={LONG}"],
    [f"eraser={LONG}"],
]


@pytest.mark.parametrize("arguments", TOO_LONG, ids=lambda words: " ".join(words)[:30])
def test_a_name_that_is_too_long_is_one_short_line(command, arguments: list[str]) -> None:
    outcome = command(MDL, *arguments, "logger.mode=disabled")
    (line,) = outcome.err.strip().splitlines()
    said = {
        1: "File name too long",
        2: "texts have at most 4,096 characters of Unicode: choose a value within these limits",
    }
    assert said[outcome.code] in line
    assert len(line) < 400
    assert not list(Path.cwd().rglob("result.json"))


def test_a_network_that_needs_too_much_memory_is_one_line(command) -> None:
    outcome = command(MDL, "model.width=100000000000", "logger.mode=disabled")
    assert outcome.code == 1
    last = outcome.err.strip().splitlines()[-1]
    assert "not enough memory for 25600000000000 bytes at once: choose a smaller model.width" in last


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


def test_a_run_that_diverges_fails_with_exit_code_1_and_says_where_its_traceback_is(command) -> None:
    outcome = command(TRAIN, "train.lr=1e38", "train=quick", "logger.mode=disabled")
    assert outcome.code == 1
    last = outcome.err.strip().splitlines()[-1]
    assert "the loss is not finite" in last
    log = Path(last.rpartition("traceback in ")[2])
    assert "NonFiniteLossError" in log.read_text()
    assert '"state": "failed"' in (log.parent / "state.json").read_text()
