"""Columns of tables, each of which defines the text of its cells and its values in the CSV.

A row is one of a `Comparison` (`harness.results.arrange`). Columns of one command are defined with that command.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from harness.results.run_labels import display_name
from harness.statistics import Difference, Spread

Row = Mapping[str, Any]  # by name, a value for all seeds or a list with one value per seed; None if unknown
OverSeeds = Callable[[Sequence[Any]], Any]
Record = dict[str, Any]  # values for CSV: unrounded numbers, with units in their names
Trainings = Sequence[Literal["coding", "final"]]


class Compared(NamedTuple):
    """Differences of a value between rows of a table.

    Attributes:
        value: a column of numbers of `Results.runs`.
        by: "eraser" for differences to the control of the same model, "model" for differences to the first finished
            model under the same eraser.
    """

    value: str
    by: Literal["eraser", "model"] = "eraser"

    @property
    def prefix(self) -> str:
        """The first part of the names of its numbers in CSV."""
        return self.value if self.by == "eraser" else f"{self.value}_{self.by}"

    @property
    def name(self) -> str:
        """The name of the differences in rows, and of their column."""
        return f"{self.prefix}_difference"


_UNKNOWN = Difference(0.0, None, 1.0).record()


@dataclass(frozen=True)
class Column:
    """A column of a table: a heading, and the text and numbers for each row.

    Attributes:
        heading: the text above the column.
        text: function that returns a row's cell.
        record: function that returns a row's values for CSV; the first number orders the rows.
        meaning: a sentence for the notes; empty if the heading suffices.
        name: the argument of `--columns` that chooses the column. It is also the name of the column in `Results.runs`;
            CSV adds endings such as `_mean` and `_std` for several numbers.
        trainings: kinds of trainings behind the number: "coding" if their losses enter a codelength, "final" for those
            on the whole split. Remarks below a table name those that learnt nothing.
        compared: differences shown by the column, which `harness.results.arrange.with_differences` adds to rows.
    """

    heading: str
    text: Callable[[Row], str] = lambda _: ""
    record: Callable[[Row], Record] = lambda _: {}
    meaning: str = ""
    name: str = ""
    trainings: Trainings = ()
    compared: Compared | None = None

    def key(self, row: Row) -> float | None:
        """Return the number that orders a row in this column; None if its text orders it."""
        numbers = (one for one in self.record(row).values() if isinstance(one, int | float) and type(one) is not bool)
        return next(filter(math.isfinite, numbers), None)


def values(row: Row, name: str) -> list[Any]:
    """Return the known values of a row."""
    value = row.get(name)
    return [one for one in (value if isinstance(value, list) else [value]) if not (one is None or one != one)]


def word(heading: str, name: str) -> Column:
    """Return a column of labels or names, which CSV spells as on the command line."""

    return Column(heading, lambda row: display_name(row[name]), lambda row: {name: row[name]}, name=name)


def numbers(
    heading: str,
    form: str,
    over: Mapping[str, OverSeeds],
    meaning: str = "",
    name: str = "",
    scale: float = 1,
    *,
    trainings: Trainings = (),
) -> Column:
    """Return a column that shows several numbers together, multiplied by `scale`; empty if one is unknown.

    CSV has the numbers unscaled. For each number's name, `over` has a function that combines its values over seeds.
    """

    def record(row: Row) -> Record:
        return {name: of(known) if (known := values(row, name)) else None for name, of in over.items()}

    def text(row: Row) -> str:
        shown = record(row).values()
        return "" if None in shown else form.format(*(scale * one for one in shown))

    return Column(heading, text, record, meaning, name, trainings)


def number(
    heading: str,
    name: str,
    form: str,
    meaning: str = "",
    scale: float = 1,
    over: OverSeeds = itemgetter(0),
    *,
    trainings: Trainings = (),
) -> Column:
    """Return a column of one number (`numbers`) that all seeds share, unless `over` combines the seeds' values."""
    return numbers(heading, f"{{:{form}}}", {name: over}, meaning, name, scale, trainings=trainings)


def spread(
    heading: str, name: str, form: str, meaning: str = "", scale: float = 1, *, trainings: Trainings = ()
) -> Column:
    """Return a column of mean ± standard deviation over seeds; CSV has `name`_mean and _std, not scaled."""

    def text(row: Row) -> str:
        known = [one if scale == 1 else round(scale * one, 10) for one in values(row, name)]  # 54.45 for 0.5445
        return format(Spread.of(known), form) if known else ""

    def record(row: Row) -> Record:
        over = Spread.of(known) if (known := values(row, name)) else None
        return {f"{name}_mean": over and over.mean, f"{name}_std": over and over.std}

    return Column(heading, text, record, meaning, name, trainings)


def difference(
    heading: str,
    value: str,
    meaning: str = "",
    by: Literal["eraser", "model"] = "eraser",
    *,
    trainings: Trainings = (),
) -> Column:
    """Return a column of differences (`Compared`); in CSV, the fields of `harness.results.compare`."""
    compared, unknown = Compared(value, by), dict.fromkeys(_UNKNOWN)
    name = compared.name

    def record(row: Row) -> Record:
        numbers = row[name].record() if row[name] else unknown
        return {f"{compared.prefix}_{key}": number for key, number in numbers.items()}

    return Column(heading, lambda row: f"{row[name] or ''}", record, meaning, name, trainings, compared)


def csv_only(*names: str) -> Column:
    """Return a column that appears only in CSV, with values that all seeds share."""
    return Column("", record=lambda row: {name: next(iter(values(row, name)), None) for name in names})


def seeds_of(row: Row) -> int:
    """Return the number of seeds of a row."""
    return len(values(row, "seed"))


WHO = word("model", "model"), word("eraser", "eraser")
SEEDS = Column("seeds", lambda row: f"{seeds_of(row) or ''}")
RUN = Column("", record=lambda row: {"runs": " ".join(dict.fromkeys(values(row, "run_id"))), "seeds": seeds_of(row)})


def who(row: Row, rows: Sequence[Row]) -> str:
    """Return a row's eraser, preceded by dataset and model where rows differ in them."""
    several = [part for part in ("dataset", "model") if len({one[part] for one in rows}) > 1]
    return ", ".join(row[part].display for part in (*several, "eraser"))


def incomplete(row: Row) -> str:
    """Return a row's state if it has no result, "2 of 5 seeds" if it lacks seeds, else an empty string."""
    if not row["runs"]:
        return row["unfinished"][0].state
    seeds, of_model = seeds_of(row), row["seeds_of_model"]
    return f"{seeds} of {of_model} seeds" if seeds < of_model else ""


def incomplete_remarks(rows: Sequence[Row]) -> list[str]:
    """Return a remark on rows without a result or with fewer seeds than other rows of the model."""
    unfinished = [f"{who(row, rows)} ({missing})" for row in rows if (missing := incomplete(row))]
    return [f"Not finished: {'; '.join(unfinished)}."] if unfinished else []
