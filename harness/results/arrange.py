"""Runs arranged for comparison: a table for each command, dataset and setting, a row for each model and eraser.

An entry is the runs of one model under one eraser, their seeds as one, compared with the model's control. It is a row
of a frame (`harness.results.table.Row`): it has the columns of `Results.runs`, each a list with a value per seed.
Besides,

    dataset, model, eraser
                          labels (`Label`)
    setting               of the table (`setting_text`)
    runs, unfinished      its `StoredRun`s
    is_control            whether the model's other entries are compared with it
    members               by seed, the result that has it and its position there; no seed counts twice
    curves                loss curves of the training on everything, by seed, as far as there are any
    incomplete            what is missing, compared with the model's other entries: a state, or "2 of 5 seeds"
    bits_per_label_difference, test_loss_bits_difference
                          to the control (`Difference`), corrected for the other entries of the table (`holm`); None for
                          the control, and where no seed is shared
    bits_per_label_model_difference
                          to the first finished model under the same eraser, corrected likewise
    coding_on_plateau, final_on_plateau, trainings_on_plateau
                          how many trainings never left the plateau, "2 of 10": of those that the codelength rests on,
                          of those on everything, of all
    coding_untrained, final_untrained, trainings_untrained
                          how many others kept their initial weights
    area_bits, surplus_bits, sample_complexity, crossing_size, crossing_epoch
                          what its learning curve says, partly against the control's
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from conf import Options
from conf.run_identity import identifying
from harness.result import Result, TrainedResult
from harness.results.comparison import differences
from harness.results.frames import run_frame
from harness.results.learning_curve_measures import measures_of
from harness.results.read import Note, StoredRun
from harness.results.run_labels import ERASER_COLOURS, Label, eraser_colours, labels
from harness.results.run_settings import comparable, setting, setting_text
from harness.results.table import file_name
from harness.statistics import holm

log = logging.getLogger(__name__)

# keys of a setting that may differ within a table: rows say how
CODES = ("mdl.code", "mdl.replay.batch", "mdl.replay.streams")
COMPARED = ("bits_per_label", "test_loss_bits")  # columns whose differences to the control entries have

Entry = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs that one table compares: of one command, dataset and setting.

    Attributes:
        entries: model by model, the erasers in the order of `label_order`; one for each pair that has been run.
        command: "mdl", "train" or "sample_info".
        title: command, dataset and setting, as people write them.
        name: a name for files, unique among comparisons: mdl-cifar10-train-quick.
    """

    entries: list[Entry]
    command: str
    title: str
    name: str

    @property
    def finished(self) -> list[Entry]:
        """Entries of which something has finished."""
        return [entry for entry in self.entries if entry["runs"]]

    @property
    def panels(self) -> list[tuple[str, list[Entry]]]:
        """Finished entries as panels of a figure: a model's name, and its entries."""
        models: dict[Label, list[Entry]] = {}
        for entry in self.finished:
            models.setdefault(entry["model"], []).append(entry)
        return [(model.display, entries) for model, entries in models.items()]


def colours_of(comparisons: Iterable[Comparison]) -> dict[Label, str]:
    """Return the colours of all erasers, in the order of `label_order`."""
    return eraser_colours(sorted({entry["eraser"] for one in comparisons for entry in one.entries}, key=label_order))


def arrange(runs: Sequence[Result] | Sequence[StoredRun], note: Note = log.warning) -> list[Comparison]:
    """Arrange runs of any commands by command, dataset and setting, a row per model and eraser.

    A label is the part's name, and the fewest options that tell it from others of the name.

    Args:
        runs: a sweep's results, or what was found in folders.
        note: called with a line on each run or file that is left out.
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
    comparisons = []
    for label, group in sorted(groups.items(), key=lambda item: str(item[0])):
        of_group = [stored[i] for i in group]
        texts = {setting_text(run.config) for run in of_group}  # codes go unsaid that only some have
        text = texts.pop() if len(texts) == 1 else setting_text(of_group[0].config, without=CODES)
        described = parts[group[0]]["dataset"]
        name, dataset = (_in_full(one, described) for one in (label, datasets[group[0]]))
        entries = [entry | {"dataset": dataset, "setting": text} for entry in _entries(of_group, note)]
        title = f"{of_group[0].command}: {', '.join(filter(None, [dataset.display, text]))}"
        comparisons.append(Comparison(entries, of_group[0].command, title, file_name(str(name))))
    counts = Counter(one.name for one in comparisons)
    return [one if counts[one.name] == 1 else replace(one, name=f"{one.name}-{i}") for i, one in enumerate(comparisons)]


def _entries(runs: Sequence[StoredRun], note: Note) -> list[Entry]:
    """Put runs into entries by model and eraser, and compare these with the control of their model."""
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
    entries = [_entry(model, eraser, of_cell, note) for (model, eraser), of_cell in cells.items()]
    controls = {entry["model"]: entry for entry in entries[::-1] if entry["eraser"].name == "control"}
    for entry in entries:
        entry["is_control"] = controls.get(entry["model"]) is entry
    frame = run_frame(run for entry in entries for run in entry["runs"])
    frame["entry"] = [i for i, entry in enumerate(entries) for run in entry["runs"] for _ in run.seeds]
    frame = frame.drop_duplicates(["entry", "seed"])
    for i, entry in enumerate(entries):
        entry |= {**frame[frame["entry"] == i].to_dict("list"), **entry}
    frame["model"] = [entries[i]["model"] for i in frame["entry"].tolist()]
    is_control = frame["entry"].isin([i for i, entry in enumerate(entries) if entry["is_control"]])
    for column in COMPARED:
        compared = differences(
            frame, column, ("model", "entry"), is_control, lambda line: note(f"{line}: no error over test examples")
        )
        for (_, i), difference in holm(compared).items():
            entries[i][f"{column}_difference"] = difference
    frame["eraser"] = [entries[i]["eraser"] for i in frame["entry"].tolist()]
    first = next((entry["model"] for entry in entries if entry["runs"]), None)
    is_first = frame["entry"].isin([i for i, entry in enumerate(entries) if entry["model"] == first])
    between_models = differences(frame, "bits_per_label", ("eraser", "entry"), is_first, lambda _: None)
    for (_, i), difference in holm(between_models).items():
        entries[i]["bits_per_label_model_difference"] = difference
    for entry in entries:
        entry["incomplete"] = _incomplete(entry, len(seeds[entry["model"]]))
        entry |= measures_of(entry, controls.get(entry["model"]))
    return entries


def _entry(model: Label, eraser: Label, runs: Sequence[StoredRun], note: Note) -> Entry:
    """Return an entry without numbers."""
    finished = [run for run in runs if run.result is not None]
    return {
        "model": model,
        "eraser": eraser,
        "runs": finished,
        "unfinished": [run for run in runs if run.result is None],
        "members": {
            seed: (run.result, s)
            for run in finished[::-1]
            if isinstance(run.result, TrainedResult)
            for s, seed in enumerate(run.seeds)
        },
        "curves": {seed: curve for run in finished[::-1] for seed, curve in run.loss_curves(note).items()},
        **dict.fromkeys(f"{column}_difference" for column in (*COMPARED, "bits_per_label_model")),
    }


def _incomplete(entry: Entry, seeds: int) -> str:
    """Say what is missing of a model's seeds; empty if nothing."""
    if not entry["runs"]:
        return entry["unfinished"][0].state
    finished = {seed for run in entry["runs"] for seed in run.seeds}
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
    return described


def label_order(label: Label) -> tuple[Any, ...]:
    """Order by names, of erasers as by their colours with the control first; then by options, numbers by size."""
    names = list(ERASER_COLOURS)
    position = names.index(label.name) if label.name in names else len(names)
    options = [(key, value if isinstance(value, int | float) else 0, str(value)) for key, value in label.options]
    return (position, label.name, options)
