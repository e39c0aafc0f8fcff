"""Runs arranged for comparison: rows that share everything but the eraser, tables that share a setting."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from conf import Options
from conf.schema import identifying
from harness.result import InformationResult, Result
from harness.results.comparison import compare_with_control
from harness.results.entry import Entry, StoredRun, log
from harness.results.labels import Label, labels, setting, setting_text
from harness.results.output import file_name
from harness.results.read import INFORMATION, Reading
from harness.style import ERASER_COLOURS
from harness.trained import Coded

CODES = ("mdl.code", "mdl.replay")  # keys of a setting that may differ within a table: rows say how
_PAIRED = ("dataset", "model", "sample_info", "seeds", "setting")  # what a run and its control share
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


def arrange(runs: Sequence[Result] | Sequence[StoredRun]) -> Comparison:
    """Arrange finished runs, such as a sweep's, whatever their setting: a row per dataset and model.

    A label is the part's name, and the fewest options that tell it from others of the name.
    """
    stored = [StoredRun.finished(run) if isinstance(run, Result) else run for run in runs]
    described = [identifying(run.config) | {"setting": setting(run.config)} for run in stored]
    rows = labels([{key: options.get(key) for key in _PAIRED} for options in described], ("dataset", "model"))
    return _compare(stored, rows, log.warning, _SWEEP_TABLES)


def by_setting(results: Sequence[Result]) -> dict[str, Comparison]:
    """Arrange results of a sweep by how they were trained (`setting_text`): their numbers share no column.

    Two codes of the same labels share one: rows say which is which.
    """
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(setting_text(result.config, without=CODES), []).append(result)
    return {text: replace(arrange(group), setting=text) for text, group in groups.items()}


def by_dataset(reading: Reading) -> list[Comparison]:
    """Arrange runs of `mdl` and `train` for a report: by command, dataset and setting, a row per model.

    Adds to the reading's problems a line on each run that cannot be compared.
    """
    runs = [run for run in reading.runs if run.command != INFORMATION]
    parts = [
        {"verb": {"name": run.command}, "dataset": dataset, "setting": _without(setting(run.config), CODES)}
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
    rows, columns = disambiguate(runs, rows, columns)
    erasers = sorted(set(columns), key=eraser_order)
    arranged: dict[Label, dict[Label, Entry]] = {}
    for run, row, column in zip(runs, rows, columns, strict=True):
        if row not in arranged:
            arranged[row] = {eraser: Entry(row, eraser, note=note) for eraser in erasers}
        entry = arranged[row][column]
        (entry.unfinished if run.result is None else entry.runs).append(run)
    compare_with_control([[*entries.values()] for entries in arranged.values()], tables)
    return Comparison([Row(row, entries) for row, entries in arranged.items()], erasers)


def disambiguate(
    runs: Sequence[StoredRun], rows: Sequence[Label], columns: Sequence[Label]
) -> tuple[list[Label], list[Label]]:
    """Tell finished runs of one configuration and the same seeds apart: they differ by the version of the code.

    Rows say how the code differs that their runs share; columns, where that is not enough, the ends of run ids.
    """
    rows, columns = list(rows), list(columns)
    results = {i: run.result for i, run in enumerate(runs) if run.result is not None}
    for row in dict.fromkeys(rows[i] for i in _twins(results, rows, columns)):
        of_row = [i for i in results if rows[i] == row]
        shared = sorted(set.intersection(*(set(results[i].code) for i in of_row)))
        versions = [{"row": {"name": ""}, "code": {name: results[i].code[name] for name in shared}} for i in of_row]
        for i, version in zip(of_row, labels(versions, ("row",)), strict=True):
            rows[i] = replace(row, options=(*row.options, *version.options))
    for i in _twins(results, rows, columns):
        columns[i] = columns[i].with_option("", "-".join(results[i].run_id.split("-")[-2:]))
    return rows, columns


def _twins(results: dict[int, Result], rows: Sequence[Label], columns: Sequence[Label]) -> list[int]:
    """Return runs in one place, of which one has all seeds of the other."""
    places: dict[tuple[Label, Label], list[int]] = {}
    for i in results:
        places.setdefault((rows[i], columns[i]), []).append(i)
    pairs = (pair for place in places.values() for pair in permutations(place, 2))
    return sorted({i for a, b in pairs if set(results[a].seeds) <= set(results[b].seeds) for i in (a, b)})


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
    names, places = [one["name"] for one in plain], [str(run.config["dataset"]) for run in runs]
    of_place: dict[str, int] = {}
    of_name: dict[str, set[int]] = {}
    for run, name, place in zip(runs, names, places, strict=True):
        if run.result is not None:
            of_place[place] = run.result.train_size
            of_name.setdefault(name, set()).add(run.result.train_size)
    sizes = [
        of_place.get(place) if run.result is None else run.result.train_size
        for run, place in zip(runs, places, strict=True)
    ]
    return [
        one if size is None or len(of_name[name]) == 1 else one | {"train_size": size}
        for one, name, size in zip(plain, names, sizes, strict=True)
    ]


def comparable(config: Options) -> Options:
    """Return a configuration without the options that say how and where: what is left makes a row."""
    counted = identifying(config)
    return counted | {"dataset": _without(counted["dataset"], ("root",))}


def _without(section: Options, options: Sequence[str]) -> Options:
    return {
        key: _without(value, options) if isinstance(value, dict) else value
        for key, value in section.items()
        if key not in options
    }


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
