"""Weights of a finished run of `python -m train`, as initial weights for scoring."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from conf import Options
from erasure.store.checked_files import DamagedFileError, checksum, load_tensors
from models.classifier import Classifier
from train.prepared_training import WEIGHTS

_REMEDY = "score with the model.* options of that python -m train run, on images of the same shape"


@dataclass(frozen=True)
class TrainedWeights:
    """Weights of a finished run of `python -m train`, a member per seed."""

    location: str  # path, for messages
    seeds: Sequence[int]
    stacked: Mapping[str, Tensor]  # [S, ...] by parameter name
    model: Options  # configuration of that run's model

    @classmethod
    def read(cls, location: str) -> Self:
        """Read weights from a run's directory, or from its file, and verify their checksums.

        Raises:
            ValueError: there are no weights, or they are damaged.
        """
        with _readable(location) as path:
            tensors, metadata = load_tensors(path)
            return cls(location, metadata["seeds"], tensors, metadata["model"])

    def require(self, model: Classifier, section: Options, seeds: Sequence[int], *, readout: bool) -> None:
        """Require that a model with these options can start from the weights of each of these seeds.

        Raises:
            ValueError: a seed was not trained, a parameter differs in name or shape (the readout only counts if
                `readout` is true), or the architecture differs.
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
        """Copy the weights of a seed into a model, the readout only if `readout` is true."""
        member = list(self.seeds).index(seed)
        for name, parameter in model.named_parameters():
            if readout or not name.startswith("readout."):
                parameter.copy_(self.stacked[name][member])


def checksum_of(location: str) -> str:
    """Return the checksum of the weights in a run's directory or a file; raises the errors of `TrainedWeights.read`."""
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
        whole = f"not a complete {WEIGHTS} of a run ({error})"
        raise _error(location, f"{whole}: train again in another runs_dir") from error


def _error(location: str, what: str) -> ValueError:
    return ValueError(f"sample_info.initial_weights={location}: {what}")


def _shape(shapes: Mapping[str, Sequence[int]], name: str) -> str:
    return "×".join(map(str, shapes[name])) or "a number" if name in shapes else "missing"
