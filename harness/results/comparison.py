"""Comparison with the control or another model: differences paired by seed, their errors, and Holm's correction."""

import contextlib
import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from harness.example_bits import error_over_examples, read_test_bits
from harness.results.frames import pair_id
from harness.results.read import StoredRun
from harness.run_directory import RESULT, Run
from harness.run_ids import controls_of
from harness.statistics import Difference, Spread, difference_fields, holm, paired_difference

LOSSES = "test_loss_bits"  # the column of means over test examples, whose losses runs store


def differences(
    runs: pd.DataFrame, value: str, by: Sequence[str], is_baseline: "pd.Series[bool]", note: Callable[[str], object]
) -> dict[tuple, Difference]:
    """Return each group's mean difference to the baseline, paired by seed; p-values are not corrected.

    Args:
        runs: one row per group and seed; all rows of a group were computed by one version of the code. Baselines of
            other versions are ignored.
        value: the column to compare.
        by: two columns: the one in which a group equals its baseline, and the one that names the group.
        is_baseline: mask of the rows of the baseline.
        note: called with one line on each damaged file of losses on test examples, needed for the error over them.
    """
    losses = functools.lru_cache(maxsize=64)(lambda directories: read_test_bits(map(Path, directories), note))
    measured, by_group = runs[runs[value].notna()], {}
    controls = measured[is_baseline[measured.index]]
    key: Any
    for key, group in measured[~is_baseline[measured.index]].groupby(list(by), sort=False):
        code = json.loads(group["code"].iloc[0])
        same_code = [not changed_code(code, json.loads(other)) for other in controls["code"]]
        control = controls[(controls[by[0]] == key[0]) & np.array(same_code, bool)].drop_duplicates("seed")
        pairs = group[["seed", value]].merge(control[["seed", value]], on="seed", suffixes=("", "_control"))
        if len(pairs):
            error = None
            if value == LOSSES:
                erased, unerased = (losses(tuple(dict.fromkeys(one["directory"]))) for one in (group, control))
                error = error_over_examples(erased, unerased, pairs["seed"].tolist())
            by_group[key] = paired_difference(pairs[value].tolist(), pairs[f"{value}_control"].tolist(), error)
    return by_group


Code = Mapping[str, int | str]  # versions, or digests of a user's modules, by name: `Result.code`


def changed_code(first: Code, second: Code) -> list[str]:
    """Return the names of code that both runs use and that differs between them.

    A version and a digest cannot be compared, and do not count as different.
    """
    shared = [name for name in first if type(first[name]) is type(second.get(name))]
    return [name for name in shared if first[name] != second[name]]


def newest_code(runs: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return each group's rows that were computed by the same code version as its newest run."""
    newest = runs.sort_values("started", kind="stable").groupby(list(by))["code"].transform("last")
    return runs[runs["code"] == newest[runs.index]]


def with_controls(runs: Sequence[StoredRun]) -> tuple[list[StoredRun], int]:
    """Add the missing controls to finished runs of a command; return all runs, and how many have no control.

    The control of a run is one among them or, if there is none, the newest of the same data, model, setting, seeds and
    code in the folder that holds it. Its options may differ: the paper's procedure trains erased images at other rates.
    """
    results: dict[str, Any] = {run.id: run.result for run in runs}
    beside, found, without = dict[Path, list[StoredRun]](), dict[str, StoredRun](), 0
    pair = functools.cache(lambda name, digest: pair_id(results[name], digest))

    def is_control(other: StoredRun, run: StoredRun) -> bool:
        """Return whether one is a control that the other is compared with, where both have the same seeds."""
        if other.config["eraser"]["name"] != "control" or changed_code(other.code, run.code):
            return False
        ours, theirs = run.data_digest, other.data_digest
        if not (ours and theirs):  # results before version 0.4.0
            ours = theirs = None
        return ours == theirs and pair(other.id, theirs) == pair(run.id, ours)

    for run in runs:
        if any({*other.seeds} & {*run.seeds} and is_control(other, run) for other in runs):
            continue
        if (folder := run.directory.parent) not in beside:
            beside[folder] = _finished_controls(run)
            results |= {other.id: other.result for other in beside[folder]}
        same_seeds = (other for other in beside[folder] if {*other.seeds} == {*run.seeds})
        controls = [other for other in same_seeds if is_control(other, run)]
        if controls:
            newest = max(controls, key=lambda one: one.started)
            found[newest.id] = newest
        without += not controls
    return [*found.values(), *runs], without


def _finished_controls(run: StoredRun) -> list[StoredRun]:
    """Return the finished controls of a run's command in the folder that holds the run."""
    found: list[StoredRun] = []
    for path in run.directory.parent.glob(f"{controls_of(run.command)}/{RESULT}"):
        with contextlib.suppress(ValueError):  # an unusable run must not stop another's table
            if (result := Run(path.parent.parent, path.parent.name).result) is not None:
                found.append(StoredRun(path.parent, result.config, result))
    return found


def compare(
    runs: pd.DataFrame,
    value: str = "bits_per_label",
    baseline: str | None = None,
    *,
    by: Literal["eraser", "model"] = "eraser",
) -> pd.DataFrame:
    """Compare erasers, or models under one eraser, with a baseline on the same data, paired by seed.

    Args:
        runs: rows of `Results.runs`; all of them count in Holm's correction, so select the rows of interest.
        value: the column to compare, such as "bits_per_label" or "test_loss_bits".
        baseline: name of the eraser or model to compare with; by default the eraser "control".
        by: "eraser" compares runs with equal dataset, model and setting; "model", with equal dataset, eraser, setting.

    Returns:
        One row per `pair_id` and `eraser_id`, with
        `dataset`, `model`, `setting`, `eraser`;
        `train_size` and the options that differ between rows, if they do, named as in `runs`;
        `runs`, the ids of its runs;
        `seeds`, the number of seeds with the value;
        `mean` and `std` (sample standard deviation, missing for one seed) of the value over these seeds;
        `paired_seeds`, the number of seeds that the baseline has as well; all further columns are over these seeds;
        `difference`, the mean difference to the baseline, and its `standard_error` over seeds;
        `p_value` of Student's t, two-sided, and `p_holm`, corrected for all rows (Holm 1979); both are missing for one
        seed, which is not tested;
        `significant` (p_holm ≤ 0.05) and `backfires` (significantly below the baseline, accuracies above it);
        `error_over_examples`, the bootstrap's standard error over test examples, if value is "test_loss_bits" and the
        runs stored their losses.
        The difference is missing, and `paired_seeds` is 0, for the baseline itself, if no seed is shared, and if code
        that both runs use has changed. If the runs of a row differ in code, only those with the newest code count.

    Raises:
        ValueError: `value` is not a column of numbers, `code` is missing, or the baseline has no runs or an ambiguous
            name.
    """
    numeric = [name for name in runs.columns if pd.api.types.is_numeric_dtype(runs[name])]
    numbers = [str(name) for name in numeric if name != "seed"]
    if value not in numbers:
        raise ValueError(f"value={value!r} is no column of numbers: choose from {', '.join(numbers)}")
    if by not in _PAIRED_BY:
        raise ValueError(f"by={by!r}: choose from {', '.join(_PAIRED_BY)}")
    if baseline is None and by == "model":
        raise ValueError(f"baseline=None: name the model to compare with: {', '.join(dict.fromkeys(runs['model']))}")
    baseline = baseline or "control"
    equal, group = _PAIRED_BY[by]
    if "code" not in runs:
        raise ValueError("runs has no column code: pass rows of load(...).runs with all columns")
    measured = runs[runs[value].notna()].reset_index(drop=True).sort_values("started", kind="stable")
    measured = newest_code(measured, (equal, group)).drop_duplicates([equal, group, "seed"], keep="last").sort_index()
    is_baseline = measured[by] == baseline
    if not is_baseline.any():
        missing = (
            "select runs with those of their pair_id, or another value"
            if by == "eraser"
            else "choose a model that they have"
        )
        raise ValueError(f"no run of {by}={baseline} here has {value}: {missing}")
    if (measured[is_baseline].groupby(equal)[group].nunique() > 1).any():
        raise ValueError(
            f"baseline={baseline!r} is the name of several {by}s here: select one of them, or give them names, as in "
            'runs.assign(model=runs["model"] + runs["model.width"].astype(str))'
        )
    raw = differences(measured, value, [equal, group], is_baseline, lambda _: None)
    corrected, rows = holm(raw), []
    for key, seeds in measured.groupby([equal, group], sort=False):
        difference, values = corrected.get(key, _UNKNOWN), Spread.of(seeds[value].tolist())
        numbers = {
            "seeds": len(seeds),
            "mean": values.mean,
            "std": values.std,
            **{name: getattr(difference, of) for name, of in difference_fields(value).items()},
        }
        numbers["p_value"] = raw.get(key, _UNKNOWN).p_value
        rows.append({**seeds.iloc[0], "runs": tuple(dict.fromkeys(seeds["run_id"])), **numbers})
    floats = dict.fromkeys(("std", "standard_error", "error_over_examples"), np.float64)  # None is NaN
    names = [name for name in map(str, measured) if not (name.startswith("certificate.") or name.endswith(".name"))]
    varied = [name for name in names if ("." in name or name == "train_size") and _varies(rows, name)]
    return pd.DataFrame(rows, columns=[*_COLUMNS[:4], *varied, *_COLUMNS[4:]]).astype(floats)


def _varies(rows: Sequence[Mapping[str, Any]], option: str) -> bool:
    """Return whether rows differ in an option; for an option of erasers, whether rows of the same eraser do."""
    values = {(row["eraser"] if option.startswith("eraser.") else "", str(row[option])) for row in rows}
    return len(values) > len({eraser for eraser, _ in values})


# By argument `by`: the column in which compared runs are equal, and the column in which they differ. The `pair_id` of
# runs under one eraser differs if their models differ.
_PAIRED_BY = {
    "eraser": ("pair_id", "eraser_id"),
    "model": ("model_pair_id", "pair_id"),
}
_UNKNOWN = Difference(math.nan, math.nan, math.nan, math.nan, seeds=0)
_COLUMNS = (
    "dataset", "model", "setting", "eraser", "pair_id", "eraser_id", "runs", "seeds", "mean", "std",
    "paired_seeds", "difference", "standard_error", "p_value", "p_holm", "significant", "backfires",
    "error_over_examples",
)  # fmt: skip
