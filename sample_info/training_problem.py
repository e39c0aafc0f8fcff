"""Training from one initialisation: weights, drawn or from a run of `python -m train`, inputs and targets."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from conf import Options
from erasure.store.storage import DamagedFileError, checksum, load_tensors
from models.classifier import Classifier
from models.layers import Linear
from models.tangent.jacobian import EXACT, Projection, Weights, network_outputs
from models.tangent.ntk import Kernels, TangentOptions, ntk
from sample_info.linearized.training import LinearizedDescent
from sample_info.references.retraining import GradientDescent
from train.randomness import generator
from train.whole import WEIGHTS

_REMEDY = "score with the model.* options of that python -m train run, on images of the same shape"


@dataclass(frozen=True)
class TrainingProblem:
    """Everything that scores and references of one seed are computed from."""

    model: Classifier  # in evaluation mode; its own parameters are w_0
    weights: Weights  # w_0, by parameter name
    x: Tensor  # training inputs [n, C, H, W] float32, standardised
    y: Tensor  # targets [n, k] float64: 0 and 1 for the first and the second of two classes (k = 1), else one-hot
    held_out: Tensor  # inputs [m, C, H, W] on which predictions are compared
    descent: LinearizedDescent
    seed: int  # of the initialisation
    batch_size: int  # examples per backward pass
    memory_bytes: float  # for intermediate results

    def outputs(self, x: Tensor) -> Tensor:
        """f(x) at the weights, [n, k] float64."""
        return network_outputs(self.model, self.weights, x, batch_size=self.batch_size)

    def kernels(self, projection: Projection = EXACT) -> Kernels:
        """Tangent kernels at the weights."""
        settings = TangentOptions(projection=projection, batch_size=self.batch_size, memory_bytes=self.memory_bytes)
        return ntk(self.model, self.weights, self.x, self.held_out, settings)

    @property
    def training(self) -> GradientDescent:
        """Training of the network itself; its learning rate is for the summed loss, that of `descent` for the mean."""
        rates = {"learning_rate": self.descent.learning_rate / len(self.x), "weight_decay": self.descent.weight_decay}
        y, steps = self.y.to(self.x.dtype), int(self.descent.t)
        return GradientDescent.of(self.model, self.weights, self.x, y, steps=steps, **rates)


@dataclass(frozen=True)
class TrainedWeights:
    """Weights of a finished run of `python -m train`, a member per seed."""

    location: str  # path, as the user wrote it
    seeds: Sequence[int]
    stacked: Mapping[str, Tensor]  # [S, ...] by parameter name
    model: Options  # configuration of that run's model; empty in old files

    @classmethod
    def read(cls, location: str) -> Self:
        """Read weights from a run's directory, or from its file, and verify every checksum.

        Raises:
            ValueError: there are none, or they are damaged.
        """
        with _readable(location) as path:
            tensors, metadata = load_tensors(path)
            return cls(location, metadata["seeds"], tensors, metadata.get("model", {}))

    def require(self, model: Classifier, section: Options, seeds: Sequence[int], *, readout: bool) -> None:
        """Require that a model with these options can start from members of these seeds, and from their readout.

        Raises:
            ValueError: a seed that was not trained, a parameter that differs in name or shape, another architecture.
        """
        if missing := [seed for seed in seeds if seed not in self.seeds]:
            remedy = f"only {list(self.seeds)}: choose seeds among these"
            raise _error(self.location, f"seed {missing[0]} was not trained, {remedy}")
        wanted = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
        there = {name: tuple(tensor.shape[1:]) for name, tensor in self.stacked.items()}
        for name in [*wanted, *there]:
            if wanted.get(name) != there.get(name) and (readout or not name.startswith("readout.")):
                differs = f"{name} is {_shape(there, name)} there, {_shape(wanted, name)} in this model"
                draw = "draw a new one with sample_info.training.readout_gain=1"
                raise _error(self.location, f"{differs}: {draw if name.startswith('readout.') else _REMEDY}")
        for option, expected in self.model.items():
            if expected != (actual := section.get(option)):
                raise _error(self.location, f"model.{option}={expected} there, {actual} here: {_REMEDY}")

    @torch.no_grad()
    def copy_to(self, model: Classifier, seed: int, *, readout: bool) -> None:
        """Copy the weights of a seed's member into a model, the readout only on request."""
        member = list(self.seeds).index(seed)
        for name, parameter in model.named_parameters():
            if readout or not name.startswith("readout."):
                parameter.copy_(self.stacked[name][member])


def checksum_of(location: str) -> str:
    """Return the checksum of the weights in a run's directory, or in a file.

    Raises:
        ValueError: there are none, or they are damaged.
    """
    with _readable(location) as path:
        return checksum(path)


@contextmanager
def _readable(location: str) -> Iterator[Path]:
    """Yield the path of the weights; errors name the option."""
    path = Path(location).expanduser()
    path = path / WEIGHTS if path.is_dir() else path
    if not path.is_file():
        raise _error(location, f"there is no {path}: give the directory of a finished run, or its {WEIGHTS}")
    try:
        yield path
    except (DamagedFileError, KeyError) as error:
        whole = f"not a whole {WEIGHTS} as a run keeps it ({error})"
        raise _error(location, f"{whole}: train again in another runs_dir") from error


def _error(location: str, what: str) -> ValueError:
    return ValueError(f"sample_info.initial_weights={location}: {what}")


def _shape(shapes: Mapping[str, Sequence[int]], name: str) -> str:
    return "×".join(map(str, shapes[name])) or "a number" if name in shapes else "missing"


def initial_weights(
    model: Classifier,
    seed: int,
    readout_gain: float | None,
    trained: TrainedWeights | None = None,
    purpose: str = "init",
) -> Weights:
    """w_0, drawn from the seed and the purpose, or as trained from that seed.

    Models have a readout of zeros, where no other layer has a gradient: `readout_gain` draws another readout, so that
    the linearisation involves all layers.

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
                f"sample_info.training.readout_gain={readout_gain}: {type(model).__name__} has no linear readout; "
                "set sample_info.training.readout_gain=null"
            )
        readout.reset_parameters(draws, gain=readout_gain)
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
