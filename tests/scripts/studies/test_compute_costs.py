"""Steps, floors and hours of a sweep that is not run."""

import pytest

from conf.compose import composed
from erasure.datasets.digits import Digits
from erasure.splits import splits
from mdl.settings import MdlConfig
from mdl.training_sizes import chunk_sizes
from scripts.studies.compute_costs import main, sized
from train.randomness import epoch_steps


def test_table_16_is_twenty_runs_of_four_architectures(capsys) -> None:
    assert main([]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    models = ["mlp", "lenet", "convnextv2", "swinv2"]
    rows = [line for line in lines if line[0] in models][:8]  # two tables; a caption follows
    assert [line[0] for line in rows] == 2 * models
    assert all(line[1] == "5" for line in rows[:4])
    config = composed("mdl", ["dataset=cifar10", "train=paper"], MdlConfig)
    sizes, settings = chunk_sizes(48_976, config.mdl), config.train
    steps = 5 * 100 * sum(epoch_steps(n, settings) for n in sizes)
    assert all(line[6] == f"{steps:,}" for line in rows[:4])
    assert len(rows[4]) == 5  # a name, an H100 as measured, two floors of it, this machine
    for row, multiple in zip(rows[4:], (16.9, 38.9, 37.2, 81.1), strict=True):  # docs/benchmarks.md
        assert float(row[1]) == pytest.approx(multiple * float(row[2]), rel=0.02)
    assert rows[0][2:4] == ["411,146", "0.822"]


def test_groups_are_those_of_the_overrides(capsys) -> None:
    assert main(["dataset=digits", "train=quick", "mdl=quick", "model.width=8,16", "seeds=[0]"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    (wider,) = [line[2:] for line in lines if line[:3] == ["mlp", "(width=16)", "1"]]
    assert wider[1] == f"{65 * 16 + 17 * 16 + 17 * 10:,}"  # parameters
    config = composed("mdl", ["train=quick", "mdl=quick"], MdlConfig)
    sizes, settings = chunk_sizes(1438 - 143, config.mdl), config.train
    assert settings.max_epochs == 60
    assert wider[5] == f"{60 * sum(epoch_steps(n, settings) for n in sizes):,}"


def test_the_digits_are_as_large_as_they_are_known(digits_source: Digits) -> None:
    train = splits(digits_source, digits_source.load())["train"]
    known = sized({"name": "digits", "validation_size": None})
    assert known == (tuple(train.images.shape[1:]), int(train.labels.max()) + 1, len(train))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["dataset=cifarnet"], "dataset=cifarnet: unknown size: choose one of cifar10, svhn, digits"),
        (["modl=mlp"], "unknown key modl: did you mean model?"),
    ],
)
def test_what_cannot_be_counted_is_one_line(arguments: list[str], line: str, capsys) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(line)
