"""Codelengths and losses of single examples: files next to result.json, and errors of differences between runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from erasure.store.checked_files import load_tensors, save_tensors
from erasure.store.regular_files import DamagedFileError, regular
from harness.experiment import Experiment
from harness.run_directory import Run
from harness.statistics import Array, bootstrap_error
from harness.untrusted_runs import Note

TEST_BITS = "test_bits.safetensors"  # final models' losses in bits [S, n], in the order of the test split
CODED_BITS = "bits.safetensors"
_LARGEST_BYTES = 2**30
_WHOLE = (torch.int32, torch.int64)
_NUMBERS = (*_WHOLE, torch.float32, torch.float64)


def by_example(values: Tensor, orders: Tensor) -> Tensor:
    """Reorder numbers [S, N] from each seed's order of coding, `orders`, to the order of the examples."""
    return torch.empty_like(values).scatter_(1, orders, values)


def save_coded_bits(run: Run, experiment: Experiment, orders: Tensor, bits: Tensor, trained_on: Tensor) -> None:
    """Save the cost of every label of the training split, in its order.

    The file has `index`, positions in the dataset's training images, and `labels`, both [N]; `bits` and `trained_on`,
    both [S, N], for each seed of its metadata.

    Args:
        run: the run.
        experiment: its experiment.
        orders: the order in which each seed codes the examples, [S, N].
        bits: costs in these orders, [S, N].
        trained_on: number of training examples of the network that coded each label, in these orders, [S, N]; 0 for
            the uniform code.
    """
    run.require_lease()
    index, labels = experiment.split_positions["train"]
    tensors = {
        "index": index,
        "labels": labels,
        "bits": by_example(bits.float(), orders),
        "trained_on": by_example(trained_on.int(), orders),
    }
    save_tensors(run.directory / CODED_BITS, tensors, {"seeds": list(experiment.config.seeds)})


@dataclass(frozen=True)
class ExampleTensors:
    """Stored tensors with one value per example, and their seeds."""

    tensors: Mapping[str, Tensor]
    seeds: Sequence[int]


def read_example_tensors(path: Path, whole: Sequence[str], by_seed: Sequence[str], note: Note) -> ExampleTensors | None:
    """Read numbers of n examples from a file in a run's directory.

    Args:
        path: the file.
        whole: names of tensors of integers, [n].
        by_seed: names of tensors with a row for each seed, [S, n].
        note: called with one line if the file was not written by a run.

    Returns:
        The tensors; None if there is no such file, or if it was not written by a run.
    """
    try:
        tensors, about = load_tensors(regular(path, _LARGEST_BYTES))
        seeds = about.get("seeds")
        if not isinstance(seeds, list) or not all(type(seed) is int for seed in seeds):
            raise DamagedFileError(f"{path} does not name its seeds")
        first = tensors.get((*whole, *by_seed)[0], torch.zeros(()))
        count = first.shape[-1] if first.ndim else 0
        for name in (*whole, *by_seed):
            shape, dtypes = ((count,), _WHOLE) if name in whole else ((len(seeds), count), _NUMBERS)
            tensor = tensors.get(name, first.new_zeros(()))
            if tensor.shape != shape or tensor.dtype not in dtypes or not bool(tensor.isfinite().all()):
                raise DamagedFileError(f"{path} lacks {name}, finite numbers of shape {list(shape)}")
    except FileNotFoundError:
        return None
    except (OSError, DamagedFileError) as error:
        note(f"{path} cannot be read ({error.strerror})" if isinstance(error, OSError) else str(error))
        return None
    return ExampleTensors(tensors, seeds)


def save_test_bits(run: Run, seeds: Sequence[int], bits: Tensor) -> None:
    """Save the losses [S, n] of a run's final models on single test examples."""
    run.require_lease()
    save_tensors(run.directory / TEST_BITS, {"test_bits": bits.float()}, {"seeds": list(seeds)})


def read_test_bits(directories: Iterable[Path], note: Note) -> dict[int, Array]:
    """Read losses [n] on test examples by seed; empty for runs of earlier versions.

    Args:
        directories: the runs' directories.
        note: called with one line on each damaged file, which is skipped.
    """
    by_seed: dict[int, Array] = {}
    for directory in directories:
        if (stored := read_example_tensors(directory / TEST_BITS, (), ("test_bits",), note)) is not None:
            by_seed |= dict(zip(stored.seeds, stored.tensors["test_bits"].numpy(), strict=True))
    return by_seed


def error_over_examples(
    erased: Mapping[int, Array], control: Mapping[int, Array], seeds: Sequence[int]
) -> float | None:
    """Return the `bootstrap_error` of losses by seed; None if a seed has no losses or numbers of examples differ."""
    lengths = {len(known.get(seed, ())) for known in (erased, control) for seed in seeds}
    if 0 in lengths or len(lengths) != 1:
        return None
    return bootstrap_error(*(np.stack([known[seed] for seed in seeds]) for known in (erased, control)))
