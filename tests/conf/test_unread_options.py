"""An option that the chosen parts do not read is refused, and what is said to be read is read."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from conf.compose import composed
from mdl.__main__ import COMMAND as MDL
from mdl.settings import READ, LabelCode, MdlConfig, MdlSettings, ReplaySettings
from sample_info.__main__ import COMMAND as SAMPLE_INFO
from sample_info.settings import (
    DataSettings,
    KernelSettings,
    ReferenceSettings,
    SampleInfoConfig,
    SampleInfoSettings,
    SummarySettings,
)
from train.__main__ import COMMAND as TRAIN
from train.settings import PublishedSettings, TrainSettings

TINY = ["eraser=control", "mdl=quick", "seeds=[0]", "logger.mode=disabled", "device=cpu"]
CODES = {  # command lines of a few seconds
    LabelCode.KERNEL: ["model=kernel"],
    LabelCode.PUBLISHED: ["train=published", "train.max_epochs=2", "train.precision=float32"],
    LabelCode.REPLAY: ["model=linear", "mdl.code=replay", "mdl.replay.streams=2", "mdl.replay.batch=400"],
    LabelCode.BLOCKS: ["model=linear", "train=quick", "train.max_epochs=2"],
}
# where settings are composed, hashed and stored, and where they are looked at only to choose or to check
NOT_COMPUTING = ("dataclasses", "conf.", "harness.", "mdl.__main__", "train.settings", "sample_info.settings")

REFUSED = {
    "model=kernel train.lr=0.1": "train.lr=0.1: has no effect with model=kernel, only with a network, e.g. model=mlp",
    "model=kernel train.precision=float32": "train.precision=float32: has no effect with model=kernel",
    "model=kernel mdl.validation=prefix": "mdl.validation=prefix: has no effect with model=kernel",
    "model=kernel dataset.flip=true": "dataset.flip=true: has no effect with model=kernel",
    "model=kernel model.bandwidth=1": "model.bandwidth=1.0: has no effect with model=kernel, only with model.kernel",
    "model=kernel model.kernel=rbf model.depth=3": "model.depth=3: has no effect with model=kernel, only with",
    "train=published train.patience_steps=7": "train.patience_steps=7: has no effect with train.protocol=published",
    "train=published mdl.code=replay": "mdl.code=replay: has no effect with train.protocol=published, only with train.",
    "mdl.code=replay mdl.validation=prefix": "mdl.validation=prefix: has no effect with mdl.code=replay, only with mdl",
    "mdl.replay.batch=7": "mdl.replay.batch=7: has no effect with mdl.code=blocks, only with mdl.code=replay: leave it",
    "train.published.backtrack=false": "train.published.backtrack=false: has no effect with mdl.code=blocks, only with",
    "eraser=random_edit eraser.edit_size=0.1 eraser.reference=leace": "eraser.reference=leace: has no effect with",
    "dataset=svhn dataset.test_fraction=0.1": "dataset.test_fraction=0.1: has no effect with dataset=svhn, only with",
    "-m model=linear,kernel train.lr=0.1": "model=kernel train.lr=0.1: train.lr=0.1: has no effect with model=kernel",
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_an_option_that_is_set_without_effect_is_refused_in_one_line(command, words: str) -> None:
    outcome = command(MDL, *words.split())
    assert outcome.code == 2
    (line,) = outcome.err.strip().splitlines()
    assert line.startswith(REFUSED[words])
    assert not list(Path.cwd().glob("runs/*-*"))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            "references.examples=7",
            "with sample_info.references.methods=[], only with sample_info.references.methods=[r",
        ),
        (
            "references.subsets=7",
            "with sample_info.references.methods=[], only with sample_info.references.methods=[su",
        ),
        ("data.epsilon=0.1", "with sample_info.data.adversarial=0, only with sample_info.data.adversarial above 0"),
        (
            "summaries.removed=[0.1]",
            "with sample_info.summaries.orders=[], only with sample_info.summaries.orders=[top",
        ),
    ],
)
def test_sample_info_refuses_options_of_what_is_not_computed(command, words: str, line: str) -> None:
    outcome = command(SAMPLE_INFO, *(f"sample_info.{word}" for word in words.split()))
    assert outcome.code == 2
    assert outcome.err.startswith(f"sample_info.{words.split()[0]}: has no effect {line}")


def test_train_has_no_published_procedure(command) -> None:
    outcome = command(TRAIN, "train.published.patience_epochs=3")
    assert outcome.code == 2
    assert "has no effect with python -m train, only with python -m mdl train=published" in outcome.err


@pytest.mark.parametrize(
    "words",
    [
        ["model=kernel", "train=quick", "mdl=paper"],  # choices pass as a whole
        ["train=quick", "train.protocol=published"],
        ["mdl.code=replay", "mdl=paper", "train=paper"],
        ["mdl.order=largest_first", "mdl.replay.batch=4"],  # the default
    ],
)
def test_defaults_and_ready_made_choices_pass(words: list[str]) -> None:
    config = composed(MDL.name, [*words, "device=cpu"], MdlConfig)
    assert MDL.experiment(config).run.directory.name.startswith("mdl-digits-leace-")


def test_a_choice_of_the_users_is_no_default(command, tmp_path: Path) -> None:
    (tmp_path / "mine" / "train").mkdir(parents=True)
    (tmp_path / "mine" / "train" / "slow.yaml").write_text("defaults:\n  - published\n  - _self_\npatience_steps: 7\n")
    outcome = command(MDL, "--config-dir=mine", "train=slow")
    assert outcome.code == 2
    assert outcome.err.startswith("train.patience_steps=7: has no effect with train.protocol=published")


@contextmanager
def recorded(*kinds: type) -> Iterator[set[str]]:
    """Yield the names of the fields of these classes that are read where something is computed."""
    read: set[str] = set()
    names = {kind: {field.name for field in fields(kind)} for kind in kinds}
    plain = object.__getattribute__

    def recording(self: Any, name: str) -> Any:
        module = sys._getframe(1).f_globals.get("__name__", "")
        only_checked = name == "validation" and module == "mdl.training_sizes"
        if name in names[type(self)] and not module.startswith(NOT_COMPUTING) and not only_checked:
            read.add(f"{type(self).__name__}.{name}")
        return plain(self, name)

    with pytest.MonkeyPatch.context() as patch:
        for kind in kinds:
            patch.setattr(kind, "__getattribute__", recording, raising=False)
        yield read


def options_of(kind: type, group: str) -> dict[str, str]:
    """Return the options of a group by the field that holds them: {"TrainSettings.lr": "train.lr"}."""
    return {f"{kind.__name__}.{field.name}": f"{group}.{field.name}" for field in fields(kind)}


@pytest.mark.parametrize("code", READ)
def test_each_code_reads_what_it_says(command, code: LabelCode) -> None:
    kinds = {TrainSettings: "train", MdlSettings: "mdl", PublishedSettings: "train", ReplaySettings: "mdl"}
    options = {field: option for kind, group in kinds.items() for field, option in options_of(kind, group).items()}
    with recorded(*kinds) as read:
        assert command(MDL, *TINY, *CODES[code]).code == 0
    chooses = {"train.protocol", "mdl.code"}
    expected = {option for option in READ[code] if not option.startswith("dataset.")} - chooses
    found = {options[field] for field in read if not field.startswith(("PublishedSettings", "ReplaySettings"))}
    assert found - chooses == expected
    assert any(field.startswith("PublishedSettings") for field in read) == ("train.published" in READ[code])
    assert any(field.startswith("ReplaySettings") for field in read) == ("mdl.replay" in READ[code])


def test_scores_read_no_option_that_has_no_effect(command) -> None:
    groups = {
        DataSettings: "sample_info.data",
        KernelSettings: "sample_info.kernel",
        ReferenceSettings: "sample_info.references",
        SummarySettings: "sample_info.summaries",
        SampleInfoSettings: "sample_info",
    }
    options = {field: option for kind, group in groups.items() for field, option in options_of(kind, group).items()}
    words = ["sample_info.examples=12", "sample_info.training.steps=5", "sample_info.kernel.projection=exact"]
    unread = composed(SAMPLE_INFO.name, words, SampleInfoConfig).unread_options()
    with recorded(*groups) as read:
        assert command(SAMPLE_INFO, *words, "model.width=8", "logger.mode=disabled", "device=cpu").code == 0
    handed_on = {"sample_info.summaries.model"}  # to what makes nothing of it
    assert {options[field] for field in read} & unread.keys() <= handed_on
    assert {"sample_info.references.subsets", "sample_info.data.epsilon"} < unread.keys()
