"""Quantities of learning curves other than their codelength, in bits: docs/codes.md.

Excess description length (Donoway et al. 2026), surplus description length and ε-sample complexity (Whitney et al.
2020), and the area above the last loss coded (Finzi et al. 2026). A seed is given by its position in the result.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np

from harness.loss_curves import crossing, crossing_epoch
from harness.result import MdlResult
from harness.result_fields import Coded, stuck, untrained

Blocks = Sequence[tuple[int, float]]  # labels, and what each of them costs
Member = tuple[Any, int]  # a result, and the position of a seed in it


def sizes_of(result: MdlResult) -> list[int]:
    """Return the ends of the blocks of labels: all training sizes, and N where nothing was trained on everything."""
    sizes = [point.n for point in result.curve]
    return sizes if sizes[-1] == result.train_size else [*sizes, result.train_size]


def blocks_of(result: MdlResult, s: int) -> Blocks:
    """Return labels and bits per label of each block; the first pays what the others leave."""
    sizes = sizes_of(result)
    losses = [point.ce_next_bits[s] for point in result.curve if point.ce_next_bits]
    later = [(after - before, loss) for (before, after), loss in zip(itertools.pairwise(sizes), losses, strict=True)]
    first = result.mdl.total_bits[s] - sum(labels * loss for labels, loss in later)
    return [(sizes[0], first / sizes[0]), *later]


def excess_bits(result: MdlResult, s: int) -> float:
    """Return the EDL: the codelength less N times the test loss of the network that has seen all labels."""
    return result.mdl.total_bits[s] - result.train_size * result.final.loss_bits[s]


def area_bits(result: MdlResult, s: int) -> float:
    """Return the area between the curve of bits per label and its last value, over all N labels."""
    blocks = blocks_of(result, s)
    return sum(labels * (loss - blocks[-1][1]) for labels, loss in blocks)


def surplus_bits(result: MdlResult, s: int, epsilon: float) -> float:
    """Return the SDL(ε), Σ_i max(loss_i - ε, 0) over the labels."""
    return sum(labels * max(0.0, loss - epsilon) for labels, loss in blocks_of(result, s))


def sample_complexity(result: MdlResult, s: int, epsilon: float) -> float:
    """Return the εSC, the least training size whose network costs ε or less per new label; infinite: above N.

    New are the labels of the next block; after the last size, those of the test split.
    """
    losses = ((point.n, (point.ce_next_bits or point.ce_test_bits)[s]) for point in result.curve)
    return next((n for n, loss in losses if loss <= epsilon), math.inf)


def measures_of(entry: Mapping[str, Any], control: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what the learning curves of a row (`harness.results.arrange`) say, partly against its control's."""
    members = entry["members"]
    coded = {seed: member for seed, member in members.items() if isinstance(member[0], MdlResult)}
    numbers: dict[str, Any] = dict.fromkeys(("surplus_bits", "sample_complexity", "crossing_size", "crossing_epoch"))
    numbers["area_bits"] = [area_bits(result, s) for result, s in coded.values()]
    of = {
        "coding": lambda one: one.coding,
        "final": lambda one: one.trainings[-1:],
        "trainings": lambda one: one.trainings,
    }
    for name, trainings_of in of.items():
        trainings = [(training, s) for result, s in members.values() for training in trainings_of(result)]
        numbers |= {f"{name}_on_plateau": stuck(trainings), f"{name}_untrained": untrained(trainings)}
    if control is None:
        return numbers
    targets = {seed: result.final.loss_bits[s] for seed, (result, s) in control["members"].items()}
    if coded and targets.keys() >= coded.keys():
        least = max(sample_complexity(result, s, targets[seed]) for seed, (result, s) in coded.items())
        above = f"> {max(result.train_size for result, _ in coded.values())}"
        numbers["sample_complexity"] = above if least == math.inf else least
        numbers["surplus_bits"] = [surplus_bits(result, s, targets[seed]) for seed, (result, s) in coded.items()]
    common = [seed for seed in members if seed in targets]
    if common and entry["members"] is not control["members"]:
        both = [[each["members"][seed] for seed in common] for each in (entry, control)]
        numbers["crossing_size"] = crossing(*_sizes_and_losses(both[0]), _sizes_and_losses(both[1])[1])
        if all(seed in each["curves"] for seed in common for each in (entry, control)):
            curves = ([each["curves"][seed] for seed in common] for each in (entry, control))
            numbers["crossing_epoch"] = crossing_epoch(*curves)
    return numbers


def _sizes_and_losses(members: Sequence[Member]) -> tuple[list[int], np.ndarray]:
    """Return training sizes and the mean test loss at each; none of runs that trained on everything alone."""
    curves = [(result.curve, s) for result, s in members if isinstance(result, Coded)]
    losses = [[point.ce_test_bits[s] for point in curve] for curve, s in curves]
    return [point.n for curve, _ in curves[:1] for point in curve], np.array([*map(mean, zip(*losses, strict=True))])
