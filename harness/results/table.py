"""One table for all that is shown: a column is defined once, and printed for the terminal, Markdown, LaTeX and CSV."""

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
    """A column of a table: heading, text of a row, and numbers for CSV.

    Attributes:
        heading: above it.
        text: of a row.
        record: the same in full, for CSV; nothing where that has none.
        meaning: for the caption; empty where the heading says it.
        menu: whether the page filters by it.
    """

    heading: str
    text: Callable[[T], str]
    record: Callable[[T], Record] = lambda _: {}
    meaning: str = ""
    menu: bool = False


def word(heading: str, name: str, text: Callable[[T], str | Label]) -> Column[T]:
    """Return a column to filter by; CSV has labels and names as the command line has them, under `name`."""

    def display(row: T) -> str:
        found = text(row)
        return found.display if isinstance(found, Label) else display_name(found)

    return Column(heading, display, lambda row: {name: str(text(row))}, menu=True)


def number(heading: str, name: str, form: str, value: Callable[[T], float | None], meaning: str = "") -> Column[T]:
    """Nothing where it is not known, as in runs that are older than the number."""

    def text(row: T) -> str:
        return "" if (found := value(row)) is None else format(found, form)

    return Column(heading, text, lambda row: {name: value(row)}, meaning)


def spread(
    heading: str,
    name: str,
    form: str,
    values: Callable[[T], Iterable[float | None]],
    meaning: str = "",
    scale: float = 1,
) -> Column[T]:
    """Return a column of mean ± standard deviation over the seeds that have a value, `scale` times what CSV has."""

    def spread_of(row: T, scale: float = 1) -> Spread | None:
        known = [scale * value for value in values(row) if value is not None]
        return Spread.of(known) if known else None

    def text(row: T) -> str:
        return format(found, form) if (found := spread_of(row, scale)) else ""

    def record(row: T) -> Record:
        found = spread_of(row)
        return {name: found and found.mean, f"{name.removesuffix('_mean')}_std": found and found.std}

    return Column(heading, text, record, meaning)


def sort_key(column: Column[T], row: T) -> float | None:
    """Return the number that orders a row in a column: the first of its record, None where that has none."""
    known = (v for v in column.record(row).values() if isinstance(v, int | float) and not isinstance(v, bool))
    return next(filter(math.isfinite, known), None)


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
        table = RichTable(*self.headings, box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
        for column in table.columns:
            column.overflow = "fold"
        for row in self.rows:
            table.add_row(*row)
        output = console(min_width=sum(max(map(len, each)) + 3 for each in zip(self.headings, *self.rows, strict=True)))
        output.print(table)
        output.print(self.caption, style="dim", highlight=False)

    def markdown(self) -> str:
        """Return it without its caption."""
        lines = [self.headings, ["---"] * len(self.headings), *self.rows]
        return "\n".join(f"| {' | '.join(markdown(cell).replace('|', '∣') for cell in line)} |" for line in lines)

    def latex(self) -> str:
        """Needs booktabs and graphicx, which shrinks what is wider than the text; longtable where the table is long."""
        import pandas as pd

        cells = pd.DataFrame([map(tex, row) for row in self.rows], columns=[tex(heading) for heading in self.headings])
        long, caption = len(self.rows) > _LONG, tex(self.caption)
        text = cells.to_latex(index=False, longtable=long, caption=caption, label=f"tab:{self.name}")
        begin, end = r"\begin{tabular}", r"\end{tabular}"
        return text.replace(begin, f"{_SHRUNK}{{%\n{begin}").replace(end, f"{end}}}")

    def csv(self) -> str:
        return csv_of(self.records)


def caption_of(columns: Sequence[Column[T]], more: str = "") -> str:
    """Return the meanings of columns, and `more`."""
    meanings = [f"{column.heading}: {column.meaning}." for column in columns if column.meaning]
    return " ".join([*meanings, *([more] if more else [])])


def records_of(columns: Sequence[Column[T]], entries: Sequence[T]) -> list[Record]:
    """Return a record per entry, of all columns that have any."""
    return [{k: v for c in columns for k, v in c.record(entry).items()} for entry in entries]


def csv_of(records: Sequence[Record]) -> str:
    """Return records as CSV, with the columns of all of them; a cell is empty where a record lacks the column."""
    import pandas as pd

    return pd.DataFrame(records, dtype=object).to_csv(index=False) if any(records) else ""


def markdown(text: str) -> str:
    """Return text as one line that Markdown shows as it is: names may hold HTML."""
    return html.escape(" ".join(text.split()), quote=False)


def tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)
