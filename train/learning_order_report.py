"""The order in which networks learn the statistics of the images: table and figure (docs/orders.md)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from harness.figure_helpers import WIDTH, band, figure_at, name_lines, wrapped
from harness.results.arrange import rows_of
from harness.results.columns import WHO, Column, Row, csv_only, first, members_of, spread, values, word
from harness.results.run_labels import Label
from harness.results.table import Table
from harness.statistics import deviation_over
from train.result import CounterpartResult

NAMES = {  # statistics that a sample shares with the images
    "data": "the images",
    "order1": "class means",
    "order2": "means and covariances",
    "independent": "marginals",
    "swap": "moved to another class's mean and covariance",
    "quantile": "moved to another class's marginals",
}
_COLOURS = {
    "data": "#4d4d4d",
    "order1": "#0072B2",
    "order2": "#D55E00",
    "independent": "#CC79A7",
    "swap": "#009E73",
    "quantile": "#E69F00",
}
_LEAST_GAIN, _LEAD = 0.05, 0.1  # bits: smallest fall that counts as learning; smallest lead
Curve = tuple[Sequence[int], Sequence[float]]  # a seed's steps, and losses in bits
_CAPTION = (
    "Loss in bits per label on test images and on samples that share some statistics with them, and optimiser steps. "
    "Learnt: the loss has fallen by half of what it falls at most. Past means: it has fallen by half of what it falls "
    f"below the lowest loss on class means, if that is {_LEAD} bits or more. – never (or a fall of less than "
    f"{_LEAST_GAIN} bits)."
)


def learnt_step(steps: Sequence[int], losses: Sequence[float]) -> float | None:
    """Return the step at which a loss has reached half of its largest fall; None if that fall is too small."""
    first, lowest = losses[0], min(losses)
    return _step_below(steps, losses, (first + lowest) / 2) if first - lowest >= _LEAST_GAIN else None


def past_means_step(steps: Sequence[int], losses: Sequence[float], of_means: Sequence[float]) -> float | None:
    """Return the step at which a loss is halfway from the lowest loss on class means to its own lowest value.

    Unlike `learnt_step`, it ignores the fall that class means alone explain. Returns None if the loss does not fall
    0.1 bits below the lowest loss on class means. A linear network uses only means, but its loss on `order2` of the
    digits still falls up to 0.09 bits lower, because its logits spread less there.

    Args:
        steps: steps of the evaluations, ascending.
        losses: losses in bits on the images, or on a sample that shares more than class means with them.
        of_means: losses on the sample that shares only class means.
    """
    if min(losses) > min(of_means) - _LEAD:
        return None
    return _step_below(steps, losses, (min(of_means) + min(losses)) / 2)


def _step_below(steps: Sequence[int], losses: Sequence[float], level: float) -> float | None:
    """Return the step at which losses first reach a level, interpolated linearly in log(step + 1)."""
    after = next((i for i, loss in enumerate(losses) if loss <= level), None)
    if not after:
        return None if after is None else float(steps[0])
    low, high = np.log1p(steps[after - 1]), np.log1p(steps[after])
    share = (losses[after - 1] - level) / (losses[after - 1] - losses[after])
    return float(np.expm1(low + share * (high - low)))


def samples_of(entry: Row) -> dict[str, list[Curve]]:
    """Return steps and losses of each seed's network on each sample, by the sample's name."""
    members = members_of(entry).values()
    names = next((result.counterparts or {} for result, _ in members), {})
    return {name: [_curve(result.counterparts[name], s) for result, s in members] for name in names}


def _curve(of_seeds: CounterpartResult, s: int) -> Curve:
    return of_seeds.step[s], of_seeds.loss_bits[s]


def _rows(entry: Row) -> Iterator[dict[str, Any]]:
    """Yield a row for each sample of a model and eraser."""
    samples = samples_of(entry)
    for name, curves in samples.items():
        of_means = [losses for _, losses in samples.get("order1", ())]
        yield {
            **{part: first(entry, part) for part in ("dataset", "setting", "model", "eraser")},
            "sample": name,
            "of": len(curves),
            "learnt_step": [learnt_step(*curve) for curve in curves],
            "past_means_step": [past_means_step(*curve, means) for curve, means in zip(curves, of_means, strict=False)],
            "end_loss_bits": [losses[-1] for _, losses in curves],
        }


@dataclass(frozen=True)
class _KnownSeeds(Column):
    """A column with mean and standard deviation over the seeds that have a value, and the number of these seeds."""

    def text(self, row: Row) -> str:
        if len(row[self.name]) == 0:  # there is no sample to compare with
            return ""
        known, seeds = len(values(row, self.name)), row["of"]
        return f"{super().text(row) or '–'}{f' ({known} of {seeds} seeds)' if 0 < known < seeds else ''}"

    def record(self, row: Row) -> dict[str, Any]:
        return super().record(row) | {f"{self.name}_seeds": len(values(row, self.name))}


def _column(heading: str, name: str, form: str) -> Column:
    return _KnownSeeds(**vars(spread(heading, name, form)))


_COLUMNS = (
    *WHO,
    Column("sample", "sample", NAMES.__getitem__),
    _column("learnt", "learnt_step", ",.0f"),
    _column("past means", "past_means_step", ",.0f"),
    _column("end", "end_loss_bits", ".3f"),
)


def table_of(frame: pd.DataFrame) -> Table:
    """Tabulate a row for each run and sample."""
    rows = [row for entry in rows_of(frame) for row in _rows(entry)]
    caption = [_CAPTION, *deviation_over(row["of"] for row in rows)]
    also = (word("", "dataset"), *csv_only("setting"))
    return Table.of("learning_order", _COLUMNS, rows, caption, also, first(frame, "title"))


def draw(panels: Sequence[tuple[str, Sequence[Row]]], colours: Mapping[Label, str], path: Path) -> Path:
    """Draw losses over optimiser steps, with a row of panels per eraser and a column per model.

    Each line is named once, in the last column. A dot marks `learnt_step`, at which half of the fall is reached; on
    samples that share more than class means it marks `past_means_step`.
    """
    erasers = [
        eraser for eraser in colours if any(first(entry, "eraser") == eraser for _, of in panels for entry in of)
    ]
    with figure_at(path, WIDTH, 2.3 * len(erasers) + 0.6) as figure:
        axes = figure.subplots(len(erasers), len(panels), sharex=True, sharey=True, squeeze=False)
        named = {(column, name) for column in range(len(panels) - 1) for name in NAMES}
        for column, (title, entries) in enumerate(panels):
            for entry in sorted(entries, key=lambda entry: erasers.index(first(entry, "eraser"))):
                eraser = first(entry, "eraser")
                ax = axes[erasers.index(eraser), column]
                samples = samples_of(entry)
                for name, curves in samples.items():
                    label = None if (column, name) in named else NAMES[name]
                    named.add((column, name))
                    _draw_losses(ax, name, curves, samples.get("order1"), label)
                ax.set_title(wrapped(f"{title}, {wrapped(eraser.display)}", 2.0), fontsize=10)
                ax.tick_params(labelbottom=True)
        for ax in axes[:, 0]:
            ax.set_ylabel("loss (bits per label)", fontsize=10)
        samples = (samples_of(entry) for _, entries in panels for entry in entries)
        chance = max(losses[0] for of_entry in samples for curves in of_entry.values() for _, losses in curves)
        axes[0, 0].set(xscale="symlog", ylim=(0, 2 * chance))
        axes[0, 0].set_xlim(left=0)
        for ax in axes[-1]:
            ax.set_xlabel("optimiser steps")
        name_lines(figure, axes.flatten().tolist())
    return path


def _draw_losses(
    ax: Axes, name: str, curves: Sequence[Curve], of_means: Sequence[Curve] | None, label: str | None
) -> None:
    """Draw the loss at the steps that all seeds have."""
    common = sorted(set.intersection(*(set(steps) for steps, _ in curves)))
    losses = _losses_at(common, curves)
    band(ax, common, losses, color=_COLOURS[name], linewidth=1.8, label=label)
    mean = losses.mean(0).tolist()
    if of_means is None or name == "order1":
        half = learnt_step(common, mean)
    else:
        half = past_means_step(common, mean, _losses_at(common, of_means).mean(0).tolist())
    if half is not None:
        ax.plot(half, np.interp(np.log1p(half), np.log1p(common), mean), "o", color=_COLOURS[name])


def _losses_at(steps: Sequence[int], curves: Sequence[Curve]) -> NDArray[np.float64]:
    """Return each curve's losses at the given steps, [S, E]."""
    return np.array([[dict(zip(at, losses, strict=True))[step] for step in steps] for at, losses in curves])
