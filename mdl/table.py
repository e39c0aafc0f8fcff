"""The comparison as a table: for the terminal, as Markdown, and as CSV with every number."""

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from erasure.progress import console
from erasure.storage import write_text
from mdl.backfire import backfire
from train.compare import Difference, Grid, Spread, paired_difference
from train.loss_curves import DROP_WINDOW_EPOCHS, curves_of, describe_drop, recorded_drop

_LINES = (
    "bits per label",
    "Δ to control",
    "final loss, correct",
    "Δ of final loss",
    "below control",
    "sharpest fall",
    "gaps left",
)
_CAPTION = (
    "bits per label: prequential codelength, mean ± standard deviation over seeds (a model at chance needs log2 k). "
    "Δ: paired difference ± standard error, * beyond two of them. final loss: bits per label on the test split, "
    "trained on everything; below control: the training size from which it stays below the control's, backfiring if "
    "significantly so at the end. sharpest fall: of the validation loss of that training within "
    f"{DROP_WINDOW_EPOCHS} epochs, mean over seeds, and when it began. gaps left: between class means, and between "
    "class covariances, on the training split (relative)."
)


def cell_lines(result: Mapping[str, Any], control: Mapping[str, Any] | None) -> list[str]:
    """What a table says about one run, a line for each of `_LINES`."""
    pair = None if control is result else control
    loss, accuracy = (Spread.of(result["final"][key]).mean for key in ("loss_bits", "accuracy"))
    certificate = result["certificate"]["train"]
    return [
        f"{Spread.of(result['mdl']['bits_per_sample'])}",
        "" if pair is None else f"{versus(result, pair)}",
        f"{loss:.3f}, {100 * accuracy:.1f} %",
        *_backfire_lines(result, pair),
        f"{certificate['mean_gap']:.0e}, {certificate['covariance_gap']:.0e}",
    ]


def _backfire_lines(result: Mapping[str, Any], control: Mapping[str, Any] | None) -> list[str]:
    fall = describe_drop(result)
    if control is None:
        return ["", "", fall]
    found = backfire(result, control)
    where = "no" if found.size is None else f"from n = {found.size:,}"
    return [f"{found.gap}", f"{where}, backfires" if found.backfires else where, fall]


def versus(result: Mapping[str, Any], control: Mapping[str, Any]) -> Difference:
    """Codelength against the control, in bits per label."""
    return paired_difference(result["mdl"]["bits_per_sample"], control["mdl"]["bits_per_sample"])


def print_table(grid: Grid) -> None:
    """The table on stdout."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("dataset · model", no_wrap=True)
    for column in grid.columns:
        table.add_column(column, no_wrap=True)
    for row in grid.rows:
        cells = [grid.cells[row].get(column) for column in grid.columns]
        lines = [cell_lines(cell, grid.control(row)) if cell else ["not run"] for cell in cells]
        table.add_row("\n".join([row, *(f"  {line}" for line in _LINES)]), *("\n".join(["", *cell]) for cell in lines))
    output = console(min_width=28 + 25 * len(grid.columns))
    output.print(table)
    output.print(_CAPTION, style="dim", highlight=False)


def print_run(result: Mapping[str, Any]) -> None:
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
            f"certificate   {split}: mean gap {c['mean_gap']:.1e}, covariance gap {c['covariance_gap']:.1e}, "
            f"edit {c['edit_size']:.1%} of the variance, {c['out_of_range']:.1%} of values out of range",
            highlight=False,
        )


def write_tables(grid: Grid, directory: Path) -> list[Path]:
    """table.md, as on the terminal, and table.csv, one line per run with every number unrounded."""
    markdown = [f"| dataset · model | {' | '.join(grid.columns)} |", "| --- " * (len(grid.columns) + 1) + "|"]
    for row in grid.rows:
        cells = [grid.cells[row].get(column) for column in grid.columns]
        texts = ["<br>".join(cell_lines(cell, grid.control(row))) if cell else "not run" for cell in cells]
        markdown.append(f"| {row}<br>{'<br>'.join(_LINES)} | {' | '.join(f'<br>{text}' for text in texts)} |")
    paths = [directory / "table.md", directory / "table.csv"]
    write_text(paths[0], "\n".join([*markdown, "", _CAPTION, ""]))
    text = io.StringIO()
    records = [_record(grid, row, column) for row in grid.rows for column in grid.cells[row]]
    writer = csv.DictWriter(text, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    write_text(paths[1], text.getvalue())
    return paths


def _record(grid: Grid, row: str, column: str) -> dict[str, Any]:
    result, control = grid.cells[row][column], grid.control(row)
    code, paper = Spread.of(result["mdl"]["bits_per_sample"]), Spread.of(result["mdl"]["paper"])
    loss, accuracy = Spread.of(result["final"]["loss_bits"]), Spread.of(result["final"]["accuracy"])
    difference = versus(result, control) if control is not None else None
    certificate = result["certificate"]["train"]
    bits, epoch = recorded_drop(result)
    found = None
    if control is not None and control is not result:
        found = backfire(result, control, curves_of(result), curves_of(control))
    return {
        "row": row,
        "eraser": column,
        "run_id": result["run_id"],
        "seeds": len(result["seeds"]),
        "bits_per_sample_mean": code.mean,
        "bits_per_sample_std": code.std,
        "difference_bits": difference.mean if difference else None,
        "difference_standard_error": difference.standard_error if difference else None,
        "paper_units_mean": paper.mean,
        "paper_units_std": paper.std,
        "final_loss_bits_mean": loss.mean,
        "final_loss_bits_std": loss.std,
        "final_accuracy_mean": accuracy.mean,
        "final_accuracy_std": accuracy.std,
        "final_gap_bits": found.gap.mean if found else None,
        "final_gap_standard_error": found.gap.standard_error if found else None,
        "backfires": found.backfires if found else None,
        "crossing_size": found.size if found else None,
        "crossing_epoch": found.epoch if found else None,
        "sharp_drop_bits": bits,
        "sharp_drop_epoch": epoch,
        **{key: certificate[key] for key in ("mean_gap", "covariance_gap", "edit_size", "out_of_range")},
        "parameters": result["parameters"],
        "seconds": result["timing"]["seconds"],
    }
