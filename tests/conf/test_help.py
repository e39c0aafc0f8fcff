"""--help: one page on two screens, and topics of their own."""

import pytest

from conf.check import ConfigError
from conf.groups import choices
from conf.help import help_text
from scripts.commands import COMMANDS


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
    page = help_text("mdl", "", ["dataset=image_folder", "model=linear", "--help"])
    assert "  dataset.root: ???" in page
    assert "model.width" not in page
    with pytest.raises(ConfigError, match="unknown help topic eraesr: did you mean eraser"):
        help_text("mdl", "", ["--help", "eraesr"])
