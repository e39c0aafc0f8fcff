"""Compare Table 16 of Quirke & Belrose (2025) with finished runs on CIFAR-10; exact against truncated QLEACE.

    python -m scripts.studies.table16 docs/study docs/study_published --out docs/study_table16.svg

Prints four tables in Markdown, mean ± standard deviation over seeds, and draws what each eraser adds to the control:
in the paper, in our recipe (train=paper) and in the published one (train=published). The first table is in the paper's
unit, of photographs of 32 × 32; the second has the other settings of the published recipe that were run; the third test
losses of our recipe, for every number and size of images for which both maps of QLEACE were run; the fourth those of
the published recipe by number of images. Third and fourth have also what unfinished runs have trained; the fourth has
the lowest validation loss of unfinished trainings in parentheses.
"""

import argparse
import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from conf import Options
from conf.errors import exit_code
from erasure.store.checked_files import read_json
from harness.figures import eraser_colours, figure_at
from harness.result import MdlResult, TrainedResult, parsed, read_result
from harness.result_fields import Final, Point
from harness.results.run_labels import display_name
from harness.results.statistics import Spread
from harness.run_directory import CURVES
from harness.untrusted_runs import read_config
from scripts.command_line import argument_parser

ERASERS = ("control", "leace", "alf_qleace", "gradient", "qleace", "qleace_truncated")
QLEACE = ("control", "leace", "qleace", "qleace_truncated")
PAPER = "paper"
_OURS = "ours"
_EPOCHS = 30_000  # of the newest command line of the paper's code
_COMPARED = ("paper", "ours", "published, bfloat16, state restored", "published, float32, state restored",
          "published, float32, 50 epochs")  # fmt: skip
_ALL = 40_000  # images at least, so that a training set is all of CIFAR-10

# Quirke & Belrose 2025, Table 16 (bottom): z-scored CIFAR-10, base sizes, mean and standard deviation of five seeds
ENTRIES = {
    "mlp": {"control": (7.14, 0.05), "leace": (8.49, 0.10), "alf_qleace": (8.94, 0.14), "gradient": (10.02, 0.08),
            "qleace": (11.41, 0.00)},
    "lenet": {"control": (5.62, 0.02), "leace": (6.59, 0.28), "alf_qleace": (6.83, 0.11), "gradient": (8.71, 0.09),
              "qleace": (8.68, 0.24)},
    "convnextv2": {"control": (5.09, 0.09), "leace": (5.20, 0.15), "alf_qleace": (4.92, 0.05), "gradient": (5.37, 0.02),
                   "qleace": (1.67, 0.20)},
    "swinv2": {"control": (8.18, 0.03), "leace": (9.00, 0.13), "alf_qleace": (8.67, 1.20), "gradient": (9.29, 0.06),
               "qleace": (9.08, 0.13)},
}  # fmt: skip


class Cell(NamedTuple):
    """A cell of our Table 16: recipe, row and column."""

    recipe: str
    model: str
    eraser: str


def seeds_of(cells: dict[Cell, list[float]], recipe: str, model: str) -> dict[str, list[float]]:
    """Return a row's values by eraser, one per seed; for the paper only the mean."""
    if recipe == PAPER:
        return {eraser: [mean] for eraser, (mean, _) in ENTRIES[model].items()}
    return {eraser: cells[Cell(recipe, model, eraser)] for eraser in ERASERS if Cell(recipe, model, eraser) in cells}


def results_in(folders: Sequence[Path]) -> Iterator[TrainedResult]:
    """Yield finished runs on photographs with the settings that are compared."""
    for path in sorted(path for folder in folders for path in folder.glob("*/result.json")):
        result = read_result(path)
        config = result.config
        dataset, train = config["dataset"], config.get("train", {})
        if (
            not isinstance(result, TrainedResult)
            or dataset["name"] != "image_folder"
            or model_of(config) not in ENTRIES
        ):
            continue
        usual = train["patience_steps"] == 4000 and train["lr"] == 1e-3 and train["batch_size"] == 128
        usual = usual and config.get("mdl", {}).get("validation", "given") == "given"
        ours = train.get("protocol", "standard") == "standard" and dataset["normalize"] == "zscore" and usual
        if ours or published(config):
            yield result


def published(config: Options) -> bool:
    return config.get("train", {}).get("protocol") == "published"


def model_of(config: Options) -> str:
    """Return the row of Table 16; LeNet at the sizes of the paper's code is its LeNet by the paper's recipe alone."""
    name = config["model"]["name"]
    return name if recipe_of(config) == _OURS else name.removesuffix("_published")


def recipe_of(config: Options) -> str:
    train, dataset = config["train"], config["dataset"]
    if train.get("protocol", "standard") == "standard":
        return _OURS
    options = train["published"]
    changes = [
        (f"{train['max_epochs']} epochs", train["max_epochs"] < _EPOCHS),
        ("nothing reset", not options["backtrack"]),
        ("state restored", options["backtrack"] and not options.get("share_saved_state", False)),
        ("losses rounded", options.get("round_losses", False)),
        ("not z-scored", dataset["normalize"] != "zscore"),
        ("compressed again", dataset["root"].endswith("-again")),  # JPEG of JPEG: docs/published_procedure_results.md
    ]
    return ", ".join(["published", train["precision"], *(name for name, changed in changes if changed)])


def cell_of(config: Options) -> Cell:
    return Cell(recipe_of(config), model_of(config), config["eraser"]["name"])


def table_16(results: Sequence[TrainedResult]) -> dict[Cell, list[float]]:
    """Return the values of the cells, one per seed, in the published unit."""
    cells: dict[Cell, list[float]] = defaultdict(list)
    for result in results:
        config = result.config
        if isinstance(result, MdlResult) and config["dataset"]["size"] is None and result.train_size > _ALL:
            cells[cell_of(config)] += result.mdl.published
    return dict(cells)


def table_lines(cells: dict[Cell, list[float]]) -> Iterator[str]:
    """Yield the first table in Markdown: the paper, our recipe and the published one."""
    yield from _header("")
    for model in ENTRIES:
        entries = {eraser: "{:.2f} ± {:.2f}".format(*entry) for eraser, entry in ENTRIES[model].items()}
        yield _row(f"**{display_name(model)}**, the paper", entries)
        for recipe in _COMPARED:
            if recipe != PAPER and (row := seeds_of(cells, recipe, model)):
                yield _row(recipe, {eraser: f"{Spread.of(values):.2f}" for eraser, values in row.items()})


def other_lines(cells: dict[Cell, list[float]]) -> Iterator[str]:
    """Yield the second table in Markdown: other settings of the published recipe."""
    yield from _header("published, other settings")
    for model, recipe in sorted({(cell.model, cell.recipe) for cell in cells if cell.recipe not in _COMPARED}):
        row = {eraser: f"{Spread.of(values):.2f}" for eraser, values in seeds_of(cells, recipe, model).items()}
        yield _row(f"{display_name(model)}, {recipe.removeprefix('published, ')}", row)


def _header(first: str) -> Iterator[str]:
    yield _row(first, {eraser: display_name(eraser) for eraser in ERASERS})
    yield "| --- " * (len(ERASERS) + 1) + "|"


def _row(first: str, by_eraser: Mapping[str, str]) -> str:
    return f"| {first} | " + " | ".join(by_eraser.get(eraser, "") for eraser in ERASERS) + " |"


class Score(NamedTuple):
    """A network that one seed trained on n images, scored on test images."""

    loss_bits: float
    accuracy: float


Row = tuple[str, int, int]  # model, size of images, number of images
Scores = Mapping[int, Score]  # by seed


def trainings(config: Options, points: Sequence[Point], final: Final | None, n: int) -> Iterator[tuple[Row, Scores]]:
    """Yield the scores of a run: `points` of its curve, and `final` on all n images."""
    model, size = config["model"], config["dataset"]["size"] or 32
    if model.get("width") not in (20, 128) or model["depth"] > 2:  # other widths and depths have another page
        return
    trained = [(point.n, point.ce_test_bits, point.test_accuracy) for point in points if point.test_accuracy]
    trained += [(n, final.loss_bits, final.accuracy)] if final is not None else []
    for trained_on, losses, accuracies in trained:
        scores = map(Score, losses, accuracies)
        yield (model["name"], size, trained_on), dict(zip(config["seeds"], scores, strict=True))


def unfinished(folders: Sequence[Path]) -> Iterator[tuple[Options, Point]]:
    """Yield configuration and scores of the sizes that unfinished runs have trained."""
    for path in sorted(path for folder in folders for path in folder.glob("*/part-[0-9]*.json")):
        if not (path.parent / "result.json").exists():
            yield read_config(path.parent), parsed(Point, read_json(path)["value"]["point"])


def qleace_lines(results: Sequence[TrainedResult], folders: Sequence[Path]) -> Iterator[str]:
    """Yield the third table in Markdown: test loss and accuracy."""
    rows: dict[Row, dict[str, dict[int, Score]]] = defaultdict(lambda: defaultdict(dict))
    trained = [(one.config, getattr(one, "curve", []), one.final, one.train_size) for one in results]
    trained += [(config, [point], None, point.n) for config, point in unfinished(folders)]
    for config, points, final, n in trained:
        for row, scores in trainings(config, points, final, n) if recipe_of(config) == _OURS else ():
            seeds = rows[row][config["eraser"]["name"]]
            seeds.update({seed: score for seed, score in scores.items() if seed not in seeds})
    yield "| test loss in bits (right) | " + " | ".join(display_name(eraser) for eraser in QLEACE) + " |"
    yield "| --- " * (len(QLEACE) + 1) + "|"
    for (model, size, n), row in sorted(rows.items()):
        if {"qleace", "qleace_truncated"} <= set(row):
            shown = (_shown(list(row[eraser].values())) if eraser in row else "" for eraser in QLEACE)
            yield f"| {display_name(model)}, {n:,} images of {size} × {size} | " + " | ".join(shown) + " |"


def _shown(scores: Sequence[Score]) -> str:
    losses, accuracies = zip(*scores, strict=True)
    return f"{Spread.of(losses):.3f} ({Spread.of(accuracies).mean:.1%})"


def size_lines(results: Sequence[TrainedResult], folders: Sequence[Path]) -> Iterator[str]:
    """Yield the fourth table in Markdown: test loss by number of training images."""
    trained = [(result.config, point) for result in results if isinstance(result, MdlResult) for point in result.curve]
    losses: dict[Cell, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for config, point in [*trained, *unfinished(folders)]:
        if published(config):
            losses[cell_of(config)][point.n] += point.ce_test_bits
    shown = {cell: {n: f"{Spread.of(bits).mean:.2f}" for n, bits in row.items()} for cell, row in losses.items()}
    for path in sorted(path for folder in folders for path in folder.glob(f"*/{CURVES}")):
        if not (path.parent / "result.json").exists() and published(config := read_config(path.parent)):
            lowest = pd.read_csv(path).groupby("n")["validation_loss_bits"].min()
            shown[cell_of(config)] |= {int(str(n)): f"({bits:.2f})" for n, bits in lowest.items()}
    sizes = sorted({n for row in shown.values() for n in row})
    yield "| published: test loss in bits after n images | " + " | ".join(f"{n:,}" for n in sizes) + " |"
    yield "| --- " * (len(sizes) + 1) + "|"
    for cell in sorted(shown, key=lambda cell: (cell.model != "mlp", cell.recipe, ERASERS.index(cell.eraser))):
        name = f"{display_name(cell.model)}, {cell.recipe.removeprefix('published, ')}, {display_name(cell.eraser)}"
        yield f"| {name} | " + " | ".join(shown[cell].get(n, "") for n in sizes) + " |"


def draw(cells: dict[Cell, list[float]], path: Path) -> None:
    """Draw each eraser's difference to the control, a dot per seed, a panel per row of the table."""
    models = [model for model in ENTRIES if any(cell.model == model for cell in cells)]
    recipes: list[str] = [
        recipe for recipe in _COMPARED if recipe == PAPER or any(cell.recipe == recipe for cell in cells)
    ]
    markers: dict[str, str] = dict(zip(_COMPARED, "so^vD", strict=True))
    colours = eraser_colours(ERASERS)
    with figure_at(path, 11, 4.2) as figure:
        axes = figure.subplots(1, len(models), squeeze=False, sharey=True)[0]
        for ax, model in zip(axes, models, strict=True):
            for index, recipe in enumerate(recipes):
                row = seeds_of(cells, recipe, model)
                if "control" not in row:
                    continue
                control = Spread.of(row["control"]).mean
                for i, eraser in enumerate(ERASERS[1:]):
                    at = i + (index - (len(recipes) - 1) / 2) * 0.17
                    ax.plot([at] * len(row.get(eraser, ())), [value - control for value in row.get(eraser, ())],
                            markers[recipe], color=colours[eraser], markersize=7,
                            markerfacecolor="none" if recipe == PAPER else None)  # fmt: skip
            ax.axhline(0, color="#4d4d4d", linewidth=1)
            ax.set(title=display_name(model), xticks=range(len(ERASERS) - 1), xlim=(-0.6, len(ERASERS) - 1.4))
            ax.set_xticklabels([display_name(eraser).replace(" ", "\n") for eraser in ERASERS[1:]])
        axes[0].set_ylabel("difference to the control\n(unit of Table 16)")
        for recipe in recipes:
            axes[0].plot([], [], markers[recipe], color="#4d4d4d", label=recipe,
                         markerfacecolor="none" if recipe == PAPER else None)  # fmt: skip
        axes[0].legend(loc="upper left", fontsize=9)


def show(options: argparse.Namespace) -> int:
    results = list(results_in(options.runs))
    cells = table_16(results)
    if not cells:
        raise FileNotFoundError(f"{options.runs[0]}: no finished run of python -m mdl on all of CIFAR-10")
    folders = options.runs
    tables = table_lines(cells), other_lines(cells), qleace_lines(results, folders), size_lines(results, folders)
    print("\n\n".join("\n".join(lines) for lines in tables))
    draw(cells, options.out)
    print(f"\nfigure: {options.out}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("studies.table16", __doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--out", type=Path, default=Path("table16.png"), help="figure")
    return exit_code(functools.partial(show, parser.parse_args(arguments)), "mdl")


if __name__ == "__main__":
    raise SystemExit(main())
