"""Losses by number of training images, of exact and truncated QLEACE and of the published recipe.

    python -m scripts.studies.loss_by_training_size docs/study docs/study_published [--out docs/truncated_qleace.svg]

Prints two tables in Markdown, mean ± standard deviation over seeds. The first is of our recipe (train=paper), for
every number and size of images for which both maps of QLEACE were run; the second of the published one
(train=published), each setting that was run. Both have also what unfinished runs have trained. A last column has the
numbers of seeds. `--out` draws the first table's last row of each network at 32 × 32.
"""

import argparse
import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from conf import Options
from conf.command_process import exit_code
from erasure.store.checked_files import read_json
from harness.figure_helpers import figure_at
from harness.result import TrainedResult, parsed
from harness.results.run_labels import display_name
from harness.results.table import Table
from harness.statistics import Spread, seeds_text
from harness.untrusted_runs import read_config
from mdl.result import MdlResult, Point
from scripts.command_line import argument_parser, runs_folder
from scripts.studies.table16 import (
    ENTRIES,
    ERASERS,
    OURS,
    Cell,
    cell_of,
    files_of_runs,
    published,
    recipe_of,
    results_in,
    seed_counts,
)

QLEACE = ("control", "leace", "qleace", "qleace_truncated")


def points(results: Sequence[TrainedResult], folders: Sequence[Path]) -> Iterator[tuple[Options, Point]]:
    """Yield configuration and scores of the training sizes of finished runs, and of unfinished ones so far."""
    for result in results:
        yield from ((result.config, point) for point in (result.curve if isinstance(result, MdlResult) else []))
    finished = {path.parent.name for path in files_of_runs(folders, "result.json")}
    for path in files_of_runs(folders, "step-[0-9]*.json"):
        if path.parent.name not in finished:
            yield read_config(path.parent), parsed(Point, read_json(path)["value"]["point"])


Rows = dict[tuple[str, int, int], dict[str, list[Sequence[float]]]]


def qleace_rows(results: Sequence[TrainedResult], folders: Sequence[Path]) -> Rows:
    """Return test loss and accuracy of every seed by model, image size and training size, then by eraser."""
    scores = [(one.config, one.train_size, one.final.loss_bits, one.final.accuracy) for one in results]
    for config, point in points(results, folders):
        scores += [(config, point.n, point.ce_test_bits, point.test_accuracy)] if point.test_accuracy else []
    rows: dict[tuple[str, int, int], dict[str, dict[int, Sequence[float]]]] = defaultdict(lambda: defaultdict(dict))
    for config, n, losses, accuracies in scores:
        model, size = config["model"], config["dataset"]["size"] or 32
        usual = model.get("width") in (20, 128) and model["depth"] <= 2  # other widths and depths have another page
        if usual and recipe_of(config) == OURS:
            seeds = rows[model["name"], size, n][config["eraser"]["name"]]
            for seed, *score in zip(config["seeds"], losses, accuracies, strict=True):
                seeds.setdefault(seed, score)
    return {
        key: {eraser: list(seeds.values()) for eraser, seeds in row.items()}
        for key, row in sorted(rows.items())
        if {"qleace", "qleace_truncated"} <= set(row)
    }


def qleace_table(rows: Rows) -> Table:
    """Return the first table: test loss and accuracy."""
    lines = []
    for (model, size, n), row in rows.items():
        shown = [_shown(row[eraser]) if eraser in row else "" for eraser in QLEACE]
        seeds = seed_counts(len(row[eraser]) for eraser in QLEACE if eraser in row)
        lines.append([f"{display_name(model)}, {n:,} images of {size} × {size}", *shown, seeds])
    headings = ["test loss in bits (right)", *map(display_name, QLEACE), "seeds"]
    return Table("qleace", (), headings, lines)


_BARS = {
    "control": ("not erased", "#4d4d4d"),
    "qleace": ("QLEACE, exact", "#1f78b4"),
    "qleace_truncated": ("QLEACE, eigenvalues dropped", "#e31a1c"),
}


def draw(rows: Rows, path: Path) -> None:
    """Draw the test losses of each network's largest training set at 32 × 32, a bar per eraser."""
    largest = {model: row for (model, size, _), row in rows.items() if size == 32}  # in order of size: the last stays
    with figure_at(path, 5.2, 0.8 + 1.4 * len(largest)) as figure:
        ax = figure.subplots()
        ax.grid(visible=False)
        for i, row in enumerate(largest.values()):
            for j, (eraser, (name, colour)) in enumerate(_BARS.items()):
                losses, y = [loss for loss, _ in row[eraser]], 4 * i + j
                ax.barh(y, mean := sum(losses) / len(losses), color=colour, height=0.85)
                ax.text(mean + 0.02, y, f"{name}: {mean:.3f} ({seeds_text(len(losses))})", va="center", fontsize=9)
        ax.set_yticks([4 * i + 1 for i in range(len(largest))], [display_name(model) for model in largest])
        ax.tick_params(axis="y", length=0)
        ax.invert_yaxis()
        ax.set_xlim(0, 2.2)
        ax.set_xlabel("test loss (bits per label)")


def _shown(scores: Sequence[Sequence[float]]) -> str:
    losses, accuracies = zip(*scores, strict=True)
    return f"{Spread.of(losses):.3f} ({Spread.of(accuracies).mean:.1%})"


def size_table(results: Sequence[TrainedResult], folders: Sequence[Path]) -> Table:
    """Return the second table: test loss by number of training images."""
    losses: dict[Cell, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for config, point in points(results, folders):
        if published(config):
            losses[cell_of(config)][point.n] += point.ce_test_bits
    cells = sorted(losses, key=lambda cell: ([*ENTRIES].index(cell.model), cell.recipe, ERASERS.index(cell.eraser)))
    sizes, lines = sorted({n for row in losses.values() for n in row}), []
    for cell in cells:
        name = f"{display_name(cell.model)}, {cell.recipe.removeprefix('published, ')}, {display_name(cell.eraser)}"
        shown = [f"{Spread.of(losses[cell][n]).mean:.2f}" if n in losses[cell] else "" for n in sizes]
        counts = [len(bits) for bits in losses[cell].values()]
        lines.append([name, *shown, " to ".join(map(str, sorted({min(counts), max(counts)})))])
    headings = ["published: test loss in bits after n images", *(f"{n:,}" for n in sizes), "seeds"]
    return Table("sizes", (), headings, lines)


def show(options: argparse.Namespace) -> int:
    results = list(results_in(options.runs))
    if not results:
        raise FileNotFoundError(f"{options.runs[0]}: no finished run on images of CIFAR-10")
    rows = qleace_rows(results, options.runs)
    print(f"{qleace_table(rows).markdown()}\n\n{size_table(results, options.runs).markdown()}")
    if options.out is not None:
        draw(rows, options.out)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("studies.loss_by_training_size", __doc__)
    parser.add_argument("runs", nargs="+", type=runs_folder, help="folders of finished runs")
    parser.add_argument("--out", type=Path, help="SVG file for a figure of the first table; a PDF comes beside it")
    return exit_code(functools.partial(show, parser.parse_args(arguments)), "mdl")


if __name__ == "__main__":
    raise SystemExit(main())
