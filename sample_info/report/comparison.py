"""Runs beside each other, example by example: how scores move between erasers, and agree between networks.

Harutyunyan et al. 2021, appendix A.4, figure 5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor

from erasure.store.regular import DamagedFileError
from erasure.store.storage import digest, fingerprint
from harness.example_bits import read_stored
from harness.results.arrange import Comparison, comparable
from harness.results.labels import Label
from harness.results.table import Column, Table, number, word
from sample_info.leave_one_out import pearson, spearman

MAX_RUNS, MAX_MATRICES = 30, 12  # that are shown: runs in a matrix, matrices
AGREEMENT = (
    "Pearson's correlation of F-SI over the same examples, seed by seed, mean over seeds; of a run with itself: "
    "between its seeds."
)


@dataclass(frozen=True)
class RunScores:
    """A run's examples as it has stored them: places in the training split, given labels, [n], F-SI by seed [S, n]."""

    index: Tensor
    given_label: Tensor
    f_si_nats: Tensor


Stored = Mapping[str, RunScores | None]  # by run id; None for a run that cannot be compared


def read_scores(directory: Path, problems: list[str], seeds: Sequence[int] | None = None) -> RunScores | None:
    """Read what the run in a directory has stored; None where that is nothing, or damaged.

    Args:
        directory: the run's.
        problems: gets a line on a file that is damaged.
        seeds: the run's, where they are known.
    """
    names = "index", "given_label", "f_si_nats"
    try:
        kept = read_stored(directory / "scores.safetensors", names[:2], names[2:])
        if kept is not None and seeds is not None and list(kept.seeds) != list(seeds):
            raise DamagedFileError(f"{directory / 'scores.safetensors'} is of the seeds {kept.seeds}, not the run's")
    except DamagedFileError as error:
        problems.append(f"{error}: left out of how scores move and agree")
        return None
    return kept and RunScores(*(kept.tensors[name] for name in names))


@dataclass(frozen=True)
class Movement:
    """F-SI of the same examples under two erasers of a row, nats, mean over seeds, [n] each."""

    row: Label
    before: Label
    after: Label
    first: Tensor
    second: Tensor

    @cached_property
    def spearman(self) -> float | None:
        """Rank correlation."""
        return spearman(self.first, self.second)

    @property
    def median_ratio(self) -> float:
        """Median ratio of the second score to the first, over examples with a first score above zero."""
        some = self.first > 0
        return float((self.second[some] / self.first[some]).median()) if bool(some.any()) else float("nan")

    @property
    def overlap(self) -> float:
        """Share of the first's most informative tenth that is in the second's."""
        tenth = max(1, len(self.first) // 10)
        tops = [set(scores.argsort(descending=True)[:tenth].tolist()) for scores in (self.first, self.second)]
        return len(tops[0] & tops[1]) / tenth


def movements(comparison: Comparison, scores: Stored) -> list[Movement]:
    """For each row, every pair of erasers, the control first; runs without scores (None) are left out."""
    found = []
    for row in comparison.rows:
        own = [(entry.eraser, scores[entry.runs[0].id]) for entry in row.run]
        for (before, a), (after, b) in combinations(own, 2):
            if a and b and torch.equal(a.index, b.index):
                found.append(Movement(row.label, before, after, a.f_si_nats.mean(0), b.f_si_nats.mean(0)))
    return found


_STILL = "the share of the first's most informative tenth that is in the second's"
MOVEMENTS: Sequence[Column[Movement]] = (
    word("dataset · model", "dataset_model", lambda moved: moved.row),
    word("from", "from", lambda moved: moved.before),
    word("to", "to", lambda moved: moved.after),
    number("rank correlation", "spearman", ".3f", lambda moved: moved.spearman, "Spearman's"),
    number("median ratio", "median_ratio", ".3g", lambda moved: moved.median_ratio, "of the second to the first"),
    number("still in the top tenth", "top_tenth_overlap", ".0%", lambda moved: moved.overlap, _STILL),
)


def movement_table(found: Sequence[Movement]) -> Table:
    """Tabulate changes, a row per pair of erasers."""
    return Table.of("sample-info-movement", MOVEMENTS, found, "F-SI example by example, mean over seeds.")


@dataclass(frozen=True)
class Agreement:
    """Correlation of the F-SI, [n] by seed, of R runs over the same examples after the same eraser."""

    eraser: Label
    names: Sequence[Label]
    f_si: Sequence[Mapping[int, Tensor]]

    @cached_property
    def correlation(self) -> Sequence[Sequence[float | None]]:
        """Pearson's, [R][R], mean over seeds; on the diagonal between seeds; None where there is none."""

        @cache
        def between(i: int, j: int) -> float | None:
            a, b = self.f_si[i], self.f_si[j]
            pairs = combinations(a.values(), 2) if i == j else ((a[seed], b[seed]) for seed in a if seed in b)
            found = [value for pair in pairs if (value := pearson(*pair)) is not None]
            return mean(found) if found else None

        runs = range(len(self.f_si))
        return [[between(min(i, j), max(i, j)) for j in runs] for i in runs]


def agreements(comparison: Comparison, scores: Stored) -> list[Agreement]:
    """One for each eraser and set of examples that several models, or several ways of training, were scored on.

    How scores differ between erasers is what `movements` says.
    """
    alike: dict[tuple[Label, str, str, str], tuple[list[Label], list[dict[int, Tensor]]]] = {}
    for row, column, result in comparison.information:
        if (stored := scores[result.run_id]) is not None:
            dataset = fingerprint(comparable(result.config)["dataset"])
            examples = dataset, digest(stored.index), digest(stored.given_label)
            names, f_si = alike.setdefault((column, *examples), ([], []))
            names.append(row)
            f_si.append(dict(zip(result.seeds, stored.f_si_nats.double(), strict=True)))
    return [Agreement(key[0], names, f_si) for key, (names, f_si) in alike.items() if len(names) > 1]


def few_enough(found: Sequence[Agreement]) -> tuple[list[Agreement], list[str]]:
    """Return the agreements that can be shown, and a line on each that is left out."""
    shown = [one for one in found if len(one.names) <= MAX_RUNS]
    lines = [
        f"agreement of {len(one.names):,} runs ({one.eraser}, {one.names[0]}, …): left out, being more than {MAX_RUNS}"
        for one in found
        if len(one.names) > MAX_RUNS
    ]
    if (more := len(shown) - MAX_MATRICES) > 0:
        lines.append(f"agreement on {more:,} more erasers and sets of examples: left out")
    return shown[:MAX_MATRICES], lines


def agreement_matrix(found: Agreement) -> Table:
    """Tabulate correlations, a row per run: its number, its name, its correlation with every run."""
    rows = [
        [str(i + 1), name.display, *("" if value is None else f"{value:.2f}" for value in row)]
        for i, (name, row) in enumerate(zip(found.names, found.correlation, strict=True))
    ]
    headings = ["", found.eraser.display, *(str(j + 1) for j in range(len(found.names)))]
    return Table("sample-info-agreement", AGREEMENT, headings, rows)
