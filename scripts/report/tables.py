"""The report's tables: codelengths, final losses, and what single labels cost."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from harness.example_bits import CodedBits, read_coded_bits
from harness.results.arrange import Comparison
from harness.results.columns import (
    BY_NAME,
    CODES,
    ERASER,
    FINALS,
    PUBLISHED,
    PUBLISHED_DIFFERENCE,
    ROW,
    RUNS,
    SEEDS,
    notes,
)
from harness.results.entries import Entry
from harness.results.read import Note
from harness.results.statistics import difference_record
from harness.results.table import Column, Row, Table, number

UNIT = "Σ n_{i+1}·CE_i / N, the unit of the paper's Table 16 (not a codelength)"
_INCOMPLETE = (
    "† marks incomplete entries: seeds that are missing beside the rest of the row, runs that have not finished, "
    "erasers that were not run."
)
_MODEL = replace(ROW, heading="model")
_SHOWN = {"mdl": ("bits", "difference", "loss", "accuracy"), "train": ("loss", "gap", "accuracy")}
_USUAL = ("bits", "difference", "calibrated", "excess_bits", "loss", "accuracy", "gap", "below", "fall")


def tables_of(comparison: Comparison, chosen: Sequence[str] | None = None) -> Iterator[Table]:
    """Codelength in bits, the paper's unit and the final losses: never two units in one table.

    Args:
        comparison: its runs.
        chosen: names of the columns that are shown, each in the table that it belongs to; None for the usual ones. A
            table of which none is chosen is left out; CSV has the numbers of all.
    """
    name, entries = comparison.name, comparison.entries

    def table(kind: str, about: str, shown: Sequence[Column], rows: Sequence[Entry], also: Sequence[Column]) -> Table:
        caption = f"{about} ({comparison.setting}). {notes(shown, entries)} {_INCOMPLETE}"
        return Table.of(f"{name}-{kind}", (_MODEL, ERASER, *shown), rows, caption, also)

    codes, finals = ([kind[name] for name in chosen or _USUAL if name in kind] for kind in (CODES, FINALS))
    if comparison.command == "mdl" and codes:
        about, also = f"Prequential codelength on {comparison.dataset}", (_MODEL, ERASER, RUNS, *CODES.values())
        yield table("bits", about, codes, entries, also)
    if comparison.command == "mdl" and (chosen is None or "published" in chosen):
        about, also = f"{comparison.dataset}, {UNIT}", (_MODEL, ERASER, RUNS)
        yield table("paper-unit", about, (PUBLISHED, PUBLISHED_DIFFERENCE), [*map(_published, entries)], also)
    if finals:
        about, also = f"Trained on all of {comparison.dataset}", (RUNS, *FINALS.values())
        yield table("final", about, finals, entries, also)


def _published(entry: Entry) -> Entry:
    """Return an entry whose difference to the control is in Table 16's unit."""
    difference = entry["published_difference"]
    return {
        **entry,
        **difference_record("difference", difference, "published_units"),
        "significant": difference and difference.significant,
    }


def page_table(comparison: Comparison, chosen: Sequence[str] | None = None) -> Table:
    """Return the table of the page: a row per model and eraser, and the chosen columns that the command has."""
    names = chosen or _SHOWN[comparison.command]
    columns = [BY_NAME[name] for name in names if comparison.command == "mdl" or name in FINALS]
    columns = [replace(one, meaning=UNIT) if one is PUBLISHED else one for one in columns]
    entries = comparison.entries
    captions = [notes(columns, entries), *([_INCOMPLETE] if any(entry["incomplete"] for entry in entries) else [])]
    return Table.of(comparison.name, (_MODEL, ERASER, *columns, SEEDS), entries, " ".join(captions))


def label_costs(comparison: Comparison, note: Note) -> list[Entry]:
    """Return rows of a frame: entries of runs that kept the codelengths of single labels, with these as `coded`.

    Damaged files are noted and left out.
    """
    rows = []
    for entries in comparison.rows.values() if comparison.command == "mdl" else ():
        read = [(entry, read_coded_bits([run.directory for run in entry["runs"]], note)) for entry in entries]
        known = [(entry, coded) for entry, coded in read if coded is not None]
        control = next((coded for entry, coded in known if entry["is_control"]), None)
        for entry, coded in known:
            same = control is not None and not entry["is_control"] and coded.same_examples(control)
            rows.append({**entry, "coded": coded, **_numbers(coded, control if same else None)})
    return rows


def _numbers(coded: CodedBits, control: CodedBits | None) -> Entry:
    """Summarise the codelengths of the labels that a network coded, and how much they exceed the control's."""
    information = _finite(coded.information)
    above = _finite(coded.above(control)) if control else information[:0]
    return {
        "examples": len(information),
        "information_bits_mean": float(information.mean()),
        "below_zero_percent": float((information < 0).double().mean()) * 100,
        "correlation_between_seeds": coded.reliability,
        "above_control_bits_mean": float(above.mean()) if len(above) else None,
        "above_control_error": float(above.std() / len(above) ** 0.5) if len(above) else None,
    }


def _finite(bits: Tensor) -> Tensor:
    return bits[bits.isfinite()]


def _above(row: Row) -> str:
    mean, error = row["above_control_bits_mean"], row["above_control_error"]
    return "" if mean is None else f"{mean:+.3f} ± {error:.3f}"


_COST_COLUMNS: Sequence[Column] = (
    _MODEL,
    ERASER,
    number("examples", "examples", ",d", "of those that a network coded for some seed"),
    number(
        "information (bits)", "information_bits_mean", ".3f",
        "pointwise V-information (Ethayarajh et al. 2022): what the label would cost by its share of all labels, less "
        "what it cost",
    ),
    number("below zero (%)", "below_zero_percent", ".1f"),
    number(
        "between seeds", "correlation_between_seeds", ".2f",
        "correlation of single labels' bits, mean over pairs",
    ),
    Column(
        "more than control (bits)", _above, ("above_control_bits_mean",),
        "how much more a label costs than in the control's code, paired by seed, ± standard error over examples",
    ),
)  # fmt: skip


def cost_table(name: str, costs: Sequence[Entry]) -> Table:
    """Tabulate what single labels cost, a row per model and eraser of the comparison of this name."""
    caption = "Labels of the uniform code are left out: those of the first training size, where networks code blocks."
    return Table.of(f"{name}-examples", _COST_COLUMNS, costs, caption)
