"""Comparison with the control on frames: differences paired by seed, their errors, and Holm's correction."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.example_bits import error_over_examples, read_test_bits
from harness.statistics import Difference, Spread, holm, paired_difference

LOSSES = "test_loss_bits"  # the column whose values are means over test examples, which runs have kept


def differences(
    runs: pd.DataFrame, value: str, by: Sequence[str], is_baseline: "pd.Series[bool]", note: Callable[[str], object]
) -> dict[tuple, Difference]:
    """Return the mean difference to the baseline's runs by group, paired by seed; their p-values are not corrected.

    Args:
        runs: a row per group and seed.
        value: the column to compare.
        by: columns that name what a group shares with its baseline, and the group.
        is_baseline: which rows are compared with.
        note: called with a line on each damaged file of losses of test examples, for the error over them.
    """
    losses = functools.lru_cache(maxsize=64)(lambda directories: read_test_bits(map(Path, directories), note))
    measured, by_group = runs[runs[value].notna()], {}
    controls = measured[is_baseline[measured.index]]
    key: Any
    for key, group in measured[~is_baseline[measured.index]].groupby(list(by), sort=False):
        control = controls[controls[by[0]] == key[0]].drop_duplicates("seed")
        pairs = group[["seed", value]].merge(control[["seed", value]], on="seed", suffixes=("", "_control"))
        if len(pairs):
            error = None
            if value == LOSSES:
                erased, unerased = (losses(tuple(dict.fromkeys(one["directory"]))) for one in (group, control))
                error = error_over_examples(erased, unerased, pairs["seed"].tolist())
            by_group[key] = paired_difference(pairs[value].tolist(), pairs[f"{value}_control"].tolist(), error)
    return by_group


def compare(runs: pd.DataFrame, value: str = "bits_per_label", baseline: str = "control") -> pd.DataFrame:
    """Compare runs with the baseline of their dataset, model and setting, paired by seed.

    Args:
        runs: rows of `Results.runs`; what is compared together is corrected together, so select first.
        value: the column to compare, such as "bits_per_label" or "test_loss_bits".
        baseline: name of the eraser to compare with.

    Returns:
        A row per `pair_id` and `eraser_id`: `dataset`, `model`, `setting`, `eraser`; `train_size` and the options that
        differ between rows, by the names that they have in `runs`; `runs` (their ids); `seeds` (how many have the
        value); `mean` and `std` of the value over these (std: sample standard deviation, missing for one seed);
        `paired_seeds`, how many of them the baseline has as well: what follows is over these alone;
        `difference` to the baseline, its mean; `standard_error` of it over seeds;
        `p_value` of Student's t, two-sided; `p_holm`, corrected for all rows (Holm 1979); both missing for one
        seed, which is not tested; `significant` (p_holm ≤ 0.05); `backfires` (significantly below the baseline);
        `error_over_examples`, the bootstrap's standard error over test examples, where value is "test_loss_bits" and
        the runs kept their losses.
        The difference is missing, and `paired_seeds` 0, for the baseline itself and where no seed is shared.

    Raises:
        ValueError: there is no such column of numbers, or no run of the baseline.
    """
    numbers = [str(name) for name in runs.columns if pd.api.types.is_numeric_dtype(runs[name])]
    if value not in numbers:
        raise ValueError(f"value={value!r} is no column of numbers: choose from {', '.join(numbers)}")
    by = ["pair_id", "eraser_id"]
    measured = runs[runs[value].notna()].reset_index(drop=True).sort_values("started", kind="stable")
    measured = measured.drop_duplicates([*by, "seed"], keep="last").sort_index()
    if baseline not in set(measured["eraser"]):
        raise ValueError(f"no run of eraser={baseline} here has {value}: select runs with those of their pair_id")
    raw = differences(measured, value, by, measured["eraser"] == baseline, lambda _: None)
    corrected, rows = holm(raw), []
    for key, seeds in measured.groupby(by, sort=False):
        difference, values = corrected.get(key, _UNKNOWN), Spread.of(seeds[value].tolist())
        numbers = {"seeds": len(seeds), "mean": values.mean, "std": values.std, **difference.record()}
        uncorrected = {"p_value": raw.get(key, _UNKNOWN).p_value}
        rows.append({**seeds.iloc[0], "runs": tuple(dict.fromkeys(seeds["run_id"])), **numbers, **uncorrected})
    floats = dict.fromkeys(("std", "standard_error", "error_over_examples"), np.float64)  # None is NaN
    names = [name for name in map(str, measured) if not (name.startswith("certificate.") or name.endswith(".name"))]
    varied = [name for name in names if ("." in name or name == "train_size") and _varies(rows, name)]
    return pd.DataFrame(rows, columns=[*_COLUMNS[:4], *varied, *_COLUMNS[4:]]).astype(floats)


def _varies(rows: Sequence[Mapping[str, Any]], option: str) -> bool:
    """Return whether rows differ in an option; in one of erasers, rows of one eraser."""
    values = {(row["eraser"] if option.startswith("eraser.") else "", str(row[option])) for row in rows}
    return len(values) > len({eraser for eraser, _ in values})


_UNKNOWN = Difference(math.nan, math.nan, math.nan, math.nan, seeds=0)
_COLUMNS = (
    "dataset", "model", "setting", "eraser", "pair_id", "eraser_id", "runs", "seeds", "mean", "std",
    "paired_seeds", "difference", "standard_error", "p_value", "p_holm", "significant", "backfires",
    "error_over_examples",
)  # fmt: skip
