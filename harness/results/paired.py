"""Comparison with the control on frames: differences paired by seed, their errors, and Holm's correction."""

from pathlib import Path

import numpy as np
import pandas as pd

from harness.example_bits import error_over_examples, read_test_bits
from harness.results.statistics import LEVEL, bootstrap_error, holm, paired_difference

__all__ = ["bootstrap_error", "compare", "holm", "paired_difference"]


def compare(runs: pd.DataFrame, value: str = "bits_per_label", baseline: str = "control") -> pd.DataFrame:
    """Compare runs with the baseline of their dataset, model and setting, paired by seed.

    Args:
        runs: rows of `Results.runs`; what is compared together is corrected together, so select first.
        value: the column to compare, such as "bits_per_label" or "test_loss_bits".
        baseline: name of the eraser to compare with.

    Returns:
        A row per dataset, model, setting and eraser:
        `dataset`, `model`, `setting`, `eraser`, `pair_id`, `eraser_id`; `runs` (their ids); `seeds` (how many);
        `mean` and `std` of the value over seeds (std: sample standard deviation, missing for one seed);
        `difference` to the baseline, mean over the seeds that both have; `standard_error` of it over seeds;
        `p_value` of Student's t, two-sided; `p_holm`, corrected for all rows (Holm 1979); `significant`
        (p_holm ≤ 0.05); `backfires` (significantly below the baseline); `error_over_examples`, the bootstrap's
        standard error over test examples, where value is "test_loss_bits" and the runs kept their losses.
        The difference is missing for the baseline itself, and where no seed is shared.

    Raises:
        ValueError: there is no such column of numbers.
    """
    numbers = [str(name) for name in runs.columns if pd.api.types.is_numeric_dtype(runs[name])]
    if value not in numbers:
        raise ValueError(f"value={value!r} is no column of numbers: choose from {', '.join(numbers)}")
    known = runs[runs[value].notna()].sort_values("started", kind="stable")
    known = known.drop_duplicates(["pair_id", "eraser_id", "seed"], keep="last").sort_index()
    of_baseline = known[known["eraser"] == baseline]
    baselines = {str(pair): own for pair, own in of_baseline.groupby("pair_id", sort=False)}
    rows, differences = [], {}
    for key, own in known.groupby(["pair_id", "eraser_id"], sort=False):
        values = own.set_index("seed")[value].astype(float)
        first = own.iloc[0]
        rows.append(
            {name: first[name] for name in ("dataset", "model", "setting", "eraser", "pair_id", "eraser_id")}
            | {"runs": tuple(dict.fromkeys(own["run_id"])), "seeds": len(values)}
            | {"mean": values.mean(), "std": values.std(ddof=1)}
        )
        control = baselines.get(first["pair_id"])
        if control is None or first["eraser"] == baseline:
            continue
        reference = control.drop_duplicates("seed").set_index("seed")[value].astype(float)
        seeds = [seed for seed in values.index if seed in reference.index]
        if seeds:
            error = _over_examples(own, control, seeds) if value == "test_loss_bits" else None
            differences[key] = paired_difference(values[seeds].tolist(), reference[seeds].tolist(), error)
    corrected = holm(differences)
    for row in rows:
        key = (row["pair_id"], row["eraser_id"])
        raw, found = differences.get(key), corrected.get(key)
        row |= {
            "difference": found and found.mean,
            "standard_error": found and found.standard_error,
            "p_value": raw and raw.p_value,
            "p_holm": found and found.p_value,
            "significant": bool(found and found.p_value <= LEVEL),
            "backfires": bool(found and found.below),
            "error_over_examples": found and found.test_error,
        }
    frame = pd.DataFrame(rows, columns=list(_COLUMNS))
    missing = ["difference", "standard_error", "p_value", "p_holm", "error_over_examples"]
    return frame.astype(dict.fromkeys(missing, np.float64))


_COLUMNS = (
    "dataset", "model", "setting", "eraser", "pair_id", "eraser_id", "runs", "seeds", "mean", "std", "difference",
    "standard_error", "p_value", "p_holm", "significant", "backfires", "error_over_examples",
)  # fmt: skip


def _over_examples(erased: pd.DataFrame, control: pd.DataFrame, seeds: list[int]) -> float | None:
    """Return the standard error over test examples of a mean difference; None where losses were not kept."""
    kept = [read_test_bits(map(Path, dict.fromkeys(own["directory"])), lambda _: None) for own in (erased, control)]
    return error_over_examples(kept[0], kept[1], seeds)
