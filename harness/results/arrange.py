"""Runs arranged for comparison: rows that share everything but the eraser, tables that share a setting."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

import numpy as np

from conf import Options
from conf.schema import identifying
from harness.example_bits import loss_error
from harness.loss_curves import crossing, crossing_epoch
from harness.result import InformationResult, Result, of_common_seeds
from harness.results.comparison import differences, reader
from harness.results.entry import Entry, StoredRun, log
from harness.results.frames import run_frame
from harness.results.labels import Label, comparable, labels, setting, setting_text, without
from harness.results.output import file_name
from harness.results.read import INFORMATION, Reading
from harness.results.statistics import holm
from harness.style import ERASER_COLOURS
from harness.trained import Coded, Point

CODES = ("mdl.code", "mdl.replay")  # keys of a setting that may differ within a table: rows say how
_PAIRED = ("dataset", "model", "sample_info", "seeds", "setting")  # what a run and its control share
MEASURES = {"code": "bits_per_label", "published": "published_units", "loss": "test_loss_bits"}  # columns compared
_SWEEP_TABLES = (("code", "loss"),)  # measures whose differences share a table
_REPORT_TABLES = (("code",), ("published",), ("loss",))


@dataclass(frozen=True, eq=False)
class Row:
    """Entries that share everything but the eraser.

    Attributes:
        label: of dataset and model, or of the model.
        entries: by eraser, whether it was run or not.
    """

    label: Label
    entries: dict[Label, Entry]

    @property
    def run(self) -> list[Entry]:
        """Entries of which something has finished."""
        return [entry for entry in self.entries.values() if entry.runs]

    @property
    def model(self) -> Options:
        """The model's configuration, with the options of the code that are not a preset's ("mdl.code")."""
        return _model(next(entry for entry in self.entries.values() if entry.all_runs).config)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs that one table compares.

    Attributes:
        rows: what is compared; every row has every eraser.
        erasers: of the columns, in the order of `eraser_order`.
        setting: how all runs were trained and coded (`setting_text`).
        name: of files, with what tells it from other comparisons: mdl · cifar10 (train=quick).
        command: "mdl", "train" or "sample_info".
        dataset: of all rows; empty where rows have different datasets.
    """

    rows: list[Row]
    erasers: list[Label]
    setting: str = ""
    name: str = ""
    command: str = ""
    dataset: str = ""

    @property
    def entries(self) -> list[Entry]:
        """Every entry, row by row."""
        return [entry for row in self.rows for entry in row.entries.values()]

    @property
    def run(self) -> list[Entry]:
        """Entries of which something has finished, row by row."""
        return [entry for row in self.rows for entry in row.run]

    @property
    def information(self) -> list[tuple[Label, Label, InformationResult]]:
        """Row, eraser and result of every run of `python -m sample_info`."""
        runs = [(entry, run.result) for entry in self.entries for run in entry.runs]
        return [(e.row, e.eraser, result) for e, result in runs if isinstance(result, InformationResult)]


def arrange(runs: Sequence[Result] | Sequence[StoredRun], note: Callable[[str], object] = log.warning) -> Comparison:
    """Arrange finished runs, such as a sweep's, whatever their setting: a row per dataset and model.

    A label is the part's name, and the fewest options that tell it from others of the name. `note` is called with a
    line on each run or file that is left out.
    """
    stored = [StoredRun.finished(run) if isinstance(run, Result) else run for run in runs]
    described = [identifying(run.config) | {"setting": setting(run.config)} for run in stored]
    rows = labels([{key: options.get(key) for key in _PAIRED} for options in described], ("dataset", "model"))
    return _compare(stored, rows, note, _SWEEP_TABLES)


def by_setting(runs: Sequence[Result] | Sequence[StoredRun]) -> dict[str, Comparison]:
    """Arrange runs of a sweep by how they were trained (`setting_text`): their numbers share no column.

    Two codes of the same labels share one: rows say which is which.
    """
    groups: dict[str, list[Any]] = {}
    for run in runs:
        groups.setdefault(setting_text(run.config, without=CODES), []).append(run)
    return {text: replace(arrange(group), setting=text) for text, group in groups.items()}


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
    kept = _of_one_curve(ordered, problems)
    models = labels([{"model": _model(run.config)} for run in kept], ("model",))
    compared = _compare(kept, models, problems.append, _REPORT_TABLES)
    settings = {setting_text(run.config) for run in runs}  # codes go unsaid that only some have
    return replace(
        compared,
        rows=sorted(compared.rows, key=_row_order),
        setting=settings.pop() if len(settings) == 1 else setting_text(runs[0].config, without=CODES),
        name=file_name(str(name)),
        command=runs[0].command,
        dataset=dataset.display,
    )


def _compare(
    runs: Sequence[StoredRun],
    rows: Sequence[Label],
    note: Callable[[str], object],
    tables: Sequence[Sequence[str]],
) -> Comparison:
    """Put runs into entries by row and eraser, and compare these with the control of their row."""
    columns = labels([{"eraser": run.config["eraser"]} for run in runs], ("eraser",))
    erasers = sorted(set(columns), key=eraser_order)
    newest: dict[tuple[Any, ...], StoredRun] = {}
    finished = [place for place in zip(runs, rows, columns, strict=True) if place[0].result is not None]
    for run, *place in sorted(finished, key=lambda place: place[0].result.timing.started if place[0].result else 0.0):
        newest[*place, *run.seeds] = run
    arranged: dict[Label, dict[Label, Entry]] = {}
    for run, row, column in zip(runs, rows, columns, strict=True):
        if row not in arranged:
            arranged[row] = {eraser: Entry(row, eraser, note=note) for eraser in erasers}
        entry = arranged[row][column]
        if (other := newest.get((row, column, *run.seeds), run)) is not run and run.result is not None:
            note(f"{run.directory}: left out: {other.id} has the same configuration and seeds and is newer")
            continue
        (entry.unfinished if run.result is None else entry.runs).append(run)
    for entries in arranged.values():
        ran = (entry for entry in entries.values() if entry.all_runs)
        if (control := next((entry for entry in ran if entry.config["eraser"]["name"] == "control"), None)) is not None:
            control.is_control = True
    compare_with_control([*arranged.values()], tables, note)
    return Comparison([Row(row, entries) for row, entries in arranged.items()], erasers)


def compare_with_control(
    rows: Sequence[dict[Label, Entry]], tables: Sequence[Sequence[str]], note: Callable[[str], object]
) -> None:
    """Fill in the entries' frames, what they are missing, and their differences to the control of their row.

    Args:
        rows: entries that share everything but the eraser.
        tables: the `MEASURES` whose differences stand in one table: their p-values are corrected together.
        note: called with a line on each damaged file.
    """
    entries = [entry for row in rows for entry in row.values()]
    row_of = [i for i, row in enumerate(rows) for _ in row]
    places = [i for i, entry in enumerate(entries) for run in entry.runs for _ in run.seeds]
    frame = run_frame(run for entry in entries for run in entry.runs)
    frame["row"], frame["entry"] = [row_of[i] for i in places], places
    frame = frame.drop_duplicates(["entry", "seed"])
    for i, entry in enumerate(entries):
        entry.frame = frame[frame["entry"] == i]
    is_control = frame["entry"].isin([i for i, entry in enumerate(entries) if entry.is_control])
    losses = reader(lambda line: note(f"{line}: no error over test examples"))
    for together in tables:
        raw = {
            (measure, i): difference
            for measure in together
            for (_, i), difference in differences(
                frame, MEASURES[measure], ("row", "entry"), is_control, losses
            ).items()
        }
        for (measure, i), difference in holm(raw).items():
            setattr(entries[i], f"{measure}_difference", difference)
    for row in rows:
        seeds = {seed for entry in row.values() for run in entry.all_runs for seed in run.seeds}
        control = next((entry for entry in row.values() if entry.is_control), None)
        for entry in row.values():
            entry.missing = entry.missing_of(seeds)
            if entry.result is not None:
                kept = losses(tuple(str(run.directory) for run in entry.runs))
                entry.loss_error = loss_error(kept, entry.result.seeds)
            if control is not None:
                entry.control_bits = _losses_of_seeds(control, entry)
                _fill_in_crossings(entry, control)


def _losses_of_seeds(control: Entry, entry: Entry) -> list[float] | None:
    """Return the control's test losses of an entry's seeds; None where it lacks one of them."""
    if entry.result is None or control.frame is None:
        return None
    losses = dict(zip(control.frame["seed"], control.frame["test_loss_bits"], strict=True))
    return [losses[seed] for seed in entry.result.seeds] if losses.keys() >= {*entry.result.seeds} else None


def _fill_in_crossings(entry: Entry, control: Entry) -> None:
    """Note from where on an entry's losses stay below the control's."""
    if entry is control or entry.result is None or control.result is None:
        return
    if (common := of_common_seeds(entry.result, control.result)) is None:
        return
    entry.crossing_size = crossing_size(*(result.curve if isinstance(result, Coded) else () for result in common))
    curves = [[one.curves[seed] for seed in common[0].seeds if seed in one.curves] for one in (entry, control)]
    if all(len(known) == len(common[0].seeds) for known in curves):
        entry.crossing_epoch = crossing_epoch(*curves)


def crossing_size(erased: Sequence[Point], control: Sequence[Point]) -> int | None:
    """Return the training size from which the mean test loss of `erased` stays below that of `control`.

    Args:
        erased: a run's learning curve.
        control: the control's, at the same sizes.

    Raises:
        ValueError: they were trained on different sizes.
    """
    sizes = [point.n for point in erased]
    if sizes != (others := [point.n for point in control]):
        raise ValueError(f"trained on {sizes} examples, the control on {others}")
    losses = [np.array([mean(point.ce_test_bits) for point in curve]) for curve in (erased, control)]
    return crossing(sizes, *losses) if len(sizes) > 1 else None


def _of_one_curve(runs: Sequence[StoredRun], problems: list[str]) -> list[StoredRun]:
    """Leave out runs whose training sizes are not those of most runs of their model: they cannot be compared."""
    sizes = [tuple(p.n for p in run.result.curve) if isinstance(run.result, Coded) else () for run in runs]
    models = labels([{"model": _model(run.config)} for run in runs], ("model",))
    counts = Counter((model, of_run) for model, of_run in zip(models, sizes, strict=True) if of_run)
    usual = {model: of_most for (model, of_most), _ in reversed(counts.most_common())}
    kept = []
    for run, model, of_run in zip(runs, models, sizes, strict=True):
        if of_run in ((), usual.get(model)):
            kept.append(run)
        else:
            ours, others = (", ".join(map(str, each[:20])) for each in (of_run, usual[model]))
            problems.append(f"{run.directory}: left out: trained on {ours} examples, others of {model} on {others}")
    return kept


def _with_normalisation(label: Label, dataset: Options) -> Label:
    """Name a dataset's normalisation, even where nothing else tells it from others."""
    normalize = dataset.get("normalize", "none")
    said = normalize == "none" or any(key == "normalize" for key, _ in label.options)
    return label if said else label.with_option("normalize", normalize)


def _model(config: Options) -> Options:
    """Return a model and how its labels are coded: two codes of the same labels share a table, and no row."""
    return {**config["model"], **{key: value for key, value in setting(config).items() if key in CODES}}


def _datasets(runs: Sequence[StoredRun]) -> list[Options]:
    """Return datasets with their sizes where one name stands for folders of several sizes."""
    plain = [comparable({"dataset": run.config["dataset"]})["dataset"] for run in runs]
    of_place = {str(run.config["dataset"]): run.result.train_size for run in runs if run.result is not None}
    sizes = [run.result.train_size if run.result else of_place.get(str(run.config["dataset"])) for run in runs]
    counts = Counter(
        name for name, size in {(one["name"], size) for one, size in zip(plain, sizes, strict=True)} if size
    )
    return [
        one | ({"train_size": size} if size and counts[one["name"]] > 1 else {})
        for one, size in zip(plain, sizes, strict=True)
    ]


def eraser_order(eraser: Label) -> tuple[Any, ...]:
    """Order known erasers first, as their colours, the control before all; then by options, numbers by size."""
    known = list(ERASER_COLOURS)
    place = known.index(eraser.name) if eraser.name in known else len(known)
    options = [(key, value if isinstance(value, int | float) else 0, str(value)) for key, value in eraser.options]
    return (place, eraser.name, options)


def _row_order(row: Row) -> tuple[Any, ...]:
    model = row.model
    numbers = [model.get(key) if isinstance(model.get(key), int) else 0 for key in ("depth", "width")]
    return (model["name"], str(model.get("activation", "")), *numbers, str(row.label))
