"""A training before it starts: its experiment, the data on the device, and the architecture."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch

from erasure.store.checked_files import save_tensors
from harness.experiment import Experiment, Prepared, erased, network
from harness.run_directory import Run
from models.classifier import count_parameters
from train.checkpoint import Checkpoints
from train.device_images import DeviceImages, to_device
from train.ensemble import Ensemble
from train.epoch_trainer import Fit
from train.settings import TrainingConfig, TrainSettings
from train.stacking_rule import Stacking, choose, step_multiply_adds

WEIGHTS = "weights.safetensors"  # stacked weights [S, ...] by name, each seed's at its lowest validation loss

log = logging.getLogger(__name__)
C_co = TypeVar("C_co", bound=TrainingConfig, covariant=True)  # the configuration of an experiment


@dataclass(frozen=True)
class PreparedTraining(Prepared[C_co]):
    """An experiment's data on the device, and the architecture to train."""

    data: Mapping[str, DeviceImages]
    ensemble: Ensemble

    @property
    def settings(self) -> TrainSettings:
        return self.experiment.config.train

    @property
    def parameters(self) -> int:
        return count_parameters(self.ensemble.model)

    @cached_property
    def stacking(self) -> Stacking:
        """The number of seeds that train at once.

        Raises:
            ValueError: train.stack=all with a network that `torch.func.vmap` cannot run.
        """
        stacking = choose(self.ensemble, len(self.seeds), self.data["train"], self.settings)
        if len(self.seeds) > 1:
            log.info("seeds are trained %s: %s", stacking.how, stacking.why)
        return stacking

    def checkpoints(self, run: Run) -> Checkpoints:
        """Return the checkpoints of the run's unfinished trainings."""
        return Checkpoints(run.directory, self.settings.checkpoint_every_s, run.require_lease)

    def save_weights(self, run: Run, fitted: Fit) -> None:
        """Save every seed's best weights after training on everything as `WEIGHTS` in the run's directory."""
        run.require_lease()
        about = {"seeds": list(self.seeds), "model": self.experiment.model_identity}
        save_tensors(run.directory / WEIGHTS, fitted.best, about)

    @property
    def step_multiply_adds(self) -> float:
        """Number of multiplications in a forward pass of one batch of all seeds that train together."""
        return step_multiply_adds(self.ensemble, self.stacking.stack, self.data["train"], self.settings)


def prepare(experiment: Experiment[C_co]) -> PreparedTraining[C_co]:
    """Erase the dataset or read it from the cache, copy it to the device, and build the architecture."""
    dataset, settings = erased(experiment), experiment.config.train
    data = to_device(dataset, crop_padding=settings.crop_padding, flip=experiment.source.flip, device=experiment.device)
    shape, k = data["train"].image_shape, len(dataset.class_names)
    model = network(experiment, experiment.config.model, shape, k)
    precision = getattr(torch, settings.precision)
    ensemble = Ensemble(model, precision, eval_batch_size=settings.eval_batch_size)
    return PreparedTraining(experiment, dataset, data, ensemble)
