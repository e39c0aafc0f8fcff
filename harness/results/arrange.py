"""Runs arranged for comparison: a frame per command, dataset and setting, of which each model and eraser is a row."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from conf.commands import result_type
from harness.results.columns import Row, first, runs_of, seeds_of
from harness.results.comparison import changed_code, differences
from harness.results.frames import run_frame
from harness.results.read import Note, StoredRun
from harness.results.run_labels import Label, eraser_colours, labels, usual_colours
from harness.results.run_settings import model_of_row
from harness.results.table_names import tables_of_runs
from harness.statistics import holm

log = logging.getLogger(__name__)


def arrange(runs: Sequence[StoredRun], note: Note = log.warning) -> list[pd.DataFrame]:
    """Arrange runs of any commands by command, dataset and setting.

    Args:
        runs: the runs of a sweep, or those read from folders.
        note: called with one line on each run or file that is left out.

    Returns:
        The content of each table as a frame, with a line per distinct seed of each model and eraser (`rows_of`), sorted
        by model and then by eraser (`label_order`), and one per unfinished run, which has no seed. It has the columns
        of `Results.runs`, of which `dataset`, `model` and `eraser` are `Label`s, and `setting` is the table's, and
        `title` and `table`, the names of the table (`tables_of_runs`);
        `stored`, the `StoredRun`, and `position`, the position of the seed in its result;
        `loss_curve` of the training on everything, if there is one;
        `row`, the number of the row, `runs`, the ids of its runs, and `seeds`, their number of distinct seeds;
        `incomplete`, the row's state if it has no result, "2 of 5 seeds" if it lacks seeds of the model, else "";
        `is_control`, whether the row is the control of the model's other rows;
        differences to the control of the command's `Result.compared`, such as `bits_per_label_difference`, corrected by
        `holm` within the table; all lines of a row have the same, or None if there is nothing to compare.
    """
    return [_arranged(of_table, note).assign(**names) for names, of_table in tables_of_runs(runs)]


def rows_of(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of a table, one per model and eraser."""
    return [row for _, row in frame.groupby("row")]


def finished_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the rows with at least one finished run."""
    return [row for row in rows if seeds_of(row)]


def finished_runs(frames: Iterable[pd.DataFrame]) -> list[tuple[Row, StoredRun]]:
    """Return the finished runs of tables, each with its row."""
    rows = (row for frame in frames for row in rows_of(frame))
    return [(row, run) for row in rows for run in runs_of(row) if run.result is not None]


def controls_of(rows: Iterable[Row]) -> dict[Label, Row]:
    """Return the control row of each model."""
    return {first(row, "model"): row for row in rows if first(row, "is_control")}


def with_values(frame: pd.DataFrame, values_of: Callable[[Row, Row | None], Mapping[str, Any]]) -> pd.DataFrame:
    """Return a table's frame with further columns, computed from each row and the control of its model."""
    rows = rows_of(frame)
    controls = controls_of(rows)
    added = [pd.DataFrame(values_of(row, controls.get(first(row, "model"))), row.index, dtype=object) for row in rows]
    if not added:
        return frame
    columns = pd.concat(added)
    return frame.drop(columns=[name for name in columns if name in frame]).join(columns)


def panels_of(frame: pd.DataFrame) -> list[tuple[str, list[Row]]]:
    """Return the finished rows as panels of a figure: a model's name, and its rows."""
    models: dict[Label, list[Row]] = {}
    for row in finished_rows(rows_of(frame)):
        models.setdefault(first(row, "model"), []).append(row)
    return [(model.display, rows) for model, rows in models.items()]


def colours_of(frames: Iterable[pd.DataFrame]) -> dict[Label, str]:
    """Return the colours of all erasers, in the order of `label_order`."""
    return eraser_colours(sorted({eraser for frame in frames for eraser in frame["eraser"]}, key=label_order))


def _arranged(runs: Sequence[StoredRun], note: Note) -> pd.DataFrame:
    """Return the frame of a table without its names."""
    of_rows: dict[tuple[Label, Label], list[StoredRun]] = {}
    for model, eraser, run in _newest(runs, note):
        of_rows.setdefault((model, eraser), []).append(run)
    placed = [(row, run) for row, of_row in enumerate(of_rows.values()) for run in of_row]
    finished = [(row, run) for row, run in placed if run.result is not None]
    curves = {id(run): run.loss_curves(note) for _, run in finished}
    lines = [(row, run, s, curves[id(run)].get(seed)) for row, run in finished for s, seed in enumerate(run.seeds)]
    lines += [(row, run, None, None) for row, run in placed if run.result is None]
    about = pd.DataFrame(lines, columns=["row", "stored", "position", "loss_curve"], dtype=object)
    numbers = run_frame(run for _, run in finished).drop(columns=["model", "eraser"])
    frame = about.astype({"row": int}).join(numbers.astype(object))  # whole numbers remain whole beside missing ones
    frame = frame[frame["seed"].isna() | ~frame.duplicated(["row", "seed"])].sort_values("row", kind="stable")
    frame = frame.join(pd.DataFrame(_of_rows(of_rows)), on="row").reset_index(drop=True)
    _note_changed_code(rows_of(frame), note)
    for value in result_type(runs[0].command).compared:
        if value in frame:
            frame[f"{value}_difference"] = _to_control(frame, value, note)
    return frame


def _to_control(frame: pd.DataFrame, value: str, note: Note) -> "pd.Series[Any]":
    """Return each line's `Difference` of a value to the control."""
    keys, is_baseline = ["model", "eraser"], frame["is_control"].astype(bool)
    found = differences(frame, value, keys, is_baseline, lambda line: note(f"{line}: no error over test examples"))
    corrected = holm(found)
    of_lines = [corrected.get(key) for key in zip(*(frame[key] for key in keys), strict=True)]
    return pd.Series(of_lines, frame.index, dtype=object)


def _of_rows(runs: Mapping[tuple[Label, Label], Sequence[StoredRun]]) -> Iterator[dict[str, Any]]:
    """Yield the columns that all lines of a row share."""
    controls, seeds_of_model = dict[Label, Label](), dict[Label, set[int]]()
    for (model, eraser), of_row in runs.items():
        seeds_of_model.setdefault(model, set()).update(*(run.seeds for run in of_row))
        if eraser.name == "control":
            controls.setdefault(model, eraser)
    for (model, eraser), of_row in runs.items():
        ids = {seed: run.id for run in of_row[::-1] if run.result is not None for seed in run.seeds}
        seeds, wanted = len(ids), len(seeds_of_model[model])
        lacks_seeds = f"{seeds} of {wanted} seeds" if seeds < wanted else ""
        yield {
            "model": model,
            "eraser": eraser,
            "runs": " ".join(dict.fromkeys(run.id for run in of_row if run.id in ids.values())),
            "seeds": seeds,
            "incomplete": lacks_seeds if seeds else of_row[0].state,
            "is_control": controls.get(model) == eraser,
        }


def _newest(runs: Sequence[StoredRun], note: Note) -> list[tuple[Label, Label, StoredRun]]:
    """Return model, eraser and run in the order of rows; keep only the newest of runs that differ at most in code."""
    models = labels([model_of_row(run.config, run.command) for run in runs], ("model",), of_rows=True)
    erasers = labels([{"eraser": run.config["eraser"]} for run in runs], ("eraser",))
    placed = sorted(
        zip(models, erasers, runs, strict=True),
        key=lambda one: (label_order(one[0]), label_order(one[1]), -len(one[2].seeds)),
    )
    by_start = sorted(placed, key=lambda one: one[2].started)
    of_seeds = {(model, eraser, *run.seeds): run for model, eraser, run in by_start}
    of_row = {(model, eraser): run for model, eraser, run in by_start}
    kept, seen = [], dict[tuple[Label, Label], set[int]]()
    for model, eraser, run in placed:
        newest = of_row[model, eraser]
        if (other := of_seeds[model, eraser, *run.seeds]) is not run:
            note(f"{run.directory}: left out: {other.id} has the same configuration and seeds and is newer")
        elif changed := changed_code(run.code, newest.code):
            note(f"{run.directory}: left out: {newest.id} is newer, and the code of {', '.join(changed)} has changed")
        elif run.result is not None and {*run.seeds} <= seen.setdefault((model, eraser), set()):
            note(f"{run.directory}: left out: other runs of the same configuration have its seeds")
        else:
            kept.append((model, eraser, run))
            if run.result is not None:
                seen[model, eraser] |= {*run.seeds}
    return kept


def _note_changed_code(rows: Sequence[Row], note: Note) -> None:
    """Note the rows that are not compared with their control because code has changed between them."""
    controls = controls_of(finished_rows(rows))
    for row in finished_rows(rows):
        run, control = (runs_of(one)[0] for one in (row, controls.get(first(row, "model"), row)))
        if changed := changed_code(run.code, control.code):
            named = f"{run.directory}: not compared with {control.id}"
            note(f"{named}: the code of {', '.join(changed)} has changed in between; launch the older one again")


def label_order(label: Label) -> tuple[Any, ...]:
    """Order by name (erasers as their colours, the control first), then by options, numbers by size."""
    names = list(usual_colours())
    position = names.index(label.name) if label.name in names else len(names)
    options = [(key, value if isinstance(value, int | float) else 0, str(value)) for key, value in label.options]
    return (position, label.name, options)
