"""Runs side by side: rows of datasets and models, columns of erasers, differences paired by seed."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

Result = Mapping[str, Any]

_PAIRED = ("dataset", "model", "train", "mdl", "sample_info", "seeds", "dtype")  # all that a run and its control share

_PLAIN = re.compile(r"^(model|eraser|sample_info)\.")  # sections that an option's name says


@dataclass(frozen=True)
class Spread:
    """Mean over seeds, with the sample standard deviation (None for one seed)."""

    mean: float
    std: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(mean(values), stdev(values) if len(values) > 1 else None)

    def __format__(self, number_format: str) -> str:
        """`f"{spread:.3f}"` is "1.234 ± 0.056", or "1.234" for one seed."""
        number_format = number_format or ".3f"
        mean = format(self.mean, number_format)
        return mean if self.std is None else f"{mean} ± {format(self.std, number_format)}"


@dataclass(frozen=True)
class Difference:
    """Mean of per-seed differences to the control, with its standard error (None for one seed)."""

    mean: float
    standard_error: float | None

    @property
    def significant(self) -> bool:
        """Beyond two standard errors."""
        return self.standard_error is not None and abs(self.mean) > 2 * self.standard_error

    def __str__(self) -> str:
        """ "+0.123 ± 0.004 *", the star where it is significant."""
        if self.standard_error is None:
            return f"{self.mean:+.3f} (one seed)"
        return f"{self.mean:+.3f} ± {self.standard_error:.3f}{' *' if self.significant else ''}"


def paired_difference(values: Sequence[float], control: Sequence[float]) -> Difference:
    """Differences seed by seed, `values` and `control` in the order of the same seeds."""
    differences = [value - reference for value, reference in zip(values, control, strict=True)]
    error = stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else None
    return Difference(mean(differences), error)


@dataclass(frozen=True)
class Grid:
    """Results arranged for a table: `cells[row][column]`, labels unique."""

    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[str, Mapping[str, Result]]

    def runs(self) -> Iterator[tuple[str, str, Result]]:
        """Row, column and result of every run, row by row."""
        for row in self.rows:
            for column in self.columns:
                if column in self.cells[row]:
                    yield row, column, self.cells[row][column]

    def control(self, row: str) -> Result | None:
        """The row's control run, if it is there."""
        return next((r for r in self.cells[row].values() if r["config"]["eraser"]["name"] == "control"), None)


def arrange(results: Sequence[Result]) -> Grid:
    """Arrange runs by dataset and model (rows) and eraser (columns), control first.

    A label is the part's name, and whatever options vary among the runs that share the name.
    """
    rows = labels([{key: r["config"].get(key) for key in _PAIRED} for r in results], ("dataset", "model"))
    columns = labels([{"eraser": r["config"]["eraser"]} for r in results], ("eraser",))
    cells: dict[str, dict[str, Result]] = {}
    for row, column, result in zip(rows, columns, results, strict=True):
        cells.setdefault(row, {})[column] = result
    ordered = sorted(dict.fromkeys(columns), key=lambda column: not column.startswith("control"))
    return Grid(list(cells), ordered, cells)


def labels(descriptions: Sequence[Mapping[str, Any]], named: Sequence[str]) -> list[str]:
    """A label for each description: the names of its `named` parts, and the options that vary among namesakes."""
    flat = [_flatten(description) for description in descriptions]
    names = [" · ".join(f[f"{part}.name"] for part in named) for f in flat]
    seen: dict[tuple[str, str], Counter[str]] = {}  # name and option -> how often it has each value
    for name, own in zip(names, flat, strict=True):
        for key, value in own.items():
            seen.setdefault((name, key), Counter())[repr(value)] += 1
    counts = Counter(names)
    written = []
    for name, own in zip(names, flat, strict=True):
        varying = [k for k, v in own.items() if _tells(k, repr(v), seen[name, k], counts[name])]
        options = ", ".join(f"{_PLAIN.sub('', key)}={_written(own[key])}" for key in varying)
        written.append(f"{name} ({options})" if options else name)
    return written


def _tells(key: str, value: str, seen: Counter[str], namesakes: int) -> bool:
    """Whether an option is part of a label: not if all have the same; of sample_info's many, not what most have."""
    most, count = seen.most_common(1)[0]
    if count == namesakes:
        return False
    return not (key.startswith("sample_info.") and value == most and 2 * count > namesakes)


def _written(value: Any) -> Any:
    """10, not 10.0, where an option may be a fraction."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return flat
