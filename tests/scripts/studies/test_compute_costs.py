"""Steps, floors and hours of a sweep that is not run."""

import pytest

from conf.compose import composed
from erasure.datasets.digits import Digits
from erasure.splits import splits
from mdl.settings import MdlConfig
from mdl.training_sizes import chunk_sizes
from scripts.studies.compute_costs import main, run_groups, sized
from train.randomness import epoch_steps


def test_table_16_takes_the_hours_of_the_page(capsys) -> None:
    assert main([]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    rows = [line for line in lines if line[0] in ("mlp", "lenet", "convnextv2", "swinv2")][:4]  # a caption follows
    hours = [["0.0158", "0.000933", "0.00103"], ["0.0676", "0.00174", "0.0076"]]
    hours += [["3.6", "0.0968", "0.379"], ["3.58", "0.0442", "0.141"]]
    assert [row[1:4] for row in rows] == hours  # docs/benchmarks.md; the last column is of this machine
    (total,) = [line for line in lines if line[:2] == ["one", "device"]]
    assert total[2:5] == ["36.3", "0.718", "2.64"]


def test_groups_are_those_of_the_overrides() -> None:
    groups = run_groups(["dataset=digits", "train=quick", "mdl=quick", "model.width=8,16", "eraser=control,leace"])
    assert [(group.name, group.runs) for group in groups] == [("mlp (width=8)", 2), ("mlp (width=16)", 2)]
    config = composed("mdl", ["train=quick", "mdl=quick"], MdlConfig)
    sizes = chunk_sizes(1438 - 143, config.mdl)
    expected = len(config.seeds) * config.train.max_epochs * sum(epoch_steps(n, config.train) for n in sizes)
    assert sum(steps for steps, _ in groups[0].trainings) == expected


def test_the_digits_are_as_large_as_they_are_known(digits_source: Digits) -> None:
    train = splits(digits_source, digits_source.load())["train"]
    known = sized({"name": "digits", "validation_size": None})
    assert known == (tuple(train.images.shape[1:]), int(train.labels.max()) + 1, len(train))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["dataset=cifarnet"], "dataset=cifarnet: unknown size: choose one of cifar10, svhn, digits"),
        (["model=mlp,kernel", "dataset=digits"], "model=kernel: trains no networks: choose one, e.g. model=mlp"),
        (["mdl.code=blocks,replay", "dataset=digits"], "mdl.code=replay: what one pass costs is not known"),
        (["modl=mlp"], "unknown key modl: did you mean model?"),
    ],
)
def test_what_cannot_be_counted_is_one_line(arguments: list[str], line: str, capsys) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(line)
