"""Runs arranged for comparison: rows that share everything but the eraser, tables that share a setting.

An entry is the runs of one row under one eraser, their seeds as one, compared with the row's control. It is a row of a
frame (`harness.results.table.Row`): it has the columns of `Results.runs`, each a list with a value per seed. Besides,

    model, eraser         labels: of what the row's entries share, and of the eraser
    runs, unfinished      its `StoredRun`s
    is_control            whether the row's other entries are compared with it
    members               by seed, the result that has it and its position there; no seed counts twice
    curves                loss curves of the training on everything, by seed, as far as there are any
    incomplete            what is missing, compared with the rest of the row: "not run", a state, or "2 of 5 seeds"
    code_difference, loss_difference
                          to the control (`Difference`), corrected for the other entries of the comparison (`holm`);
                          None for the control, and where no seed is shared
    bits_per_sample_on_plateau, published_on_plateau, loss_bits_on_plateau
                          how many of the trainings that the numbers rest on never left the plateau
    bits_per_sample_untrained, published_untrained, loss_bits_untrained
                          how many others kept their initial weights
    area_bits, surplus_bits, sample_complexity, crossing_size, crossing_epoch
                          what its learning curve says, partly against the control's
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd

from conf import Options
from conf.identity import identifying
from harness.example_bits import loss_error
from harness.figures import ERASER_COLOURS, eraser_colours
from harness.loss_curves import crossing, crossing_epoch
from harness.result import MdlResult, Result, TrainedResult
from harness.result_fields import Coded, stuck, untrained
from harness.results.comparison import differences, reader
from harness.results.excess_description_length import area_bits, sample_complexity, surplus_bits
from harness.results.frames import run_frame
from harness.results.read import INFORMATION, Note, Reading, StoredRun
from harness.results.run_labels import Label, labels
from harness.results.run_settings import comparable, setting, setting_text, without
from harness.results.statistics import holm
from harness.results.table import file_name

log = logging.getLogger(__name__)

CODES = ("mdl.code", "mdl.replay")  # keys of a setting that may differ within a table: rows say how
_PAIRED = ("dataset", "model", "sample_info", "seeds", "setting")  # what a run and its control share
_MEASURES = {"code": "bits_per_label", "loss": "test_loss_bits"}  # columns compared

Entry = dict[str, Any]
Member = tuple[Any, int]  # a result, and the position of a seed in it


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs that one table compares.

    Attributes:
        entries: row by row; every row has an entry for every eraser.
        erasers: labels of the erasers, in the order of `label_order`.
        setting: the setting of all runs (`setting_text`).
        name: a name for files, unique among comparisons: mdl-cifar10-train-quick.
        command: "mdl", "train" or "sample_info".
        dataset: the dataset of all rows; empty where rows have different datasets.
    """

    entries: list[Entry]
    erasers: list[Label]
    setting: str = ""
    name: str = ""
    command: str = ""
    dataset: str = ""

    @property
    def rows(self) -> dict[Label, list[Entry]]:
        """Entries that share everything but the eraser, by their label."""
        rows: dict[Label, list[Entry]] = {}
        for entry in self.entries:
            rows.setdefault(entry["model"], []).append(entry)
        return rows

    @property
    def colours(self) -> dict[Label, str]:
        return eraser_colours(self.erasers)

    @property
    def panels(self) -> list[tuple[str, list[Entry]]]:
        """Rows as panels of a figure: a title, and the entries of which something has finished."""
        panels = [(label.display, [entry for entry in row if entry["runs"]]) for label, row in self.rows.items()]
        return [(title, entries) for title, entries in panels if entries]

    @property
    def run(self) -> list[Entry]:
        """Entries of which something has finished."""
        return [entry for entry in self.entries if entry["runs"]]


def arrange(runs: Sequence[Result] | Sequence[StoredRun], note: Note = log.warning) -> Comparison:
    """Arrange finished runs, such as a sweep's, whatever their setting: a row per dataset and model.

    A label is the part's name, and the fewest options that tell it from others of the name. `note` is called with a
    line on each run or file that is left out.
    """
    stored = [StoredRun.finished(run) if isinstance(run, Result) else run for run in runs]
    described = [identifying(run.config) | {"setting": setting(run.config)} for run in stored]
    rows = labels([{key: options.get(key) for key in _PAIRED} for options in described], ("dataset", "model"))
    return _compare(stored, rows, note)


def by_setting(runs: Sequence[Result] | Sequence[StoredRun]) -> list[Comparison]:
    """Arrange runs of a sweep by how they were trained (`setting_text`): their numbers share no column.

    Two codes of the same labels share one: rows say which is which.
    """
    groups: dict[str, list[Any]] = {}
    for run in runs:
        groups.setdefault(setting_text(run.config, without=CODES), []).append(run)
    return [replace(arrange(group), setting=text) for text, group in groups.items()]


def by_dataset(reading: Reading) -> list[Comparison]:
    """Arrange runs of `mdl` and `train` for a report: by command, dataset and setting, a row per model.

    Adds to the reading's problems a line on each run that cannot be compared.
    """
    runs = [run for run in reading.runs if run.command != INFORMATION]
    parts = [
        {"verb": {"name": run.command}, "dataset": dataset, "setting": without(setting(run.config), CODES)}
        for run, dataset in zip(runs, _datasets(runs), strict=True)
    ]
    datasets = labels([{"dataset": part["dataset"]} for part in parts], ("dataset",), ("dataset",))
    names = labels(parts, ("verb", "dataset"), ("dataset", "setting"))
    groups: dict[Label, list[int]] = {}
    for i, name in enumerate(names):
        groups.setdefault(name, []).append(i)
    comparisons = [
        _of_dataset(name, datasets[group[0]], [runs[i] for i in group], reading.problems)
        for name, group in sorted(groups.items(), key=lambda item: str(item[0]))
    ]
    counts = Counter(comparison.name for comparison in comparisons)
    return [one if counts[one.name] == 1 else replace(one, name=f"{one.name}-{i}") for i, one in enumerate(comparisons)]


def _of_dataset(name: Label, dataset: Label, runs: Sequence[StoredRun], problems: list[str]) -> Comparison:
    name, dataset = (_with_normalisation(label, runs[0].config["dataset"]) for label in (name, dataset))
    ordered = sorted(runs, key=lambda run: -len(run.seeds))
    alike = _of_one_curve(ordered, problems)
    models = labels([{"model": model_of(run.config)} for run in alike], ("model",))
    by_model = sorted(zip(alike, models, strict=True), key=lambda labelled: label_order(labelled[1]))
    compared = _compare([run for run, _ in by_model], [model for _, model in by_model], problems.append)
    settings = {setting_text(run.config) for run in runs}  # codes go unsaid that only some have
    return replace(
        compared,
        setting=settings.pop() if len(settings) == 1 else setting_text(runs[0].config, without=CODES),
        name=file_name(str(name)),
        dataset=dataset.display,
    )


def _compare(runs: Sequence[StoredRun], rows: Sequence[Label], note: Note) -> Comparison:
    """Put runs into entries by row and eraser, and compare these with the control of their row."""
    columns = labels([{"eraser": run.config["eraser"]} for run in runs], ("eraser",))
    erasers = sorted(set(columns), key=label_order)
    newest: dict[tuple[Any, ...], StoredRun] = {}
    for run, row, column in sorted(zip(runs, rows, columns, strict=True), key=lambda labelled: labelled[0].started):
        if run.result is not None:
            newest[row, column, *run.seeds] = run
    arranged: dict[Label, dict[Label, list[StoredRun]]] = {}
    for run, row, column in zip(runs, rows, columns, strict=True):
        cells = arranged.setdefault(row, {eraser: [] for eraser in erasers})
        if run.result is not None and (other := newest[row, column, *run.seeds]) is not run:
            note(f"{run.directory}: left out: {other.id} has the same configuration and seeds and is newer")
        else:
            cells[column].append(run)
    return Comparison(_entries(arranged, note), erasers, command=runs[0].command if runs else "")


def _entries(rows: Mapping[Label, Mapping[Label, Sequence[StoredRun]]], note: Note) -> list[Entry]:
    """Make entries of runs by row and by eraser, and compare them with the control of their row."""
    by_row = [[_entry(row, eraser, runs, note) for eraser, runs in cells.items()] for row, cells in rows.items()]
    for row in by_row:
        for entry in [entry for entry in row if entry["eraser"].name == "control" and _runs(entry)][:1]:
            entry["is_control"] = True
    entries = [entry for row in by_row for entry in row]
    row_of = [row for row, of_row in enumerate(by_row) for _ in of_row]
    of_seeds = [
        (row_of[i], i, entry["is_control"])
        for i, entry in enumerate(entries)
        for run in entry["runs"]
        for _ in run.seeds
    ]
    frame = run_frame(run for entry in entries for run in entry["runs"]).rename(columns=_short)
    frame[["row", "entry", "is_control"]] = pd.DataFrame(of_seeds, columns=["row", "entry", "is_control"])
    frame = frame.drop_duplicates(["entry", "seed"])
    for i, entry in enumerate(entries):
        entry |= {**frame[frame["entry"] == i].to_dict("list"), **entry}
    losses = reader(lambda line: note(f"{line}: no error over test examples"))
    for measure, column in _MEASURES.items():
        by_entry = differences(frame, column, ("row", "entry"), frame["is_control"].astype(bool), losses)
        for (_, i), difference in holm(by_entry).items():
            entries[i][f"{measure}_difference"] = difference
    for row in by_row:
        seeds = {seed for entry in row for run in _runs(entry) for seed in run.seeds}
        control = next((entry for entry in row if entry["is_control"]), None)
        for entry in row:
            of_examples = losses(tuple(str(run.directory) for run in entry["runs"]))
            entry["final_loss_test_error"] = loss_error(of_examples, sorted(entry["members"]))
            entry["incomplete"] = _incomplete(entry, len(seeds))
            entry |= _of_curves(entry, control)
    return entries


def _short(column: str) -> str:
    """Return a column's name without the certificate, which is of the training split unless its name begins "test_"."""
    return column.replace("certificate.test.", "test_").replace("certificate.train.", "")


def _runs(entry: Entry) -> list[StoredRun]:
    return [*entry["runs"], *entry["unfinished"]]


def _entry(row: Label, eraser: Label, runs: Sequence[StoredRun], note: Note) -> Entry:
    """Return an entry without numbers."""
    finished = [run for run in runs if run.result is not None]
    return {
        "model": row,
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
        "is_control": False,
        **dict.fromkeys(f"{measure}_difference" for measure in _MEASURES),
    }


def _incomplete(entry: Entry, seeds: int) -> str:
    """Say what is missing of a row's seeds; empty if nothing."""
    if not entry["runs"]:
        return entry["unfinished"][0].state if entry["unfinished"] else "not run"
    finished = {seed for run in entry["runs"] for seed in run.seeds}
    return f"{len(finished)} of {seeds} seeds" if len(finished) < seeds else ""


def _of_curves(entry: Entry, control: Entry | None) -> Entry:
    """Return what learning curves say, and from where on they stay below the control's."""
    members = entry["members"]
    coded = {seed: member for seed, member in members.items() if isinstance(member[0], MdlResult)}
    final = [(result.trainings[-1], s) for result, s in members.values()]
    coding = [(training, s) for result, s in members.values() for training in result.coding]
    numbers = {
        **dict.fromkeys(("surplus_bits", "sample_complexity", "crossing_size", "crossing_epoch")),
        "bits_per_sample_on_plateau": stuck(coding),
        "published_on_plateau": stuck(coding + final) if coded else "",
        "loss_bits_on_plateau": stuck(final),
        "bits_per_sample_untrained": untrained(coding),
        "published_untrained": untrained(coding + final) if coded else "",
        "loss_bits_untrained": untrained(final),
        "area_bits": [area_bits(result, s) for result, s in coded.values()],
    }
    if control is None:
        return numbers
    targets = {seed: result.final.loss_bits[s] for seed, (result, s) in control["members"].items()}
    if coded and targets.keys() >= coded.keys():
        sizes = [sample_complexity(result, s, targets[seed]) for seed, (result, s) in coded.items()]
        enough = [n for n in sizes if n is not None]
        whole = f"> {max(result.train_size for result, _ in coded.values())}"
        surplus = [surplus_bits(result, s, targets[seed]) for seed, (result, s) in coded.items()]
        numbers |= {"sample_complexity": max(enough) if len(enough) == len(sizes) else whole, "surplus_bits": surplus}
    common = [seed for seed in members if seed in targets]
    if common and entry is not control:
        numbers["crossing_size"] = _crossing_size(*([each["members"][s] for s in common] for each in (entry, control)))
        if all(seed in each["curves"] for seed in common for each in (entry, control)):
            curves = ([each["curves"][seed] for seed in common] for each in (entry, control))
            numbers["crossing_epoch"] = crossing_epoch(*curves)
    return numbers


def _crossing_size(erased: Sequence[Member], control: Sequence[Member]) -> int | None:
    """Return the training size from which the mean test loss of `erased` stays below that of `control`.

    Raises:
        ValueError: they were trained on different sizes.
    """
    sizes, losses = zip(*map(_test_losses, (erased, control)), strict=True)
    if sizes[0] != sizes[1]:
        raise ValueError(f"trained on {sizes[0]} examples, the control on {sizes[1]}")
    return crossing(sizes[0], *map(np.array, losses)) if len(sizes[0]) > 1 else None


def _test_losses(members: Sequence[Member]) -> tuple[list[int], list[float]]:
    """Return training sizes and the mean test loss at each; none of runs that trained on everything alone."""
    curves = [[(p.n, p.ce_test_bits[s]) for p in result.curve] for result, s in members if isinstance(result, Coded)]
    points = [*zip(*curves, strict=True)]
    return [of_size[0][0] for of_size in points], [mean(bits for _, bits in of_size) for of_size in points]


def _of_one_curve(runs: Sequence[StoredRun], problems: list[str]) -> list[StoredRun]:
    """Leave out runs whose training sizes are not those of most runs of their model: they cannot be compared."""
    sizes = [tuple(p.n for p in run.result.curve) if isinstance(run.result, Coded) else () for run in runs]
    models = labels([{"model": model_of(run.config)} for run in runs], ("model",))
    counts = Counter((model, of_run) for model, of_run in zip(models, sizes, strict=True) if of_run)
    usual = {model: most for (model, most), _ in reversed(counts.most_common())}
    alike = []
    for run, model, of_run in zip(runs, models, sizes, strict=True):
        if of_run in ((), usual.get(model)):
            alike.append(run)
        else:
            ours, others = (", ".join(map(str, each[:20])) for each in (of_run, usual[model]))
            problems.append(f"{run.directory}: left out: trained on {ours} examples, others of {model} on {others}")
    return alike


def _with_normalisation(label: Label, dataset: Options) -> Label:
    """Name a dataset's normalisation, even where nothing else tells it from others."""
    normalize = dataset.get("normalize", "none")
    shown = normalize == "none" or any(key == "normalize" for key, _ in label.options)
    return label if shown else label.with_option("normalize", normalize)


def model_of(config: Options) -> Options:
    """Return a model and how its labels are coded: two codes of the same labels share a table, and no row."""
    return {**config["model"], **{key: value for key, value in setting(config).items() if key in CODES}}


def _datasets(runs: Sequence[StoredRun]) -> list[Options]:
    """Return datasets with their sizes: one name may stand for folders of several sizes."""
    size_of = {str(run.config["dataset"]): run.result.train_size for run in runs if run.result is not None}
    sizes = [run.result.train_size if run.result else size_of.get(str(run.config["dataset"])) for run in runs]
    plain = [comparable({"dataset": run.config["dataset"]})["dataset"] for run in runs]
    return [one | ({"train_size": size} if size else {}) for one, size in zip(plain, sizes, strict=True)]


def label_order(label: Label) -> tuple[Any, ...]:
    """Order by names, of erasers as by their colours with the control first; then by options, numbers by size."""
    names = list(ERASER_COLOURS)
    position = names.index(label.name) if label.name in names else len(names)
    options = [(key, value if isinstance(value, int | float) else 0, str(value)) for key, value in label.options]
    return (position, label.name, options)
