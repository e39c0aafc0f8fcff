"""The comparison as a table: for the terminal, as Markdown, and as CSV with every number."""

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from rich import box
from rich.table import Table

from erasure.certificate import Certificate
from erasure.progress import console
from erasure.store.storage import write_text
from harness.compare import (
    DIFFERENCES,
    PLATEAU,
    PLATEAU_CAPTION,
    Difference,
    Grid,
    Measure,
    Spread,
    difference_record,
    differences,
    paired_difference,
)
from harness.example_bits import final_difference, known_bits, loss_error
from harness.loss_curves import DROP_WINDOW_EPOCHS
from harness.result import stuck
from harness.run import curves_of
from mdl.backfire import Backfire, backfire

MEASURES: Mapping[str, Measure] = {
    "code": lambda result, control: paired_difference(*(r["mdl"]["bits_per_sample"] for r in (result, control))),
    "loss": final_difference,
}


@dataclass(frozen=True)
class Cell:
    """A run, and how it stands to its row's control; the differences are None for the control itself."""

    result: Any
    code: Difference | None
    found: Backfire | None


def cells_of(grid: Grid) -> dict[tuple[str, str], Cell]:
    """By row and column, every run of a table."""
    found, cells = differences(grid, MEASURES), {}
    for row, column, result in grid.runs():
        code, gap, control = found.get((row, column, "code")), found.get((row, column, "loss")), grid.control(row)
        cells[row, column] = Cell(result, code, None)
        if gap is not None and control is not None:
            crossed = backfire(result, control, gap, curves_of(result), curves_of(control))
            cells[row, column] = Cell(result, code, crossed)
    return cells


def _loss(cell: Cell) -> str:
    loss, accuracy = (Spread.of(cell.result["final"][key]).mean for key in ("loss_bits", "accuracy"))
    return f"{loss:.3f}{'‡' if _final(cell) else ''}, {100 * accuracy:.1f} %"


def _coding(cell: Cell) -> str:
    """How many of the trainings that the codelength rests on never left the plateau."""
    return stuck(cell.result["curve"][:-1])


def _final(cell: Cell) -> str:
    return stuck(cell.result["curve"][-1:])


def _plateaus(cell: Cell) -> str:
    return ", ".join(f"{what} {which}" for what, which in ((_coding(cell), "coding"), (_final(cell), "final")) if what)


def _below(cell: Cell) -> str:
    if cell.found is None:
        return ""
    where = "no" if cell.found.size is None else f"from n = {cell.found.size:,}"
    return f"{where}, backfires" if cell.found.backfires else where


def _gaps(cell: Cell, split: str = "train") -> str:
    certificate = cell.result.certificate[split]
    return f"{certificate.mean_gap:.0e}, {certificate.covariance_gap:.0e}"


_LINES: Sequence[tuple[str, str, Callable[[Cell], str]]] = (  # name, what it means, text
    (
        "bits per label",
        "prequential codelength, mean ± standard deviation over seeds (a model at chance needs log2 k)",
        lambda cell: f"{Spread.of(cell.result['mdl']['bits_per_sample'])}{'‡' if _coding(cell) else ''}",
    ),
    ("Δ to control", "of the codelength; no test example enters it", lambda cell: f"{cell.code or ''}"),
    ("final loss, correct", "on the test split, trained on everything, bits per label", _loss),
    ("Δ of final loss", "to the control's", lambda cell: f"{cell.found.gap if cell.found else ''}"),
    (
        "below control",
        "training size from which the test loss stays below the control's, backfiring if significantly so at the end",
        _below,
    ),
    (
        "sharpest fall",
        f"of the validation loss of the last training within {DROP_WINDOW_EPOCHS} epochs, mean over seeds, and when it "
        "began",
        lambda cell: f"{cell.result['sharp_drop'] or ''}",
    ),
    (PLATEAU, "trainings that the code rests on, and final ones", _plateaus),
    (
        "gaps left",
        "between class means, and between class covariances, relative, on the training split: no promise goes further",
        _gaps,
    ),
    ("on the test split", "the same, under the same map", lambda cell: _gaps(cell, "test")),
)
_CAPTION = ". ".join(f"{name}: {meaning}" for name, meaning, _ in _LINES) + f". {DIFFERENCES} {PLATEAU_CAPTION}"


def _texts(grid: Grid) -> Iterator[tuple[str, list[list[str]]]]:
    """Each row and, for every column, its lines."""
    cells = cells_of(grid)
    for row in grid.rows:
        found = [cells.get((row, column)) for column in grid.columns]
        yield row, [[text(cell) for _, _, text in _LINES] if cell else ["not run"] for cell in found]


def print_table(grid: Grid, setting: str) -> None:
    """The table of one setting on stdout."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=setting, title_justify="left")
    table.add_column("dataset · model", no_wrap=True)
    for column in grid.columns:
        table.add_column(column, no_wrap=True)
    names = [f"  {name}" for name, _, _ in _LINES]
    for row, cells in _texts(grid):
        table.add_row("\n".join([row, *names]), *("\n".join(["", *lines]) for lines in cells))
    output = console(min_width=28 + 25 * len(grid.columns))
    output.print(table)
    output.print(_CAPTION, style="dim", highlight=False)


def print_run(result: Any) -> None:
    """One run's learning curve, codelength and certificate on stdout."""
    table = Table(box=box.SIMPLE_HEAD, title=result["run_id"], title_justify="left")
    for heading in ("training examples", "next chunk (bits)", "test (bits)", "test accuracy", "epochs"):
        table.add_column(heading, justify="right")
    for point in result["curve"]:
        following, test = point["ce_next_bits"], Spread.of(point["ce_test_bits"])
        table.add_row(
            f"{point['n']:,}",
            f"{Spread.of(following)}" if following else "",
            f"{test}",
            f"{100 * Spread.of(point['test_accuracy']).mean:.1f} %",
            f"{min(point['epochs'])}–{max(point['epochs'])}",
        )
    code, total, paper = (Spread.of(result["mdl"][key]) for key in ("bits_per_sample", "total_bits", "paper"))
    output = console()
    output.print(table)
    output.print(
        f"codelength    {code} bits per label, {total:,.0f} bits for {result['train_size']:,} "
        f"labels (uniform code: {math.log2(result['num_classes']):.3f} bits per label)\n"
        f"paper's unit  {paper} (Table 16: Σ n CE / N, not a codelength)",
        highlight=False,
    )
    for split, c in result["certificate"].items():
        output.print(
            f"certificate   {split}: mean gap {c.mean_gap:.1e}, covariance gap {c.covariance_gap:.1e}, "
            f"edit {c.edit_size:.1%} of the variance, {c.out_of_range:.1%} of values out of range"
            f"{_predictions(c)}",
            highlight=False,
        )


def _predictions(certificate: Certificate) -> str:
    """R² of the best prediction of each degree, by chance in brackets; of older results nothing."""
    found = (
        ("linear", certificate.linear_r2, certificate.linear_chance),
        ("quadratic", certificate.quadratic_r2, certificate.quadratic_chance),
    )
    shown = [f"{degree} {r2:.1%} ({chance:.1%})" for degree, r2, chance in found if r2 is not None]
    return f"; of the labels predicted (by chance): {', '.join(shown)}" if shown else ""


def write_tables(grids: Mapping[str, Grid], directory: Path) -> list[Path]:
    """table.md, as on the terminal, and table.csv, one line per run with every number unrounded; `grids` by setting."""
    markdown = [line for setting, grid in grids.items() for line in (f"## {setting}", "", *_markdown(grid), "")]
    paths = [directory / "table.md", directory / "table.csv"]
    write_text(paths[0], "\n".join([*markdown, _CAPTION, ""]))
    text = io.StringIO()
    records = [
        {"setting": setting, **_record(*place, cell)}
        for setting, grid in grids.items()
        for place, cell in cells_of(grid).items()
    ]
    writer = csv.DictWriter(text, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    write_text(paths[1], text.getvalue())
    return paths


def _markdown(grid: Grid) -> Iterator[str]:
    yield f"| dataset · model | {' | '.join(grid.columns)} |"
    yield "| --- " * (len(grid.columns) + 1) + "|"
    names = "<br>".join(name for name, _, _ in _LINES)
    for row, cells in _texts(grid):
        yield f"| {row}<br>{names} | {' | '.join('<br>'.join(['', *lines]) for lines in cells)} |"


def _record(row: str, column: str, cell: Cell) -> dict[str, Any]:
    result, found = cell.result, cell.found
    certificate, drop = result.certificate["train"], result.sharp_drop
    return {
        "row": row,
        "eraser": column,
        "run_id": result["run_id"],
        "seeds": len(result["seeds"]),
        **_spread("bits_per_sample", result["mdl"]["bits_per_sample"]),
        **difference_record("difference", cell.code),
        **_spread("paper_units", result["mdl"]["paper"]),
        **_spread("final_loss_bits", result["final"]["loss_bits"]),
        "final_loss_test_error": loss_error(known_bits(result), result["seeds"]),
        **_spread("final_accuracy", result["final"]["accuracy"]),
        **difference_record("final_gap", found.gap if found else None),
        "backfires": found.backfires if found else None,
        "crossing_size": found.size if found else None,
        "crossing_epoch": found.epoch if found else None,
        "sharp_drop_bits": mean(drop.bits) if drop else None,
        "sharp_drop_epoch": drop.mean_epoch if drop else None,
        **{key: getattr(certificate, key) for key in ("mean_gap", "covariance_gap", "edit_size", "out_of_range")},
        "coding_on_plateau": _coding(cell),
        "final_on_plateau": _final(cell),
        "parameters": result["parameters"],
        "seconds": result["timing"]["seconds"],
    }


def _spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    spread = Spread.of(values)
    return {f"{name}_mean": spread.mean, f"{name}_std": spread.std}
