"""When networks learn what each counterpart shares with the images: table and figure (docs/learning_order.md)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from harness.result import TrainResult
from harness.results.arrange import Comparison
from harness.results.entry import Entry
from harness.results.statistics import deviation_over
from harness.results.table import Column, Table, records_of, spread, word
from harness.style import figure_at, literal, shared_legend, wrapped
from harness.trained import CounterpartResult

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


Sample = tuple[Entry, str, CounterpartResult]  # of an entry's run, and its name


def _column(heading: str, name: str, form: str, of: Callable[[Sample, int], float | None]) -> Column[Sample]:
    """Return a column of mean and standard deviation over the seeds that have a value, and of their number."""

    def values(sample: Sample) -> list[float]:
        every = (of(sample, s) for s in range(len(sample[2].step)))
        return [value for value in every if value is not None]

    shown = spread(heading, f"{name}_mean", form, values)

    def text(sample: Sample) -> str:
        known, seeds = len(values(sample)), len(sample[2].step)
        return f"{shown.text(sample) or '–'}{f' ({known} of {seeds} seeds)' if 0 < known < seeds else ''}"

    return replace(
        shown,
        text=text,
        record=lambda sample: {**records_of([shown], [sample])[0], f"{name}_seeds": len(values(sample))},
    )


def _curve(sample: Sample, s: int) -> tuple[Sequence[int], Sequence[float]]:
    return sample[2].step[s], sample[2].loss_bits[s]


_COLUMNS: Sequence[Column[Sample]] = (
    word("dataset · model", "row", lambda sample: sample[0].row),
    word("eraser", "eraser", lambda sample: sample[0].eraser),
    Column("sample", lambda sample: NAMES[sample[1]], lambda sample: {"sample": sample[1]}),
    _column("learnt", "learnt_step", ",.0f", lambda sample, s: learnt_step(*_curve(sample, s))),
    _column(
        "beyond", "beyond_step", ",.0f",
        lambda sample, s: beyond_step(*_curve(sample, s), _of(sample[0])["data"].loss_bits[s]),
    ),
    _column("unlearnt", "unlearnt_step", ",.0f", lambda sample, s: unlearnt_step(*_curve(sample, s))),
    _column("lowest", "lowest_loss_bits", ".3f", lambda sample, s: min(sample[2].loss_bits[s])),
    _column("end", "end_loss_bits", ".3f", lambda sample, s: sample[2].loss_bits[s][-1]),
    _column("agreement", "agreement", ".3f", lambda sample, s: sample[2].agreement[s][-1]),
)  # fmt: skip


def table_of(comparison: Comparison) -> Table:
    """Tabulate a row for each run and sample."""
    samples = list(_samples(comparison))
    over = deviation_over(len(sample.step) for _, _, sample in samples)
    return Table.of("learning_order", _COLUMNS, samples, f"{_CAPTION} {over}." if over else _CAPTION)


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


def _draw_losses(ax: Axes, name: str, sample: CounterpartResult) -> None:
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
