"""A training before it starts: its job, the data on the device, and the architecture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import torch

from erasure.pipeline import ErasedDataset
from harness.device_and_precision import pick_precision
from harness.job import Job, erased, network
from models.classifier import Classifier, count_parameters
from train.data import DeviceImages, to_device
from train.ensemble import Ensemble
from train.settings import TrainingConfig, TrainSettings

C = TypeVar("C", bound=TrainingConfig)
C_co = TypeVar("C_co", bound=TrainingConfig, covariant=True)  # the configuration of a job
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


@dataclass(frozen=True)
class PreparedData:
    """A job's data, on the device."""

    job: Job
    dataset: ErasedDataset
    data: Mapping[str, DeviceImages]

    @property
    def num_classes(self) -> int:
        return len(self.dataset.class_names)

    @property
    def seeds(self) -> Sequence[int]:
        return self.job.config.seeds

    @property
    def described(self) -> Mapping[str, Any]:
        """The fields of result.json that describe the data."""
        return {
            "seeds": list(self.seeds),
            "num_classes": self.num_classes,
            "train_size": len(self.data["train"]),
            "parameters": self.parameters,
        }

    @property
    def parameters(self) -> int:
        """The number of fitted parameters."""
        raise NotImplementedError


@dataclass(frozen=True)
class PreparedTraining(PreparedData, Generic[C_co]):
    """A job's data on the device, and the architecture to train."""

    job: Job[C_co]
    ensemble: Ensemble

    @property
    def settings(self) -> TrainSettings:
        return self.job.config.train

    @property
    def parameters(self) -> int:
        return count_parameters(self.ensemble.model)


def load(job: Job[C_co]) -> PreparedTraining[C_co]:
    """Erase (or fetch) the dataset, bring it to the device, build the architecture."""
    dataset, settings = erased(job), job.config.train
    data = to_device(dataset, crop_padding=settings.crop_padding, flip=job.source.flip, device=job.device)
    shape, k = data["train"].image_shape, len(dataset.class_names)
    model = network(job, job.config.model, shape, k)
    precision = getattr(torch, settings.precision)
    ensemble = Ensemble(model, precision, eval_batch_size=settings.eval_batch_size)
    return PreparedTraining(job, dataset, data, ensemble)
