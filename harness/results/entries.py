"""Entries of a table: the runs of one row under one eraser, their seeds as one, compared with the row's control.

An entry is a row of a frame. Its numbers are those of CSV files (`harness.results.columns`). Besides, it has

    model, eraser         labels: of what the row's entries share, and of the eraser
    runs, unfinished      its `StoredRun`s
    is_control            whether the row's other entries are compared with it
    members               by seed, the result that has it and its position there; no seed counts twice
    curves                loss curves of the training on everything, by seed, as far as there are any
    incomplete            what is missing beside the rest of the row: "not run", a state, or "2 of 5 seeds"
    code_difference, published_difference, loss_difference
                          to the control (`Difference`); None for the control, and where no seed is shared
"""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd

from harness.example_bits import loss_error
from harness.loss_curves import crossing, crossing_epoch
from harness.result import MdlResult, TrainedResult
from harness.result_fields import stuck
from harness.results.comparison import differences, reader
from harness.results.excess_description_length import area_bits, sample_complexity, surplus_bits
from harness.results.frames import run_frame
from harness.results.read import Note, StoredRun
from harness.results.run_labels import Label
from harness.results.run_settings import whole
from harness.results.statistics import difference_record, holm
from harness.results.table import spread_record

Entry = dict[str, Any]
Member = tuple[Any, int]  # a result, and the position of a seed in it

MEASURES = {"code": "bits_per_label", "published": "published_units", "loss": "test_loss_bits"}  # columns compared
_SPREADS = {  # an entry's mean, beside which stands the standard deviation -> column of the frame of runs
    "final_loss_bits_mean": "test_loss_bits",
    **{
        f"{name}_mean": name
        for name in (
            "bits_per_label", "calibrated_bits_per_label", "excess_bits", "published_units", "accuracy",
            "train_loss_bits", "end_train_loss_bits",
        )
    },
}  # fmt: skip
ORDERS_LEFT = {  # on the test split: an entry's number -> column of the frame of runs
    f"test_order_{name}_{p}": f"certificate.test.order_{name}_{p}"
    for p in (1, 2, 3, 4)
    for name in ("shares", "errors", "z_scores")
}
_SHARED = {  # an entry's number that all seeds have in common -> column of the frame of runs
    **{name: name for name in ("parameters", "seconds", "num_classes", "label_entropy_bits")},
    **{name: f"certificate.train.{name}" for name in ("mean_gap", "covariance_gap", "edit_size", "out_of_range")},
    **{f"test_{name}": f"certificate.test.{name}" for name in ("mean_gap", "covariance_gap")},
    **ORDERS_LEFT,
}


def entries_of(
    rows: Mapping[Label, Mapping[Label, Sequence[StoredRun]]], tables: Sequence[Sequence[str]], note: Note
) -> list[Entry]:
    """Make entries of runs, and compare them with the control of their row.

    Args:
        rows: runs by row, which share everything but the eraser, and by eraser; some have no run.
        tables: `MEASURES` whose differences are corrected together.
        note: called with a line on each damaged file.
    """
    by_row = [[_entry(row, eraser, runs, note) for eraser, runs in cells.items()] for row, cells in rows.items()]
    for row in by_row:
        for control in [entry for entry in row if entry["eraser"].name == "control" and _runs(entry)][:1]:
            control["is_control"] = True
    entries = [entry for row in by_row for entry in row]
    frame = run_frame(run for entry in entries for run in entry["runs"])
    frame["row"] = [i for i, row in enumerate(by_row) for entry in row for run in entry["runs"] for _ in run.seeds]
    frame["entry"] = [i for i, entry in enumerate(entries) for run in entry["runs"] for _ in run.seeds]
    frame = frame.drop_duplicates(["entry", "seed"])
    losses = reader(lambda line: note(f"{line}: no error over test examples"))
    for i, entry in enumerate(entries):
        entry |= _aggregated(frame[frame["entry"] == i])
        of_examples = losses(tuple(str(run.directory) for run in entry["runs"]))
        entry["final_loss_test_error"] = loss_error(of_examples, sorted(entry["members"]))
    is_control = frame["entry"].isin([i for i, entry in enumerate(entries) if entry["is_control"]])
    for measures in tables:
        raw = {
            (f"{measure}_difference", i): difference
            for measure in measures
            for (_, i), difference in differences(
                frame, MEASURES[measure], ("row", "entry"), is_control, losses
            ).items()
        }
        for (name, i), difference in holm(raw).items():
            entries[i][name] = difference
    for row in by_row:
        seeds = {seed for entry in row for run in _runs(entry) for seed in run.seeds}
        control = next((entry for entry in row if entry["is_control"]), None)
        for entry in row:
            entry["incomplete"] = _incomplete(entry, len(seeds))
            code, loss = entry["code_difference"], entry["loss_difference"]
            entry |= difference_record("difference", code, "bits_per_label") | difference_record("final_gap", loss)
            entry |= difference_record("published_difference", entry["published_difference"], "units")
            entry |= {"significant": code and code.significant, "backfires": loss and loss.below}
            entry |= _of_curves(entry, control)
    return entries


def _runs(entry: Entry) -> list[StoredRun]:
    return [*entry["runs"], *entry["unfinished"]]


def _entry(row: Label, eraser: Label, runs: Sequence[StoredRun], note: Note) -> Entry:
    """Return an entry without numbers."""
    finished = [run for run in runs if run.result is not None]
    return {
        "model": row,
        "eraser": eraser,
        "runs": finished,
        "unfinished": [run for run in runs if run.result is None],
        "members": {
            seed: (run.result, s)
            for run in finished[::-1]
            if isinstance(run.result, TrainedResult)
            for s, seed in enumerate(run.seeds)
        },
        "curves": {seed: curve for run in finished[::-1] for seed, curve in run.loss_curves(note).items()},
        "is_control": False,
        **dict.fromkeys(f"{measure}_difference" for measure in MEASURES),
    }


def _aggregated(seeds: pd.DataFrame) -> Entry:
    """Return what the seeds of an entry come to, from a row for each."""

    def values(column: str) -> list[Any]:
        return seeds[column].dropna().tolist() if column in seeds else []

    numbers = {name: next(iter(values(column)), None) for name, column in _SHARED.items()}
    for name, column in _SPREADS.items():
        numbers |= spread_record(name, values(column))
    drops, epochs = values("sharp_drop_bits"), values("sharp_drop_epoch")
    return numbers | {
        "run_ids": " ".join(dict.fromkeys(values("run_id"))),
        "seeds": len(seeds),
        "untrained": sum(values("untrained")),
        "sharp_drop_bits": mean(drops) if drops else None,
        "sharp_drop_epoch": whole(mean(epochs)) if epochs else None,
    }


def _incomplete(entry: Entry, seeds: int) -> str:
    """Say what is missing of a row's seeds; empty if nothing."""
    if not entry["runs"]:
        return entry["unfinished"][0].state if entry["unfinished"] else "not run"
    finished = {seed for run in entry["runs"] for seed in run.seeds}
    return f"{len(finished)} of {seeds} seeds" if len(finished) < seeds else ""


def _of_curves(entry: Entry, control: Entry | None) -> Entry:
    """Return what learning curves say, and from where on they stay below the control's."""
    members = [*entry["members"].values()]
    coded = [member for member in members if isinstance(member[0], MdlResult)]
    final = [(result.trainings[-1], s) for result, s in members]
    coding = [(training, s) for result, s in members for training in result.coding]
    numbers = {
        "bits_per_sample_on_plateau": stuck(coding),
        "published_on_plateau": stuck(coding + final) if coded else "",
        "loss_bits_on_plateau": stuck(final),
        **spread_record("area_bits_mean", [area_bits(*member) for member in coded]),
        **spread_record("surplus_bits_mean", []),
        **dict.fromkeys(("sample_complexity", "crossing_size", "crossing_epoch")),
    }
    if control is None:
        return numbers
    targets = {seed: result.final.loss_bits[s] for seed, (result, s) in control["members"].items()}
    if coded and targets.keys() >= entry["members"].keys():
        compared = [(result, s, targets[seed]) for seed, (result, s) in entry["members"].items()]
        sizes = [sample_complexity(*one) for one in compared]
        enough = max((n for n in sizes if n is not None), default=None)
        numbers |= spread_record("surplus_bits_mean", [surplus_bits(*one) for one in compared])
        numbers["sample_complexity"] = f"> {coded[0][0].train_size}" if None in sizes else enough
    common = [seed for seed in entry["members"] if seed in targets]
    if common and entry is not control:
        erased, baseline = ([each["members"][seed] for seed in common] for each in (entry, control))
        numbers["crossing_size"] = _crossing_size(erased, baseline)
        if all(seed in each["curves"] for seed in common for each in (entry, control)):
            curves = ([each["curves"][seed] for seed in common] for each in (entry, control))
            numbers["crossing_epoch"] = crossing_epoch(*curves)
    return numbers


def _crossing_size(erased: Sequence[Member], control: Sequence[Member]) -> int | None:
    """Return the training size from which the mean test loss of `erased` stays below that of `control`.

    Raises:
        ValueError: they were trained on different sizes.
    """
    losses, baseline = _test_losses(erased), _test_losses(control)
    if [*losses] != [*baseline]:
        raise ValueError(f"trained on {[*losses]} examples, the control on {[*baseline]}")
    bits = [np.array([*each.values()]) for each in (losses, baseline)]
    return crossing([*losses], *bits) if len(losses) > 1 else None


def _test_losses(members: Sequence[Member]) -> dict[int, float]:
    """Return the mean test loss by training size; nothing of runs that trained on everything alone."""
    curves = [
        [(point.n, point.ce_test_bits[s]) for point in result.curve]
        for result, s in members
        if isinstance(result, MdlResult)
    ]
    return {points[0][0]: mean(bits for _, bits in points) for points in zip(*curves, strict=True)}
