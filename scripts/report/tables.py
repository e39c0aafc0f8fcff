"""The report's tables: codelengths and final losses."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

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
from harness.results.statistics import difference_record
from harness.results.table import Column, Table

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
