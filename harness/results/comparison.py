"""Comparison of the entries of a table with the control of their row."""

from collections.abc import Callable, Mapping, Sequence
from statistics import mean

import numpy as np

from harness.example_bits import error_over_examples, loss_error
from harness.loss_curves import crossing, crossing_epoch
from harness.result import TrainedResult, of_common_seeds
from harness.results.entry import Entry
from harness.results.statistics import Difference, holm, paired_difference
from harness.trained import Coded, Point

Values = Callable[[TrainedResult], Sequence[float] | None]  # per seed; None where a result has none


def code_bits(result: TrainedResult) -> Sequence[float] | None:
    """Return the codelength per label by seed; None without one."""
    return result.mdl.bits_per_sample if isinstance(result, Coded) else None


def calibrated_bits(result: TrainedResult) -> Sequence[float] | None:
    """Return the codelength with logits divided by a temperature; None without one."""
    return result.mdl.calibrated_bits_per_sample if isinstance(result, Coded) else None


def published_code(result: TrainedResult) -> Sequence[float] | None:
    """Return the codelength in the unit of Table 16, by seed; None without one."""
    return result.mdl.published if isinstance(result, Coded) else None


def final_bits(result: TrainedResult) -> Sequence[float]:
    """Return the loss per label on the test split, trained on everything, by seed."""
    return result.final.loss_bits


MEASURES: Mapping[str, Values] = {"code": code_bits, "published": published_code, "loss": final_bits}


def compare_with_control(rows: Sequence[Sequence[Entry]], tables: Sequence[Sequence[str]]) -> None:
    """Fill in what entries are missing, and their differences to the control of their row.

    Args:
        rows: entries that share everything but the eraser; the first one with the eraser "control" is the control.
        tables: the MEASURES whose differences stand in one table: their p-values are corrected together.
    """
    pairs: list[tuple[Entry, Entry, tuple[TrainedResult, TrainedResult]]] = []
    for row in rows:
        seeds = {seed for entry in row for run in entry.all_runs for seed in run.seeds}
        control = next((one for one in row if one.all_runs and one.config["eraser"]["name"] == "control"), None)
        for entry in row:
            entry.missing = entry.missing_of(seeds)
            entry.is_control = entry is control
            if entry.result is not None:
                entry.loss_error = loss_error(entry.test_bits(), entry.result.seeds)
            if control is None or control.result is None or entry.result is None:
                continue
            control_bits = dict(zip(control.result.seeds, final_bits(control.result), strict=True))
            if set(entry.result.seeds) <= set(control_bits):
                entry.control_bits = [control_bits[seed] for seed in entry.result.seeds]
            common = of_common_seeds(entry.result, control.result)
            if entry is not control and common is not None:
                pairs.append((entry, control, common))
    for together in tables:
        raw = {
            (name, i): difference
            for i, pair in enumerate(pairs)
            for name in together
            if (difference := _difference(name, *pair)) is not None
        }
        for (name, i), difference in holm(raw).items():
            setattr(pairs[i][0], f"{name}_difference", difference)
    for entry, control, common in pairs:
        entry.crossing_size = crossing_size(*(run.curve if isinstance(run, Coded) else () for run in common))
        entry.crossing_epoch = _crossing_epoch(entry, control, common[0].seeds)


def _difference(
    name: str, entry: Entry, control: Entry, common: tuple[TrainedResult, TrainedResult]
) -> Difference | None:
    erased, reference = map(MEASURES[name], common)
    if erased is None or reference is None:
        return None
    losses = (entry.test_bits(), control.test_bits()) if name == "loss" else ({}, {})
    return paired_difference(erased, reference, error_over_examples(*losses, common[0].seeds))


def _crossing_epoch(entry: Entry, control: Entry, seeds: Sequence[int]) -> int | None:
    curves = [[each.curves[seed] for seed in seeds if seed in each.curves] for each in (entry, control)]
    return crossing_epoch(*curves) if all(len(known) == len(seeds) for known in curves) else None


def crossing_size(erased: Sequence[Point], control: Sequence[Point]) -> int | None:
    """Return the training size from which the mean test loss of `erased` stays below that of `control`.

    Args:
        erased: a run's learning curve.
        control: the control's, at the same sizes.

    Raises:
        ValueError: they were trained on different sizes.
    """
    sizes = [point.n for point in erased]
    if sizes != (others := [point.n for point in control]):
        raise ValueError(f"trained on {sizes} examples, the control on {others}")
    losses = [np.array([mean(point.ce_test_bits) for point in curve]) for curve in (erased, control)]
    return crossing(sizes, *losses) if len(sizes) > 1 else None
