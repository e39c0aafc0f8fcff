"""The report's tables: the same text as Markdown and LaTeX (booktabs), and every number as CSV."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from erasure.store.storage import write_text
from harness.compare import DIFFERENCES, Difference, Spread, difference_record
from harness.example_bits import loss_error
from harness.loss_curves import DROP_WINDOW_EPOCHS
from scripts.report.groups import Block, Row
from scripts.report.paper import CHANCE, UNIT, chance, paper_number

_MARKS = (
    f"Mean ± standard deviation over seeds. {DIFFERENCES} † marks incomplete entries: seeds that are missing beside "
    "the rest of the row, runs that have not finished, erasers that were not run. ‡ counts trainings, of those that a "
    "number rests on, that never left the plateau: their training loss stayed at the label entropy until they were "
    "stopped, and they do not say what the network can learn."
)
_LONG = 30  # rows, beyond which a LaTeX table breaks over pages
_SHRUNK = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"
_TEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
        "$": r"\$", "±": r"$\pm$", "Δ": r"$\Delta$", "Σ": r"$\Sigma$", "·": r"$\cdot$", "†": r"$^\dagger$",
        "‡": r"$^\ddagger$", "−": "$-$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Headings and rows of text, and the same as records of unrounded numbers with units in their names."""

    name: str
    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    records: Sequence[dict[str, Any]]

    def markdown(self) -> str:
        lines = [self.headings, ["---"] * len(self.headings), *self.rows]
        body = "\n".join(f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |" for line in lines)
        return f"## {self.name}\n\n{self.caption}\n\n{body}\n"

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
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(self.records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.records)
        return text.getvalue()


def tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)


def write_tables(tables: Sequence[Table], directory: Path) -> list[Path]:
    """tables.md with all tables; a .tex and a .csv for each."""
    paths = [directory / "tables.md"]
    write_text(paths[0], "# Tables\n\n" + "\n".join(table.markdown() for table in tables))
    for table in tables:
        paths += [directory / "tables" / f"{table.name}.{kind}" for kind in ("tex", "csv")]
        write_text(paths[-2], table.latex())
        write_text(paths[-1], table.csv())
    return paths


def tables_of(block: Block) -> Iterator[Table]:
    """Codelength in bits, the paper's unit and the final losses: never two units in one column."""
    if block.verb == "mdl":
        unit = f"Prequential codelength on {block.dataset}, bits per label ({block.setting})."
        yield _comparison(block, f"{block.name}-bits", unit, "bits_per_sample", "bits per label")
        unit = f"{block.dataset}, {UNIT} ({block.setting}). {_at_chance(block)}"
        yield _comparison(block, f"{block.name}-paper-unit", unit, "paper", "Σ n·CE / N")
        if compared := _paper_options(block):
            yield compared
    yield _final(block)


def _comparison(block: Block, name: str, caption: str, key: str, unit: str) -> Table:
    """A column per eraser. In the paper's unit, the paper's number stands in a column of its own, where it has one."""
    papers = [e for e in block.erasers if key == "paper" and any(_paper(row, e) for row in block.rows)]
    columns = [(e, read) for e in block.erasers for read in (_cell, *([_paper_cell] if e in papers else []))]
    headings = [f"model, {unit}", *(e if read is _cell else f"{e}, paper's Table 16" for e, read in columns)]
    rows, found = [], block.differences("mdl", key)
    for row in block.rows:
        rows.append([row.label, *(read(row, eraser, key) for eraser, read in columns)])
        deltas = [f"{found.get((row.label, eraser), '')}" if read is _cell else "" for eraser, read in columns]
        if any(deltas):
            rows.append(["Δ", *deltas])
    records = [_codelength_record(row, e, key, found.get((row.label, e))) for row in block.rows for e in block.erasers]
    return Table(name, f"{caption} {_MARKS}", headings, rows, records)


def _at_chance(block: Block) -> str:
    results = [cell.result for row in block.rows for cell in row.cells.values() if cell.result]
    ours = dict.fromkeys(f"{chance(result):.3f} at N = {result['train_size']:,}" for result in results)
    return f"At chance: {', '.join(ours)}; in the paper {CHANCE} (QLEACE, MLP)."


def _paper_options(block: Block) -> Table | None:
    """All that determines our numbers beside what the paper says of it; None where Table 16 has no number."""
    cells = (cell for row in block.rows for cell in row.cells.values())
    numbers = [number for cell in cells if (number := paper_number(cell.config, cell.result))]
    lines = sorted(dict.fromkeys(c for number in numbers for c in number.compared), key=lambda c: c.mark)
    if not lines:
        return None
    caption = (
        f"{block.dataset} ({block.setting}) beside the paper's Table 16: what differs, what is the same, and what the "
        "paper does not say."
    )
    records = [asdict(line) for line in lines]
    headings = ("option", "of", "ours", "the paper's", "mark")
    return Table(f"{block.name}-paper-options", caption, headings, [[*record.values()] for record in records], records)


def _paper(row: Row, eraser: str) -> str:
    cell = row.cells.get(eraser)
    number = paper_number(cell.config, cell.result) if cell else None
    return f"{number}" if number else ""


def _paper_cell(row: Row, eraser: str, _: str) -> str:
    return _paper(row, eraser)


def _cell(row: Row, eraser: str, key: str) -> str:
    cell, lacks = row.cells.get(eraser), row.lacks(eraser)
    spread, on_plateau = (cell.spread("mdl", key), cell.stuck(key)) if cell else (None, "")
    marked = ((f"{spread or ''}", spread), (f"‡{on_plateau}", on_plateau), (f"†{lacks}", lacks))
    return " ".join(text for text, there in marked if there)


def _codelength_record(row: Row, eraser: str, key: str, difference: Difference | None) -> dict[str, Any]:
    unit = "bits_per_label" if key == "bits_per_sample" else "paper_units"
    spread = row.cells[eraser].spread("mdl", key) if eraser in row.cells else None
    return {
        **_identity(row, eraser),
        **_numbers(unit, spread),
        **difference_record("difference", difference, unit),
        "significant": difference.significant if difference else None,
        "paper": _paper(row, eraser) if key == "paper" else "",
    }


def _identity(row: Row, eraser: str) -> dict[str, Any]:
    cell = row.cells.get(eraser)
    return {
        "model": row.label,
        "eraser": eraser,
        "seeds": len(cell.seeds) if cell else 0,
        "incomplete": row.lacks(eraser),
        **{f"{key}_on_plateau": cell.stuck(key) if cell else "" for key in ("bits_per_sample", "paper", "loss_bits")},
        "run_ids": " ".join(run.id for run in cell.runs) if cell else "",
    }


def _numbers(name: str, spread: Spread | None) -> dict[str, Any]:
    return {f"{name}_mean": spread.mean if spread else None, f"{name}_std": spread.std if spread else None}


def _final(block: Block) -> Table:
    caption = (
        f"Trained on all of {block.dataset} ({block.setting}): test loss in bits per label and accuracy; Δ of the "
        "test loss; the training size and the epoch from which the loss stays below the control's (epochs: its best "
        "so far, in validation); the sharpest fall of the validation loss within "
        f"{DROP_WINDOW_EPOCHS} epochs, and when it began. "
        f"A run backfires that ends significantly below its control. {_MARKS}"
    )
    headings = ["model", "eraser", "test loss (bits)", "accuracy (%)", "Δ (bits)", "below control", "backfires",
                "sharpest fall (bits)", "marks"]  # fmt: skip
    pairs = [(row, eraser) for row in block.rows for eraser in block.erasers]
    rows, records = [_final_row(block, *pair) for pair in pairs], [_final_record(block, *pair) for pair in pairs]
    return Table(f"{block.name}-final", caption, headings, rows, records)


def _final_row(block: Block, row: Row, eraser: str) -> list[str]:
    cell, lacks = row.cells.get(eraser), row.lacks(eraser)
    on_plateau = cell.stuck("loss_bits") if cell else ""
    note = " ".join(mark + text for mark, text in (("‡", on_plateau), ("†", lacks)) if text)
    if cell is None or cell.result is None:
        return [row.label, eraser, *[""] * 6, note]
    found, accuracy = (
        block.backfire(row, eraser),
        Spread.of([100 * share for share in cell.result["final"]["accuracy"]]),
    )
    where = [] if found is None else [f"n = {found.size:,}"] if found.size is not None else []
    where += [f"epoch {found.epoch}"] if found and found.epoch is not None else []
    return [
        row.label,
        eraser,
        f"{cell.spread('final', 'loss_bits')}",
        f"{accuracy:.1f}",
        f"{found.gap}" if found else "",
        "" if found is None else ", ".join(where) or "no",
        "" if found is None else "yes" if found.backfires else "no",
        f"{cell.result.sharp_drop or ''}",
        note,
    ]


def _final_record(block: Block, row: Row, eraser: str) -> dict[str, Any]:
    cell, found = row.cells.get(eraser), block.backfire(row, eraser)
    drop = cell.result.sharp_drop if cell and cell.result else None
    return {
        **_identity(row, eraser),
        **_numbers("final_loss_bits", cell.spread("final", "loss_bits") if cell else None),
        "final_loss_test_error": loss_error(cell.test_bits(), cell.seeds) if cell and cell.runs else None,
        **_numbers("accuracy", cell.spread("final", "accuracy") if cell else None),
        **difference_record("final_gap", found.gap if found else None),
        "backfires": found.backfires if found else None,
        "crossing_size": found.size if found else None,
        "crossing_epoch": found.epoch if found else None,
        "sharp_drop_bits": mean(drop.bits) if drop else None,
        "sharp_drop_epoch": drop.mean_epoch if drop else None,
    }
