"""The learning problem that scores are about: examples, held-out inputs, a network at its initial weights."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from conf.schema import Target
from erasure.cache import Cache
from erasure.classes import ClassSubset
from erasure.pipeline import ErasedDataset, positions
from erasure.source import stratified_split
from models.classifier import Classifier, count_parameters
from models.layers import Linear
from sample_info.label_noise import flip_labels
from sample_info.linearized_descent import LinearizedDescent
from sample_info.settings import SampleInfoSettings
from sample_info.trained_weights import TrainedWeights
from train.data import DeviceImages, to_device
from train.job import Job, erased
from train.randomness import generator


@dataclass(frozen=True)
class Problem:
    """One initialisation's training: all that scores, and the references they are compared with, depend on.

    Attributes:
        model: in evaluation mode; its own parameters are w_0.
        weights: w_0, by parameter name.
        x: training inputs [n, C, H, W] float32, standardised.
        y: targets [n, k] float64: 0 and 1 for the first and the second of two classes (k = 1), else one-hot.
        held_out: inputs [m, C, H, W] on which predictions are compared.
        descent: the training.
        seed: of the initialisation.
        batch_size: examples per backward pass.
        memory_bytes: for intermediate results.
        left_out: how many examples references leave out, a random sample; None for all.
    """

    model: Classifier
    weights: Mapping[str, Tensor]
    x: Tensor
    y: Tensor
    held_out: Tensor
    descent: LinearizedDescent
    seed: int
    batch_size: int
    memory_bytes: float
    left_out: int | None = None


@dataclass(frozen=True)
class Examples:
    """A job's examples, erased, on the device.

    Attributes:
        index: where each training example stands in the dataset's own images, [n].
        chosen: where it stands in the training split, [n].
        labels: true ones in 0..k-1, [n].
        given: labels that the network is trained on, [n]; wrong ones with label noise.
        x: inputs [n, C, H, W].
        held_out: test inputs [m, C, H, W].
        held_out_labels: [m].
        trained: weights to start from; None for random ones.
    """

    job: Job
    settings: SampleInfoSettings
    dataset: ErasedDataset
    index: Tensor
    chosen: Tensor
    labels: Tensor
    given: Tensor
    x: Tensor
    held_out: Tensor
    held_out_labels: Tensor
    trained: TrainedWeights | None = None

    @property
    def num_outputs(self) -> int:
        """One for two classes, else one per class."""
        k = len(self.dataset.class_names)
        return 1 if k == 2 else k

    @property
    def described(self) -> dict[str, Any]:
        """What result.json says of it."""
        return {
            "seeds": list(self.job.config["seeds"]),
            "num_classes": len(self.dataset.class_names),
            "train_size": len(self.x),
            "held_out_size": len(self.held_out),
            "parameters": count_parameters(self.model),
        }

    @cached_property
    def model(self) -> Classifier:
        """The architecture, with as many outputs as needed."""
        shape = tuple(self.x.shape[1:])
        return Target(self.job.config["model"]).build(Classifier, shape, self.num_outputs).to(self.x.device).eval()

    def targets(self, labels: Tensor) -> Tensor:
        """What outputs should be, [n, k] float64."""
        if self.num_outputs == 1:
            return labels.double()[:, None]  # as in the paper's released code
        return torch.nn.functional.one_hot(labels, self.num_outputs).double()

    def accuracy(self, outputs: Tensor, labels: Tensor) -> float:
        """Share of outputs [n, k] that decide for the right label."""
        decided = (outputs[:, 0] > 0.5).long() if self.num_outputs == 1 else outputs.argmax(1)
        return float((decided == labels).double().mean())

    def problem(self, seed: int) -> Problem:
        """The training from one initialisation."""
        return Problem(
            model=self.model,
            weights=initial_weights(self.model, seed, self.settings.readout_gain, self.trained),
            x=self.x,
            y=self.targets(self.given),
            held_out=self.held_out,
            descent=self.settings.descent,
            seed=seed,
            batch_size=self.settings.batch_size,
            memory_bytes=self.settings.memory_bytes,
            left_out=self.settings.reference_examples,
        )


def restricted(job: Job, settings: SampleInfoSettings) -> Job:
    """The job on the classes that are asked for."""
    if settings.classes == "all":
        return job
    return replace(job, source=ClassSubset.of(job.source, settings.classes))


def load(job: Job) -> Examples:
    """Erase (or fetch) the dataset, choose its examples, bring them to the device."""
    settings = SampleInfoSettings(**job.config["sample_info"])
    trained = None if settings.initial_weights is None else TrainedWeights.read(settings.initial_weights)
    dataset = erased(job)
    data = to_device(dataset, crop_padding=0.0, flip=False, device=job.device)
    train, test = data["train"], data["test"]
    chosen = _sample(train, settings.examples, settings.subset_seed)
    held_out = _sample(test, settings.held_out, settings.subset_seed)
    labels = train.labels[chosen]
    examples = Examples(
        job=job,
        settings=settings,
        dataset=dataset,
        index=positions(job.source, Cache(job.config["cache_dir"]))["train"][chosen.cpu()],
        chosen=chosen,
        labels=labels,
        given=flip_labels(labels, len(dataset.class_names), settings.label_noise, settings.subset_seed)[0],
        x=train.images[chosen],
        held_out=test.images[held_out],
        held_out_labels=test.labels[held_out],
        trained=trained,
    )
    if trained is not None:
        trained.require(examples.model, job.model_identity, job.config["seeds"], readout=settings.readout_gain is None)
    return examples


def initial_weights(
    model: Classifier, seed: int, readout_gain: float | None, trained: TrainedWeights | None = None
) -> dict[str, Tensor]:
    """w_0, drawn from the seed, or as trained from it.

    Networks here start with a readout of zeros, at which no other layer has a gradient: a readout of some size makes
    the linearisation see all of them.

    Raises:
        ValueError: a gain for a model without a linear readout.
    """
    draws = generator(seed, "sample_info", "init")
    model.reset_parameters(draws)
    if trained is not None:
        trained.copy_to(model, seed, readout=readout_gain is None)
    if readout_gain is not None:
        readout = getattr(model, "readout", None)
        if not isinstance(readout, Linear):
            raise ValueError(
                f"sample_info.readout_gain={readout_gain}: {type(model).__name__} has no linear readout; "
                "set sample_info.readout_gain=null"
            )
        readout.reset_parameters(draws, gain=readout_gain)
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def _sample(split: DeviceImages, most: int, seed: int) -> Tensor:
    """Indices of a stratified sample of a split, in order; all of it if it has no more."""
    if len(split) <= most:
        return torch.arange(len(split), device=split.labels.device)
    return stratified_split(split.labels.cpu(), most, seed)[1].to(split.labels.device)
