"""Dataset summaries: orders in which examples are dropped, and what is lost with them."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from erasure.store.checked_files import read_json
from sample_info import data_summarization as summaries
from sample_info.__main__ import COMMAND
from sample_info.data_summarization import bottom, bottom_iterative, remaining
from tests.wandb_file import only_run

SMALL = ["model.width=64", "sample_info.examples=60", "sample_info.training.steps=300"]
TRY = [
    *SMALL,
    "sample_info.summaries.orders=[bottom,bottom_iterative,top,random]",
    "sample_info.summaries.removed=[0.0,0.5,0.9]",
]
SCORES = torch.tensor([3.0, 1.0, 2.0, 1.0, 5.0])
QUIET = "logger.mode=disabled"
TRAINED = ["sample_info.summaries.network=trained", "sample_info.training.steps=40"]


def test_orders_follow_the_scores() -> None:
    assert bottom(SCORES).tolist() == [1, 3, 2, 0, 4]
    assert bottom(-SCORES).tolist() == [4, 0, 2, 1, 3]
    assert remaining(bottom(SCORES), 0.4).nonzero().flatten().tolist() == [0, 2, 4]
    assert remaining(bottom(SCORES), 0.0).all()


def test_scoring_again_keeps_one_of_two_that_are_alike() -> None:
    values = torch.tensor([0.0, 0.0, 5.0, 5.0, 3.0])

    def unique_information(left: Tensor) -> Tensor:
        distances = (values[left][:, None] - values[left][None]).abs() + torch.diag(torch.full((len(left),), torch.inf))
        return distances.min(1).values.nan_to_num(posinf=9.0)

    iterative = bottom_iterative(unique_information, 5, fraction=0.2)
    assert sorted(iterative.tolist()) == [0, 1, 2, 3, 4]
    assert set(values[remaining(iterative, 0.4)].tolist()) == {0.0, 3.0, 5.0}
    once = bottom(unique_information(torch.arange(5)))
    assert set(values[remaining(once, 0.4)].tolist()) != {0.0, 3.0, 5.0}  # the control: scored once, both go


def test_no_scores_are_computed_beyond_the_last_fraction_that_is_wanted() -> None:
    asked: list[int] = []

    def score(left: Tensor) -> Tensor:
        asked.append(len(left))
        return SCORES[left]

    order = bottom_iterative(score, 5, fraction=0.2, until=0.6)
    assert asked == [5, 4, 3]
    assert order.tolist() == [1, 3, 2, 0, 4]
    assert bottom_iterative(score, 5, fraction=0.2, until=0.0).tolist() == [0, 1, 2, 3, 4]


def the_run(runs: str = "runs") -> tuple[Path, dict]:
    (path,) = Path(runs).glob("sample_info-*/result.json")
    return path.parent, read_json(path)


def test_the_command_says_what_is_lost(command, real_figures) -> None:
    outcome = command(COMMAND, *TRY, "seeds=[0,1]")
    assert outcome.code == 0, outcome.err
    directory, result = the_run()
    summary = result["summaries"]
    assert (summary["network"], summary["removed"]) == ("linearized", [0.0, 0.5, 0.9])
    assert [*summary["accuracy"]] == ["bottom", "bottom_iterative", "top", "random"]
    for by_seed in summary["accuracy"].values():
        assert [curve[0] for curve in by_seed] == pytest.approx(result["network"]["test_accuracy"])  # nothing removed
    assert summary["accuracy"]["bottom"][0][1] > summary["accuracy"]["top"][0][1]
    draws = torch.tensor(summary["random_draws"])
    assert draws.shape == (2, 5, 3)
    torch.testing.assert_close(draws.mean(1), torch.tensor(summary["accuracy"]["random"]))
    assert len({tuple(draw) for draw in draws.flatten(0, 1).tolist()}) > 5  # seeds have draws of their own
    assert "of the linearised network" in outcome.out
    drawn = directory / "summaries.png"
    assert f"figure: {drawn}" in outcome.out
    assert Image.open(drawn).size[0] > 500
    table = (directory / "table.md").read_text()
    assert "| removed | bottom | bottom iterative | top | random |" in table
    assert "| of the linearised network | 50% | " in table
    assert "summaries/figure._type" in {key for point in only_run(directory).history for key in point}


def test_all_ten_classes_and_another_architecture(command) -> None:
    options = [
        "sample_info.classes=all",
        "sample_info.summaries.orders=[bottom,random]",
        "sample_info.summaries.removed=[0.0,0.8]",
        "sample_info.summaries.model={depth: 2}",
    ]
    outcome = command(COMMAND, *TRY, *TRAINED, *options, QUIET)
    assert outcome.code == 0, outcome.err
    _, result = the_run()
    summary = result["summaries"]
    assert "of the network trained again (depth=2)" in outcome.out
    assert summary["accuracy"]["bottom"][0][0] != result["network"]["test_accuracy"][0]  # another network
    lost = [min(curve) < 10 for by_seed in summary["classes_left"].values() for curve in by_seed]
    assert any(lost)
    assert " *" in outcome.out


def test_an_interrupted_run_does_no_training_again(command, monkeypatch) -> None:
    options = [*TRY, *TRAINED, QUIET, "seeds=[0,1]", "sample_info.summaries.orders=[bottom_iterative,random]"]
    assert command(COMMAND, *options, "runs_dir=whole").code == 0
    train, sizes = summaries.train_on_each, []

    def interrupted(problem, left, progress):
        if len(sizes) == 4:
            raise KeyboardInterrupt
        sizes.append(int(left[0].sum()))
        return train(problem, left, progress)

    monkeypatch.setattr(summaries, "train_on_each", interrupted)
    assert command(COMMAND, *options).code == 130
    assert sizes == [60, 30, 6, 60]

    def counted(problem, left, progress):
        sizes.append(int(left[0].sum()))
        return train(problem, left, progress)

    monkeypatch.setattr(summaries, "train_on_each", counted)
    monkeypatch.delattr(summaries, "bottom_iterative")  # both seeds' orders are on disk
    assert command(COMMAND, *options).code == 0
    assert sizes == [60, 30, 6, 60, 30, 6]
    directory, result = the_run()
    assert result["summaries"] == the_run("whole")[1]["summaries"]
    assert not list(directory.glob("step-*"))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["sample_info.summaries.orders=[botom]"],
            "summaries.orders[0]=botom: must be 'bottom', 'bottom_iterative', 'top' or 'random'",
        ),
        (["sample_info.summaries.orders=[top,top]"], "an order is named twice"),
        (["sample_info.summaries.removed=[0.5,1.0]"], "sample_info.summaries.removed[1]=1.0: must be less than 1"),
        (["sample_info.summaries.removed=[-0.1]"], "sample_info.summaries.removed[0]=-0.1: must be at least 0"),
        (["sample_info.summaries.removed=[0.5,0.2]"], "must increase"),
        (["sample_info.summaries.removed=[0.99]"], "leaves 1 of 60 examples"),
        (["sample_info.summaries.model={depth: 2}"], "has no effect with sample_info.summaries.network=linearized"),
        (
            [*TRAINED, "sample_info.training.steps=converged"],
            "sample_info.summaries.network=trained: needs training step by step",
        ),
        (
            [*TRAINED, "sample_info.summaries.model={dept: 2}"],
            "unknown key sample_info.summaries.model.dept: did you mean depth?",
        ),
        ([*TRAINED, "sample_info.summaries.model={depth: two}"], "sample_info.summaries.model.depth=two"),
        (
            [*TRAINED, "sample_info.summaries.model={_target_: models.mlp.MPL}"],
            "_target_=models.mlp.MPL: cannot be imported",
        ),
    ],
)
def test_bad_input_is_one_line_before_anything_is_loaded(command, overrides, said) -> None:
    outcome = command(COMMAND, *TRY, QUIET, *overrides)
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["sample_info.classes=all"],
            "sample_info.summaries.removed=0.9: leaves 6 of 60 examples, and 10 classes need 10",
        ),
        (
            [
                "sample_info.summaries.orders=[top]",
                "sample_info.training.learning_rate=0.0365",
            ],  # stable on all of them
            "sample_info.summaries.removed=0.5: sample_info.training.learning_rate=0.0365: gradient descent diverges",
        ),
    ],
)
def test_what_the_data_refuse_names_the_fraction(command, overrides, said) -> None:
    outcome = command(COMMAND, *TRY, QUIET, *overrides)
    assert outcome.code == 2
    assert said in outcome.err
    assert not list(Path("runs").glob("*/result.json"))
