"""The training of one seed: initial weights, inputs and targets."""

import functools
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import one_hot

from models.classifier import Classifier
from models.stackable_layers import Linear
from models.tangent.jacobian import Projection, Weights, network_outputs
from models.tangent.kernel import Kernels, ntk, unless_cheap
from sample_info.gradient_descent import GradientDescent
from sample_info.linearized.descent import LinearizedDescent
from sample_info.settings import KernelSettings
from sample_info.trained_weights import TrainedWeights
from train.randomness import generator

EXACT_KERNEL = KernelSettings(projection="exact")


@dataclass(frozen=True)
class TrainingProblem:
    """The inputs of the scores and references of one seed."""

    model: Classifier  # in evaluation mode; its own parameters are w_0
    weights: Weights  # w_0, by parameter name
    x: Tensor  # training inputs [n, C, H, W] float32, standardised
    y: Tensor  # targets [n, k] float64: 0 and 1 for the first and the second of two classes (k = 1), else one-hot
    held_out: Tensor  # inputs [m, C, H, W] on which predictions are compared
    descent: LinearizedDescent
    seed: int  # of the initialisation
    memory_bytes: float  # for intermediate results
    kernel: KernelSettings = EXACT_KERNEL
    held_out_y: Tensor | None = None  # targets [m, k] of the held-out inputs, for effects on their losses

    def outputs(self, x: Tensor) -> Tensor:
        """Return f(x) at the weights, [n, k] float64."""
        return network_outputs(self.model, self.weights, x)

    def kernels(self) -> Kernels:
        """Compute the tangent kernels at the weights."""
        draws = functools.partial(generator, self.seed, "projection", "coordinates")
        projection = None
        if self.kernel.projection == "auto":
            projection = unless_cheap(Projection(draws), self.model, self.weights, self.x, mean_of_outputs=False)
        return ntk(self.model, self.weights, self.x, self.held_out, projection, memory_bytes=self.memory_bytes)

    @property
    def training(self) -> GradientDescent:
        """The training of the network itself; its η refers to the summed loss, that of `descent` to the mean loss."""
        rates = {"learning_rate": self.descent.learning_rate / len(self.x), "weight_decay": self.descent.weight_decay}
        y, steps = self.y.to(self.x.dtype), int(self.descent.t)
        return GradientDescent.of(self.model, self.weights, self.x, y, steps=steps, **rates)


def initial_weights(
    model: Classifier,
    seed: int,
    readout_gain: float | None,
    trained: TrainedWeights | None = None,
    purpose: str = "init",
) -> Weights:
    """Return w_0, drawn for the seed and purpose, or trained from this seed.

    Models start with a readout of zeros, for which other layers have no gradient. `readout_gain` draws a random
    readout, so that all layers enter the linearisation.

    Raises:
        ValueError: `readout_gain` is set for a model without a linear readout.
    """
    draws = generator(seed, "sample_info", purpose)
    model.reset_parameters(draws)
    if trained is not None:
        trained.copy_to(model, seed, readout=readout_gain is None)
    if readout_gain is not None:
        readout = getattr(model, "readout", None)
        if not isinstance(readout, Linear):
            raise ValueError(
                f"sample_info.training.readout_gain={readout_gain}: {type(model).__name__} has no linear readout; "
                "set sample_info.training.readout_gain=null"
            )
        readout.reset_parameters(draws, gain=readout_gain)
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def outputs_for(num_classes: int) -> int:
    """Return the number of outputs: one for two classes, else one per class."""
    return num_classes if num_classes > 2 else 1


def targets(labels: Tensor, outputs: int) -> Tensor:
    """Return training targets [n, k] float64 for labels [n] and k outputs."""
    return (one_hot(labels, outputs) if outputs > 1 else labels[:, None]).double()


def decisions(outputs: Tensor) -> Tensor:
    """Return the predicted classes [n] of outputs [n, k].

    One column is thresholded at ½: its targets are 0 and 1, as in the paper's released code.
    """
    return (outputs[:, 0] > 0.5).long() if outputs.shape[1] == 1 else outputs.argmax(1)


def accuracy(outputs: Tensor, labels: Tensor) -> float:
    """Return the share of outputs [n, k] whose decisions are the labels [n]."""
    return float((decisions(outputs) == labels).double().mean())
