"""Whether runs agree on which examples are informative: across architectures, lengths of training, initialisations.

Harutyunyan et al. 2021, appendix A.4, figure 5.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from statistics import mean

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from erasure.store.storage import digest, fingerprint
from harness.compare import Grid, Result
from harness.style import STYLE
from sample_info.references.comparison import pearson
from sample_info.report.run_scores import RunScores, ScoresOf

MAX_RUNS, MAX_MATRICES = 30, 12  # that are shown: runs in a matrix, matrices


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


def agreements(grid: Grid, scores: ScoresOf) -> list[Agreement]:
    """One for each eraser and set of examples that several models, or several ways of training, were scored on.

    How scores differ between erasers is what `movements` says.
    """
    alike: dict[tuple[str, ...], tuple[list[str], list[dict[int, Tensor]]]] = {}
    for row, column, result in grid.runs():
        if (stored := scores(result)) is not None:
            names, f_si = alike.setdefault((column, *_examples(result, stored)), ([], []))
            names.append(row)
            f_si.append(dict(zip(result["seeds"], stored.f_si_nats.double(), strict=True)))
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


def _examples(result: Result, stored: RunScores) -> tuple[str, str, str]:
    """What tells one set of labelled examples from another."""
    return fingerprint(result["config"]["dataset"]), digest(stored.index), digest(stored.given_label)


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


def draw_agreements(found: Sequence[Agreement], path: Path) -> Path:
    """Draw `agreement_figure` to a file."""
    with mpl.rc_context(STYLE):
        agreement_figure(found).savefig(path)
    return path


def agreement_figure(found: Sequence[Agreement]) -> Figure:
    """A matrix of correlations for each, every number written into its cell."""
    sizes = [len(one.names) for one in found]
    longest = max(len(name) for one in found for name in one.names)
    width = max(5.0, 1.0 + 0.1 * longest + 0.6 * max(sizes))  # inches; names stand beside the matrix, in full
    figure = Figure(figsize=(width, 0.5 + 0.7 * len(found) + 0.6 * sum(sizes)), layout="constrained")
    axes = figure.subplots(len(found), 1, squeeze=False, height_ratios=sizes)[:, 0]
    for ax, one in zip(axes, found, strict=True):
        _draw_matrix(ax, one)
        ax.set_title(one.eraser, fontsize=10)
    figure.suptitle("correlation of F-SI; diagonal: between seeds", fontsize=11)
    return figure


def _draw_matrix(ax: Axes, found: Agreement) -> None:
    n = len(found.names)
    matrix = torch.tensor([[float("nan") if v is None else v for v in row] for row in found.correlation])
    ax.imshow(matrix.numpy(), cmap="RdBu_r", vmin=-1, vmax=1)
    for i, j in product(range(n), repeat=2):
        if (value := found.correlation[i][j]) is not None:
            colour = "white" if abs(value) > 0.6 else "black"
            ax.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=9, color=colour)
    ax.set_xticks(range(n), [str(j + 1) for j in range(n)])
    ax.set_yticks(range(n), [f"{name}  {i + 1}" for i, name in enumerate(found.names)])
    ax.grid(visible=False)
