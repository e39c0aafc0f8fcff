"""--help: one page on two screens, and topics of their own."""

import re

import pytest

from conf.check import ConfigError
from conf.commands import COMMANDS
from conf.groups import choices, chosen, groups
from conf.help import help_text


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_fits_on_two_screens(command: str) -> None:
    lines = help_text(command, "what it does").splitlines()
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 120
    assert "--help experiments" in "\n".join(lines)
    assert not any(line.split()[:1] == [name] for line in lines for name in choices("experiment"))


def test_experiments_are_those_of_the_command() -> None:
    listed = {command: {line.split()[0] for line in help_text(command, "", ["--help", "experiments"]).splitlines()[1:]}
              for command in COMMANDS}  # fmt: skip
    assert "table16" in listed["mdl"]
    assert "mlp_sizes" in listed["mdl"] & listed["train"]
    assert "two_sources" in listed["sample_info"]
    assert "table16" not in listed["train"] | listed["sample_info"]
    assert set.union(*listed.values()) == set(choices("experiment"))


def test_a_group_is_a_topic_and_keys_are_those_of_the_choice() -> None:
    assert "\n  * qleace " in help_text("mdl", "", ["eraser=qleace", "--help", "eraser"])
    launchers = help_text("mdl", "", ["--help", "hydra/launcher"])
    assert "\n  * in_process " in launchers
    assert re.search(r"\n  hydra.launcher.partition: null +# ", launchers)
    assert max(map(len, launchers.splitlines())) <= 120
    assert "  hydra.launcher.workers: null" in help_text("mdl", "", ["hydra/launcher=local", "--help"])
    page = help_text("mdl", "", ["dataset=image_folder", "model=linear", "--help"])
    assert "  dataset.root: ???" in page
    assert "model.width" not in page
    with pytest.raises(ConfigError, match="unknown help topic eraesr: did you mean eraser"):
        help_text("mdl", "", ["--help", "eraesr"])


@pytest.mark.parametrize("command", ["mdl", "train"])
def test_the_page_names_every_group_choice_and_key(command: str) -> None:
    text = help_text(command, "")
    for group, choice in ((kind, name) for kind in groups() if kind != "experiment" for name in choices(kind)):
        if group not in chosen(command, ()):
            assert f"  {group}=" not in text
            continue
        assert f"{group}=" in text
        assert choice in text
    for key in ("model.width: 128", "train.lr: 3.0e-3", "seeds: [0", "runs_dir: runs"):
        assert key in text
    page = help_text(command, "", ["model=linear", "train=quick", "dataset=image_folder"])
    assert "  model.width" not in page
    assert re.search(r"train.patience_steps: 500 +# optimiser steps without improvement", page)
    assert "dataset.root: ???" in page
    mixed = help_text(command, "", ["dataset=mnist_svhn"])
    assert "dataset.parts.svhn.*: keys of dataset=svhn; another: dataset@dataset.parts.svhn=CHOICE" in mixed
    assert "  dataset.size: 32  " in mixed
