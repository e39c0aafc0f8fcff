"""Order spectra of a dataset under erasers: the remaining class information, order by order.

uv run python -m scripts.order_spectra
uv run python -m scripts.order_spectra dataset=image_folder dataset.root=/data/birds --erasers control leace --out birds
"""

import argparse
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from conf.command_process import exit_code
from erasure.order_spectra import OrderSpectrum, order_spectrum
from erasure.store.atomic_files import write_text
from harness.figure_helpers import WIDTH, figure_at, name_lines, note_below
from harness.results.run_labels import display_name, eraser_colours
from harness.results.table import Table
from scripts.command_line import argument_parser
from scripts.erased_dataset_from_overrides import erased_by, parse_with_erasers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ERASERS = ("control", "leace", "alf_qleace", "qleace", "random")
SPLITS = ("train", "test")
DIRECTIONS = (10, 30)  # of most variance
ORDERS = 4
MOST_EXAMPLES = 10_000  # larger splits are subsampled
Spectra = Mapping[tuple[str, str], Sequence[OrderSpectrum]]  # by eraser and split
_CAPTION = (
    "Share of the energy of each order (Hermite tensors of the leading directions, whitened on the training split) "
    "that lies between classes, in percent, ± standard error over examples (jackknife); z: in standard deviations "
    "under shuffled labels. "
    "An order that an eraser has made equal on the training split is below zero there, at about -(k - 1)/n: the test "
    "split shows what is left of it for new examples."
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("order_spectra", __doc__)
    parser.add_argument("--out", type=Path, default=Path("spectrum"), help="OUT.svg and OUT.md")
    options = parse_with_erasers(parser, ERASERS, arguments)
    return exit_code(functools.partial(_show, options), "mdl", options.overrides)


def _show(options: argparse.Namespace) -> int:
    spectra: dict[tuple[str, str], Sequence[OrderSpectrum]] = {}
    for name in options.erasers:
        splits = erased_by(name, options.overrides).splits
        for split in SPLITS:
            part = splits[split]
            several = order_spectrum(
                part.images,
                part.labels,
                reference=splits["train"].images,
                directions=DIRECTIONS,
                orders=ORDERS,
                most=MOST_EXAMPLES,
            )
            by_size = {one.directions: one for one in several}  # those above the rank are of all directions
            spectra[name, split] = [by_size[size] for size in sorted(by_size)]
    table = tabulated(spectra)
    table.show()
    figure, page = options.out.with_suffix(".svg"), options.out.with_suffix(".md")
    write_text(page, f"{table.markdown()}\n\n{table.caption()}\n")
    draw(spectra, figure)
    print(f"figure: {figure}\ntable: {page}")
    return 0


def tabulated(spectra: Spectra) -> Table:
    """Tabulate a row for each eraser, split and number of directions; a cell for each order."""
    headings = ["eraser", "split", "n", "directions, variance", *(f"order {p}" for p in range(1, ORDERS + 1))]
    rows = [
        [
            display_name(eraser),
            split,
            f"{s.n:,}",
            f"{s.directions}, {s.variance:.0%}",
            *_shares(s),
        ]
        for (eraser, split), spectra_of_split in spectra.items()
        for s in spectra_of_split
    ]
    return Table("spectrum", [_CAPTION], headings, rows)


def _shares(spectrum: OrderSpectrum) -> list[str]:
    lines = zip(spectrum.shares.tolist(), spectrum.errors.tolist(), spectrum.z_scores.tolist(), strict=True)
    return [f"{100 * share:.2g} ± {100 * error:.1g} (z = {z:.0f})" for share, error, z in lines]


def draw(spectra: Spectra, path: Path) -> None:
    """Draw a panel for each split and number of directions; bounds on what was not detected as hollow points."""
    erasers = list(dict.fromkeys(eraser for eraser, _ in spectra))
    colours = eraser_colours(erasers)
    shown = list(dict.fromkeys((split, s.directions) for (_, split), of_split in spectra.items() for s in of_split))
    with figure_at(path, WIDTH, 2.7 * len(shown)) as figure:
        panels = figure.subplots(len(shown), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
        for (eraser, split), spectra_of_split in spectra.items():
            shift = (erasers.index(eraser) - len(erasers) / 2) * 0.05
            for s in spectra_of_split:
                ax = panels[shown.index((split, s.directions))]
                _curve(ax, s, display_name(eraser), colours[eraser], shift)
                ax.set(title=f"{split}, {s.directions} directions", yscale="log")
                ax.set_ylabel("between classes\n(% of energy)")
                ax.set_xticks(range(1, len(s.shares) + 1))
        panels[-1].set_xlabel("order")
        name_lines(figure, panels.tolist())
        note_below(figure, "Bars: ± 2 standard errors. ▽: not detected, at most this.")


def _curve(ax: "Axes", spectrum: OrderSpectrum, label: str, line: str, shift: float) -> None:
    shares, errors = 100 * spectrum.shares, 100 * spectrum.errors
    positions = torch.arange(1, len(shares) + 1) + shift
    seen = spectrum.z_scores > 2
    look = {"fmt": "o-", "color": line, "markersize": 5, "capsize": 2, "label": label}
    ax.errorbar(positions[seen], shares[seen], 2 * errors[seen], **look)
    bounds = (shares + 2 * errors)[~seen].clamp(min=float(errors[~seen].min()) if (~seen).any() else 0)
    ax.plot(positions[~seen], bounds, "v", color=line, markerfacecolor="none")


if __name__ == "__main__":
    raise SystemExit(main())
