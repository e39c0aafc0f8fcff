"""Whether runs agree on which examples are informative: across architectures, lengths of training, initialisations.

Harutyunyan et al. 2021, appendix A.4, figure 5.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from statistics import mean

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from sample_info.comparison import pearson
from train.compare import Grid, Result
from train.style import STYLE


@dataclass(frozen=True)
class Agreement:
    """Correlations of F-SI over the same examples.

    Attributes:
        names: of R runs.
        correlation: Pearson's, [R][R], seed by seed, mean over seeds; on the diagonal between seeds, None for one seed
            and for scores that do not vary.
    """

    names: Sequence[str]
    correlation: Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class _Scored:
    row: str
    name: str
    f_si: dict[int, Tensor]  # by seed, [n]


def agreements(grid: Grid, scores: Callable[[Result], Mapping[str, Tensor] | None]) -> list[Agreement]:
    """One for each set of examples that several models, or several ways of training, were scored on.

    Where erasers alone differ, `movements` says more.
    """
    by_examples: dict[str, list[_Scored]] = {}
    for row, column, result in grid.runs():
        if tensors := scores(result):
            name = f"{row} · {column}" if len(grid.columns) > 1 else row
            one = _Scored(row, name, dict(zip(result["seeds"], tensors["f_si_nats"], strict=True)))
            examples = [tensors[key].tolist() for key in ("index", "given_label")]
            by_examples.setdefault(json.dumps([result["config"]["dataset"], examples]), []).append(one)
    several = (alike for alike in by_examples.values() if len({one.row for one in alike}) > 1)
    return [
        Agreement([one.name for one in alike], [[_correlation(a, b) for b in alike] for a in alike])
        for alike in several
    ]


def _correlation(a: _Scored, b: _Scored) -> float | None:
    if a is b:
        pairs = list(combinations(a.f_si.values(), 2))
    else:
        pairs = [(a.f_si[seed], b.f_si[seed]) for seed in a.f_si if seed in b.f_si]
    values = [value for first, second in pairs if (value := pearson(first, second)) is not None]
    return mean(values) if values else None


def draw_agreements(found: Sequence[Agreement], path: Path) -> Path:
    """A matrix of correlations for each, every number written into its cell."""
    sizes = [len(one.names) for one in found]
    longest = max(len(name) for one in found for name in one.names)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(1.4 + 0.085 * longest + 0.7 * max(sizes), 0.8 * len(found) + 0.6 * sum(sizes)))
        figure.set_layout_engine("constrained")
        axes = figure.subplots(len(found), 1, squeeze=False, height_ratios=sizes)[:, 0]
        for ax, one in zip(axes, found, strict=True):
            _draw_matrix(ax, one)
        axes[0].set_title("correlation of F-SI; diagonal: between seeds", fontsize=10)
        figure.savefig(path)
    return path


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
