"""The role of this process in a sweep: the sweep that it launched, and the run that it computes."""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, flag_override

from conf.error_messages import explain
from conf.sweep_files import Sweep, sweep_name


@dataclass
class SweepProcess:
    """The role of this process in a sweep.

    Attributes:
        launched: the sweep that this process launched; None in a single run, and in processes that a launcher starts.
        directory_of: composed configuration -> run directory, for the command of this process; raises ConfigError.
        planned_run: id that the current job's run had when the sweep was launched; None outside a sweep.
        waits_for_others: whether the current job waits while another process computes its run; otherwise it ends
            without an outcome, and is tried again later.
    """

    launched: Sweep | None = None
    directory_of: Callable[[DictConfig], Path] | None = None
    planned_run: str | None = None
    waits_for_others: bool = True

    @property
    def sweep(self) -> Sweep:
        """The launched sweep."""
        assert self.launched is not None
        return self.launched

    def reset(self) -> None:
        vars(self).update(vars(SweepProcess()))


process = SweepProcess()  # the only one


def typed_overrides(overrides: Any) -> list[str]:
    """Return a run's overrides from `hydra.overrides` as they were typed: references in them are not followed."""
    typed = OmegaConf.to_container(overrides.task)
    assert isinstance(typed, list)
    return typed


def begin_sweep(config: DictConfig) -> None:
    """Note that this process launches the sweep that is asked for, and make its folder below hydra.sweep.dir.

    Where that folder cannot be written, the sweep's files go to a temporary one: its runs may have finished all the
    same, and be somebody else's.
    """
    command = config.hydra.job.config_name
    parameters = [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()]
    words = [*parameters, *typed_overrides(config.hydra.overrides)]
    sweep = Sweep(Path(config.hydra.sweep.dir).expanduser() / sweep_name(command, words))
    try:
        sweep.save_request(command, words)
    except OSError as error:
        sweep = Sweep(Path(tempfile.mkdtemp(prefix="sweep-")) / sweep.directory.name)
        print(f"{explain(error, command, words)}; tables go to {sweep.directory}", file=sys.stderr)
        sweep.save_request(command, words)
    with flag_override(config.hydra, ["readonly", "struct"], False):
        config.hydra.sweep.dir = str(sweep.directory)
    process.launched = sweep
