"""References of scores: a miniature of table 1 of Harutyunyan et al. 2021."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from erasure.store.checked_files import load_tensors, read_json
from sample_info.__main__ import COMMAND
from sample_info.gradient_descent import GradientDescent

SMALL = ["model.width=256", "sample_info.examples=40", "sample_info.held_out=50", "sample_info.training.steps=300"]
TINY = ["model.width=16", "sample_info.examples=20", "sample_info.held_out=20", "sample_info.training.steps=30"]


def test_scores_agree_with_retraining_and_better_than_influence_functions(command) -> None:
    outcome = command(COMMAND, *SMALL, "sample_info.references.methods=[retraining,influence]", "logger.mode=disabled")
    assert outcome.code == 0, outcome.err
    (path,) = Path("runs").glob("*/result.json")
    references = read_json(path)["references"]
    for kind in ("weight", "prediction"):
        retraining, *influence = (
            references[name][0][kind]["pearson"]
            for name in ("retraining", "influence 10 with retraining", "influence 1e-05 with retraining")
        )
        assert 0.95 < retraining <= 1
        assert max(influence) < retraining
        assert influence[0] > influence[1]  # the paper's damping, next to none
        low, high = (references["retraining"][0][kind]["ratio"][end] for end in ("least", "largest"))
        assert 0.5 < low < 1 < high < 2
    assert references["retraining"][0]["examples"] == 40
    assert references["influence 10"][0]["examples"] == 40
    (table,) = Path("runs").glob("*/table.md")
    line = next(line for line in table.read_text().splitlines() if "| influence 10 with retraining | 40 |" in line)
    assert re.search(r"\| \d\S* \(\S+ to \S+\) \| \d\S* \(\S+ to \S+\) \|$", line)


def test_a_sample_of_examples_may_be_left_out(command) -> None:
    options = ["sample_info.references.methods=[retraining]", "sample_info.references.examples=5"]
    outcome = command(COMMAND, *TINY, *options, "logger.mode=disabled")
    assert outcome.code == 0, outcome.err
    (path,) = Path("runs").glob("*/result.json")
    assert read_json(path)["references"]["retraining"][0]["examples"] == 5


def test_both_conventions_agree_with_a_retraining_of_their_own(command) -> None:
    """With few examples the sum's score is no score of the mean's training: η n / (n - 1) is another learning rate."""
    options = [*SMALL, "sample_info.examples=12", "sample_info.references.methods=[retraining]"]
    options += ["sample_info.training.weight_decay=1.0", "logger.mode=disabled"]
    for name in ("sum", "mean"):
        assert command(COMMAND, *options, f"sample_info.training.left_out_loss={name}", f"runs_dir={name}").code == 0
        (path,) = Path(name).glob("*/result.json")
        agreement = read_json(path)["references"]["retraining"][0]
        for kind in ("weight", "prediction"):
            assert agreement[kind]["pearson"] > 0.99
            assert abs(agreement[kind]["ratio"]["median"] - 1) < 0.05
    ((a,), (b,)) = (Path(name).glob("*/scores.safetensors") for name in ("sum", "mean"))
    ratio = load_tensors(b)[0]["retraining_prediction_change"] / load_tensors(a)[0]["retraining_prediction_change"]
    assert float((ratio - 1).abs().max()) > 0.05


@pytest.mark.parametrize("override", ["sample_info.training.steps=converged", "sample_info.training.time=continuous"])
def test_training_that_is_no_number_of_steps_has_no_reference(command, override: str) -> None:
    outcome = command(COMMAND, *SMALL, override, "sample_info.references.methods=[influence]")
    assert outcome.code == 2
    assert "trained for it step by step" in outcome.err
    assert not Path("runs").exists()


def test_an_interrupted_reference_loses_one_stack_at_most(command, monkeypatch: pytest.MonkeyPatch) -> None:
    train, stacks = GradientDescent.train, []

    def counted(descent: GradientDescent, c: Tensor, *progress: Any) -> Any:
        if len(stacks) == interrupt_at:
            raise KeyboardInterrupt
        stacks.append(int((c == 0).sum()))  # 0 for the training on everything
        return train(descent, c, *progress)

    def launched(directory: str, *more: str) -> tuple[int, list[int]]:
        stacks.clear()
        options = [
            *TINY,
            "sample_info.references.methods=[retraining]",
            "logger.mode=disabled",
            f"runs_dir={directory}",
        ]
        return command(COMMAND, *options, *more).code, stacks.copy()

    monkeypatch.setattr(GradientDescent, "train", counted)
    small, smaller = "sample_info.memory_gib=1.72e-4", "sample_info.memory_gib=1.03e-4"
    interrupt_at = -1
    assert launched("whole", small) == (0, [0, 7, 7, 6])
    interrupt_at = 3
    for directory in ("same", "other"):
        assert launched(directory, small) == (130, [0, 7, 7])
    interrupt_at = -1
    assert launched("same", small) == (0, [0, 6])
    assert launched("other", smaller) == (0, [0, 4, 2])  # stacks of another size, of what is left
    undisturbed, same, other = (changes_by("retraining", name) for name in ("whole", "same", "other"))
    for name, values in undisturbed.items():
        assert torch.equal(same[name], values)
        assert torch.equal(other[name][:, :14], values[:, :14])
        torch.testing.assert_close(other[name], values, rtol=1e-4, atol=0)  # single precision
    assert not list(Path("same").glob("*/part-*"))


def changes_by(reference: str, directory: str) -> dict[str, Tensor]:
    """Both changes, [1, n] each, of the one run in a directory."""
    (path,) = Path(directory).glob("*/scores.safetensors")
    return {name: values for name, values in load_tensors(path)[0].items() if name.startswith(f"{reference}_")}
