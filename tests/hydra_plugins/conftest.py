"""A tiny sweep, its launchers, and its runs."""

import pytest
from hydra.core.plugins import Plugins

from harness.run_directory import Run
from harness.sweep_files import SweepJob
from mdl.__main__ import COMMAND as MDL
from scripts.manage_sweep.status import jobs_by_id
from tests.made_up_runs import made_up

TINY = ["model=linear", "train=quick", "train.max_epochs=2", "mdl.num_chunks=2", "seeds=[0]", "logger.mode=disabled"]
LOCAL = ["-m", "hydra/launcher=local", "hydra.launcher.workers=2"]
SLURM = ["-m", "hydra/launcher=slurm", "device=cpu"]


@pytest.fixture
def launcher():
    """A launcher's class by its name, as Hydra knows it: it loads its plugins' modules itself, and anew."""
    return lambda name: Plugins.instance().class_name_to_class[f"hydra_plugins.erasure_mdl.{name}"]


def run_of(*overrides: str) -> Run:
    """The run of a command line of `python -m mdl`."""
    (name,) = jobs_by_id(MDL, overrides)
    return Run("runs", name)


def finish(job: SweepJob) -> None:
    run = Run(job.run.parent, job.run.name)
    with run.claim():
        run.finish(made_up(run.id))
