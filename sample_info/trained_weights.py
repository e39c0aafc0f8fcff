"""Weights that `python -m train` ended with, as the ones that a network is linearised at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from erasure.store.storage import DamagedFileError, checksum, load_tensors
from models.classifier import Classifier
from train.whole import WEIGHTS

_REMEDY = "score with the model.* options of that python -m train run, on images of the same shape"


@dataclass(frozen=True)
class TrainedWeights:
    """Weights of a finished run of `python -m train`, a member per seed.

    Attributes:
        given: where they are, as the user wrote it.
        seeds: of the members, [S].
        stacked: [S, ...] by parameter name.
        model: the model's section of that run; empty if it was not noted.
    """

    given: str
    seeds: Sequence[int]
    stacked: Mapping[str, Tensor]
    model: Mapping[str, Any]

    @classmethod
    def read(cls, given: str) -> Self:
        """Read a run's directory, or its file of weights, every checksum verified.

        Raises:
            ValueError: there are none, or they are damaged.
        """
        try:
            tensors, metadata = load_tensors(_file(given))
            return cls(given, metadata["seeds"], tensors, metadata.get("model", {}))
        except (DamagedFileError, KeyError) as error:
            raise _unreadable(given, error) from error

    def require(self, model: Classifier, section: Mapping[str, Any], seeds: Sequence[int], *, readout: bool) -> None:
        """Make sure that a model can start from these weights.

        Args:
            model: what is scored.
            section: its options.
            seeds: of the members that are wanted.
            readout: whether their readout is wanted, too.

        Raises:
            ValueError: a seed that was not trained, a parameter that differs in name or shape, another architecture.
        """
        if missing := [seed for seed in seeds if seed not in self.seeds]:
            raise self._error(f"seed {missing[0]} was not trained, only {list(self.seeds)}: choose seeds among these")
        wanted = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
        there = {name: tuple(tensor.shape[1:]) for name, tensor in self.stacked.items()}
        for name in [*wanted, *there]:
            if wanted.get(name) != there.get(name) and (readout or not _of_readout(name)):
                remedy = "draw a new one with sample_info.readout_gain=1" if _of_readout(name) else _REMEDY
                raise self._error(
                    f"{name} is {_shape(there, name)} there, {_shape(wanted, name)} in this model: {remedy}"
                )
        for option in [name for name in self.model if self.model[name] != section.get(name)]:
            raise self._error(f"model.{option}={self.model[option]} there, {section.get(option)} here: {_REMEDY}")

    @torch.no_grad()
    def copy_to(self, model: Classifier, seed: int, *, readout: bool) -> None:
        """Give a model the weights of a seed's member, those of the readout only if wanted."""
        member = list(self.seeds).index(seed)
        for name, parameter in model.named_parameters():
            if readout or not _of_readout(name):
                parameter.copy_(self.stacked[name][member])

    def _error(self, what: str) -> ValueError:
        return ValueError(f"sample_info.initial_weights={self.given}: {what}")


def checksum_of(given: str) -> str:
    """What identifies the weights in a run's directory, or in a file, wherever they lie.

    Raises:
        ValueError: there are none, or they are damaged.
    """
    try:
        return checksum(_file(given))
    except DamagedFileError as error:
        raise _unreadable(given, error) from error


def _file(given: str) -> Path:
    path = Path(given).expanduser()
    path = path / WEIGHTS if path.is_dir() else path
    if not path.is_file():
        raise ValueError(
            f"sample_info.initial_weights={given}: there is no {path}: give the directory of a finished "
            f"python -m train run, or its {WEIGHTS}"
        )
    return path


def _unreadable(given: str, error: Exception) -> ValueError:
    return ValueError(
        f"sample_info.initial_weights={given}: not a whole {WEIGHTS} as python -m train keeps it ({error}): "
        "train again in another runs_dir"
    )


def _of_readout(name: str) -> bool:
    return name.startswith("readout.")


def _shape(shapes: Mapping[str, Sequence[int]], name: str) -> str:
    return "×".join(map(str, shapes[name])) or "a number" if name in shapes else "missing"
