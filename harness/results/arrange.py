"""Runs arranged for comparison: a frame for each command, dataset and setting, a row for each model and eraser."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

import pandas as pd

from conf import Options
from conf.run_identity import identifying
from harness.result import Result, TrainedResult
from harness.results.columns import Row
from harness.results.comparison import differences
from harness.results.frames import run_frame
from harness.results.read import Note, StoredRun
from harness.results.run_labels import Label, display_name, eraser_colours, labels, usual_colours
from harness.results.run_settings import comparable, setting, setting_text, whole
from harness.results.table import file_name
from harness.statistics import Difference, holm

log = logging.getLogger(__name__)

# keys of a setting that may differ within a table: rows say how
CODES = ("mdl.code", "mdl.replay.batch", "mdl.replay.streams")
_COMMANDS = {"mdl": "codelengths", "train": "training", "sample_info": "sample information"}
COMPARED = ("bits_per_label", "test_loss_bits")  # columns whose differences to the control rows have


def arrange(runs: Sequence[Result] | Sequence[StoredRun], note: Note = log.warning) -> list[pd.DataFrame]:
    """Arrange runs of any commands by command, dataset and setting, a row per model and eraser.

    A label is the part's name, and the fewest options that tell it from others of the name.

    Args:
        runs: a sweep's results, or what was found in folders.
        note: called with a line on each run or file that is left out.

    Returns:
        A frame for each table. Erasers come in the order of `label_order`, model by model. Columns:
        `command`, `title`, `setting` of the table; `heading`, its title as people write it;
        `table`, its name for files, such as mdl-cifar10-train-quick;
        `dataset`, `model`, `eraser` (`Label`);
        those of `Results.runs`, each a list with a value per seed, where no seed counts twice;
        `runs`, `unfinished` (`StoredRun`s); `members`, by seed the result that has it and its position there;
        `curves`, by seed the loss curve of the training on everything, as far as there are any;
        `is_control`, whether the model's other rows are compared with it;
        `incomplete`, a state or "2 of 5 seeds", where something is missing;
        `bits_per_label_difference`, `test_loss_bits_difference` to the control (`Difference`, corrected by `holm` for
        the table) and `bits_per_label_model_difference` to the first finished model under the same eraser, each None
        where nothing is compared.
    """
    stored = [StoredRun.finished(run) if isinstance(run, Result) else run for run in runs]
    settings = [{key: value for key, value in setting(run.config).items() if key not in CODES} for run in stored]
    parts = [
        {"command": {"name": run.command}, "dataset": dataset, "setting": described}
        for run, dataset, described in zip(stored, _datasets(stored), settings, strict=True)
    ]
    datasets = labels([{"dataset": part["dataset"]} for part in parts], ("dataset",))
    groups: dict[Label, list[int]] = {}
    for i, label in enumerate(labels(parts, ("command", "dataset"))):
        groups.setdefault(label, []).append(i)
    tables, about_tables = [], []
    for label, group in sorted(groups.items(), key=lambda item: str(item[0])):
        of_group = [stored[i] for i in group]
        command, described = of_group[0].command, parts[group[0]]["dataset"]
        texts = {setting_text(run.config) for run in of_group}  # codes go unsaid that only some have
        text = texts.pop() if len(texts) == 1 else setting_text(of_group[0].config, without=CODES)
        name, dataset = (_in_full(one, described) for one in (label, datasets[group[0]]))
        title = f"{command}: {', '.join(filter(None, [dataset.display, text]))}"
        about = {"command": command, "title": title, "table": file_name(str(name)), "dataset": dataset, "setting": text}
        tables.append(_rows(of_group, note).assign(**about))
        place = described.get("path", described.get("root", ""))
        about_tables.append((command, dataset, PurePath(str(place)).stem or dataset.name, settings[group[0]]))
    tables = [one.assign(heading=heading) for one, heading in zip(tables, headings_of(about_tables), strict=True)]
    names = [table["table"].iat[0] for table in tables]
    counts = Counter(names)
    return [
        table if counts[name] == 1 else table.assign(table=f"{name}-{i}")
        for i, (name, table) in enumerate(zip(names, tables, strict=True))
    ]


def rows_of(table: pd.DataFrame) -> list[Row]:
    """Return the rows of a table as mappings."""
    return table.to_dict("records")  # pyright: ignore[reportReturnType]


def finished(table: pd.DataFrame) -> list[Row]:
    """Return the rows of which something has finished."""
    return [row for row in rows_of(table) if row["runs"]]


def panels(table: pd.DataFrame) -> list[tuple[str, list[Row]]]:
    """Return the finished rows as panels of a figure: a model's name, and its rows."""
    models: dict[Label, list[Row]] = {}
    for row in finished(table):
        models.setdefault(row["model"], []).append(row)
    return [(model.display, rows) for model, rows in models.items()]


def colours_of(tables: Iterable[pd.DataFrame]) -> dict[Label, str]:
    """Return the colours of all erasers, in the order of `label_order`."""
    return eraser_colours(sorted({eraser for table in tables for eraser in table["eraser"]}, key=label_order))


def _rows(runs: Sequence[StoredRun], note: Note) -> pd.DataFrame:
    """Put runs into rows by model and eraser, and compare these with the control of their model."""
    models = labels([model_of(run.config) for run in runs], ("model",))
    erasers = labels([{"eraser": run.config["eraser"]} for run in runs], ("eraser",))
    placed = sorted(
        zip(models, erasers, runs, strict=True),
        key=lambda one: (label_order(one[0]), label_order(one[1]), -len(one[2].seeds)),
    )
    by_start = sorted(placed, key=lambda one: one[2].started)
    newest = {(model, eraser, *run.seeds): run for model, eraser, run in by_start}
    cells: dict[tuple[Label, Label], list[StoredRun]] = {}
    seeds: dict[Label, set[int]] = {}
    for model, eraser, run in placed:
        if (other := newest[model, eraser, *run.seeds]) is run:
            cells.setdefault((model, eraser), []).append(run)
            seeds.setdefault(model, set()).update(run.seeds)
        else:
            note(f"{run.directory}: left out: {other.id} has the same configuration and seeds and is newer")
    rows = [{"model": model, "eraser": eraser, **_of_runs(of_cell, note)} for (model, eraser), of_cell in cells.items()]
    controls = {row["model"]: row for row in rows[::-1] if row["eraser"].name == "control"}
    by_seed = run_frame(run for row in rows for run in row["runs"])
    by_seed["row"] = [i for i, row in enumerate(rows) for run in row["runs"] for _ in run.seeds]
    by_seed = by_seed.drop_duplicates(["row", "seed"])
    for i, row in enumerate(rows):
        of_row = by_seed[by_seed["row"] == i]
        row |= {name: of_row[name].tolist() for name in map(str, of_row) if name not in row}
        row["is_control"] = controls.get(row["model"]) is row
        row["incomplete"] = _incomplete(row, len(seeds[row["model"]]))
    for part in ("model", "eraser"):
        by_seed[part] = [rows[i][part] for i in by_seed["row"].tolist()]
    compared = _differences(by_seed, rows, note)
    full = [row | {name: of.get(i) for name, of in compared.items()} for i, row in enumerate(rows)]
    return pd.DataFrame(full, dtype=object)


def _differences(by_seed: pd.DataFrame, rows: Sequence[Row], note: Note) -> dict[str, dict[int, Difference]]:
    """Return the corrected differences to the control and to the first model, by column and by position of the row."""
    is_control = by_seed["row"].isin([i for i, row in enumerate(rows) if row["is_control"]])
    is_first = by_seed["model"] == next((row["model"] for row in rows if row["runs"]), None)

    def unread(line: str) -> None:
        note(f"{line}: no error over test examples")

    raw = {column: differences(by_seed, column, ("model", "row"), is_control, unread) for column in COMPARED}
    raw["bits_per_label_model"] = differences(by_seed, "bits_per_label", ("eraser", "row"), is_first, lambda _: None)
    return {f"{column}_difference": {i: one for (_, i), one in holm(of).items()} for column, of in raw.items()}


def _of_runs(runs: Sequence[StoredRun], note: Note) -> dict[str, Any]:
    """Return the runs of a row, and by seed their results and loss curves."""
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


def _incomplete(row: Row, seeds: int) -> str:
    """Say what is missing of a model's seeds; empty if nothing."""
    if not row["runs"]:
        return row["unfinished"][0].state
    finished = {seed for run in row["runs"] for seed in run.seeds}
    return f"{len(finished)} of {seeds} seeds" if len(finished) < seeds else ""


def _in_full(label: Label, dataset: Options) -> Label:
    """Name a dataset's folder and normalisation, even where nothing else tells it from others."""
    for key, usual in (("root", ""), ("normalize", "none")):
        if (value := dataset.get(key, usual)) != usual and key not in dict(label.options):
            label = label.with_option(key, value)
    return label


def model_of(config: Options) -> Options:
    """Return what makes a row: the model, how its labels are coded, and how its examples are scored."""
    codes = {key: value for key, value in setting(config).items() if key in CODES}
    return {"model": config["model"], "setting": codes, "sample_info": identifying(config).get("sample_info", {})}


def _datasets(runs: Sequence[StoredRun]) -> list[Options]:
    """Return datasets with their sizes: one name may stand for folders of several sizes."""
    sizes = {str(run.config["dataset"]): run.result.train_size for run in runs if isinstance(run.result, TrainedResult)}
    described = []
    for run in runs:
        options = comparable({"dataset": run.config["dataset"]})["dataset"]
        known = run.result.train_size if isinstance(run.result, TrainedResult) else None
        size = known or sizes.get(str(run.config["dataset"]))
        folder = {"root": options.pop("root")} if "root" in options else {}
        described.append(options | ({"train_size": size} if size else {}) | folder)
    paths = {PurePath(str(options["path"])) for options in described if "path" in options}
    names = Counter(path.name for path in paths if path.suffix)
    for options in described:  # a file without its folder, where that tells files apart
        if names[name := PurePath(str(options.get("path", ""))).name] == 1:
            options["path"] = name
    return described


def headings_of(tables: Sequence[tuple[str, Label, str, Options]]) -> list[str]:
    """Return a heading for each table as people write it: "CIFAR-10, quick".

    Where two would be equal, the command and then the options in which the tables differ tell them apart.

    Args:
        tables: the command, the dataset, its name or that of the folder or file that holds it, and the setting of each.
    """
    names = [display_name(name).replace("_", " ") for _, _, name, _ in tables]
    shown = [f"{name[:1].upper()}{name[1:]}" for name in names]
    short = [", ".join(filter(None, [name, _presets(of)])) for name, (*_, of) in zip(shown, tables, strict=True)]
    headings = [
        heading if short.count(heading) == 1 else f"{heading}: {_COMMANDS.get(command, command)}"
        for heading, (command, *_) in zip(short, tables, strict=True)
    ]
    options = [{**dict(dataset.options), **of} for _, dataset, _, of in tables]
    told_apart = []
    for heading, mine in zip(headings, options, strict=True):
        alike = [theirs for other, theirs in zip(headings, options, strict=True) if other == heading]
        unlike = {key: value for key, value in mine.items() if any(one.get(key) != value for one in alike)}
        options_text = ", ".join(f"{key.rpartition('.')[2]}={whole(value)}" for key, value in unlike.items())
        told_apart.append(f"{heading} ({options_text})" if options_text else heading)
    return told_apart


def _presets(setting: Options) -> str:
    """Return the presets of training and code other than `default`: "quick", or "paper training, quick code"."""
    train, mdl = (setting.get(group, "default") for group in ("train", "mdl"))
    if train == mdl or "mdl" not in setting:
        return "" if train == "default" else train
    named = ((train, "training"), (mdl, "code"))
    return ", ".join(f"{preset} {what}" for preset, what in named if preset != "default")


def label_order(label: Label) -> tuple[Any, ...]:
    """Order by names, of erasers as by their colours with the control first; then by options, numbers by size."""
    names = list(usual_colours())
    position = names.index(label.name) if label.name in names else len(names)
    options = [(key, value if isinstance(value, int | float) else 0, str(value)) for key, value in label.options]
    return (position, label.name, options)
