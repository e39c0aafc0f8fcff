"""Tables of runs and of studies, for the terminal, Markdown, LaTeX and CSV."""

import html
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Number
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from conf.terminal import printable
from erasure.progress import console
from erasure.store.atomic_files import write_text
from erasure.store.checked_files import fingerprint
from harness.results.columns import Column, Row

COMMON = "In several tables"  # heading of shared notes
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of formulas in spreadsheets
_NO_SPACE = "\u200b"  # zero-width space, which keeps Markdown from making an address into a link
_LONGEST_NAME = 150  # characters
_LONG = 30  # rows; longer LaTeX tables may break over pages
_SHRUNK = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"
_TEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
        "$": r"\$", "±": r"$\pm$", "Δ": r"$\Delta$", "Σ": r"$\Sigma$", "·": r"$\cdot$",
        "−": "$-$", "≤": r"$\leq$", "<": "$<$", ">": "$>$", "|": "$|$",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Headings and rows of text.

    Attributes:
        name: name of its files, and its label in LaTeX.
        notes: sentences below the table, which other tables may share.
        headings: the text above each column.
        rows: cells as text.
        columns: the columns, if the table was made by `of`.
        values: the rows before conversion to text.
        records: the rows of the CSV.
        title: the text above the table.
        remarks: sentences on rows, after the notes; not shared by tables.
    """

    name: str
    notes: Sequence[str]
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    columns: Sequence[Column] = ()
    values: Sequence[Row] = ()
    records: Sequence[dict[str, Any]] = ()
    title: str = ""
    remarks: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        name: str,
        columns: Sequence[Column],
        values: Sequence[Row],
        notes: Sequence[str] = (),
        also: Sequence[Column] = (),
        title: str = "",
        remarks: Sequence[str] = (),
    ) -> "Table":
        """Make a table of rows from the columns that are not empty.

        The CSV starts with the columns `also`, and has empty columns too.
        """
        records = [{k: v for column in (*also, *columns) for k, v in column.record(row).items()} for row in values]
        shown = [column for column in columns if any(map(column.text, values))]
        rows = [[column.text(row) for column in shown] for row in values]
        meanings = [f"{column.heading}: {column.meaning}." for column in shown if column.meaning]
        headings = [column.heading for column in shown]
        return cls(name, [*meanings, *notes], headings, rows, shown, values, records, title, remarks)

    def caption(self, without: Sequence[str] = ()) -> str:
        """Return the notes, except those in `without`, and the remarks as one text."""
        return " ".join([*(note for note in self.notes if note not in without), *self.remarks])

    def show(self, title: str = "", without: Sequence[str] = ()) -> None:
        """Print the table under a title (by default its own), and its caption without the notes in `without`."""
        columns = (RichColumn(_shown(heading), overflow="fold") for heading in self.headings)
        table = RichTable(
            *columns, box=box.SIMPLE_HEAD, pad_edge=False, title=_shown(title or self.title), title_justify="left"
        )
        for row in self.rows:
            table.add_row(*map(_shown, row))
        output = console(min_width=sum(max(map(len, each)) + 3 for each in zip(self.headings, *self.rows, strict=True)))
        output.print(table)
        output.print(_shown(self.caption(without)), style="dim")

    def markdown(self) -> str:
        """Return the table in Markdown, without its caption."""
        lines = [self.headings, ["---"] * len(self.headings), *self.rows]
        return "\n".join(f"| {' | '.join(markdown(cell).replace('|', '∣') for cell in line)} |" for line in lines)

    def latex(self) -> str:
        """Return the table in LaTeX; needs booktabs, graphicx (to shrink wide tables) and longtable (for long ones)."""
        import pandas as pd

        cells = pd.DataFrame([map(tex, row) for row in self.rows], columns=[tex(heading) for heading in self.headings])
        long, caption = len(self.rows) > _LONG, tex(". ".join(filter(None, [self.title, self.caption()])))
        text = cells.to_latex(index=False, longtable=long, caption=caption, label=f"tab:{self.name}")
        begin, end = r"\begin{tabular}", r"\end{tabular}"
        return text.replace(begin, f"{_SHRUNK}{{%\n{begin}").replace(end, f"{end}}}")

    def csv(self) -> str:
        return csv_of(self.records)


def csv_of(records: Sequence[dict[str, Any]]) -> str:
    """Return records as CSV with the columns of all records; cells of missing values are empty."""
    import pandas as pd

    cells = [{csv_cell(name): csv_cell(value) for name, value in record.items()} for record in records]
    return pd.DataFrame(cells, dtype=object).to_csv(index=False) if any(records) else ""


def csv_cell(value: Any) -> Any:
    """Return a value for CSV, with an apostrophe before text that a spreadsheet would read as a formula."""
    if value is None or isinstance(value, Number):
        return value
    text = str(value)
    return f"'{printable(text)}" if text.startswith(_FORMULA) else printable(text)


def markdown(text: str) -> str:
    """Return text as one line that Markdown shows verbatim, as names may contain HTML, links and addresses."""
    escaped = html.escape(re.sub(r"[\\\[\]]", r"\\\g<0>", printable(" ".join(text.split()))), quote=False)
    return re.sub(r":(?=//)|www(?=\.)", f"\\g<0>{_NO_SPACE}", escaped, flags=re.IGNORECASE)


def _shown(text: str) -> Text:
    """Return text that the terminal shows verbatim, as names may contain rich's markup."""
    return Text(printable(text))


def tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in printable(text))


def file_name(text: str) -> str:
    """Return a file name without ending for a text: its ASCII words, with a digest if characters are left out."""
    words = "-".join(re.sub(r"[^A-Za-z0-9_.]", " ", text).split()).lstrip(".")
    whole = 0 < len(words) <= _LONGEST_NAME and all(c.isascii() for c in text if c.isalnum())
    return words if whole else f"{words[:_LONGEST_NAME]}-{fingerprint(text, 8)}"


def common_notes(tables: Sequence[Table]) -> list[str]:
    """Return the notes that several tables share, which are shown once."""
    counts = Counter(note for table in tables for note in dict.fromkeys(table.notes))
    return [note for note, count in counts.items() if count > 1]


def markdown_of(tables: Sequence[Table]) -> str:
    """Return tables in Markdown, each with its title and notes, followed by the notes that several tables share."""
    common = common_notes(tables)
    parts = [part for t in tables for part in (f"## {markdown(t.title)}", t.markdown(), markdown(t.caption(common)))]
    last = [f"## {COMMON}", markdown(" ".join(common))] if common else []
    return "\n\n".join([*filter(None, [*parts, *last]), ""])


def show(tables: Sequence[Table], path: Path) -> None:
    """Print tables, and write them to `path` in Markdown."""
    common = common_notes(tables)
    for table in tables:
        table.show(without=common)
    if common:
        console().print(_shown(f"{COMMON}: {' '.join(common)}"), style="dim")
    write_text(path, markdown_of(tables))
    print(f"tables: {path}")


def show_with_csv(tables: Sequence[Table], path: Path) -> None:
    """Print and write tables with the same columns, and write one CSV with all columns and unrounded numbers."""
    show(tables, path)
    write_text(path.with_suffix(".csv"), csv_of([record for table in tables for record in table.records]))
    print(f"every column: {path.with_suffix('.csv')}")
