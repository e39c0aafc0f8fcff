"""Finished runs arranged for comparison: a block per dataset and setting, rows of models, erasers, pairs by seed."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from conf.verbs import identifying
from erasure.store.storage import DamagedFileError
from harness.backfire import Backfire, backfire
from harness.columns import Beside, Values, code_bits, code_paper, final_bits
from harness.compare import Array, Difference, Spread, holm, paired_difference
from harness.example_bits import error_over_examples, loss_error, read_test_bits
from harness.labels import labels, setting, written_setting
from harness.loss_curves import LossCurve
from harness.result import Coded, Config, TrainedResult, of_seeds, stuck
from harness.style import ERASER_COLOURS
from scripts.report.check import INFORMATION
from scripts.report.read import Found, Reading, loss_curves, with_drop

_ELSEWHERE = ("root", "gradient_weights")  # options of a dataset that make no other row, nor do a part's


@dataclass
class Cell:
    """The runs of one row under one eraser. Runs of different seeds belong together; no seed counts twice."""

    eraser: str
    runs: list[Found] = field(default_factory=list)  # finished
    curves: dict[int, LossCurve] = field(default_factory=dict)  # of the whole dataset, by seed
    unfinished: list[Found] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # of the reading, to which more may come

    @property
    def config(self) -> Config:
        return (self.runs or self.unfinished)[0].config

    @cached_property
    def seeds(self) -> list[int]:
        return sorted({seed for run in self.runs for seed in run.seeds})

    @cached_property
    def result(self) -> TrainedResult | None:
        """All seeds' results as one; None while nothing has finished."""
        if not self.runs:
            return None
        results = [run.result for run in self.runs if isinstance(run.result, TrainedResult)]
        return with_drop(of_seeds(results, self.seeds), self.curves)

    def test_bits(self) -> dict[int, Array]:
        """Seed -> losses of the test examples; nothing where a file is damaged, which is noted once."""
        try:
            return read_test_bits(run.directory for run in self.runs)
        except DamagedFileError as error:
            line = f"{error}: no error over test examples"
            self.problems += [line] if line not in self.problems else []
            return {}

    def stuck(self, key: str) -> str:
        """How many trainings never left the plateau, of those that bits_per_sample, paper or loss_bits rests on."""
        if self.result is None:
            return ""
        curve = self.result.trainings
        return stuck({"bits_per_sample": curve[:-1], "paper": curve, "loss_bits": curve[-1:]}[key])

    def spread(self) -> Spread | None:
        """Of the codelength over seeds, in bits per label."""
        return Spread.of(self.result.mdl.bits_per_sample) if isinstance(self.result, Coded) else None


@dataclass(eq=False)
class Row:
    """Everything but the eraser and the seeds is shared."""

    label: str
    config: Config
    cells: dict[str, Cell] = field(default_factory=dict)

    @cached_property
    def seeds(self) -> list[int]:
        """All seeds that any cell of the row has, or was started with."""
        return sorted({s for cell in self.cells.values() for run in (*cell.runs, *cell.unfinished) for s in run.seeds})

    @cached_property
    def control(self) -> Cell | None:
        found = [cell for cell in self.cells.values() if cell.config["eraser"]["name"] == "control" and cell.runs]
        return found[0] if found else None

    def lacks(self, eraser: str) -> str:
        """What makes a cell incomplete beside the rest of its row; empty where nothing does."""
        cell = self.cells.get(eraser)
        if cell is None:
            return "not run"
        if not cell.runs:
            return cell.unfinished[0].state
        missing = [seed for seed in self.seeds if seed not in cell.seeds]
        return f"{len(cell.seeds)} of {len(self.seeds)} seeds" if missing else ""

    def sound(self, eraser: str) -> bool:
        """Whether the codelength lacks no seed, and rests on no training that never left the plateau."""
        return not self.lacks(eraser) and not self.cells[eraser].stuck("bits_per_sample")

    def difference(self, eraser: str, values: Values) -> Difference | None:
        """To the control, over the seeds that both have; None without a control, a common seed or such values."""
        pair = self._pair(eraser)
        if pair is None or (erased := values(pair[0])) is None or (control := values(pair[1])) is None:
            return None
        error = None
        if values is final_bits:
            known, others = (cell.test_bits() for cell in self._both(eraser))
            error = error_over_examples(known, others, pair[0].seeds)
        return paired_difference(erased, control, error)

    def backfire(self, eraser: str, gap: Difference | None) -> Backfire | None:
        """Of the seeds that both have; `gap`: the difference of the final loss."""
        pair = self._pair(eraser)
        if pair is None or gap is None:
            return None
        curves = [{s: cell.curves[s] for s in pair[0].seeds if s in cell.curves} for cell in self._both(eraser)]
        whole = all(len(found) == len(pair[0].seeds) for found in curves)
        return backfire(*pair, gap, *(curves if whole else ()))

    def compared(self, cell: Cell) -> bool:
        """Whether the cell is the control, or has one with some of its seeds."""
        return cell is self.control or self._pair(cell.eraser) is not None

    def _both(self, eraser: str) -> tuple[Cell, ...]:
        cell = self.cells.get(eraser)
        if cell is None or self.control is None or cell is self.control or not cell.runs:
            return ()
        return cell, self.control

    @functools.cache  # noqa: B019
    def _pair(self, eraser: str) -> tuple[TrainedResult, TrainedResult] | None:
        both = self._both(eraser)
        common = [seed for seed in both[0].seeds if seed in both[1].seeds] if both else []
        if not common:
            return None
        erased, control = (of_seeds([cell.result for cell in both[i : i + 1] if cell.result], common) for i in (0, 1))
        return erased, control


@dataclass(eq=False)
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

    @functools.cache  # noqa: B019 blocks live as long as the report
    def differences(self, values: Values) -> dict[tuple[str, str], Difference]:
        """By row and eraser, all differences to controls in one table, their p-values corrected together."""
        found = {(row.label, e): row.difference(e, values) for row in self.rows for e in self.erasers}
        return holm({place: difference for place, difference in found.items() if difference})

    @functools.cached_property
    def entries(self) -> dict[tuple[str, str], Beside]:
        """By row and eraser, everything a table may show; also what was not run."""
        codes, papers = self.differences(code_bits), self.differences(code_paper)
        found = {}
        for row in self.rows:
            for eraser in self.erasers:
                place, cell = (row.label, eraser), row.cells.get(eraser)
                found[place] = Beside(
                    *place,
                    cell.result if cell else None,
                    row.lacks(eraser),
                    codes.get(place),
                    papers.get(place),
                    self.backfire(row, eraser),
                    loss_error(cell.test_bits(), cell.seeds) if cell and cell.runs else None,
                    [run.id for run in cell.runs] if cell else (),
                )
        return found

    def cell(self, entry: Beside) -> Cell | None:
        """The runs of an entry, finished or not."""
        return self.row(entry).cells.get(entry.eraser)

    def row(self, entry: Beside) -> Row:
        return next(row for row in self.rows if row.label == entry.row)

    @functools.cache  # noqa: B019
    def backfire(self, row: Row, eraser: str) -> Backfire | None:
        return row.backfire(eraser, self.differences(final_bits).get((row.label, eraser)))


def arrange(reading: Reading) -> list[Block]:
    """Runs as blocks of rows and cells; adds to the reading's problems what cannot stand side by side.

    Those that score examples are left to `scripts.report.information`.
    """
    runs = [run for run in reading.runs if run.verb != INFORMATION]
    parts = [{"verb": {"name": r.verb}, "dataset": _dataset(r), "setting": setting(r.config)} for r in runs]
    datasets = labels([{"dataset": part["dataset"]} for part in parts], ("dataset",))
    names = labels(parts, ("verb", "dataset"))
    by_block: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        by_block.setdefault(name, []).append(i)
    return [
        _block(name, datasets[own[0]], [runs[i] for i in own], reading.problems)
        for name, own in sorted(by_block.items())
    ]


def _with_normalisation(label: str, dataset: Config) -> str:
    """A dataset that is not as it was published says so, even where nothing else does."""
    normalize = dataset.get("normalize", "none")
    plain = normalize == "none" or "normalize=" in label
    return label if plain else f"{label} (normalize={normalize})"


def _block(name: str, dataset: str, runs: Sequence[Found], problems: list[str]) -> Block:
    erasers = labels([{"eraser": run.config["eraser"]} for run in runs], ("eraser",))
    names = labels([{"model": run.config["model"]} for run in runs], ("model",))
    rows: dict[str, Row] = {}
    for run, eraser, model in sorted(zip(runs, erasers, names, strict=True), key=lambda found: -len(found[0].seeds)):
        row = rows.setdefault(model, Row(model, run.config))
        _add(row.cells.setdefault(eraser, Cell(eraser, problems=problems)), run, problems)
    ordered = sorted(rows.values(), key=lambda row: _order(row.config["model"], row.label))
    name, dataset = (_with_normalisation(label, runs[0].config["dataset"]) for label in (name, dataset))
    return Block(
        "-".join("".join(c if c.isalnum() or c in "_." else " " for c in name.replace("dataset.", "")).split()),
        runs[0].verb,
        dataset.replace("dataset.", ""),
        written_setting(runs[0].config),
        ordered,
        sorted(set(erasers), key=eraser_order),
    )


def _add(cell: Cell, run: Found, problems: list[str]) -> None:
    if run.result is None:
        cell.unfinished.append(run)
        return
    taken = [other for other in cell.runs if set(run.seeds) <= set(other.seeds)]
    if taken:
        problems.append(
            f"{run.directory}: the same configuration and seeds as {taken[0].id}, under another id: left out; "
            "one of them is of another version of the code"
        )
        return
    cell.runs.append(run)
    try:
        found = loss_curves(run)
    except (OSError, ValueError) as error:
        problems.append(f"{run.directory}: no loss curves: {error}")
        return
    cell.curves |= {seed: curve for seed, curve in found.items() if seed not in cell.curves}


def _dataset(run: Found) -> Config:
    return comparable({"dataset": run.config["dataset"]})["dataset"]


def comparable(config: Config) -> Config:
    """A configuration without the options that say how and where: what is left makes a row."""
    counted = identifying(config)
    return counted | {"dataset": _without(counted["dataset"], _ELSEWHERE)}


def _without(section: Config, options: Sequence[str]) -> Config:
    return {
        key: _without(value, options) if isinstance(value, Mapping) else value
        for key, value in section.items()
        if key not in options
    }


def eraser_order(eraser: str) -> tuple[int, str]:
    """Known erasers first, in the order of their colours; control before all."""
    known = list(ERASER_COLOURS)
    name = eraser.split(" ")[0]
    return (known.index(name) if name in known else len(known), eraser)


def _order(model: Config, label: str) -> tuple[Any, ...]:
    numbers = [model.get(key) if isinstance(model.get(key), int) else 0 for key in ("depth", "width")]
    return (model["name"], str(model.get("activation", "")), *numbers, label)
