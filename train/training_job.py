"""Jobs of commands that train: their precision, and whether their model can be trained."""

from dataclasses import replace
from typing import TypeVar

from harness.device_and_precision import pick_precision
from harness.experiment import Experiment
from models.classifier import Classifier
from train.settings import TrainingConfig

C = TypeVar("C", bound=TrainingConfig)
J = TypeVar("J", bound=Experiment)


def training_job(command: str, config: C) -> Experiment[C]:
    """Return the experiment of a command that trains, with `train.precision` resolved, never "auto".

    Raises:
        ValueError: a value that its part refuses, before anything is loaded.
    """
    precision = pick_precision(config.train.precision, config.device)
    return Experiment.from_config(command, replace(config, train=replace(config.train, precision=precision)))


def require_network(experiment: J) -> J:
    """Return the experiment, if its model is a network.

    Raises:
        ValueError: its model has no weights, and there is nothing to train.
    """
    if not issubclass(experiment.model, Classifier):
        name = experiment.config.model["name"]
        raise ValueError(
            f"model={name}: has no weights, and python -m {experiment.command} needs a network, e.g. model=mlp; "
            f"python -m mdl model={name} computes the codelength of the labels with this model"
        )
    return experiment
