"""The report's tables: the same text as Markdown and LaTeX (booktabs), and every number as CSV."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from erasure.store.storage import write_text
from harness.result import MdlResult
from harness.results.arrange import Comparison
from harness.results.columns import CODES, ERASER, FINALS, PUBLISHED, PUBLISHED_DELTA, ROW, RUNS, notes
from harness.results.output import file_name
from harness.results.table import Table, markdown
from scripts.report.files import file_in
from scripts.report.paper import CHANCE, TABLE_16, UNIT, chance

_INCOMPLETE = (
    "† marks incomplete entries: seeds that are missing beside the rest of the row, runs that have not finished, "
    "erasers that were not run."
)
_MODEL = replace(ROW, heading="model")
_USUAL = ("bits", "difference", "calibrated", "excess_bits", "loss", "accuracy", "gap", "below", "fall")


def write_tables(tables: Sequence[Table], directory: Path) -> list[Path]:
    """Write tables.md with all tables, and a .tex and a .csv for each."""
    paths = [directory / "tables.md"]
    parts = (f"## {markdown(t.name)}\n\n{markdown(t.caption)}\n\n{t.markdown()}\n" for t in tables)
    write_text(paths[0], "\n".join(["# Tables\n", *parts]))
    for table in tables:
        paths += [file_in(directory, "tables", f"{file_name(table.name)}.{kind}") for kind in ("tex", "csv")]
        write_text(paths[-2], table.latex())
        write_text(paths[-1], table.csv())
    return paths


def tables_of(comparison: Comparison, chosen: Sequence[str] | None = None) -> Iterator[Table]:
    """Codelength in bits, the paper's unit and the final losses: never two units in one table.

    Args:
        comparison: its runs.
        chosen: names of the columns that are shown, each in the table that it belongs to; None for the usual ones. A
            table of which none is chosen is left out; CSV has the numbers of all.
    """
    also = (_MODEL, ERASER, RUNS)
    codes, finals = ([kind[name] for name in chosen or _USUAL if name in kind] for kind in (CODES, FINALS))
    if comparison.command == "mdl":
        places = {(entry.row, entry.eraser): entry for entry in comparison.entries}
        if codes:
            about = f"Prequential codelength on {comparison.dataset} ({comparison.setting})."
            caption = f"{about} {notes(codes, comparison.entries)} {_INCOMPLETE}"
            whole = (*also, *CODES.values())
            yield Table.pivoted(f"{comparison.name}-bits", "model", codes, places, caption, whole)
        if chosen is None or "published" in chosen:
            columns = (PUBLISHED, PUBLISHED_DELTA, TABLE_16)
            about = f"{comparison.dataset}, {UNIT} ({comparison.setting}). {_at_chance(comparison)}"
            caption = f"{about} {notes(columns, comparison.entries)} {_INCOMPLETE}"
            yield Table.pivoted(f"{comparison.name}-paper-unit", "model", columns, places, caption, also)
    if finals:
        about = f"Trained on all of {comparison.dataset} ({comparison.setting})."
        caption = f"{about} {notes(finals, comparison.entries)} {_INCOMPLETE}"
        whole = (RUNS, *FINALS.values())
        yield Table.of(f"{comparison.name}-final", (_MODEL, ERASER, *finals), comparison.entries, caption, whole)


def _at_chance(comparison: Comparison) -> str:
    results = (entry.result for entry in comparison.entries)
    ours = dict.fromkeys(f"{chance(r):.3f} at N = {r.train_size:,}" for r in results if isinstance(r, MdlResult))
    return f"At chance: {', '.join(ours)}; in the paper {CHANCE} (QLEACE, MLP)." if ours else ""
