"""One page that opens from disk without a network: data, style and code are all inside."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from erasure.progress import duration
from erasure.store.storage import write_text
from harness.result import TrainedResult, as_json
from harness.results.arrange import Comparison, Row
from harness.results.columns import BY_NAME, CODES, PUBLISHED, SEEDS, notes
from harness.results.entry import Entry
from harness.results.labels import Label, display_name
from harness.results.panels import mean_curve
from harness.results.statistics import Spread
from harness.results.table import Column, Table, caption_of, sort_key
from harness.run_files import printable
from harness.style import css_colour
from harness.trained import Coded
from scripts.report.paper import TABLE_16, UNIT, paper_number

_HERE = Path(__file__).parent
Json = dict[str, Any]  # as the page's code reads it
Pool = dict[str, int]  # sections of configurations as JSON, numbered
_MOST_OPEN = 12  # runs that are selected when the page opens
_POINTS = 90  # of a loss curve, even on its logarithmic axis; more cannot be told apart on the page
_MENUS = ("setting", "dataset", "family", "eraser", "command", "completeness")
_MENUS_ONLY = ("setting", "family", "completeness")
_USUAL = ("bits", "difference", "loss", "accuracy")
_TABLE_16 = replace(TABLE_16, meaning=f"{UNIT}; {TABLE_16.meaning}")


@dataclass(frozen=True, kw_only=True)
class Page:
    """The content of the report's page.

    Attributes:
        comparisons: of trained runs.
        colours: of erasers.
        problems: remarks, a line each.
        roots: where runs were searched.
        sheets: further tables.
        figures: run id -> a figure beside the page, for the sheets' rows.
        drawn: figures beside the page, to be shown on it.
        columns: names of the columns of the table of runs; None for the usual ones.
    """

    comparisons: Sequence[Comparison] = ()
    colours: Mapping[Label, str] = field(default_factory=dict)
    problems: Sequence[str] = ()
    roots: Sequence[Path] = ()
    sheets: Sequence[Table] = ()
    figures: Mapping[str, Path] = field(default_factory=dict)
    drawn: Sequence[Path] = ()
    columns: Sequence[str] | None = None

    def write(self, path: Path) -> Path:
        """Write index.html: page.html with page.css, page.js and the runs as compact JSON in their places."""
        pool: Pool = {}
        runs = _runs(self.comparisons, pool, self.columns or _USUAL)
        links = {run: str(figure.relative_to(path.parent)) for run, figure in self.figures.items()}
        data = {
            "built": time.strftime("%Y-%m-%d %H:%M"),
            "roots": [printable(str(root)) for root in self.roots],
            "colours": {eraser.display: css_colour(colour) for eraser, colour in self.colours.items()},
            "problems": list(self.problems),
            "pool": [json.loads(section) for section in pool],
            "runs": runs,
            "figures": [{"path": str(figure.relative_to(path.parent)), "name": figure.stem} for figure in self.drawn],
            "sheets": [_sheet(sheet, links) for sheet in self.sheets],
        }
        # a "</script>" within the data must not end it
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
        page = _read("page.html")
        for mark, content in (("/*STYLE*/", _read("page.css")), ("/*CODE*/", _read("page.js")), ("/*DATA*/", text)):
            page = page.replace(mark, content, 1)
        write_text(path, page)
        return path


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _place(pool: Pool, section: Any) -> int:
    """Return the number of a section of a configuration in the pool, which has it once."""
    return pool.setdefault(json.dumps(section, sort_keys=True, default=str), len(pool))


def _runs(comparisons: Sequence[Comparison], pool: Pool, chosen: Sequence[str]) -> Json:
    """Return the table of runs, the setting with most codelengths first, details of each run, and which are shown."""
    columns = [*(BY_NAME[name] for name in chosen), *([_TABLE_16] if "published" in chosen else []), SEEDS]
    size = Counter(
        comparison.setting
        for comparison in comparisons
        for entry in comparison.entries
        if isinstance(entry.result, Coded)
    )
    comparisons = sorted(comparisons, key=lambda comparison: -size[comparison.setting])
    lines = [
        (comparison, row, entry)
        for comparison in comparisons
        for row in comparison.rows
        for entry in row.entries.values()
    ]
    before = ("setting", "dataset", "family", "model", "eraser", "command")
    headings = [*before, *(column.heading for column in columns), "incomplete", "completeness"]
    rows = [_cells(*line, columns) for line in lines]
    keys = [
        [*[None] * len(before), *(sort_key(column, entry) for column in columns), None, None] for *_, entry in lines
    ]
    caption = caption_of(columns, notes(columns, [entry for *_, entry in lines]))
    shown = Table("results", caption, headings, rows, keys=keys, menus=_MENUS, title="Results").sheet()
    for column in shown["columns"]:
        column |= {"hidden": column["heading"] in _MENUS_ONLY, "one": column["heading"] == "setting"}
    details = [_details(comparison, entry, pool) for comparison, _, entry in lines]
    return {**shown, "title": "Results", "details": details, "opening": _opening(lines)}


def _opening(lines: Sequence[tuple[Comparison, Row, Entry]]) -> list[int]:
    """Return the positions of the row, in the first line's setting, of which most erasers have loss curves."""
    by_row: dict[tuple[int, int], list[int]] = {}
    for i, (comparison, row, entry) in enumerate(lines):
        if entry.curves and comparison.setting == lines[0][0].setting:
            by_row.setdefault((id(comparison), id(row)), []).append(i)
    return max(by_row.values(), key=len, default=[])[:_MOST_OPEN]


def _cells(comparison: Comparison, row: Row, entry: Entry, columns: Sequence[Column[Entry]]) -> list[str]:
    """Return the cells of a line."""
    family, eraser = display_name(row.model["name"]), entry.eraser.display
    names = (comparison.setting, comparison.dataset, family, row.label.display, eraser, comparison.command)
    # columns of which the command has no numbers
    codes = () if comparison.command == "mdl" else (*CODES.values(), PUBLISHED)
    texts = ("" if column in codes else column.text(entry) for column in columns)
    return [*names, *texts, entry.missing, "incomplete" if entry.missing else "complete"]


def _sheet(table: Table, links: Mapping[str, str]) -> Json:
    """Return a table; a row whose run has a figure ends with the figure's path."""
    figures = [links.get(run, "") for run in table.runs]
    return {**table.sheet(), "title": table.title, "figures": figures if any(figures) else []}


def _details(comparison: Comparison, entry: Entry, pool: Pool) -> Json:
    about: Json = {"command": comparison.command, "lacks": entry.missing}
    about |= {"dataset": comparison.dataset, "model": entry.row.display, "eraser": entry.eraser.display}
    if not entry.all_runs:
        return about
    about["config"] = {key: _place(pool, value) for key, value in entry.config.items()}
    about["ids"] = [run.id for run in entry.all_runs]
    about["paper"] = f"{number:.2f}" if (number := paper_number(entry)) else ""
    return about | (_curves(entry, entry.result, pool) if entry.result else {})


def _curves(entry: Entry, result: TrainedResult, pool: Pool) -> Json:
    curve = result.curve if isinstance(result, Coded) else ()
    learning = [(point.n, Spread.of(point.ce_next_bits)) for point in curve if point.ce_next_bits]
    epochs, *losses = mean_curve([*entry.curves.values()])
    evenly = np.expm1(np.linspace(0, np.log1p(max(0, len(epochs) - 1)), _POINTS)).round().astype(int)
    thinned = np.unique(evenly[: _POINTS * bool(len(epochs))]).tolist()
    means = _short(spread.mean for _, spread in learning)
    return {
        "seeds": result.seeds,
        "learning": [[n for n, _ in learning], means, _short(spread.std or 0 for _, spread in learning)],
        "losses": [[int(epochs[i]) for i in thinned], *(_short(float(each[i]) for i in thinned) for each in losses)],
        "classes": result.num_classes,
        "parameters": result.parameters,
        "took": duration(result.timing.seconds or 0.0),
        "certificate": _place(pool, as_json(result.certificate)),
        "versions": _place(pool, result.versions),
    }


def _short(values: Iterable[float]) -> list[float]:
    return [round(value, 4) for value in values]
