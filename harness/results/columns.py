"""Columns of tables: one description of a number gives the text of its cells, its values in CSV and its order.

A row is the part of a frame (`harness.results.arrange`) of one model and eraser, with a line per seed. Rows of other
tables are mappings of the same names. Columns of one command are defined with that command.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal

import pandas as pd

from harness.results.read import StoredRun
from harness.results.run_labels import display_name
from harness.statistics import Spread, difference_fields

Row = pd.DataFrame | Mapping[str, Any]  # by name, a value for all seeds or one value per seed; None or NaN if unknown


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        heading: the text above the column.
        name: key in rows and in CSV, and the argument of `--columns` that chooses the column.
        form: format of the shown number, or a function that returns its text.
        meaning: a sentence for the notes; empty if the heading suffices.
        scale: factor of the shown numbers; CSV has them unscaled.
        over: function that combines the known values over seeds; by default all seeds share the first.
        fields: by names in CSV, the attributes of a combined value; by default CSV has the value itself by `name`.
        trainings: kinds of trainings behind the number: "coding" if their losses enter a codelength, "final" for those
            on the whole split. Remarks below a table name those that learnt nothing.
        order_by: key of the number that orders rows; by default the first number in CSV.
    """

    heading: str
    name: str
    form: str | Callable[[Any], str] = ""
    meaning: str = ""
    scale: float = 1
    over: Callable[[Sequence[Any]], Any] = itemgetter(0)
    fields: Mapping[str, str] | None = None
    trainings: Sequence[Literal["coding", "final"]] = field(default=(), kw_only=True)
    order_by: str = field(default="", kw_only=True)

    def text(self, row: Row) -> str:
        """Return a row's cell; empty if the value is unknown."""
        known = values(row, self.name)
        if self.scale != 1:
            known = [float(f"{self.scale * one:.12g}") for one in known]  # 54.45, not 54.449999999999996, for 0.5445
        if not known:
            return ""
        return self.form(self.over(known)) if callable(self.form) else format(self.over(known), self.form)

    def record(self, row: Row) -> dict[str, Any]:
        """Return a row's values for CSV, with units in their names; the first number orders the rows."""
        value = self.over(known) if (known := values(row, self.name)) else None
        if self.fields is None:
            return {self.name: value}
        return {name: getattr(value, attribute, None) for name, attribute in self.fields.items()}

    def key(self, row: Row) -> float | None:
        """Return the number that orders a row in this column; None if its text orders it, or if it is empty."""
        if not self.text(row):
            return None
        ordering = values(row, self.order_by) if self.order_by else self.record(row).values()
        numbers = (one for one in ordering if isinstance(one, int | float) and type(one) is not bool)
        return next(filter(math.isfinite, numbers), None)


def word(heading: str, name: str) -> Column:
    """Return a column of labels or names, which CSV spells as on the command line."""
    return Column(heading, name, display_name)


def spread(heading: str, name: str, form: str, meaning: str = "", scale: float = 1, **options: Any) -> Column:
    """Return a column of mean ± standard deviation over seeds; CSV has `name`_mean and _std, not scaled."""
    fields = {f"{name}_mean": "mean", f"{name}_std": "std"}
    return Column(heading, name, form, meaning, scale, Spread.of, fields, **options)


def difference(heading: str, value: str, meaning: str = "", **options: Any) -> Column:
    """Return a column of differences to the control; in CSV, the numbers of `harness.results.compare`."""
    fields = {f"{value}_{name}": attribute for name, attribute in difference_fields(value).items()}
    return Column(heading, f"{value}_difference", "", meaning, fields=fields, **options)


def csv_only(*names: str) -> list[Column]:
    """Return columns that appear only in CSV."""
    return [Column("", name) for name in names]


WHO = word("model", "model"), word("eraser", "eraser")
SEEDS = Column("seeds", "seeds", lambda count: f"{count or ''}")
RUNS = csv_only("runs", "seeds")


def values(row: Row, name: str) -> list[Any]:
    """Return the known values of a row."""
    value: Any = row.get(name)
    if isinstance(value, pd.Series):
        value = value.tolist()
    return [one for one in (value if isinstance(value, list) else [value]) if not (one is None or one != one)]


def first(row: Row, name: str) -> Any:
    """Return the value that all seeds of a row share; None if it is unknown."""
    return next(iter(values(row, name)), None)


def seeds_of(row: Row) -> int:
    """Return the number of seeds of a row."""
    return len(values(row, "seed"))


def runs_of(row: Row) -> list[StoredRun]:
    """Return the runs of a row, those that have finished first."""
    return [*{id(run): run for run in values(row, "stored")}.values()]


def members_of(row: Row) -> dict[int, tuple[Any, int]]:
    """Return, for each seed of a row, a result and the seed's position in it."""
    lines = zip(row["seed"], row["stored"], row["position"], strict=True)
    return {seed: (run.result, position) for seed, run, position in lines if run.result is not None}


def names_of(rows: Sequence[Row]) -> list[str]:
    """Return each row's eraser, preceded by dataset and model where rows differ in them."""
    several = [part for part in ("dataset", "model") if len({first(row, part) for row in rows}) > 1]
    return [", ".join(first(row, part).display for part in (*several, "eraser")) for row in rows]


def incomplete_remarks(rows: Sequence[Row]) -> list[str]:
    """Return a remark on rows without a result or with fewer seeds than other rows of the model."""
    named = zip(names_of(rows), rows, strict=True)
    unfinished = [f"{name} ({missing})" for name, row in named if (missing := first(row, "incomplete"))]
    return [f"Not finished: {'; '.join(unfinished)}."] if unfinished else []
