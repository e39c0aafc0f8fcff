"""Scoring at trained weights: python -m train, then python -m sample_info, through their real command lines."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from erasure.store.checked_files import load_tensors, read_json, save_tensors
from sample_info import training_problem
from sample_info.__main__ import COMMAND
from sample_info.scored_examples import Examples
from tests.conftest import Outcome
from train.__main__ import COMMAND as TRAIN

MODEL = ["model=mlp", "model.width=16", "model.depth=1", "logger.mode=disabled"]
SCORE = [
    *MODEL,
    "sample_info.examples=30",
    "sample_info.held_out=20",
    "sample_info.training.steps=50",
    "sample_info.training.learning_rate=1e-4",
]
Command = Callable[..., Outcome]


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder where the first test's training is left for those that follow."""
    return tmp_path_factory.mktemp("trained")


@pytest.fixture
def trained(command: Command, shared_folder: Path) -> Path:
    """A copy of the weights of two seeds, trained on all ten digits."""
    if not shared_folder.joinpath("runs").exists():
        options = ["eraser=control", "train=quick", "train.max_epochs=3", "train.stack=all", "seeds=[1,4]"]
        outcome = command(TRAIN, *MODEL, *options, f"runs_dir={shared_folder}/runs")
        assert outcome.code == 0, outcome.err
    (directory,) = shared_folder.glob("runs/train-*")
    shutil.copytree(directory, Path("runs") / directory.name)
    return Path("runs") / directory.name / "weights.safetensors"


def scored(command: Command, *overrides: str) -> Path:
    """The directory of a run."""
    outcome = command(COMMAND, *SCORE, *overrides)
    assert outcome.code == 0, outcome.err
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("figure: ")]
    return Path(line.removeprefix("figure: ")).parent


def test_the_network_is_linearised_at_the_members_weights_of_its_seed(command, trained, monkeypatch) -> None:
    problem, seen = Examples.problem, {}

    def noted(examples: Examples, seed: int):
        seen[seed] = problem(examples, seed)
        return seen[seed]

    monkeypatch.setattr(Examples, "problem", noted)
    scored(command, f"sample_info.initial_weights={trained.parent}", "seeds=[4,1]")
    with_, seen = dict(seen), {}
    scored(command, "seeds=[4,1]")
    stacked, metadata = load_tensors(trained)
    assert metadata["seeds"] == [1, 4]
    for member, seed in enumerate([1, 4]):
        for name, values in with_[seed].weights.items():
            if name.startswith("readout."):  # one output instead of ten: drawn, as without trained weights
                assert torch.equal(values, seen[seed].weights[name])
                continue
            assert torch.equal(values, stacked[name][member])
            assert not torch.equal(values, seen[seed].weights[name])
    assert not torch.equal(with_[1].weights["hidden.0.weight"], with_[4].weights["hidden.0.weight"])


def test_scores_differ_and_a_run_knows_its_weights_wherever_they_lie(command, trained, tmp_path, monkeypatch) -> None:
    random = scored(command, "seeds=[4]")
    first = scored(command, "seeds=[4]", f"sample_info.initial_weights={trained}")
    assert first.name != random.name
    a, b = (load_tensors(path / "scores.safetensors")[0]["f_si_nats"] for path in (random, first))
    assert float(torch.corrcoef(torch.cat([a, b]))[0, 1]) < 0.99
    moved = tmp_path / "elsewhere" / "best.safetensors"
    moved.parent.mkdir()
    shutil.move(trained, moved)
    monkeypatch.setattr(training_problem, "ntk", None)  # nothing is computed again
    assert scored(command, "seeds=[4]", f"sample_info.initial_weights={moved}") == first
    stacked, metadata = load_tensors(moved)
    stacked["hidden.0.bias"][1, 0] += 1e-6
    save_tensors(moved, stacked, metadata)
    changed = command(COMMAND, *SCORE, "seeds=[4]", f"sample_info.initial_weights={moved}")
    assert changed.code == 1  # another run, which would have to be computed
    assert len(list(Path("runs").glob("sample_info-*"))) == 3


def test_a_readout_that_fits_may_be_kept(command, trained) -> None:
    overrides = ["sample_info.classes=all", f"sample_info.initial_weights={trained}", "seeds=[1]"]
    trained_readout = scored(
        command, *overrides, "sample_info.training.readout_gain=null", "sample_info.training.learning_rate=1e-9"
    )
    redrawn = scored(command, *overrides, "sample_info.training.learning_rate=1e-9")
    accuracy = [read_json(path / "result.json")["network"]["train_accuracy"][0] for path in (trained_readout, redrawn)]
    assert accuracy[0] > 0.5 > accuracy[1]  # the trained network's own, and chance


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["sample_info.initial_weights=nowhere"],
            "there is no nowhere: give the directory of a finished run",
        ),
        (["seeds=[2]"], "seed 2 was not trained, only [1, 4]: choose seeds among these"),
        (["model.width=8"], "hidden.0.weight is 16×64 there, 8×64 in this model: score with the model.* options"),
        (["model.depth=2"], "hidden.1.weight is missing there, 16×16 in this model"),
        (["model.activation=gelu"], "model.activation=relu there, gelu here"),
        (
            ["sample_info.training.readout_gain=null"],
            "readout.weight is 10×16 there, 1×16 in this model: draw a new one",
        ),
    ],
)
def test_weights_that_do_not_fit_are_one_line(command, trained, overrides, said) -> None:
    given = f"sample_info.initial_weights={trained}"
    outcome = command(COMMAND, *SCORE, given, "seeds=[1]", *overrides)
    assert outcome.code == 2
    assert "sample_info.initial_weights=" in outcome.err
    assert said in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert not list(Path("runs").glob("sample_info-*/result.json"))


def test_damaged_and_foreign_files_are_one_line(command, trained) -> None:
    content = bytearray(trained.read_bytes())
    content[-3] ^= 1
    Path("damaged.safetensors").write_bytes(content)
    Path("truncated.safetensors").write_bytes(content[:-100])
    save_tensors(Path("scores.safetensors"), {"f_si_nats": torch.ones(3)}, {"classes": [4, 9]})
    for name in ("damaged", "truncated", "scores"):
        outcome = command(COMMAND, *SCORE, "seeds=[1]", f"sample_info.initial_weights={name}.safetensors")
        assert outcome.code == 2
        assert f"{name}.safetensors: not a complete weights.safetensors of a run" in outcome.err
        assert len(outcome.err.strip().splitlines()) == 1
