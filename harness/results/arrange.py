"""Runs arranged for comparison: a table per command, dataset and setting, with a row per model and eraser."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.result import TrainedResult
from harness.results.columns import Compared, Row
from harness.results.comparison import changed_code, differences
from harness.results.frames import run_frame
from harness.results.read import Note, StoredRun
from harness.results.run_labels import Label, eraser_colours, labels, usual_colours
from harness.results.run_settings import model_of_row
from harness.results.table_names import TableNames, tables_of_runs
from harness.statistics import Difference, holm

log = logging.getLogger(__name__)

# differences to the control in every row, for figures and other columns
_COMPARED = Compared("bits_per_label"), Compared("test_loss_bits")


@dataclass(frozen=True)
class Comparison:
    """Runs of one command, dataset and setting: the content of a table and its figures.

    Attributes:
        names: the names of the table.
        rows: one row per model and eraser, sorted by model and then by eraser (`label_order`). A row has
            `dataset`, `model`, `eraser` (all `Label`) and `setting`;
            the columns of `Results.runs`, each a list with one value per distinct seed;
            `runs` and `unfinished`, lists of `StoredRun`;
            `members`, for each seed a result and the seed's position in it;
            `curves`, for each seed the loss curve of the training on everything, if there is one;
            `is_control`, whether it is the control of the model's other rows;
            `seeds_of_model`, the number of seeds in all rows of the model, finished or not;
            `bits_per_label_difference` and `test_loss_bits_difference` to the control (`with_differences`).
    """

    names: TableNames
    rows: Sequence[Row]

    @property
    def finished(self) -> list[Row]:
        """The rows with at least one finished run."""
        return [row for row in self.rows if row["runs"]]

    @property
    def panels(self) -> list[tuple[str, list[Row]]]:
        """The finished rows as panels of a figure: a model's name, and its rows."""
        models: dict[Label, list[Row]] = {}
        for row in self.finished:
            models.setdefault(row["model"], []).append(row)
        return [(model.display, rows) for model, rows in models.items()]

    @property
    def controls(self) -> dict[Label, Row]:
        """The control row of each model."""
        return {row["model"]: row for row in self.rows if row["is_control"]}


def arrange(runs: Sequence[StoredRun], note: Note = log.warning) -> list[Comparison]:
    """Arrange runs of any commands by command, dataset and setting, with a row per model and eraser.

    A label is a part's name with the fewest options that distinguish it from others of the same name.

    Args:
        runs: the runs of a sweep, or those read from folders.
        note: called with one line on each run or file that is left out.
    """
    return [Comparison(names, _rows(names, of_table, note)) for names, of_table in tables_of_runs(runs)]


def colours_of(comparisons: Iterable[Comparison]) -> dict[Label, str]:
    """Return the colours of all erasers, in the order of `label_order`."""
    return eraser_colours(sorted({row["eraser"] for one in comparisons for row in one.rows}, key=label_order))


def _rows(names: TableNames, runs: Sequence[StoredRun], note: Note) -> list[Row]:
    """Return the runs of a table as rows by model and eraser, with differences to the control of their model."""
    cells: dict[tuple[Label, Label], list[StoredRun]] = {}
    for model, eraser, run in _newest(runs, note):
        cells.setdefault((model, eraser), []).append(run)
    of_table = {"dataset": names.dataset, "setting": names.setting}
    rows = [
        {**of_table, "model": model, "eraser": eraser, **_of_runs(of_cell, note)}
        for (model, eraser), of_cell in cells.items()
    ]
    controls = {row["model"]: i for i, row in reversed([*enumerate(rows)]) if row["eraser"].name == "control"}
    by_seed = run_frame(run for row in rows for run in row["runs"])
    by_seed["row"] = [i for i, row in enumerate(rows) for run in row["runs"] for _ in run.seeds]
    by_seed = by_seed.drop_duplicates(["row", "seed"])
    seeds: dict[Label, set[int]] = {}
    for row in rows:
        seeds.setdefault(row["model"], set()).update(*(run.seeds for run in (*row["runs"], *row["unfinished"])))
    for i, row in enumerate(rows):
        of_row = by_seed[by_seed["row"] == i]
        row |= {name: of_row[name].tolist() for name in map(str, of_row) if name not in row}
        row["is_control"] = controls.get(row["model"]) == i
        row["seeds_of_model"] = len(seeds[row["model"]])
    _note_changed_code(rows, note)
    return with_differences(rows, _COMPARED, lambda line: note(f"{line}: no error over test examples"))


def _newest(runs: Sequence[StoredRun], note: Note) -> list[tuple[Label, Label, StoredRun]]:
    """Return model, eraser and run in the order of rows; keep only the newest of runs that differ at most in code."""
    models = labels([model_of_row(run.config, run.command) for run in runs], ("model",))
    erasers = labels([{"eraser": run.config["eraser"]} for run in runs], ("eraser",))
    placed = sorted(
        zip(models, erasers, runs, strict=True),
        key=lambda one: (label_order(one[0]), label_order(one[1]), -len(one[2].seeds)),
    )
    by_start = sorted(placed, key=lambda one: one[2].started)
    of_seeds = {(model, eraser, *run.seeds): run for model, eraser, run in by_start}
    of_row = {(model, eraser): run for model, eraser, run in by_start}
    kept = []
    for model, eraser, run in placed:
        newest = of_row[model, eraser]
        if (other := of_seeds[model, eraser, *run.seeds]) is not run:
            note(f"{run.directory}: left out: {other.id} has the same configuration and seeds and is newer")
        elif changed := changed_code(run.code, newest.code):
            note(f"{run.directory}: left out: {newest.id} is newer, and the code of {', '.join(changed)} has changed")
        else:
            kept.append((model, eraser, run))
    return kept


def _note_changed_code(rows: Sequence[Row], note: Note) -> None:
    """Note the rows that are not compared with their control because code has changed between them."""
    controls = {row["model"]: row["runs"] for row in rows if row["is_control"]}
    for row in rows:
        theirs = controls.get(row["model"], [])
        if row["runs"] and theirs and (changed := changed_code(row["runs"][0].code, theirs[0].code)):
            named = f"{row['runs'][0].directory}: not compared with {theirs[0].id}"
            note(f"{named}: the code of {', '.join(changed)} has changed in between; launch the older one again")


def with_differences(rows: Sequence[Row], compared: Iterable[Compared], note: Note = lambda _: None) -> list[Row]:
    """Return all rows of a table, adding missing differences by name.

    Each value is a `Difference`, corrected by `holm` within the table, or None if there is nothing to compare.

    Args:
        rows: the rows.
        compared: the differences to add.
        note: called with one line on each damaged file of losses on test examples.
    """
    lacking = [one for one in dict.fromkeys(compared) if any(one.name not in row for row in rows)]
    found = {one.name: _differences(rows, one, note) for one in lacking}
    return [{**row, **{name: of.get(i) for name, of in found.items()}} for i, row in enumerate(rows)]


def _differences(rows: Sequence[Row], compared: Compared, note: Note) -> dict[int, Difference]:
    """Return the corrected differences by the positions of rows."""
    if compared.by == "eraser":
        shared, baseline = "model", [i for i, row in enumerate(rows) if row["is_control"]]
    else:
        first = next((row["model"] for row in rows if row["runs"]), None)
        shared, baseline = "eraser", [i for i, row in enumerate(rows) if row["model"] == first]
    of_seeds = ("seed", "code", "directory", compared.value)
    values = [
        (row[shared], i, *of_seed)
        for i, row in enumerate(rows)
        for of_seed in zip(*(row[name] for name in of_seeds), strict=True)
    ]
    by_seed = pd.DataFrame(values, columns=[shared, "row", *of_seeds])
    raw = differences(by_seed, compared.value, (shared, "row"), by_seed["row"].isin(baseline), note)
    return {i: one for (_, i), one in holm(raw).items()}


def _of_runs(runs: Sequence[StoredRun], note: Note) -> dict[str, Any]:
    """Return the runs of a row, and their results and loss curves by seed."""
    finished = [run for run in runs if run.result is not None]
    return {
        "runs": finished,
        "unfinished": [run for run in runs if run.result is None],
        "members": {
            seed: (run.result, s)
            for run in finished[::-1]
            if isinstance(run.result, TrainedResult)
            for s, seed in enumerate(run.seeds)
        },
        "curves": {seed: curve for run in finished[::-1] for seed, curve in run.loss_curves(note).items()},
    }


def label_order(label: Label) -> tuple[Any, ...]:
    """Order by name (erasers as their colours, the control first), then by options, numbers by size."""
    names = list(usual_colours())
    position = names.index(label.name) if label.name in names else len(names)
    options = [(key, value if isinstance(value, int | float) else 0, str(value)) for key, value in label.options]
    return (position, label.name, options)
