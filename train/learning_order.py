"""When networks learn what each counterpart shares with the images: table and figure (docs/learning_order.md)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.result import TrainResult
from harness.results.arrange import Comparison
from harness.results.entry import Entry
from harness.results.statistics import Spread, deviation_over
from harness.results.table import Table
from harness.style import figure_at, literal, shared_legend, wrapped
from harness.trained import CounterpartResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {  # what a sample shares with the images
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
_LEAST_GAIN, _LEAD = 0.05, 0.1  # bits: what gains less is not learnt; what is ahead by as much is ahead
_CAPTION = (
    "Loss in bits per label on test images and on samples that share some statistics with them, and optimiser steps. "
    "Learnt: the loss has fallen by half of what it falls at most. Beyond: the loss on the images stays "
    f"{_LEAD} bits below it from here on. Unlearnt: it is lowest, and {_LEAST_GAIN} bits higher at the end. – never "
    "(or a fall of less than that). Agreement: how alike a class's mean prediction is on the sample and on the images."
)


def learnt_step(steps: Sequence[int], losses: Sequence[float]) -> float | None:
    """Return the step at which a loss has fallen by half of its largest fall; None where that is too small.

    Between two evaluations the loss is taken to be linear in log(step + 1).
    """
    fallen = losses[0] - np.asarray(losses)
    best = int(fallen.argmax())
    if fallen[best] < _LEAST_GAIN:
        return None
    return _crossing(steps[: best + 1], fallen[: best + 1], fallen[best] / 2)


def unlearnt_step(steps: Sequence[int], losses: Sequence[float]) -> float | None:
    """Return the step of the lowest loss, if the loss is clearly higher at the end; None where it is not."""
    best = int(np.argmin(losses))
    return float(steps[best]) if losses[-1] - losses[best] >= _LEAST_GAIN else None


def beyond_step(steps: Sequence[int], losses: Sequence[float], of_images: Sequence[float]) -> float | None:
    """Return the step from which on the loss on the images stays clearly below that on a sample; None if it does not.

    From there on the network uses what the sample does not share with the images.
    """
    ahead = np.asarray(losses) - np.asarray(of_images) >= _LEAD
    behind = np.flatnonzero(~ahead)
    first = int(behind[-1]) + 1 if len(behind) else 0
    return float(steps[first]) if first < len(ahead) else None


def _crossing(steps: Sequence[int], values: np.ndarray, level: float) -> float | None:
    """Return where values that start below a level first reach it."""
    reached = np.flatnonzero(values >= level)
    if not len(reached):
        return None
    after = int(reached[0])
    if after == 0:
        return float(steps[0])
    low, high = np.log1p(steps[after - 1]), np.log1p(steps[after])
    share = (level - values[after - 1]) / (values[after] - values[after - 1])
    return float(np.expm1(low + share * (high - low)))


def table_of(comparison: Comparison) -> Table:
    """Tabulate a row for each run and sample."""
    headings = ["dataset · model", "eraser", "sample", "learnt", "beyond", "unlearnt", "lowest", "end", "agreement"]
    rows, records = list[list[str]](), list[dict[str, str | float | None]]()
    for entry, name, sample in _samples(comparison):
        curves = [*zip(sample.step, sample.loss_bits, strict=True)]
        columns = {
            "learnt_step": [learnt_step(*curve) for curve in curves],
            "beyond_step": [
                beyond_step(*curve, images) for curve, images in zip(curves, _of(entry)["data"].loss_bits, strict=True)
            ],
            "unlearnt_step": [unlearnt_step(*curve) for curve in curves],
            "lowest_loss_bits": [min(losses) for losses in sample.loss_bits],
            "end_loss_bits": [losses[-1] for losses in sample.loss_bits],
            "agreement": [values[-1] for values in sample.agreement],
        }
        forms = (",.0f", ",.0f", ",.0f", ".3f", ".3f", ".3f")
        shown = [_text(values, form) for values, form in zip(columns.values(), forms, strict=True)]
        rows.append([entry.row.display, entry.eraser.display, NAMES[name], *shown])
        record: dict[str, str | float | None] = {"row": str(entry.row), "eraser": str(entry.eraser), "sample": name}
        for column, values in columns.items():
            known = [value for value in values if value is not None]
            spread = Spread.of(known) if known else None
            record |= {f"{column}_mean": spread and spread.mean, f"{column}_std": spread and spread.std}
            record[f"{column}_seeds"] = len(known)
        records.append(record)
    seeds = deviation_over(len(sample.step) for _, _, sample in _samples(comparison))
    return Table("learning_order", f"{_CAPTION} {seeds}.".replace(" .", ""), headings, rows, records)


def _text(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    lacking = f" ({len(known)} of {len(values)} seeds)" if len(known) < len(values) else ""
    return f"{Spread.of(known):{form}}{lacking}"


def draw(comparison: Comparison, path: Path) -> Path:
    """Draw losses over optimiser steps, a row of panels per model and a column per eraser; dots: learnt, half-way."""
    rows, erasers = comparison.rows, comparison.erasers
    with figure_at(path, 3.3 * max(2, len(erasers)), 2.9 * len(rows) + 0.6) as figure:
        axes = figure.subplots(len(rows), len(erasers), sharex=True, sharey=True, squeeze=False)
        for row, along in zip(rows, axes, strict=True):
            for (eraser, entry), ax in zip(row.entries.items(), along, strict=True):
                for name, sample in _of(entry).items():
                    _draw_losses(ax, name, sample)
                ax.set_title(wrapped(f"{row.label.display}, {literal(eraser.display)}", 3.0), fontsize=10)
                ax.tick_params(labelbottom=True)
            along[0].set_ylabel("loss (bits per label)")
        chance = max(losses[0] for _, _, sample in _samples(comparison) for losses in sample.loss_bits)
        axes[0, 0].set(xscale="symlog", ylim=(0, 2 * chance))
        axes[0, 0].set_xlim(left=0)
        for ax in axes[-1]:
            ax.set_xlabel("optimiser steps")
        shared_legend(figure, axes.flatten().tolist())
    return path


def _draw_losses(ax: "Axes", name: str, sample: CounterpartResult) -> None:
    steps, mean, deviation = mean_losses(sample)
    ax.plot(steps, mean, color=_COLOURS[name], linewidth=1.8, label=NAMES[name])
    ax.fill_between(steps, mean - deviation, mean + deviation, color=_COLOURS[name], alpha=0.2, linewidth=0)
    learnt = learnt_step(steps.tolist(), mean.tolist())
    if learnt is not None:
        ax.plot(learnt, np.interp(np.log1p(learnt), np.log1p(steps), mean), "o", color=_COLOURS[name])


def mean_losses(sample: CounterpartResult) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return steps, mean loss and standard deviation over seeds, at the steps that all seeds have."""
    common = sorted(set(sample.step[0]).intersection(*sample.step[1:]))
    losses = np.array(
        [
            [loss for step, loss in zip(steps, losses, strict=True) if step in set(common)]
            for steps, losses in zip(sample.step, sample.loss_bits, strict=True)
        ]
    )
    spread = losses.std(0, ddof=1) if len(losses) > 1 else np.zeros(losses.shape[1])
    return np.array(common), losses.mean(0), spread


def _of(entry: Entry) -> dict[str, CounterpartResult]:
    return (entry.result.counterparts or {}) if isinstance(entry.result, TrainResult) else {}


def _samples(comparison: Comparison) -> Iterator[tuple[Entry, str, CounterpartResult]]:
    return ((entry, name, sample) for entry in comparison.run for name, sample in _of(entry).items())
