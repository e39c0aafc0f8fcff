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
from train.compare import Difference, Grid, Spread, paired_difference

_LINES = ("bits per label", "Δ to control", "final loss, correct", "gaps left")
_CAPTION = (
    "bits per label: prequential codelength, mean ± standard deviation over seeds (a model at chance needs log2 k). "
    "Δ: paired difference ± standard error, * beyond two of them. final loss: bits per label on the test split, "
    "trained on everything. gaps left: between class means, and between class covariances, on the training split "
    "(relative)."
)


def cell_lines(result: Mapping[str, Any], control: Mapping[str, Any] | None) -> list[str]:
    """What a table says about one run, a line for each of `_LINES`."""
    loss, accuracy = (Spread.of(result["final"][key]).mean for key in ("loss_bits", "accuracy"))
    certificate = result["certificate"]["train"]
    return [
        f"{Spread.of(result['mdl']['bits_per_sample'])}",
        "" if control is None or control is result else _difference(versus(result, control)),
        f"{loss:.3f}, {100 * accuracy:.1f} %",
        f"{certificate['mean_gap']:.0e}, {certificate['covariance_gap']:.0e}",
    ]


def versus(result: Mapping[str, Any], control: Mapping[str, Any]) -> Difference:
    """Codelength against the control, in bits per label."""
    return paired_difference(result["mdl"]["bits_per_sample"], control["mdl"]["bits_per_sample"])


def print_table(grid: Grid) -> None:
    """The table on stdout."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("dataset · model", no_wrap=True)
    for column in grid.columns:
        table.add_column(column)
    for row in grid.rows:
        cells = [grid.cells[row].get(column) for column in grid.columns]
        lines = [cell_lines(cell, grid.control(row)) if cell else ["not run"] for cell in cells]
        table.add_row("\n".join([row, *(f"  {line}" for line in _LINES)]), *("\n".join(["", *cell]) for cell in lines))
    output = console(min_width=28 + 21 * len(grid.columns))
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
        **{key: certificate[key] for key in ("mean_gap", "covariance_gap", "edit_size", "out_of_range")},
        "parameters": result["parameters"],
        "seconds": result["timing"]["seconds"],
    }


def _difference(difference: Difference) -> str:
    if difference.standard_error is None:
        return f"{difference.mean:+.3f} (one seed)"
    return f"{difference.mean:+.3f} ± {difference.standard_error:.3f}{' *' if difference.significant else ''}"
