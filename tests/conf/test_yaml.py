"""Every YAML composes, satisfies its schema, lists every option it has, and can be instantiated."""

import functools
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from conf.check import keyword_only
from conf.commands import COMMANDS, command_named, config_of
from conf.compose import VERSION_BASE, Composer, choices_of
from conf.compose import composed as compose_checked
from conf.groups import CONF, choices, chosen, groups, keys
from conf.help import help_text
from conf.schema import plain, validate
from conf.target_class import TARGETS, Target, target_of
from conf.unread_options import require_read
from erasure.eraser import Eraser
from harness.command import Command
from harness.experiment import Experiment
from mdl.__main__ import COMMAND as MDL
from models.classifier import Model
from sample_info.__main__ import COMMAND as SAMPLE_INFO
from train.__main__ import COMMAND as TRAIN

EVERY_CHOICE = [(group, choice) for group in groups() if group != "experiment" for choice in choices(group)]
MANDATORY = {
    "arrays": ["dataset.path=/nowhere.npz"],
    "image_folder": ["dataset.root=/nowhere"],
    "hf": ["dataset.path=/nowhere"],
    "sui_table1_pretrained_cnn": ["experiment.trained=/nowhere"],
    "sui_table1_pretrained_resnet": ["experiment.trained=/nowhere"],
}


@functools.cache
def composed(command: Command, *overrides: str) -> Any:
    return compose_checked(command.name, overrides, config_of(command.name))


def command_with(group: str) -> Command:
    """Return the first command whose configuration has a group."""
    return next(command for command in map(command_named, COMMANDS) if group in chosen(command.name, ()))


@pytest.mark.parametrize(("group", "choice"), EVERY_CHOICE, ids=["/".join(c) for c in EVERY_CHOICE])
def test_every_choice_composes_and_instantiates(group: str, choice: str) -> None:
    command = command_with(group)
    config = composed(command, f"{group}={choice}", *MANDATORY.get(choice, []))
    experiment = Experiment.from_config(command.name, config)
    assert experiment.source.name
    Target(config.model, Model).build((1, 32, 32), 10)
    assert Target(config.eraser, Eraser).resolve()


@pytest.mark.parametrize(("group", "choice"), EVERY_CHOICE, ids=["/".join(c) for c in EVERY_CHOICE])
def test_every_choice_lists_every_option(group: str, choice: str) -> None:
    listed = keys(group, choice)
    if group in TARGETS:
        assert set(listed) == {"name", "_target_", *keyword_only(target_of(group, listed).schema)}
    else:
        assert_lists_all(listed, keyword_only(config_of(command_with(group).name))[group])


def assert_lists_all(listed: Mapping[str, Any], settings: type) -> None:
    options = keyword_only(settings)
    assert set(listed) == set(options)
    for key, kind in options.items():
        if is_dataclass(kind):
            assert isinstance(kind, type)
            assert_lists_all(listed[key], kind)


@pytest.mark.parametrize("command", [MDL, TRAIN], ids=lambda command: command.name)
def test_defaults_compose_for_the_commands_that_train(command) -> None:
    config = composed(command)
    assert config.eraser["name"] == "leace"
    assert Experiment.from_config(command.name, config).identity().startswith(f"{command.name}-digits-leace-mlp-")


def test_sample_info_scores_the_control_on_a_wide_network_by_default() -> None:
    config = composed(SAMPLE_INFO)
    assert config.eraser == keys("eraser", "control")
    assert (config.model["width"], config.model["depth"]) == (1024, 1)
    assert not hasattr(config, "train")
    text = help_text(SAMPLE_INFO.name, SAMPLE_INFO.purpose)
    for line in ("*control", "*wide_mlp", "model.width: 1024", "sample_info.training.steps: 2000", "seeds: [0]"):
        assert line in text


@pytest.mark.parametrize("experiment", choices("experiment"))
def test_an_experiment_says_how_it_is_launched(experiment: str) -> None:
    first, *header = (CONF / "experiment" / f"{experiment}.yaml").read_text().splitlines()
    assert first == "# @package _global_"
    (runs,) = [int(line.split()[1]) for line in header if line.startswith("# ") and " runs" in line]
    for command in launched(header):
        assert f"# python -m {command.name} -m +experiment={experiment}" in header
        assert runs == math.prod(len(values) for values in swept_values(command.name, [f"+experiment={experiment}"]))


DOCUMENTED = re.findall(
    rf"^\| [^|]* \| `((?:{'|'.join(COMMANDS)}) [^`]*)` \| (\d+) \|",
    (CONF.parent / "docs/experiments.md").read_text(),
    re.MULTILINE,
)


@pytest.mark.parametrize(("command", "runs"), DOCUMENTED, ids=[command for command, _ in DOCUMENTED])
def test_the_command_of_a_figure_or_table_composes_with_every_value_that_it_sweeps_over(
    command: str, runs: str
) -> None:
    name, *words = shlex.split(command)
    overrides = [word for word in words if word != "-m"]
    swept = swept_values(name, overrides)
    assert int(runs) == math.prod(map(len, swept))
    assert (runs == "1") or "-m" in words
    with initialize_config_dir(str(CONF), **VERSION_BASE):
        composer = Composer(name, GlobalHydra.instance().config_loader())  # as a sweep does
        for i in range(max(map(len, swept))):
            one_of_each = [values[i % len(values)] for values in swept]
            validate(plain(composer(one_of_each)), config_of(name))


def test_every_experiment_is_in_the_table_of_commands() -> None:
    words = {word for command, _ in DOCUMENTED for word in shlex.split(command)}
    assert [name for name in choices("experiment") if f"+experiment={name}" not in words] == []
    assert len(choices("experiment")) <= 20


@pytest.mark.parametrize("experiment", choices("experiment"))
def test_what_an_experiment_chooses_is_what_runs_and_has_an_effect(experiment: str) -> None:
    """A command's own choice of a model outranks one in an experiment's defaults."""
    text = (CONF / "experiment" / f"{experiment}.yaml").read_text()
    overridden = re.findall(r"^  - override /(\w+): (\w+)$", text, re.MULTILINE)
    for command in launched(text.splitlines()):
        config = composed(command, f"+experiment={experiment}", *MANDATORY.get(experiment, []))
        for group, choice in overridden:
            fresh = composed(command, f"{group}={choice}", *MANDATORY.get(choice, [])).plain[group]
            assert config.plain[group].get("_target_", group) == fresh.get("_target_", group), (group, choice)
        if command is SAMPLE_INFO:
            require_read(config, config.unread_options())
        else:
            command.experiment(config)


def test_a_swept_size_reaches_the_model_and_no_further() -> None:
    config = composed(MDL, "+experiment=mlp_sizes", "experiment.size=[256,3]")
    assert (config.model["width"], config.model["depth"]) == (256, 3)
    assert "experiment" not in config.plain


def launched(header: list[str]) -> list[Command]:
    """Return the commands that an experiment's header names."""
    return [command_named(line.split()[3]) for line in header if line.startswith("# python -m ")]


def swept_values(command: str, words: list[str]) -> list[list[str]]:
    """Return the overrides of a sweep, a list of alternatives for each key; later ones replace an experiment's own."""
    experiment = [word for word in words if word.startswith("+experiment=")]
    with initialize_config_dir(str(CONF), **VERSION_BASE):
        params = compose(command, experiment, return_hydra_config=True).hydra.sweeper.params or {}
        return [*choices_of(GlobalHydra.instance().config_loader(), params, words).values()]
