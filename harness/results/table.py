"""Tables for the terminal, Markdown, LaTeX and CSV, from columns that are defined once."""

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table as RichTable

from erasure.progress import console
from harness.results.run_labels import Label, display_name
from harness.results.statistics import Spread

Row = Mapping[str, Any]  # of a frame: numbers unrounded, units in the names; None where there is none

_LONG = 30  # rows, beyond which a LaTeX table breaks over pages
_SHRUNK = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"
_TEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
        "$": r"\$", "±": r"$\pm$", "Δ": r"$\Delta$", "Σ": r"$\Sigma$", "·": r"$\cdot$", "†": r"$^\dagger$",
        "‡": r"$^\ddagger$", "−": "$-$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of a table: a heading, and the text of a frame's row.

    Attributes:
        heading: the text above the column.
        text: a function that returns the cell of a row.
        names: columns of the frame that CSV has; the first number among them orders the rows.
        meaning: a sentence for the caption; empty where the heading suffices.
    """

    heading: str
    text: Callable[[Row], str]
    names: Sequence[str] = ()
    meaning: str = ""

    def key(self, row: Row) -> float | None:
        """Return the number that orders a row in this column; None where it is ordered by its text."""
        numbers = (row[name] for name in self.names)
        numbers = (one for one in numbers if isinstance(one, int | float) and not isinstance(one, bool))
        return next(filter(math.isfinite, numbers), None)


def word(heading: str, name: str) -> Column:
    """Return a column of labels or names, which CSV has as the command line has them."""

    def text(row: Row) -> str:
        return row[name].display if isinstance(row[name], Label) else display_name(row[name])

    return Column(heading, text, (name,))


def number(heading: str, name: str, form: str, meaning: str = "", scale: float = 1) -> Column:
    """Return a column of numbers, `scale` times what CSV has."""

    def text(row: Row) -> str:
        return "" if row[name] is None else format(row[name] if scale == 1 else scale * row[name], form)

    return Column(heading, text, (name,), meaning)


def spread(heading: str, name: str, form: str, meaning: str = "", scale: float = 1) -> Column:
    """Return a column of mean ± standard deviation (`spread_record`), `scale` times what CSV has."""
    names = [*spread_record(name, ())]

    def text(row: Row) -> str:  # rounded: 100 times 0.5445 is 54.45, and no less
        mean, std = (row[each] if row[each] is None or scale == 1 else round(scale * row[each], 10) for each in names)
        return "" if mean is None else format(Spread(mean, std), form)

    return Column(heading, text, names, meaning)


def spread_record(name: str, values: Sequence[float | None]) -> dict[str, float | None]:
    """Return mean and standard deviation of the values that are known, as the columns `name` and "…_std"."""
    known = [value for value in values if value is not None]
    of_known = Spread.of(known) if known else None
    return {name: of_known and of_known.mean, f"{name.removesuffix('_mean')}_std": of_known and of_known.std}


@dataclass(frozen=True)
class Table:
    """Headings and rows of text.

    Attributes:
        name: the name of its files and its label in LaTeX.
        caption: the text below the table.
        headings: the text above each column.
        rows: cells as text.
        columns: the columns, where the table was made from a frame.
        frame: the rows as numbers.
        records: the rows of CSV.
        title: the text above the table.
    """

    name: str
    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    columns: Sequence[Column] = ()
    frame: Sequence[Row] = ()
    records: Sequence[Row] = ()
    title: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        columns: Sequence[Column],
        frame: Sequence[Row],
        caption: str = "",
        also: Sequence[str] = (),
        title: str = "",
    ) -> "Table":
        """Make a table with a row per row of a frame; CSV has the frame's columns `also` before those shown."""
        rows = [[column.text(row) for column in columns] for row in frame]
        names = [*also, *(name for column in columns for name in column.names)]
        records = [{name: row[name] for name in names} for row in frame]
        headings = [column.heading for column in columns]
        return cls(name, caption_of(columns, caption), headings, rows, columns, frame, records, title)

    def show(self, title: str = "") -> None:
        """Print it on stdout, below its title or another."""
        table = RichTable(*self.headings, box=box.SIMPLE_HEAD, pad_edge=False, title=title or self.title)
        table.title_justify = "left"
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
        long, caption = len(self.rows) > _LONG, tex(". ".join(filter(None, [self.title, self.caption])))
        text = cells.to_latex(index=False, longtable=long, caption=caption, label=f"tab:{self.name}")
        begin, end = r"\begin{tabular}", r"\end{tabular}"
        return text.replace(begin, f"{_SHRUNK}{{%\n{begin}").replace(end, f"{end}}}")

    def csv(self) -> str:
        return csv_of(self.records)


def caption_of(columns: Sequence[Column], more: str = "") -> str:
    """Return the meanings of columns, and `more`."""
    meanings = [f"{column.heading}: {column.meaning}." for column in columns if column.meaning]
    return " ".join([*meanings, *([more] if more else [])])


def csv_of(records: Sequence[Row]) -> str:
    """Return records as CSV, with the columns of all of them; a cell is empty where a record lacks the column."""
    import pandas as pd

    return pd.DataFrame(records, dtype=object).to_csv(index=False) if any(records) else ""


def markdown(text: str) -> str:
    """Return text as one line that Markdown shows as it is: names may hold HTML."""
    return html.escape(" ".join(text.split()), quote=False)


def tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)
