"""Runs beside each other, example by example: how scores move between erasers, and agree between networks.

Harutyunyan et al. 2021, appendix A.4, figure 5.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor

from erasure.store.storage import DamagedFileError, digest, fingerprint, load_tensors
from harness.compare import Grid
from harness.result import InformationResult
from sample_info.changes import pearson, spearman

MAX_RUNS, MAX_MATRICES = 30, 12  # that are shown: runs in a matrix, matrices


@dataclass(frozen=True)
class RunScores:
    """A run's examples and their F-SI, as it has stored them.

    Attributes:
        index: of the examples, in the training split, [n].
        given_label: the labels that the network was given, [n].
        f_si_nats: a row per seed, [S, n].
    """

    index: Tensor
    given_label: Tensor
    f_si_nats: Tensor


Stored = Mapping[str, RunScores | None]  # by run id; None for a run that cannot be compared


def read_scores(directory: Path) -> RunScores | None:
    """What the run in a directory has stored; None where it has stored none.

    Raises:
        DamagedFileError: it is not what was stored.
    """
    path = directory / "scores.safetensors"
    if not path.exists():
        return None
    stored, _ = load_tensors(path)
    return RunScores(*(stored[name] for name in ("index", "given_label", "f_si_nats")))


def read_scores_or_note(directory: Path, problems: list[str]) -> RunScores | None:
    """As `read_scores`; None, and a line more in `problems`, where they are damaged."""
    try:
        return read_scores(directory)
    except DamagedFileError as error:
        problems.append(f"{error}: left out of how scores move and agree")
        return None


@dataclass(frozen=True)
class Movement:
    """The same examples' F-SI under two erasers.

    Attributes:
        row: dataset and model.
        before, after: the erasers.
        first, second: scores in nats, averaged over seeds, [n] each.
    """

    row: str
    before: str
    after: str
    first: Tensor
    second: Tensor

    @cached_property
    def spearman(self) -> float | None:
        """Rank correlation."""
        return spearman(self.first, self.second)

    @property
    def median_ratio(self) -> float:
        """Of the second to the first, over examples with a first score above zero."""
        some = self.first > 0
        return float((self.second[some] / self.first[some]).median()) if bool(some.any()) else float("nan")

    @property
    def overlap(self) -> float:
        """Share of the first's most informative tenth that is in the second's."""
        tenth = max(1, len(self.first) // 10)
        tops = [set(scores.argsort(descending=True)[:tenth].tolist()) for scores in (self.first, self.second)]
        return len(tops[0] & tops[1]) / tenth


def movements(grid: Grid[InformationResult], scores: Stored) -> list[Movement]:
    """For each row, every pair of erasers, the control first; runs without scores (None) are left out."""
    found = []
    for row in grid.rows:
        own = [(column, scores[grid.cells[row][column].run_id]) for column in grid.columns if column in grid.cells[row]]
        for (before, a), (after, b) in combinations(own, 2):
            if a and b and torch.equal(a.index, b.index):
                found.append(Movement(row, before, after, a.f_si_nats.mean(0), b.f_si_nats.mean(0)))
    return found


@dataclass(frozen=True)
class Agreement:
    """Correlations of F-SI over the same examples after the same eraser.

    Attributes:
        eraser: its label.
        names: of R runs, by dataset, model and options.
        correlation: Pearson's, [R][R], seed by seed, mean over seeds; on the diagonal between seeds, None for one seed
            and for scores that do not vary.
    """

    eraser: str
    names: Sequence[str]
    correlation: Sequence[Sequence[float | None]]


def agreements(grid: Grid[InformationResult], scores: Stored) -> list[Agreement]:
    """One for each eraser and set of examples that several models, or several ways of training, were scored on.

    How scores differ between erasers is what `movements` says.
    """
    alike: dict[tuple[str, ...], tuple[list[str], list[dict[int, Tensor]]]] = {}
    for row, column, result in grid.runs():
        if (stored := scores[result.run_id]) is not None:
            examples = fingerprint(result.config["dataset"]), digest(stored.index), digest(stored.given_label)
            names, f_si = alike.setdefault((column, *examples), ([], []))
            names.append(row)
            f_si.append(dict(zip(result.seeds, stored.f_si_nats.double(), strict=True)))
    return [Agreement(key[0], names, _correlations(f_si)) for key, (names, f_si) in alike.items() if len(names) > 1]


def few_enough(found: Sequence[Agreement]) -> tuple[list[Agreement], list[str]]:
    """Those that can be shown, and lines on those that have too many runs, or are too many themselves."""
    shown = [one for one in found if len(one.names) <= MAX_RUNS]
    lines = [
        f"agreement of {len(one.names):,} runs ({one.eraser}, {one.names[0]}, …): left out, being more than {MAX_RUNS}"
        for one in found
        if len(one.names) > MAX_RUNS
    ]
    if (more := len(shown) - MAX_MATRICES) > 0:
        lines.append(f"agreement on {more:,} more erasers and sets of examples: left out")
    return shown[:MAX_MATRICES], lines


def _correlations(f_si: Sequence[dict[int, Tensor]]) -> list[list[float | None]]:
    """Between runs, scores [n] by seed each, as `Agreement` has them."""
    total = torch.zeros(len(f_si), len(f_si), dtype=torch.float64)
    times = torch.zeros_like(total)
    for seed in sorted({seed for own in f_si for seed in own}):
        have = torch.tensor([i for i, own in enumerate(f_si) if seed in own])
        together = torch.stack([f_si[i][seed] for i in have.tolist()]).corrcoef().reshape(len(have), len(have))
        total[have[:, None], have] += together.nan_to_num()
        times[have[:, None], have] += ~together.isnan()
    means = (total / times).tolist()  # NaN where nothing was compared
    found = [[None if math.isnan(value) else value for value in row] for row in means]
    for i, own in enumerate(f_si):
        pairs = (pearson(a, b) for a, b in combinations(own.values(), 2))
        between = [value for value in pairs if value is not None]
        found[i][i] = mean(between) if between else None
    return found
