"""Runs arranged for comparison: rows that share everything but the eraser, tables that share a setting."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from conf import Options
from conf.identity import identifying
from harness.figures import ERASER_COLOURS
from harness.result import Result
from harness.result_fields import Coded
from harness.results.entries import Entry, entries_of
from harness.results.output import file_name
from harness.results.read import INFORMATION, Note, Reading, StoredRun
from harness.results.run_labels import Label, labels
from harness.results.run_settings import comparable, setting, setting_text, without

log = logging.getLogger(__name__)

CODES = ("mdl.code", "mdl.replay")  # keys of a setting that may differ within a table: rows say how
_PAIRED = ("dataset", "model", "sample_info", "seeds", "setting")  # what a run and its control share
_SWEEP_TABLES = (("code", "loss"),)  # measures whose differences share a table
_REPORT_TABLES = (("code",), ("published",), ("loss",))


Rows = Mapping[Label, Sequence[Entry]]  # entries that share everything but the eraser, by their label


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
    return _compare(stored, rows, note, _SWEEP_TABLES)


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
    compared = _compare([run for run, _ in by_model], [model for _, model in by_model], problems.append, _REPORT_TABLES)
    settings = {setting_text(run.config) for run in runs}  # codes go unsaid that only some have
    return replace(
        compared,
        setting=settings.pop() if len(settings) == 1 else setting_text(runs[0].config, without=CODES),
        name=file_name(str(name)),
        dataset=dataset.display,
    )


def _compare(
    runs: Sequence[StoredRun], rows: Sequence[Label], note: Note, tables: Sequence[Sequence[str]]
) -> Comparison:
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
    return Comparison(entries_of(arranged, tables, note), erasers, command=runs[0].command if runs else "")


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
    """Return datasets with their sizes where one name stands for folders of several sizes."""
    plain = [comparable({"dataset": run.config["dataset"]})["dataset"] for run in runs]
    size_of = {str(run.config["dataset"]): run.result.train_size for run in runs if run.result is not None}
    sizes = [run.result.train_size if run.result else size_of.get(str(run.config["dataset"])) for run in runs]
    counts = Counter(
        name for name, size in {(one["name"], size) for one, size in zip(plain, sizes, strict=True)} if size
    )
    return [
        one | ({"train_size": size} if size and counts[one["name"]] > 1 else {})
        for one, size in zip(plain, sizes, strict=True)
    ]


def label_order(label: Label) -> tuple[Any, ...]:
    """Order by names, of erasers as by their colours with the control first; then by options, numbers by size."""
    names = list(ERASER_COLOURS)
    position = names.index(label.name) if label.name in names else len(names)
    options = [(key, value if isinstance(value, int | float) else 0, str(value)) for key, value in label.options]
    return (position, label.name, options)
