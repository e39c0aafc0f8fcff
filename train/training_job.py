"""Jobs of commands that train: their precision, and whether their model can be trained."""

from dataclasses import replace
from typing import TypeVar

from harness.device_and_precision import pick_precision
from harness.job import Job
from models.classifier import Classifier
from train.settings import TrainingConfig

C = TypeVar("C", bound=TrainingConfig)
J = TypeVar("J", bound=Job)


def training_job(command: str, config: C) -> Job[C]:
    """Return the job of a command that trains, with `train.precision` resolved, never "auto".

    Raises:
        ValueError: a value that its part refuses, before anything is loaded.
    """
    precision = pick_precision(config.train.precision, config.device)
    return Job.from_config(command, replace(config, train=replace(config.train, precision=precision)))


def require_network(job: J) -> J:
    """Return the job, if its model is a network.

    Raises:
        ValueError: its model has no weights, and there is nothing to train.
    """
    if not issubclass(job.model, Classifier):
        name = job.config.model["name"]
        raise ValueError(
            f"model={name}: has no weights, and python -m {job.command} needs a network, e.g. model=mlp; "
            f"python -m mdl model={name} computes the codelength of the labels with this model"
        )
    return job
