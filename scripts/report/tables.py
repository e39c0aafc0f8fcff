"""The report's tables: codelengths, final losses, and what single labels cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from harness.example_bits import CodedBits
from harness.results.arrange import Comparison
from harness.results.columns import BY_NAME, CODES, ERASER, FINALS, PUBLISHED, PUBLISHED_DELTA, ROW, RUNS, SEEDS, notes
from harness.results.entry import Entry
from harness.results.table import Column, Table, number, word
from scripts.report.paper import TABLE_16, UNIT

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

    def caption(about: str, columns: Sequence[Column[Entry]]) -> str:
        return f"{about} ({comparison.setting}). {notes(columns, comparison.entries)} {_INCOMPLETE}"

    also, name = (_MODEL, ERASER, RUNS), comparison.name
    codes, finals = ([kind[name] for name in chosen or _USUAL if name in kind] for kind in (CODES, FINALS))
    places = {(entry.row, entry.eraser): entry for entry in comparison.entries}
    if comparison.command == "mdl" and codes:
        said = caption(f"Prequential codelength on {comparison.dataset}", codes)
        yield Table.pivoted(f"{name}-bits", "model", codes, places, said, (*also, *CODES.values()))
    if comparison.command == "mdl" and (chosen is None or "published" in chosen):
        columns = (PUBLISHED, PUBLISHED_DELTA, TABLE_16)
        said = caption(f"{comparison.dataset}, {UNIT}", columns)
        yield Table.pivoted(f"{name}-paper-unit", "model", columns, places, said, also)
    if finals:
        said, shown = caption(f"Trained on all of {comparison.dataset}", finals), (_MODEL, ERASER, *finals)
        yield Table.of(f"{name}-final", shown, comparison.entries, said, (RUNS, *FINALS.values()))


def page_table(comparison: Comparison, chosen: Sequence[str] | None = None) -> Table:
    """Return the table of the page: a row per model and eraser, and the chosen columns that the command has."""
    names = chosen or _SHOWN[comparison.command]
    columns = [BY_NAME[name] for name in names if comparison.command == "mdl" or name in FINALS]
    if PUBLISHED in columns:
        columns.append(replace(TABLE_16, meaning=f"{UNIT}; {TABLE_16.meaning}"))
    entries = comparison.entries
    said = [notes(columns, entries), *([_INCOMPLETE] if any(entry.missing for entry in entries) else [])]
    return Table.of(comparison.name, (_MODEL, ERASER, *columns, SEEDS), entries, " ".join(said))


@dataclass(frozen=True)
class LabelCosts:
    """Codelengths of an entry's labels and of its control's."""

    entry: Entry
    coded: CodedBits
    control: CodedBits | None

    @property
    def known(self) -> Tensor:
        """Information [m] of the examples that a network coded."""
        return self.coded.information[self.coded.information.isfinite()]

    @property
    def above_control(self) -> Tensor:
        """Bits above the control's code, [m], of the examples for which both are known."""
        above = self.coded.above(self.control) if self.control else self.coded.information[:0]
        return above[above.isfinite()]


def label_costs(comparison: Comparison) -> list[LabelCosts]:
    """Return the codelengths of single labels of runs that kept them."""
    costs = []
    for row in comparison.rows if comparison.command == "mdl" else ():
        known = [(entry, coded) for entry in row.run if (coded := entry.coded_bits()) is not None]
        control = next((coded for entry, coded in known if entry.is_control), None)
        for entry, coded in known:
            same = control is not None and not entry.is_control and coded.same_examples(control)
            costs.append(LabelCosts(entry, coded, control if same else None))
    return costs


def _above(costs: LabelCosts) -> str:
    if not len(more := costs.above_control):
        return ""
    return f"{float(more.mean()):+.3f} ± {float(more.std() / len(more) ** 0.5):.3f}"


_COST_COLUMNS: Sequence[Column[LabelCosts]] = (
    word("model", "model", lambda c: c.entry.row),
    word("eraser", "eraser", lambda c: c.entry.eraser),
    number("examples", "examples", ",d", lambda c: len(c.known), "of those that a network coded for some seed"),
    number(
        "information (bits)", "information_bits_mean", ".3f", lambda c: float(c.known.mean()),
        "pointwise V-information (Ethayarajh et al. 2022): what the label would cost by its share of all labels, less "
        "what it cost",
    ),
    number("below zero (%)", "below_zero_percent", ".1f", lambda c: float((c.known < 0).double().mean()) * 100),
    number(
        "between seeds", "correlation_between_seeds", ".2f", lambda c: c.coded.reliability,
        "correlation of single labels' bits, mean over pairs",
    ),
    Column(
        "more than control (bits)",
        _above,
        lambda c: {"above_control_bits_mean": float(c.above_control.mean()) if len(c.above_control) else None},
        "how much more a label costs than in the control's code, paired by seed, ± standard error over examples",
    ),
)  # fmt: skip


def cost_table(name: str, costs: Sequence[LabelCosts]) -> Table:
    """Tabulate what single labels cost, a row per model and eraser of the comparison of this name."""
    caption = "Labels of the uniform code are left out: those of the first training size, where networks code blocks."
    return Table.of(f"{name}-examples", _COST_COLUMNS, costs, caption)
