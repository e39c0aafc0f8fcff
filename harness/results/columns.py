"""Columns of tables, each defined once: what a cell shows of a row, and what CSV has of it.

A row is one of a `Comparison` (`harness.results.arrange`). Columns of one command stand with that command.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from harness.results.run_labels import display_name
from harness.statistics import Difference, Spread

Row = Mapping[str, Any]  # by name a value for all seeds, or a list with one for each; None where unknown
OverSeeds = Callable[[Sequence[Any]], Any]
Record = dict[str, Any]  # of CSV: numbers unrounded, units in the names
Trainings = Sequence[Literal["coding", "final"]]


class Compared(NamedTuple):
    """Differences of a value between rows of a table.

    Attributes:
        value: a column of numbers of `Results.runs`.
        by: "eraser" for differences to the control of the same model, "model" for those to the first finished model
            under the same eraser.
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
    """A column of a table: a heading, and the text and the numbers of a row.

    Attributes:
        heading: the text above the column.
        text: a function that returns the cell of a row.
        record: a function that returns what CSV has of a row; its first number orders the rows.
        meaning: a sentence for the notes; empty where the heading suffices.
        name: the argument of `--columns` that chooses the column. A column of `Results.runs` has the same name there;
            CSV adds an ending where it has several numbers, such as `_mean` and `_std`.
        trainings: the kinds of trainings that its number rests on: "coding", whose losses enter a codelength, and
            "final", on the whole split. Remarks below a table say which of them learnt nothing.
        compared: the differences that it shows, which `harness.results.arrange.with_differences` adds to rows.
    """

    heading: str
    text: Callable[[Row], str] = lambda _: ""
    record: Callable[[Row], Record] = lambda _: {}
    meaning: str = ""
    name: str = ""
    trainings: Trainings = ()
    compared: Compared | None = None

    def key(self, row: Row) -> float | None:
        """Return the number that orders a row in this column; None where it is ordered by its text."""
        numbers = (one for one in self.record(row).values() if isinstance(one, int | float) and type(one) is not bool)
        return next(filter(math.isfinite, numbers), None)


def values(row: Row, name: str) -> list[Any]:
    """Return the known values of a row."""
    value = row.get(name)
    return [one for one in (value if isinstance(value, list) else [value]) if not (one is None or one != one)]


def word(heading: str, name: str) -> Column:
    """Return a column of labels or names, which CSV has as the command line has them."""

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
    """Return a column of numbers that are read together, `scale` times what CSV has; empty where one is unknown.

    `over` has, by the name of a number, the function that makes one of those of several seeds.
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
    """Return a column of one number (`numbers`), of seeds that are alike unless `over` says what to make of them."""
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
    """Return a column of CSV alone, of values that all seeds have in common."""
    return Column("", record=lambda row: {name: next(iter(values(row, name)), None) for name in names})


def seeds_of(row: Row) -> int:
    """Return how many seeds a row has."""
    return len(values(row, "seed"))


WHO = word("model", "model"), word("eraser", "eraser")
SEEDS = Column("seeds", lambda row: f"{seeds_of(row) or ''}")
RUN = Column("", record=lambda row: {"runs": " ".join(dict.fromkeys(values(row, "run_id"))), "seeds": seeds_of(row)})


def who(row: Row, rows: Sequence[Row]) -> str:
    """Return the eraser of a row, after what tells the row from others of this eraser."""
    several = [part for part in ("dataset", "model") if len({one[part] for one in rows}) > 1]
    return ", ".join(row[part].display for part in (*several, "eraser"))


def incomplete(row: Row) -> str:
    """Return a state or "2 of 5 seeds" where a row has no result, or fewer seeds than others of the model."""
    if not row["runs"]:
        return row["unfinished"][0].state
    seeds, of_model = seeds_of(row), row["seeds_of_model"]
    return f"{seeds} of {of_model} seeds" if seeds < of_model else ""


def incomplete_remarks(rows: Sequence[Row]) -> list[str]:
    """Say which rows have no result, or fewer seeds than others of the model."""
    unfinished = [f"{who(row, rows)} ({missing})" for row in rows if (missing := incomplete(row))]
    return [f"Not finished: {'; '.join(unfinished)}."] if unfinished else []
