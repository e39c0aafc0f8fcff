"""Runs arranged for a table: rows of datasets and models, columns of erasers, a grid per setting."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Generic, Protocol, TypeVar

from conf import Options
from conf.verbs import identifying
from harness.result import Result
from harness.results.labels import labels, setting, written_setting

R = TypeVar("R", bound=Result)


class Configured(Protocol):
    """What may stand in a grid: a result, or several as one."""

    @property
    def config(self) -> Options: ...


C = TypeVar("C", bound=Configured)

CODES = ("mdl.code", "mdl.replay")  # keys of a setting that may differ within a table: rows say how
_PAIRED = ("dataset", "model", "sample_info", "seeds", "setting")  # all that a run and its control share


@dataclass(frozen=True)
class Grid(Generic[C]):
    """Runs arranged for a table: `cells[row][column]`, labels unique."""

    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[str, Mapping[str, C]]

    def runs(self) -> Iterator[tuple[str, str, C]]:
        """Row, column and result of every run, row by row."""
        for row in self.rows:
            for column in self.columns:
                if column in self.cells[row]:
                    yield row, column, self.cells[row][column]

    def control(self, row: str) -> C | None:
        """The row's control run, if it is there."""
        return next((one for one in self.cells[row].values() if one.config["eraser"]["name"] == "control"), None)


def arrange(results: Sequence[R]) -> Grid[R]:
    """Arrange runs by dataset and model (rows) and eraser (columns), control first.

    A label is the part's name, and the fewest options that tell it from the others that share the name.
    """
    counted = [identifying(result.config) | {"setting": setting(result.config)} for result in results]
    rows = labels([{key: own.get(key) for key in _PAIRED} for own in counted], ("dataset", "model"))
    columns = labels([{"eraser": r.config["eraser"]} for r in results], ("eraser",))
    rows, columns = told_apart(results, rows, columns)
    cells: dict[str, dict[str, R]] = {}
    for row, column, result in zip(rows, columns, results, strict=True):
        cells.setdefault(row, {})[column] = result
    ordered = sorted(dict.fromkeys(columns), key=lambda column: not column.startswith("control"))
    return Grid(list(cells), ordered, cells)


def told_apart(results: Sequence[Result], rows: Sequence[str], columns: Sequence[str]) -> tuple[list[str], list[str]]:
    """Labels with what tells runs of one configuration and the same seeds apart: another version of the code.

    Rows say how the code differs that their runs share; columns, where that is not enough, the ends of run ids.
    """
    rows, columns = list(rows), list(columns)
    for row in dict.fromkeys(rows[i] for i in _twins(results, rows, columns)):
        own = [i for i, label in enumerate(rows) if label == row]
        shared = sorted(set.intersection(*(set(results[i].code) for i in own)))
        versions = [{"row": {"name": row}, "code": {name: results[i].code[name] for name in shared}} for i in own]
        for i, label in zip(own, labels(versions, ("row",)), strict=True):
            rows[i] = label
    for i in _twins(results, rows, columns):
        columns[i] = f"{columns[i]} ({'-'.join(results[i].run_id.split('-')[-2:])})"
    return rows, columns


def _twins(results: Sequence[Result], rows: Sequence[str], columns: Sequence[str]) -> list[int]:
    """Runs in one place, of which one has all seeds of the other."""
    places: dict[tuple[str, str], list[int]] = {}
    for i, place in enumerate(zip(rows, columns, strict=True)):
        places.setdefault(place, []).append(i)
    pairs = (pair for own in places.values() for pair in permutations(own, 2))
    return sorted({i for pair in pairs if set(results[pair[0]].seeds) <= set(results[pair[1]].seeds) for i in pair})


def by_setting(results: Sequence[R]) -> dict[str, Grid[R]]:
    """A grid for each way in which runs were trained (`setting`): their numbers share no column.

    Two codes of the same labels do share one: rows say which is which.
    """
    found: dict[str, list[R]] = {}
    for result in results:
        found.setdefault(written_setting(result.config, without=CODES), []).append(result)
    return {written: arrange(own) for written, own in found.items()}
