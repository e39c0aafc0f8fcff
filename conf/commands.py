"""The list of commands `python -m NAME`; each is a package NAME.

A command has a primary configuration `conf/NAME.yaml`. Its own options are the section NAME of the configuration, with
the choices `conf/NAME/default.yaml` and others. The package contains the `harness.command.Command` (`COMMAND` in
NAME/__main__.py), the class of its configuration, the class of its results, and the tables and figures of reports. They
are imported by name on first use, because the packages import `conf` and `harness`, and --help needs none of them.
"""

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from conf.target_class import imported

if TYPE_CHECKING:
    from conf.schema import Config


@dataclass(frozen=True)
class Members:
    """Qualified names of the parts of a command's package that other packages use.

    Attributes:
        config: class of its configuration, a `conf.schema.Config` with a section of the command's name.
        result: class of its results, a `harness.result.Result`.
        report: module with `sections`, its tables and figures in a report, and `COLUMNS` that a report may show.
    """

    config: str
    result: str
    report: str


COMMANDS = {  # in the order of reports
    "mdl": Members("mdl.settings.MdlConfig", "mdl.result.MdlResult", "mdl.codelength_report"),
    "train": Members("train.settings.TrainConfig", "train.result.TrainResult", "train.final_losses_report"),
    "sample_info": Members(
        "sample_info.settings.SampleInfoConfig", "sample_info.result.InformationResult", "sample_info.report.sections"
    ),
}


def command_named(name: str) -> Any:
    """Return the `harness.command.Command` of `python -m NAME`."""
    return imported(f"{name}.__main__.COMMAND")


def config_of(command: str) -> "type[Config]":
    """Return the class of a command's configuration, e.g. `mdl.settings.MdlConfig` for "mdl"."""
    return imported(COMMANDS[command].config)


def result_type(command: str) -> Any:
    """Return the class of a command's results, e.g. `mdl.result.MdlResult` for "mdl"."""
    return imported(COMMANDS[command].result)


def report_module(command: str) -> Any:
    """Return the module with a command's tables and figures of reports, e.g. `mdl.codelength_report` for "mdl"."""
    return importlib.import_module(COMMANDS[command].report)
