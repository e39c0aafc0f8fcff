"""Identity of a run: everything that determines its numbers, the code included."""

import logging
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import torch

from conf.commands import COMMANDS, Members
from conf.compose import composed
from erasure.datasets.digits import Digits
from erasure.store.checked_files import read_json
from harness.experiment import Experiment, network
from harness.run_ids import run_id
from mdl.__main__ import COMMAND as MDL
from mdl.settings import MdlConfig
from tests.conftest import ERASER
from train.settings import TrainConfig, TrainingConfig

TINY = ["model=linear", "eraser=control", "train=quick", "train.max_epochs=1", "mdl.num_chunks=2", "seeds=[0]"]
MODEL = """
from models.polynomial import PolynomialClassifier
class Mine(PolynomialClassifier):
    def forward(self, x):
        return super().forward(x) * {factor}
"""


def experiment(*overrides: str) -> Experiment[MdlConfig]:
    return Experiment.from_config("mdl", composed("mdl", overrides, MdlConfig).with_precision())


def finished(command, *overrides: str) -> tuple[str, float]:
    """Id and bits per label of the one run."""
    outcome = command(MDL, *TINY, "logger.mode=disabled", *overrides)
    assert outcome.code == 0, outcome.err
    identity = outcome.out.split(":")[0]
    return identity, read_json(Path("runs") / identity / "result.json")["mdl"]["bits_per_sample"][0]


def test_an_edited_eraser_never_gives_yesterday_s_number(command, written, caplog) -> None:
    caplog.set_level(logging.INFO)

    def run(result: str, *overrides: str) -> tuple[str, float]:
        written(ERASER.format(name="Mine", result=result))
        caplog.clear()
        return finished(command, "eraser.name=mine", "eraser._target_=mine.Mine", *overrides)

    first, learnt = run("x")
    assert learnt < 3.3
    second, chance = run("x * 0 + self.mean")
    assert chance == pytest.approx(3.3219, abs=1e-3)
    assert first != second
    assert run("x * 0 + self.mean", "runs_dir=elsewhere/../runs")[0] == second  # from runs/
    command(MDL, *TINY, "logger.mode=disabled", "runs_dir=fresh", "eraser.name=mine", "eraser._target_=mine.Mine")
    fresh = read_json(Path("fresh") / second / "result.json")
    assert fresh["mdl"]["bits_per_sample"] == [chance]  # from cache/
    assert run("x  # as it was") == (first, learnt)
    assert "has finished before" in caplog.text


def test_a_network_that_does_not_draw_from_its_generator_is_refused(written) -> None:
    written(MODEL.format(factor=1) + "    def reset_parameters(self, _): self.readout.weight.data.normal_()")
    mine = experiment("model=linear", "model._target_=mine.Mine")
    with pytest.raises(ValueError, match=r"^mine.Mine.reset_parameters must draw from the generator it is given: "):
        network(mine, mine.config.model, (1, 2, 2), 2)
    with pytest.raises(ValueError, match="non-negative") as failed:
        network(mine, mine.config.model, (1, -2, 2), 2)
    assert failed.value.__notes__ == ["in mine.Mine(degree=1, sketch=None)"]


def test_a_class_of_the_same_name_in_another_module_is_another_run(written) -> None:
    written(ERASER.format(name="IdentityEraser", result="x * 0"), "mine_too", "IdentityEraser")
    assert (
        experiment("eraser=control").identity()
        != experiment("eraser=control", "eraser._target_=mine_too.IdentityEraser").identity()
    )


def test_a_cpu_and_a_gpu_that_choose_their_precision_have_runs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    here, named = experiment(), experiment("device=cuda")
    assert here.identity() == experiment("train.precision=float32").identity()
    assert here.config.train.precision == "float32"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    there = experiment()
    assert there.identity() == named.identity() == experiment("train.precision=bfloat16").identity() != here.identity()
    assert there.control().identity() != here.control().identity()


def test_whatever_determines_numbers_is_part_of_the_identity_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    base = experiment(*TINY).identity()
    others = [
        experiment(*TINY, override).identity()
        for override in (
            "dataset.split_seed=1", "dataset.validation_size=99", "dataset.test_fraction=0.3",
            "dataset.normalize=zscore", "eraser=leace", "model=mlp", "train.lr=0.5", "train.precision=bfloat16",
            "mdl.num_chunks=3", "mdl=quick", "mdl.code=replay", "seeds=[1]", "dtype=float64",
        )
    ]  # fmt: skip
    monkeypatch.setattr(Digits, "content", lambda self: "other images of the same name")
    others.append(experiment(*TINY).identity())
    assert len({base, *others}) == 1 + len(others)
    monkeypatch.undo()
    for override in (
        "train.stack=one", "train.checkpoint_every_s=9", "mdl.order=largest_first", "runs_dir=x", "cache_dir=x",
        "logger.mode=disabled", "device=cpu",
    ):  # fmt: skip
        assert experiment(*TINY, override).identity() == base, override


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    penalty: float


@dataclass(frozen=True, kw_only=True)
class ProbeConfig(TrainingConfig):
    probe: ProbeSettings


def test_options_of_a_command_s_own_section_tell_its_runs_apart_if_it_trains_as_others_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(COMMANDS, "probe", Members(f"{__name__}.ProbeConfig", "", ""))
    trained = composed("train", ["eraser=control"], TrainConfig)
    shared = {field.name: getattr(trained, field.name) for field in fields(TrainingConfig)}
    weak, strong, again = (
        Experiment.from_config("probe", ProbeConfig(**shared, probe=ProbeSettings(penalty=penalty))).identity()
        for penalty in (0.01, 1000.0, 0.01)
    )
    assert weak == again != strong


DESCRIBED = {
    "dataset": {"name": "my digits/8x8", "split_seed": 0},
    "eraser": {"name": "leace"},
    "model": {"name": "mlp", "width": 8},
    "seeds": [0, 1],
}


CODE = {"train": 1, "mine.Mine": "a"}


def test_identity_is_readable_and_covers_every_value() -> None:
    identity = run_id("mdl", DESCRIBED, CODE)
    assert identity.startswith("mdl-my_digits_8x8-leace-mlp-")
    assert identity == run_id("mdl", dict(reversed(DESCRIBED.items())), CODE)
    others = [
        run_id("train", DESCRIBED, CODE),
        run_id("mdl", DESCRIBED | {"seeds": [1, 0]}, CODE),
        run_id("mdl", DESCRIBED | {"model": {"name": "mlp", "width": 9}}, CODE),
        run_id("mdl", DESCRIBED, CODE | {"mine.Mine": "b"}),
    ]
    assert len({identity, *others}) == 5
