"""Options of compared runs: the setting of a table, and the options that distinguish its rows."""

import functools
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from conf import Options, flatten
from conf.check import ConfigError, check, keyword_only
from conf.commands import config_of
from conf.groups import preset, readable
from conf.run_identity import identifying
from conf.schema import Config


def setting(config: Options, command: str) -> Options:
    """Return a run's setting: the nearest preset of each section, and the options that differ from it.

    Options that distinguish rows do not count in the distance to a preset. If several presets are equally near, none is
    named, and the options are those that differ from `default`. This happens e.g. to `quick` and `default` if
    `mdl.num_chunks` is that of neither. Numbers of different settings do not belong in one column.
    """
    described, counted = {}, identifying(config, command)
    kind, names = config_of(command), (config["model"]["name"], config["eraser"]["name"])
    for group in kind.table_sections():
        if group in counted:
            options = flatten(counted[group], group)
            unlike = {choice: _unlike(options, _preset(group, choice, kind, *names)) for choice in readable(group)}
            distances = {choice: len(options.keys() - kind.row_options) for choice, options in unlike.items()}
            fewest = min(distances.values())
            nearest = [choice for choice, distance in distances.items() if distance == fewest]
            choice = "default" if fewest and len(nearest) > 1 else min(nearest, key=lambda near: len(unlike[near]))
            described |= ({} if fewest and len(nearest) > 1 else {group: choice}) | unlike[choice]
    return described | ({"dtype": config["dtype"]} if config.get("dtype", "float32") != "float32" else {})


@functools.cache
def _preset(group: str, choice: str, kind: type[Config], model: str, eraser: str) -> Options:
    """Return the options of a preset by dotted names, resolved for this model and eraser and with defaults."""
    config = {group: preset(group, choice), "model": {"name": model}, "eraser": {"name": eraser}}
    with suppress(ConfigError):  # it has no options for this model or eraser, or a user's preset is invalid
        config = kind.resolved(config)
        config[group] = asdict(check(group, config[group], keyword_only(kind)[group])) | config[group]
    return flatten(config[group], group)


def as_text(setting: Options) -> str:
    """Return a setting in the form of a command line: "train=paper, train.lr=0.003"."""
    return ", ".join(f"{key}={whole(value)}" for key, value in setting.items())


def setting_of_table(config: Options, command: str) -> Options:
    """Return the part of `setting` that all runs of a table share."""
    in_rows = config_of(command).row_options
    return {key: value for key, value in setting(config, command).items() if key not in in_rows}


def model_of_row(config: Options, command: str) -> Options:
    """Return the options that distinguish rows: the model and the command's `row_options` (options and sections)."""
    counted, kind = identifying(config, command), config_of(command)
    of_setting = {key: value for key, value in setting(config, command).items() if key in kind.row_options}
    sections = {section: counted[section] for section in kind.sections() if section in kind.row_options}
    return {"model": config["model"], "setting": of_setting, **sections}


def _unlike(options: Options, preset: Options) -> Options:
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}  # as in YAML
    return {key: value for key, value in plain.items() if key not in preset or preset[key] != value}


def without_paths(dataset: Options) -> Options:
    """Return a dataset's options without its folders, but with the last part of an image folder's path.

    That part names the content: cifar10 in /home/me/data/cifar10.
    """
    others = {
        key: without_paths(value) if isinstance(value, dict) else value
        for key, value in dataset.items()
        if key != "root"
    }
    is_folder = dataset.get("name") == "image_folder" and "root" in dataset
    return others | ({"root": Path(str(dataset["root"])).name} if is_folder else {})


def whole(value: Any) -> Any:
    """Return a value as on a command line: 10 for 10.0 and true for True."""
    if isinstance(value, bool):
        return str(value).lower()
    return int(value) if isinstance(value, float) and value.is_integer() else value
