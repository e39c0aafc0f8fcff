"""Codelengths of single labels: tables, and the images with the longest and shortest."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from erasure.pipeline import ErasedDataset
from harness.example_bits import CodedBits
from harness.results.arrange import Comparison
from harness.results.entry import Entry
from harness.results.output import file_name
from harness.results.table import Column, Table, number, word
from sample_info.leave_one_out import spearman
from sample_info.report.comparison import RunScores
from scripts.report.figures import Note
from scripts.report.files import file_in
from scripts.report.grids import images_of
from scripts.report.information import Information
from scripts.show_erasers import Shown, draw_rows

_IMAGES = 10  # in a row


@dataclass(frozen=True)
class Costs:
    """Codelengths of an entry's labels and of its control's, and scores of the same examples by model."""

    entry: Entry
    coded: CodedBits
    control: CodedBits | None
    scores: Mapping[str, RunScores]

    @property
    def name(self) -> str:
        return f"{self.entry.row.display}, {self.entry.eraser.display}"

    @property
    def known(self) -> Tensor:
        """Information [m] of the examples that a network coded."""
        return self.coded.information[self.coded.information.isfinite()]

    @property
    def above_control(self) -> Tensor:
        """Bits above the control's code, [m], of the examples for which both are known."""
        above = self.coded.above(self.control) if self.control else self.coded.information[:0]
        return above[above.isfinite()]

    def with_scores(self) -> Iterator[str]:
        """Rank correlation with each run's scores."""
        for name, scores in self.scores.items():
            ours, theirs = _common(self.coded, scores)
            seen = self.coded.information[ours].isfinite()
            mine, score = self.coded.information[ours][seen], scores.f_si_nats.double().mean(0)[theirs][seen]
            if (found := spearman(mine, score)) is not None:
                yield f"{found:.2f} ({name}, {len(mine):,} examples)"


def read_costs(comparisons: Sequence[Comparison], information: Information) -> dict[str, list[Costs]]:
    """Return, by comparison, the codelengths of runs that kept them."""
    found = {
        comparison.name: _costs(comparison, information) for comparison in comparisons if comparison.command == "mdl"
    }
    return {name: own for name, own in found.items() if own}


def _costs(comparison: Comparison, information: Information) -> list[Costs]:
    found = []
    for row in comparison.rows:
        known = [(entry, coded) for entry in row.run if (coded := entry.coded_bits()) is not None]
        control = next((coded for entry, coded in known if entry.is_control), None)
        for entry, coded in known:
            same = control is not None and not entry.is_control and coded.same_examples(control)
            found.append(Costs(entry, coded, control if same else None, _scores(information, entry, coded)))
    return found


def _scores(information: Information, entry: Entry, coded: CodedBits) -> dict[str, RunScores]:
    """Return scores of runs on the same dataset under the same eraser whose examples have these labels."""
    found = {}
    for run_id, stored in information.stored.items():
        config, own = information.runs[run_id].config, entry.config
        if stored is None or any(config[part]["name"] != own[part]["name"] for part in ("dataset", "eraser")):
            continue
        ours, theirs = _common(coded, stored)
        if len(ours) > 2 and torch.equal(coded.labels[ours], stored.given_label[theirs]):
            found[config["model"]["name"]] = stored
    return found


def _common(coded: CodedBits, scores: RunScores) -> tuple[Tensor, Tensor]:
    """Return positions, in each, of the examples that both have."""
    _, ours, theirs = np.intersect1d(coded.index, scores.index, assume_unique=True, return_indices=True)
    return torch.from_numpy(ours), torch.from_numpy(theirs)


def _above(costs: Costs) -> str:
    if not len(more := costs.above_control):
        return ""
    return f"{float(more.mean()):+.3f} ± {float(more.std() / len(more) ** 0.5):.3f}"


_COLUMNS: Sequence[Column[Costs]] = (
    word("model", "model", lambda c: c.entry.row),
    word("eraser", "eraser", lambda c: c.entry.eraser),
    number("examples", "examples", ",d", lambda c: len(c.known), "of those that a network coded for some seed"),
    number(
        "information (bits)",
        "information_bits_mean",
        ".3f",
        lambda c: float(c.known.mean()),
        "pointwise V-information (Ethayarajh et al. 2022): what the label would cost by its share of all labels, less "
        "what it cost",
    ),
    number("below zero (%)", "below_zero_percent", ".1f", lambda c: float((c.known < 0).double().mean()) * 100),
    number(
        "between seeds",
        "correlation_between_seeds",
        ".2f",
        lambda c: c.coded.reliability,
        "correlation of single labels' bits, mean over pairs",
    ),
    Column(
        "more than control (bits)",
        _above,
        lambda c: {"above_control_bits_mean": float(c.above_control.mean()) if len(c.above_control) else None},
        "how much more a label costs than in the control's code, paired by seed, ± standard error over examples",
    ),
    Column(
        "F-SI",
        lambda c: "; ".join(c.with_scores()),
        meaning="rank correlation of the information with scores of `python -m sample_info`, same examples and eraser",
    ),
)


def example_tables(found: Mapping[str, Sequence[Costs]]) -> list[Table]:
    """One for each comparison, by name, in which a run has kept what its labels cost."""
    caption = "Labels of the uniform code are left out: those of the first training size, where networks code blocks."
    tables = {name: Table.of(f"{name}-examples", _COLUMNS, own, caption) for name, own in found.items()}
    return [replace(table, title=f"What single labels cost: {name}") for name, table in tables.items()]


def draw_examples(found: Mapping[str, Sequence[Costs]], cache_dir: str, directory: Path, note: Note) -> list[Path]:
    """`figures/<comparison>-examples.png` and `.pdf`: the dearest and the cheapest images of every row and eraser."""
    files: list[Path] = []
    for name, own in found.items():
        try:
            dataset = images_of(own[0].entry.config, cache_dir)
            rows = {
                f"{c.name}\n{end} (bits)": _extremes(dataset, c.coded, largest=end == "dearest")
                for c in own
                for end in ("dearest", "cheapest")
            }
        except (ValueError, OSError, IndexError) as error:  # bits of other examples than the dataset's
            note(f"no images beside what labels cost in {name}: {error}")
            continue
        path = file_in(directory, "figures", f"{file_name(f'{name}-examples')}.png")
        draw_rows(rows, path)
        files += [path, path.with_suffix(".pdf")]
    return files


def _extremes(dataset: ErasedDataset, coded: CodedBits, *, largest: bool) -> Shown:
    """Images whose labels cost most or least, and how much."""
    cost = coded.by_network.nanmean(0)
    order = cost.nan_to_num(-torch.inf if largest else torch.inf).argsort(descending=largest)
    chosen = order[:_IMAGES]
    names = [dataset.class_names[label] for label in coded.labels[chosen].tolist()]
    titles = [f"{name}: {bits:.1f}" for name, bits in zip(names, cost[chosen].tolist(), strict=True)]
    return Shown(dataset.pixels(dataset.splits["train"].images[chosen].float()), titles)
