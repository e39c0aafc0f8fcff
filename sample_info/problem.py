"""The learning problem that scores are about: examples, held-out inputs, a network at its initial weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from conf.schema import Target
from erasure.classes import ClassSubset
from erasure.pipeline import ErasedDataset
from harness.job import Job
from models.classifier import Classifier, count_parameters
from models.layers import Linear
from sample_info.eraser_fit import EraserFit, Refitting
from sample_info.kinds import Groups
from sample_info.linearized.training import LinearizedDescent
from sample_info.references.gradient_descent import GradientDescent
from sample_info.settings import SampleInfoSettings
from sample_info.trained_weights import TrainedWeights
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
        left_out: how many examples retraining leaves out, a random sample; None for all.
        influence_damping: of influence functions, added to the curvature of the mean loss.
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
    influence_damping: Sequence[float] = ()

    @property
    def training(self) -> GradientDescent:
        """The network's own; the learning rate is of the mean loss here, and of the sum there."""
        return GradientDescent.of(
            self.model,
            dict(self.weights),
            self.x,
            self.y.to(self.x.dtype),
            steps=int(self.descent.steps),
            learning_rate=self.descent.learning_rate / len(self.x),
            weight_decay=self.descent.weight_decay,
        )


@dataclass(frozen=True)
class Examples:
    """A job's examples, erased, on the device.

    Attributes:
        index: where each training example stands in the dataset's own images, [n].
        labels: true ones in 0..k-1, [n].
        given: labels that the network is trained on, [n]; wrong ones with label noise.
        groups: kinds of example beside classes; None where all are alike.
        x: inputs [n, C, H, W], standardised.
        held_out: test inputs [m, C, H, W].
        held_out_labels: [m].
        trained: weights to start from; None for random ones.
        eraser_fit: which examples the eraser is fitted on; None for the control.
        refitting: where it is fitted again without each.
    """

    job: Job
    settings: SampleInfoSettings
    dataset: ErasedDataset
    index: Tensor
    labels: Tensor
    given: Tensor
    groups: Groups | None
    x: Tensor
    held_out: Tensor
    held_out_labels: Tensor
    trained: TrainedWeights | None = None
    eraser_fit: EraserFit | None = None
    refitting: Refitting | None = None

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
            "eraser_fit": self.eraser_fit,
            "parameters": count_parameters(self.model),
        }

    @cached_property
    def model(self) -> Classifier:
        """The architecture, with as many outputs as needed."""
        shape = tuple(self.x.shape[1:])
        return Target(self.job.config["model"]).build(Classifier, shape, self.num_outputs).to(self.x.device).eval()

    def standardised(self, x: Tensor) -> Tensor:
        """Images as they are stored [n, C, H, W] to what networks see."""
        return (x - self._channels(self.dataset.channel_mean)) / self._channels(self.dataset.channel_std)

    def stored(self, x: Tensor) -> Tensor:
        """The inverse."""
        return x * self._channels(self.dataset.channel_std) + self._channels(self.dataset.channel_mean)

    def _channels(self, statistic: Tensor) -> Tensor:
        return statistic.to(self.x)[:, None, None]

    def targets(self, labels: Tensor) -> Tensor:
        """What outputs should be, [n, k] float64."""
        if self.num_outputs == 1:
            return labels.double()[:, None]  # as in the paper's released code
        return torch.nn.functional.one_hot(labels, self.num_outputs).double()

    def decisions(self, outputs: Tensor) -> Tensor:
        """The labels [n] that outputs [n, k] decide for."""
        return (outputs[:, 0] > 0.5).long() if self.num_outputs == 1 else outputs.argmax(1)

    def accuracy(self, outputs: Tensor, labels: Tensor) -> float:
        """Share of outputs [n, k] that decide for the right label."""
        return float((self.decisions(outputs) == labels).double().mean())

    def problem(self, seed: int, purpose: str = "init") -> Problem:
        """The training from one initialisation; another one for another purpose."""
        return Problem(
            model=self.model,
            weights=initial_weights(self.model, seed, self.settings.readout_gain, self.trained, purpose),
            x=self.x,
            y=self.targets(self.given),
            held_out=self.held_out,
            descent=self.settings.descent,
            seed=seed,
            batch_size=self.settings.batch_size,
            memory_bytes=self.settings.memory_bytes,
            left_out=self.settings.reference_examples,
            influence_damping=self.settings.influence_damping,
        )

    def without(self, problem: Problem, i: int) -> Problem:
        """The same training on data whose eraser has not seen example i."""
        assert self.refitting is not None
        x, held_out = (self.standardised(part.to(self.x)) for part in self.refitting.without(i))
        return replace(problem, x=x, held_out=held_out)


def restricted(job: Job, settings: SampleInfoSettings) -> Job:
    """The job on the classes that are asked for."""
    if settings.classes == "all":
        return job
    return replace(job, source=ClassSubset.of(job.source, settings.classes))


def initial_weights(
    model: Classifier,
    seed: int,
    readout_gain: float | None,
    trained: TrainedWeights | None = None,
    purpose: str = "init",
) -> dict[str, Tensor]:
    """w_0, drawn from the seed and the purpose, or as trained from that seed.

    Networks here start with a readout of zeros, at which no other layer has a gradient: a readout of some size makes
    the linearisation see all of them.

    Raises:
        ValueError: a gain for a model without a linear readout.
    """
    draws = generator(seed, "sample_info", purpose)
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
