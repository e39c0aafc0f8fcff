"""Images under erasers: a grid of the same images under each of them (the papers' Figures 1 and 2).

uv run python -m scripts.show_erasers
uv run python -m scripts.show_erasers dataset=image_folder dataset.root=/data/birds --out birds.png
"""

import argparse
import functools
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from torch import Tensor

from conf.command_process import exit_code
from erasure.pipeline import ErasedDataset
from harness.figure_helpers import draw_image, name_row, save, wrapped
from harness.results.run_labels import display_name
from scripts.command_line import argument_parser, figure_file
from scripts.erased_dataset_from_overrides import erased_by, parse_with_erasers, require_images

COUNT = 10  # of images, the classes in turn
ERASERS = ("control", "leace", "alf_qleace", "qleace", "gradient", "random", "random_edit")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("show_erasers", __doc__)
    parser.add_argument("--out", type=figure_file, default=Path("erasers.png"), help="figure")
    options = parse_with_erasers(parser, ERASERS, arguments)
    return exit_code(functools.partial(_show, options), "mdl", options.overrides)


def _show(options: argparse.Namespace) -> int:
    under: dict[str, ErasedDataset] = {}
    for name in options.erasers:
        under[name] = erased_by(name, options.overrides)
        require_images(under[name])
    draw(under, options.out)
    print(f"figure: {options.out}")
    return 0


def draw(erased: dict[str, ErasedDataset], path: Path) -> None:
    """Draw a row per eraser, a column per training image, values clipped to 0..1; write `path` and a PDF."""
    first = next(iter(erased.values()))
    labels = first.splits["train"].labels
    shown = _classes_in_turn(labels, COUNT)
    size = (0.45 * len(shown) + 1.6, 0.48 * len(erased) + 0.32)
    figure, axes = plt.subplots(len(erased), len(shown), figsize=size, squeeze=False, layout="constrained")
    for row, (name, dataset) in zip(axes, erased.items(), strict=True):
        for ax, image in zip(row, dataset.pixels(dataset.splits["train"].images[shown]), strict=True):
            draw_image(ax, image)
        edit = dataset.certificate["train"].edit_size
        caption = f"\nedit {edit:.0%} of variance" if edit else ""
        name_row(row[0], display_name(name) + caption, rotation=0, ha="right", va="center")
    for ax, i in zip(axes[0], shown, strict=True):
        ax.set_title(wrapped(first.class_names[int(labels[i])]), fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path, dpi=120)
    plt.close(figure)


def _classes_in_turn(labels: Tensor, count: int) -> list[int]:
    """Return `count` positions: the first image of each class, then the second, and so on."""
    k = int(labels.max()) + 1
    by_class = [(labels == j).nonzero().squeeze(1).tolist() for j in range(k)]
    rounds = (members[i] for i in range(len(labels)) for members in by_class if i < len(members))
    return [position for position, _ in zip(rounds, range(count), strict=False)]


if __name__ == "__main__":
    raise SystemExit(main())
