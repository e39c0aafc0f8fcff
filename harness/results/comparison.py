"""Runs beside their controls: how those of a row and eraser stand to the control of their row, and where below it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from harness.example_bits import error_over_examples, loss_error
from harness.loss_curves import crossing, crossing_epoch
from harness.result import TrainedResult, of_common_seeds
from harness.results.arrange import Grid, R
from harness.results.cell import Cell, Found
from harness.results.statistics import Difference, holm, paired_difference
from harness.trained import Coded, Point, stuck

Values = Callable[[TrainedResult], Sequence[float] | None]  # per seed; None where a result has none


@dataclass(frozen=True)
class Backfire:
    """Whether an erased run ends below the control that shares its dataset, model, training, sizes and seeds.

    Attributes:
        gap: final loss on the test split minus the control's, in bits per label, as its table has it.
        size: training examples from which the mean test loss stays below the control's; None if it ends above,
            or if only one size was trained.
        epoch: of the training on the whole dataset, from which the mean validation loss stays below the
            control's (`crossing_epoch`); None if it ends above, or without curves.
    """

    gap: Difference
    size: int | None
    epoch: int | None


@dataclass(frozen=True)
class Beside:
    """The runs of a row and eraser, and how they stand to the row's control.

    Attributes:
        row: what they share with the control.
        eraser: what they do not.
        cell: the runs.
        lacks: what makes them incomplete beside the rest of the row.
        is_control: whether the others are compared with these.
        code: difference of the codelength; None for the control, without one, and without a common seed.
        published: the difference in Table 16's unit.
        loss: where it falls below the control, and the difference of the final loss.
        loss_error: standard error of the final loss over test examples.
        control_bits: the control's final losses, by seed; None where it lacks one of these seeds.
    """

    row: str
    eraser: str
    cell: Cell
    lacks: str = ""
    is_control: bool = False
    code: Difference | None = None
    published: Difference | None = None
    loss: Backfire | None = None
    loss_error: float | None = None
    control_bits: Sequence[float] | None = None

    @property
    def result(self) -> TrainedResult | None:
        return self.cell.result

    @property
    def run_ids(self) -> list[str]:
        return [run.id for run in self.cell.runs]

    @property
    def sound(self) -> bool:
        """Whether the codelength lacks no seed, and rests on no training that never left the plateau."""
        return self.result is not None and not self.lacks and not stuck(self.result.coding)


def code_bits(result: TrainedResult) -> Sequence[float] | None:
    """Codelength per label by seed; None without one."""
    return result.mdl.bits_per_sample if isinstance(result, Coded) else None


def calibrated_bits(result: TrainedResult) -> Sequence[float] | None:
    """The same by logits divided by a temperature; None without one."""
    return result.mdl.calibrated_bits_per_sample if isinstance(result, Coded) else None


def published_code(result: TrainedResult) -> Sequence[float] | None:
    """Return the codelength in the unit of Table 16, by seed; None without one."""
    return result.mdl.published if isinstance(result, Coded) else None


def final_bits(result: TrainedResult) -> Sequence[float]:
    """Loss per label on the test split, trained on everything, by seed."""
    return result.final.loss_bits


def crossing_size(erased: Sequence[Point], control: Sequence[Point]) -> int | None:
    """The training size from which the mean test loss of `erased` stays below that of `control`.

    Args:
        erased: a run's learning curve, and so `control`; of the same sizes.

    Raises:
        ValueError: they were trained on different sizes.
    """
    sizes = [point.n for point in erased]
    if sizes != (others := [point.n for point in control]):
        raise ValueError(f"trained on {sizes} examples, the control on {others}")
    losses = [np.array([mean(point.ce_test_bits) for point in curve]) for curve in (erased, control)]
    return crossing(sizes, *losses) if len(sizes) > 1 else None


@dataclass(frozen=True)
class _Pair:
    """A cell and its row's control, with what the seeds that both have say."""

    cells: tuple[Cell, Cell]
    results: tuple[TrainedResult, TrainedResult]

    def difference(self, values: Values) -> Difference | None:
        erased, control = map(values, self.results)
        if erased is None or control is None:
            return None
        known = [cell.test_bits() for cell in self.cells] if values is final_bits else [{}, {}]
        return paired_difference(erased, control, error_over_examples(known[0], known[1], self.results[0].seeds))

    def backfire(self, gap: Difference) -> Backfire:
        curves = [[cell.curves[s] for s in self.results[0].seeds if s in cell.curves] for cell in self.cells]
        whole = all(len(own) == len(self.results[0].seeds) for own in curves)
        sizes = crossing_size(*(run.curve if isinstance(run, Coded) else () for run in self.results))
        return Backfire(gap, sizes, crossing_epoch(*curves) if whole else None)


def _paired(cell: Cell, control: Cell | None) -> _Pair | None:
    if control is None or cell is control or cell.result is None or control.result is None:
        return None
    results = of_common_seeds(cell.result, control.result)
    return results and _Pair((cell, control), results)


def _control_bits(cell: Cell, control: Cell | None) -> Sequence[float] | None:
    if control is None or control.result is None or cell.result is None:
        return None
    found = dict(zip(control.result.seeds, final_bits(control.result), strict=True))
    return [found[seed] for seed in cell.result.seeds] if set(cell.result.seeds) <= set(found) else None


MEASURES: Mapping[str, Values] = {"code": code_bits, "published": published_code, "loss": final_bits}


def beside(grid: Grid[Cell], tables: Sequence[Sequence[str]]) -> dict[tuple[str, str], Beside]:
    """By row and column, all that a table may show; also what was not run.

    Args:
        grid: the runs.
        tables: the MEASURES whose differences stand in one table: their p-values are corrected together.
    """
    places = {(row, column): grid.cells[row].get(column, Cell()) for row in grid.rows for column in grid.columns}
    controls = {row: grid.control(row) for row in grid.rows}
    pairs = {place: pair for place, cell in places.items() if (pair := _paired(cell, controls[place[0]]))}
    found: dict[tuple[str, tuple[str, str]], Difference] = {}
    for together in tables:
        raw = {(name, place): pair.difference(MEASURES[name]) for place, pair in pairs.items() for name in together}
        found |= holm({key: difference for key, difference in raw.items() if difference is not None})
    seeds = {
        row: {s for cell in grid.cells[row].values() for run in cell.every for s in run.seeds} for row in grid.rows
    }
    return {
        place: Beside(
            *place,
            cell,
            lacks=cell.lacks(seeds[place[0]]),
            is_control=cell is controls[place[0]],
            code=found.get(("code", place)),
            published=found.get(("published", place)),
            loss=pairs[place].backfire(gap) if (gap := found.get(("loss", place))) else None,
            loss_error=loss_error(cell.test_bits(), cell.result.seeds) if cell.result else None,
            control_bits=_control_bits(cell, controls[place[0]]),
        )
        for place, cell in places.items()
    }


def beside_controls(grid: Grid[R]) -> dict[tuple[str, str], Beside]:
    """The same of a sweep's runs, whose table shows codelengths and final losses."""
    cells = {row: {name: Cell([Found.finished(run)]) for name, run in own.items()} for row, own in grid.cells.items()}
    return beside(Grid(grid.rows, grid.columns, cells), [("code", "loss")])
