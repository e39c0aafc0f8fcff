"""One table for all that is shown: a column is defined once, and printed for the terminal, Markdown, LaTeX and CSV."""

import csv
import html
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from rich import box
from rich.table import Table as RichTable

from erasure.progress import console
from harness.results.labels import Label, display_name
from harness.results.statistics import Spread

T = TypeVar("T")
Record = Mapping[str, Any]  # columns of a CSV file: numbers unrounded, units in the names

_LONG = 30  # rows, beyond which a LaTeX table breaks over pages
_SHRUNK = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"
_TEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
        "$": r"\$", "±": r"$\pm$", "Δ": r"$\Delta$", "Σ": r"$\Sigma$", "·": r"$\cdot$", "†": r"$^\dagger$",
        "‡": r"$^\ddagger$", "−": "$-$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}  # fmt: skip


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table: heading, text of an entry, and numbers for CSV.

    Attributes:
        heading: above it.
        text: of an entry.
        record: the same in full, for CSV; None where that has none.
        meaning: for the caption; empty where the heading says it.
        menu: whether the page filters by it.
    """

    heading: str
    text: Callable[[T], str]
    record: Callable[[T], Record] | None = None
    meaning: str = ""
    menu: bool = False

    def noted(self, marks: Callable[[T], Sequence[str]], more: Callable[[T], Record] = lambda _: {}) -> "Column[T]":
        """Return the column with marks after its text, and more in its record."""
        return replace(
            self,
            text=lambda entry: " ".join(filter(None, [self.text(entry), *marks(entry)])),
            record=lambda entry: {**(self.record(entry) if self.record else {}), **more(entry)},
        )


def word(heading: str, name: str, text: Callable[[T], str | Label]) -> Column[T]:
    """Return a column to filter by; CSV has labels and names as the command line has them, under `name`."""

    def display(entry: T) -> str:
        found = text(entry)
        return found.display if isinstance(found, Label) else display_name(found)

    return Column(heading, display, lambda entry: {name: str(text(entry))}, menu=True)


def number(heading: str, name: str, form: str, value: Callable[[T], float | None], meaning: str = "") -> Column[T]:
    """Nothing where it is not known, as in runs that are older than the number."""

    def text(entry: T) -> str:
        return "" if (found := value(entry)) is None else format(found, form)

    return Column(heading, text, lambda entry: {name: value(entry)}, meaning)


def spread(
    heading: str,
    name: str,
    form: str,
    values: Callable[[T], Iterable[float | None]],
    meaning: str = "",
    scale: float = 1,
) -> Column[T]:
    """Return a column of mean ± standard deviation over the seeds that have a value, `scale` times what CSV has."""

    def spread_of(entry: T, scale: float = 1) -> Spread | None:
        known = [scale * value for value in values(entry) if value is not None]
        return Spread.of(known) if known else None

    def text(entry: T) -> str:
        return format(found, form) if (found := spread_of(entry, scale)) else ""

    def record(entry: T) -> Record:
        found = spread_of(entry)
        return {name: found and found.mean, f"{name.removesuffix('_mean')}_std": found and found.std}

    return Column(heading, text, record, meaning)


def sort_key(column: Column[T], entry: T) -> float | None:
    """Return the number that orders an entry in a column: the first of its record, None where that has none."""
    values = column.record(entry).values() if column.record else ()
    numbers = (v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v))
    return next(numbers, None)


@dataclass(frozen=True)
class Table:
    """Headings and rows of text, and the same as records.

    Attributes:
        name: of its files and in LaTeX.
        keys: the numbers that order the rows, a line per row, in it one per column; a column without any is ordered by
            its text.
        menus: headings of columns to filter by.
        runs: the run of each row; none where rows are not one run's.
        title: above it.
    """

    name: str
    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    records: Sequence[Record] = ()
    keys: Sequence[Sequence[float | None]] = ()
    menus: Sequence[str] = ()
    runs: Sequence[str] = ()
    title: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        columns: Sequence[Column[T]],
        entries: Sequence[T],
        caption: str = "",
        also: Sequence[Column[T]] = (),
    ) -> "Table":
        """Make a table with a row per entry; records also have the columns `also`."""
        menus = [column.heading for column in columns if column.menu]
        rows = [[column.text(entry) for column in columns] for entry in entries]
        keys = [[sort_key(column, entry) for column in columns] for entry in entries]
        headings, records = [column.heading for column in columns], records_of([*also, *columns], entries)
        runs = [str(record["run_id"]) for record in records if "run_id" in record]
        return cls(name, caption_of(columns, caption), headings, rows, records, keys, menus, runs)

    @classmethod
    def pivoted(
        cls,
        name: str,
        what: str,
        columns: Sequence[Column[T]],
        entries: Mapping[tuple[Label, Label], T],
        caption: str = "",
        also: Sequence[Column[T]] = (),
    ) -> "Table":
        """For entries by row and place: a column per place, and for each row a line per column that says anything."""
        rows, places = (list(dict.fromkeys(key[i] for key in entries)) for i in (0, 1))
        lines = []
        for row in rows:
            for i, column in enumerate(columns):
                texts = [column.text(entries[row, place]) if (row, place) in entries else "" for place in places]
                if i == 0 or any(texts):
                    lines.append([f"  {column.heading}" if i else row.display, *texts])
        heading = f"{what}, {columns[0].heading}"
        records = records_of([*also, *columns], [*entries.values()])
        return cls(name, caption_of(columns, caption), [heading, *(place.display for place in places)], lines, records)

    def show(self, title: str = "") -> None:
        """Print it on stdout."""
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
        for heading in self.headings:
            table.add_column(heading, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        widths = [max(map(len, column)) + 3 for column in zip(self.headings, *self.rows, strict=True)]
        output = console(min_width=sum(widths))
        output.print(table)
        output.print(self.caption, style="dim", highlight=False)

    def markdown(self) -> str:
        """Return it without its caption."""
        lines = [self.headings, ["---"] * len(self.headings), *self.rows]
        return "\n".join(f"| {' | '.join(markdown(cell).replace('|', '∣') for cell in line)} |" for line in lines)

    def latex(self) -> str:
        """Needs booktabs and graphicx, which shrinks what is wider than the text; longtable where the table is long."""
        columns = "l" * len(self.headings)
        head, *rows = [" & ".join(map(tex, line)) + r" \\" for line in (self.headings, *self.rows)]
        body = "\n".join([r"\toprule", head, r"\midrule", *rows, r"\bottomrule"])
        caption = rf"\caption{{{tex(self.caption)}}}\label{{tab:{self.name}}}"
        if len(rows) > _LONG:
            return f"\\begin{{longtable}}{{{columns}}}\n{caption} \\\\\n{body}\n\\end{{longtable}}\n"
        tabular = f"\\begin{{tabular}}{{{columns}}}\n{body}\n\\end{{tabular}}"
        return f"\\begin{{table}}\n\\centering\n{caption}\n{_SHRUNK}{{%\n{tabular}}}\n\\end{{table}}\n"

    def csv(self) -> str:
        return csv_of(self.records)

    def sheet(self) -> dict[str, Any]:
        """Return the table as the page sorts and filters it."""
        keys = [*zip(*self.keys, strict=True)] or [()] * len(self.headings)
        columns = [
            {
                "heading": heading,
                "menu": heading in self.menus,
                "keys": own if any(k is not None for k in own) else None,
            }
            for heading, own in zip(self.headings, keys, strict=True)
        ]
        return {"caption": self.caption, "columns": columns, "rows": [list(row) for row in self.rows]}


def caption_of(columns: Sequence[Column[T]], more: str = "") -> str:
    """Return the meanings of columns, and `more`."""
    meanings = [f"{column.heading}: {column.meaning}." for column in columns if column.meaning]
    return " ".join([*meanings, *([more] if more else [])])


def records_of(columns: Sequence[Column[T]], entries: Sequence[T]) -> list[Record]:
    """Return a record per entry, of all columns that have any."""
    return [{k: v for c in columns if c.record for k, v in c.record(entry).items()} for entry in entries]


def csv_of(records: Sequence[Record]) -> str:
    """Return records as CSV, with the columns of all of them; a cell is empty where a record lacks the column."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for record in records for name in record))
    if names:
        writer = csv.DictWriter(text, fieldnames=names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    return text.getvalue()


def markdown(text: str) -> str:
    """Return text as one line that Markdown shows as it is: names may hold HTML."""
    return html.escape(" ".join(text.split()), quote=False)


def tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)
