"""One page that opens from disk without a network: data, style and code are all inside."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from erasure.store.storage import write_text
from harness.compare import DIFFERENCES, Spread
from harness.result import as_json
from scripts.report.figures import mean_curve
from scripts.report.groups import Block, Cell, Row
from scripts.report.information_sheets import Sheet
from scripts.report.paper import UNIT, paper_number

_HERE = Path(__file__).parent
_POINTS = 60  # of a loss curve; more cannot be told apart on the page


def write_page(
    blocks: Sequence[Block],
    colours: Mapping[str, str],
    problems: Sequence[str],
    roots: Sequence[Path],
    path: Path,
    sheets: Sequence[Sheet] = (),
    figures: Mapping[str, Path] | None = None,
) -> Path:
    """index.html: page.html with page.css, page.js, sheets.js and the runs as compact JSON in their places.

    Args:
        sheets: further tables.
        figures: run id -> a figure beside the page, for the sheets' rows.
    """
    pool = Pool()
    entries = [entry(block, row, eraser, pool) for block in blocks for row in block.rows for eraser in block.erasers]
    data = {
        "built": time.strftime("%Y-%m-%d %H:%M"),
        "roots": [str(root) for root in roots],
        "unit": UNIT,
        "differences": DIFFERENCES,
        "colours": dict(colours),
        "problems": list(problems),
        "pool": pool.sections,
        "runs": entries,
        "sheets": [
            _sheet(sheet, {run: str(f.relative_to(path.parent)) for run, f in (figures or {}).items()})
            for sheet in sheets
        ],
    }
    # a "</script>" within the data must not end it
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    page = (_HERE / "page.html").read_text(encoding="utf-8")
    for mark, content in (
        ("/*STYLE*/", _read("page.css")),
        ("/*CODE*/", _read("page.js") + _read("sheets.js")),
        ("/*DATA*/", text),
    ):
        page = page.replace(mark, content, 1)
    write_text(path, page)
    return path


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


class Pool:
    """Sections of configurations, each stored once however many runs share it."""

    def __init__(self) -> None:
        self.sections: list[Any] = []
        self._places: dict[str, int] = {}

    def place(self, section: Any) -> int:
        key = json.dumps(section, sort_keys=True, default=str)
        if key not in self._places:
            self._places[key] = len(self.sections)
            self.sections.append(json.loads(key))
        return self._places[key]


def _sheet(sheet: Sheet, links: Mapping[str, str]) -> dict[str, Any]:
    """A table as the page sorts and filters it; a row whose run has a figure ends with where that is."""
    figures = [links.get(run, "") for run in sheet.runs]
    return {
        "title": sheet.title,
        "caption": sheet.table.caption,
        "headings": list(sheet.table.headings),
        "words": list(sheet.words),
        "filters": list(sheet.filters),
        "rows": [list(row) for row in sheet.table.rows],
        "figures": figures if any(figures) else [],
    }


def entry(block: Block, row: Row, eraser: str, pool: Pool) -> dict[str, Any]:
    """A line of the page's table, and what is shown once it is selected."""
    cell = row.cells.get(eraser)
    shared: dict[str, Any] = {"verb": block.verb, "dataset": block.dataset, "model": row.label, "eraser": eraser}
    shared["setting"] = block.setting
    shared |= {"family": row.config["model"]["name"], "lacks": row.lacks(eraser)}
    if cell is None:
        return shared
    shared["config"] = {key: pool.place(value) for key, value in cell.config.items()}
    shared["ids"] = [run.id for run in (*cell.runs, *cell.unfinished)]
    if cell.result is None:
        return shared
    return shared | _numbers(block, row, cell) | _curves(cell, pool)


def _numbers(block: Block, row: Row, cell: Cell) -> dict[str, Any]:
    result = cell.result
    assert result is not None
    number, found = paper_number(cell.config, result), block.backfire(row, cell.eraser)
    difference = block.differences("mdl", "bits_per_sample").get((row.label, cell.eraser)) if "mdl" in result else None
    return {
        "seeds": cell.seeds,
        "bits": _spread(cell.spread("mdl", "bits_per_sample")),
        "paper": _spread(cell.spread("mdl", "paper")),
        "table16": None if number is None else [number.mean, number.std, number.note],
        "delta": [difference.mean, f"{difference}"] if difference else None,
        "loss": _spread(cell.spread("final", "loss_bits")),
        "accuracy": _spread(cell.spread("final", "accuracy")),
        "gap": [found.gap.mean, f"{found.gap}"] if found else None,
        "below": [found.size, found.epoch] if found else None,
        "backfires": bool(found and found.backfires),
        "drop": f"{result.sharp_drop or ''}",
        "stuck": cell.stuck("bits_per_sample"),
        "stuckFinally": cell.stuck("loss_bits"),
    }


def _curves(cell: Cell, pool: Pool) -> dict[str, Any]:
    result = cell.result
    assert result is not None
    sizes = [p for p in result.get("curve", ()) if p["ce_next_bits"] is not None]
    learning = [Spread.of(point["ce_next_bits"]) for point in sizes]
    epochs, middle, std = mean_curve([*cell.curves.values()])
    step = max(1, -(-len(epochs) // _POINTS))
    thinned = list(range(0, len(epochs), step))
    if epochs and thinned[-1] != len(epochs) - 1:
        thinned.append(len(epochs) - 1)
    return {
        "learning": [[p["n"] for p in sizes], _short(s.mean for s in learning), _short(s.std or 0 for s in learning)],
        "losses": [
            [int(epochs[i]) for i in thinned],
            _short(middle[i] for i in thinned),
            _short(std[i] for i in thinned),
        ],
        "chance": result["num_classes"],
        "parameters": result["parameters"],
        "seconds": result.timing.seconds,
        "certificate": pool.place(as_json(result.certificate)),
        "versions": pool.place(result["versions"]),
    }


def _short(values: Any) -> list[float]:
    return [round(value, 4) for value in values]


def _spread(spread: Spread | None) -> list[float | None] | None:
    return None if spread is None else [spread.mean, spread.std]
