"""A result as flat tables: one row per seed, and one per seed and training size."""

from collections.abc import Mapping, Sequence
from typing import Any

Table = tuple[list[str], list[list[Any]]]  # column names, rows


def per_seed(result: Mapping[str, Any]) -> Table:
    """Every number of a result that a seed has one of."""
    seeds: Sequence[int] = result["seeds"]
    columns = {"seed": seeds}
    for part in ("mdl", "final", "epochs", "ended", "left_plateau"):
        values = result.get(part, {})
        named = values.items() if isinstance(values, Mapping) else [("", values)]
        columns |= {".".join(filter(None, (part, name))): numbers for name, numbers in named}
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def learning_curve(result: Mapping[str, Any]) -> Table | None:
    """The loss at every training size of a prequential run; None for others."""
    if "curve" not in result:
        return None
    names = [name for name in result["curve"][0] if name != "n"]
    rows = [
        [point["n"], seed, *(None if point[name] is None else point[name][s] for name in names)]
        for point in result["curve"]
        for s, seed in enumerate(result["seeds"])
    ]
    return ["n", "seed", *names], rows
