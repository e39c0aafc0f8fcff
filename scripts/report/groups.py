"""Finished runs arranged for comparison: a block per dataset and setting, rows of models, erasers, pairs by seed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from conf import Options
from conf.verbs import identifying
from harness.results.arrange import CODES, Configured, Grid, told_apart
from harness.results.cell import Cell, Found
from harness.results.comparison import Beside, beside
from harness.results.labels import labels, setting, written_setting
from harness.results.read import INFORMATION, Reading
from harness.style import ERASER_COLOURS
from harness.trained import Coded
from scripts.report.files import file_name

_ELSEWHERE = ("root", "gradient_weights")  # options of a dataset that make no other row, nor do a part's
_TABLES = (("code",), ("published",), ("loss",))  # measures whose differences share one


@dataclass(frozen=True, eq=False)
class Row:
    """Everything but the eraser and the seeds is shared.

    Attributes:
        model: its configuration, with the options of the code where these are not a preset's ("mdl.code").
        entries: by eraser, whether it was run or not.
    """

    label: str
    model: Options
    entries: dict[str, Beside]

    @property
    def run(self) -> list[Beside]:
        """Entries of which something has finished."""
        return [entry for entry in self.entries.values() if entry.result is not None]


@dataclass(frozen=True, eq=False)
class Block:
    """One dataset under one verb in one setting: what a table compares.

    Attributes:
        name: for files, with what tells it from the other blocks: mdl-cifar10-train-quick-normalize-zscore.
        verb: "mdl" or "train".
        dataset: its label.
        setting: how all runs were trained and coded, in full (`written_setting`).
    """

    name: str
    verb: str
    dataset: str
    setting: str
    rows: list[Row]
    erasers: list[str]

    @property
    def entries(self) -> list[Beside]:
        """Row by row."""
        return [entry for row in self.rows for entry in row.entries.values()]


def arrange(reading: Reading) -> list[Block]:
    """Runs as blocks of rows and cells; adds to the reading's problems what cannot stand side by side.

    Those that score examples are left to `scripts.report.information`.
    """
    runs = [run for run in reading.runs if run.verb != INFORMATION]
    parts = [
        {"verb": {"name": r.verb}, "dataset": dataset, "setting": _without(setting(r.config), CODES)}
        for r, dataset in zip(runs, _datasets(runs), strict=True)
    ]
    datasets = labels([{"dataset": part["dataset"]} for part in parts], ("dataset",))
    names = labels(parts, ("verb", "dataset"))
    by_block: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        by_block.setdefault(name, []).append(i)
    blocks = [
        _block(name, datasets[own[0]], [runs[i] for i in own], reading.problems)
        for name, own in sorted(by_block.items())
    ]
    counts = Counter(block.name for block in blocks)
    return [
        block if counts[block.name] == 1 else replace(block, name=f"{block.name}-{i}") for i, block in enumerate(blocks)
    ]


def _with_normalisation(label: str, dataset: Options) -> str:
    """A dataset that is not as it was published says so, even where nothing else does."""
    normalize = dataset.get("normalize", "none")
    plain = normalize == "none" or "normalize=" in label
    return label if plain else f"{label} (normalize={normalize})"


def _block(name: str, dataset: str, runs: Sequence[Found], problems: list[str]) -> Block:
    grid = _grid(runs, problems)
    entries = beside(grid, _TABLES)
    rows = [
        Row(label, _model(next(iter(cells.values()))), {e: entries[label, e] for e in grid.columns})
        for label, cells in grid.cells.items()
    ]
    name, dataset = (_with_normalisation(label, runs[0].config["dataset"]) for label in (name, dataset))
    return Block(
        file_name(name.replace("dataset.", "")),
        runs[0].verb,
        dataset.replace("dataset.", ""),
        _setting(runs),
        sorted(rows, key=lambda row: _order(row.model, row.label)),
        list(grid.columns),
    )


def _grid(runs: Sequence[Found], problems: list[str]) -> Grid[Cell]:
    """Arrange runs by model and eraser, those with the most seeds first; each that has finished in its own place."""
    models = labels([{"model": _model(run)} for run in runs], ("model",))
    erasers = labels([{"eraser": run.config["eraser"]} for run in runs], ("eraser",))
    placed = sorted(zip(runs, models, erasers, strict=True), key=lambda found: -len(found[0].seeds))
    finished = [(run.result, *place) for run, *place in placed if run.result is not None]
    told = zip(*told_apart(*zip(*finished, strict=True)), strict=True) if finished else iter(())
    apart = [(run, *(next(told) if run.result is not None else (model, eraser))) for run, model, eraser in placed]
    cells: dict[str, dict[str, Cell]] = {}
    for run, model, eraser in _of_one_curve(apart, problems):
        cell = cells.setdefault(model, {}).setdefault(eraser, Cell(note=problems.append))
        (cell.unfinished if run.result is None else cell.runs).append(run)
    return Grid(list(cells), sorted({e for row in cells.values() for e in row}, key=eraser_order), cells)


def _of_one_curve(placed: Sequence[tuple[Found, str, str]], problems: list[str]) -> Iterator[tuple[Found, str, str]]:
    """Leave out runs whose training sizes are not those of most runs of their row: they cannot be compared."""
    sizes = [tuple(p.n for p in run.result.curve) if isinstance(run.result, Coded) else () for run, *_ in placed]
    counts = Counter((row, own) for (_, row, _), own in zip(placed, sizes, strict=True) if own)
    usual = {row: own for (row, own), _ in reversed(counts.most_common())}
    for found, own in zip(placed, sizes, strict=True):
        run, row, _ = found
        if own in ((), usual.get(row)):
            yield found
        else:
            ours, others = (", ".join(map(str, each[:20])) for each in (own, usual[row]))
            problems.append(f"{run.directory}: left out: trained on {ours} examples, others of {row} on {others}")


def _model(run: Configured) -> Options:
    """A model, and how its labels are coded: two codes of the same labels share a block, and no row."""
    return {**run.config["model"], **{key: value for key, value in setting(run.config).items() if key in CODES}}


def _setting(runs: Sequence[Found]) -> str:
    """How all of a block's runs were trained and coded; codes go unsaid that only some have."""
    whole = {written_setting(run.config) for run in runs}
    return whole.pop() if len(whole) == 1 else written_setting(runs[0].config, without=CODES)


def _datasets(runs: Sequence[Found]) -> list[Options]:
    """As tables tell them apart: by size, too, where one name stands for folders of so many and so many images."""
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
    """A configuration without the options that say how and where: what is left makes a row."""
    counted = identifying(config)
    return counted | {"dataset": _without(counted["dataset"], _ELSEWHERE)}


def _without(section: Options, options: Sequence[str]) -> Options:
    return {
        key: _without(value, options) if isinstance(value, dict) else value
        for key, value in section.items()
        if key not in options
    }


def eraser_order(eraser: str) -> tuple[int, str]:
    """Known erasers first, in the order of their colours; control before all."""
    known = list(ERASER_COLOURS)
    name = eraser.split(" ")[0]
    return (known.index(name) if name in known else len(known), eraser)


def _order(model: Options, label: str) -> tuple[Any, ...]:
    numbers = [model.get(key) if isinstance(model.get(key), int) else 0 for key in ("depth", "width")]
    return (model["name"], str(model.get("activation", "")), *numbers, label)
