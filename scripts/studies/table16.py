"""Compare Table 16 of Quirke & Belrose (2025) with finished runs on CIFAR-10.

    python -m scripts.studies.table16 docs/study docs/study_published --out docs/study_table16.svg

Prints tables in Markdown in the paper's unit, mean ± standard deviation over seeds of runs on photographs of 32 × 32:

1. Table 16: the paper, our recipe (train=paper), and the paper's loop (train=published) with settings that were tuned
   to the row.
2. What single changes of the recipe do.
3. Every other setting of the published recipe that was run.
4. The distance of the tuned loop from the paper, in the paper's standard deviations and in standard errors.
5. Table 16 had every training ended after so many epochs, by lowest validation losses: trainings of at most 50 epochs,
   and longer ones, of which the last size may be unfinished.

A column has the numbers of seeds: one number, or one for each filled cell. The figure draws the first table.
"""

import argparse
import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from conf import Options
from conf.command_process import exit_code
from harness.figure_helpers import WIDTH, figure_at
from harness.result import TrainedResult, read_result
from harness.results.run_labels import display_name
from harness.results.table import Table
from harness.run_directory import CURVES
from harness.statistics import Spread, seeds_text
from harness.untrusted_runs import read_config
from mdl.online_code import published_units
from mdl.result import MdlResult
from scripts.command_line import argument_parser, figure_file, runs_folder
from train.published_rates import LEARNING_RATES

ERASERS = ("control", "leace", "alf_qleace", "gradient", "gradient_published", "qleace", "qleace_truncated")
PAPER = "paper"
OURS = "ours"
_EPOCHS = 30_000  # of the newest command line of the paper's code
_ENDS = (10, 19, 30, 50)  # epochs after which trainings could have ended
_LATE_ENDS = (50, 100, 300, 1_000, 30_000)
_SHORT = "published, float32, 50 epochs"
_LONG = ("published, float32", "published, float32, state restored")
_SEEDS = 5  # of the paper
_SIZES = [1_024, 2_375, 4_157, 6_507, 9_606, 13_694, 19_086, 26_198, 35_579, 47_952]  # of the paper's code
_TUNED_NAME = "paper's loop, tuned"
_TUNED = {"mlp": _SHORT, "lenet": f"{_SHORT}, learning rate 0.0002"}  # to the row; to its control
_PATIENCE = 4  # the default of the loop in the paper's code, as 50 epochs are
_PATIENT = "published, float32, state restored"
_CHANGED = ("control", "leace", "alf_qleace", "qleace")
_CHANGES = (  # name, row and recipe
    ("**MLP**, the paper", "mlp", PAPER),
    ("our recipe", "mlp", OURS),
    ("the paper's loop in float32, ended by patience", "mlp", _PATIENT),
    ("ended by patience, losses rounded as in bfloat16", "mlp", f"{_PATIENT}, losses rounded"),
    ("ended by patience, all in bfloat16", "mlp", _PATIENT.replace("float32", "bfloat16")),
    ("float32, at most 50 epochs", "mlp", _SHORT),
    ("50 epochs, nothing reset", "mlp", f"{_SHORT}, nothing reset"),
    ("50 epochs, no warm-up", "mlp", f"{_SHORT}, no warm-up"),
    ("50 epochs, not z-scored", "mlp", f"{_SHORT}, not z-scored"),
    ("**LeNet**, the paper", "lenet", PAPER),
    ("our recipe", "lenet", OURS),
    ("the paper's loop in float32, at most 50 epochs", "lenet", _SHORT),
    ("50 epochs, learning rate 2e-4 instead of 5e-4", "lenet", _TUNED["lenet"]),
)
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


def files_of_runs(folders: Sequence[Path], pattern: str) -> list[Path]:
    """Return the files of all runs whose names match a pattern; of a run in several folders those in the first."""
    files = {
        (path.parent.name, path.name): path for folder in reversed(folders) for path in folder.glob(f"*/{pattern}")
    }
    return sorted(files.values())


def results_in(folders: Sequence[Path]) -> Iterator[TrainedResult]:
    """Yield finished runs on photographs with the settings that are compared, each once."""
    for path in files_of_runs(folders, "result.json"):
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
    return name if recipe_of(config) == OURS else name.removesuffix("_published")


def recipe_of(config: Options) -> str:
    train, dataset, model_name = config["train"], config["dataset"], config["model"]["name"]
    if train.get("protocol", "standard") == "standard":
        return OURS
    options = train["published"]
    usual = LEARNING_RATES[model_name].get(config["eraser"]["name"], train["lr"])
    changes = [
        (f"{train['max_epochs']} epochs", train["max_epochs"] < _EPOCHS),
        ("nothing reset", not options["backtrack"]),
        ("state restored", options["backtrack"] and not options.get("share_saved_state", False)),
        ("losses rounded", options.get("round_losses", False)),
        ("not z-scored", dataset["normalize"] != "zscore"),
        (f"learning rate {train['lr']:g}", train["lr"] != usual),
        ("no crops", train["crop_padding"] == 0),
        ("padded", model_name == "lenet"),  # our LeNet, not that of the paper's code
        ("no warm-up", model_name == "mlp" and train["warmup_steps"] == 0),  # other networks have none
        ("compressed again", dataset["root"].endswith("-again")),  # JPEG of JPEG: docs/study_details.md
    ]
    return ", ".join(["published", train["precision"], *(name for name, changed in changes if changed)])


def cell_of(config: Options) -> Cell:
    return Cell(recipe_of(config), model_of(config), config["eraser"]["name"])


def table_16(results: Iterable[TrainedResult]) -> dict[Cell, list[float]]:
    """Return the values of the cells, one per seed, in the published unit."""
    cells: dict[Cell, list[float]] = defaultdict(list)
    for result in results:
        config = result.config
        if isinstance(result, MdlResult) and config["dataset"]["size"] is None and result.train_size > _ALL:
            cells[cell_of(config)] += result.mdl.published
    return dict(cells)


def first_table(cells: dict[Cell, list[float]]) -> Table:
    """Return the first table: the paper, our recipe and the tuned loop."""
    rows = []
    for model in ENTRIES:
        rows.append(_paper_row(f"**{display_name(model)}**, the paper", model, ERASERS))
        for name, recipe in (("ours", OURS), (_TUNED_NAME, _TUNED.get(model, PAPER))):
            if recipe != PAPER and (row := seeds_of(cells, recipe, model)):
                rows.append(_row(name, row, ERASERS))
    return _table("", ERASERS, rows)


def change_table(cells: dict[Cell, list[float]]) -> Table:
    """Return the second table: single changes of the recipe."""
    rows = []
    for name, model, recipe in _CHANGES:
        if recipe == PAPER:
            rows.append(_paper_row(name, model, _CHANGED))
        elif row := seeds_of(cells, recipe, model):
            rows.append(_row(name, row, _CHANGED))
    return _table("change", _CHANGED, rows)


def other_table(cells: dict[Cell, list[float]]) -> Table:
    """Return the third table: other settings of the published recipe."""
    rows = [
        _row(f"{display_name(model)}, {recipe.removeprefix('published, ')}", seeds_of(cells, recipe, model), ERASERS)
        for model, recipe in sorted({(cell.model, cell.recipe) for cell in cells})
        if recipe not in (OURS, _TUNED.get(model))
    ]
    return _table("published, other settings", ERASERS, rows)


def distance_table(cells: dict[Cell, list[float]]) -> Table:
    """Return the fourth table: distances of the tuned loop from the paper."""
    lines = []
    for model, recipe in _TUNED.items():
        rows: dict[str, dict[str, str]] = defaultdict(dict)
        for eraser, values in seeds_of(cells, recipe, model).items():
            (mean, deviation), tuned = entry_of(model, eraser), Spread.of(values)
            rows["in the unit of Table 16"][eraser] = f"{tuned.mean - mean:+.2f}"
            if deviation:
                rows["in the paper's standard deviations"][eraser] = f"{(tuned.mean - mean) / deviation:+.1f}"
            if tuned.std is not None:
                error = math.hypot(deviation / math.sqrt(_SEEDS), tuned.std / math.sqrt(len(values)))
                rows["in standard errors of the difference"][eraser] = f"{(tuned.mean - mean) / error:+.1f}"
        for name, row in rows.items():
            lines.append([f"{display_name(model)}, {name}", *(row.get(eraser, "") for eraser in ERASERS)])
    return Table("table16", (), [f"{_TUNED_NAME}, less the paper", *map(display_name, ERASERS)], lines)


def entry_of(model: str, eraser: str) -> tuple[float, float]:
    """Return the paper's mean and standard deviation for an eraser, or for that of which it is a variant."""
    return ENTRIES[model][eraser.removesuffix("_truncated").removesuffix("_published")]


def _lowest_by_patience(losses: Iterable[float]) -> float:
    """Return the lowest loss before the first `_PATIENCE` epochs in a row without improvement."""
    best, failures = float("inf"), 0
    for loss in losses:
        failures = 0 if loss < best else failures + 1
        best = min(best, loss)
        if failures == _PATIENCE:
            break
    return best


def epoch_tables(folders: Sequence[Path]) -> list[Table]:
    """Return Table 16's unit by lowest validation losses in float32: of 50 epochs, and of longer trainings."""
    shorter: dict[Cell, list[list[float]]] = defaultdict(list)
    longer: dict[Cell, list[list[float]]] = defaultdict(list)
    for path in files_of_runs(folders, CURVES):
        config = read_config(path.parent)
        if not published(config) or recipe_of(config) not in (_SHORT, *_LONG):
            continue
        rows, curves = shorter if recipe_of(config) == _SHORT else longer, pd.read_csv(path)
        if sorted(curves.n.unique()) != _SIZES[:-1]:
            continue
        for _, curve in curves.groupby("seed"):
            ends = _ENDS if rows is shorter else _LATE_ENDS
            lowest = [curve[curve.epoch <= epochs].groupby("n").validation_loss_bits.min() for epochs in ends]
            if rows is shorter:
                lowest.append(curve.sort_values("epoch").groupby("n").validation_loss_bits.apply(_lowest_by_patience))
            values = [published_units(_SIZES, list(losses)) for losses in lowest]
            rows[cell_of(config)].append(values)
    ends = [*map(str, _ENDS), f"50, patience {_PATIENCE}"]
    late_ends = [f"{epochs:,}" for epochs in _LATE_ENDS]
    return [
        _by_epochs("Table 16's unit, by validation losses after epochs", shorter, ends),
        _by_epochs("the same of trainings that patience ends", longer, late_ends),
    ]


def _by_epochs(title: str, rows: Mapping[Cell, Sequence[Sequence[float]]], ends: Sequence[str]) -> Table:
    """Return a table of values by cell, seed and end of the trainings."""
    lines = []
    for cell, seeds in sorted(rows.items(), key=lambda item: (item[0].model, ERASERS.index(item[0].eraser))):
        shown = [f"{Spread.of(values).mean:.2f}" for values in zip(*seeds, strict=True)]
        mean, deviation = entry_of(cell.model, cell.eraser)
        name = f"{display_name(cell.model)}, {display_name(cell.eraser)}"
        lines.append([name, *shown, f"{mean:.2f} ± {deviation:.2f}", str(len(seeds))])
    return Table("table16", (), [title, *ends, "the paper", "seeds"], lines)


def seed_counts(counts: Iterable[int]) -> str:
    """Return the number of seeds of several cells, or, where they differ, all numbers in order."""
    counts = list(counts)
    return ", ".join(map(str, counts if len(set(counts)) > 1 else counts[:1]))


def _table(first: str, erasers: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return Table("table16", (), [first, *map(display_name, erasers), "seeds"], rows)


def _row(first: str, by_eraser: Mapping[str, Sequence[float]], erasers: Sequence[str]) -> list[str]:
    cells = [f"{Spread.of(by_eraser[eraser]):.2f}" if eraser in by_eraser else "" for eraser in erasers]
    seeds = seed_counts(len(by_eraser[eraser]) for eraser in erasers if eraser in by_eraser)
    return [first, *cells, seeds]


def _paper_row(first: str, model: str, erasers: Sequence[str]) -> list[str]:
    entries = ENTRIES[model]
    cells = ["{:.2f} ± {:.2f}".format(*entries[eraser]) if eraser in entries else "" for eraser in erasers]
    return [first, *cells, str(_SEEDS)]


_BARS = {"the paper": "#4d4d4d", "ours": "#56B4E9", _TUNED_NAME: "#E69F00"}


def draw(cells: dict[Cell, list[float]], path: Path) -> None:
    """Draw the first table: a panel for each network that was run, a labelled bar for each cell."""
    panels = {}
    for model in (model for model in ENTRIES if any(cell.model == model for cell in cells)):
        recipes = {"the paper": PAPER, "ours": OURS, _TUNED_NAME: _TUNED.get(model, "")}
        panels[model] = {name: seeds_of(cells, recipe, model) for name, recipe in recipes.items()}
    heights = [1.0 + 0.22 * sum(map(len, rows.values())) for rows in panels.values()]
    with figure_at(path, WIDTH, sum(heights)) as figure:
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        for ax, (model, rows) in zip(axes, panels.items(), strict=True):
            y, ticks = 0.0, {}
            for eraser in ERASERS:
                top = y
                for name, row in rows.items():
                    if eraser in row:
                        mean, count = Spread.of(row[eraser]).mean, _SEEDS if name == "the paper" else len(row[eraser])
                        ax.barh(y, mean, color=_BARS[name], height=0.9)
                        ax.text(mean + 0.1, y, f"{name}: {mean:.2f} ({seeds_text(count)})", va="center", fontsize=9)
                        y += 1
                if y > top:
                    ticks[display_name(eraser).replace(" ", "\n")] = (top + y - 1) / 2
                    y += 0.7
            ax.grid(visible=False)
            ax.set(title=display_name(model), xlabel="unit of Table 16", xlim=(0, 22))
            ax.set_yticks([*ticks.values()], [*ticks])
            ax.tick_params(axis="y", length=0)
            ax.invert_yaxis()


def show(options: argparse.Namespace) -> int:
    cells = table_16(results_in(options.runs))
    if not cells:
        raise FileNotFoundError(f"{options.runs[0]}: no finished run of python -m mdl on all of CIFAR-10")
    tables = [make(cells) for make in (first_table, change_table, other_table, distance_table)]
    print("\n\n".join(table.markdown() for table in [*tables, *epoch_tables(options.runs)]))
    draw(cells, options.out)
    print(f"\nfigure: {options.out}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("studies.table16", __doc__)
    parser.add_argument("runs", nargs="+", type=runs_folder, help="folders of finished runs")
    parser.add_argument("--out", type=figure_file, default=Path("table16.png"), help="figure")
    return exit_code(functools.partial(show, parser.parse_args(arguments)), "mdl")


if __name__ == "__main__":
    raise SystemExit(main())
