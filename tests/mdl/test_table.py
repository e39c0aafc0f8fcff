"""What `python -m mdl` shows of numbers that need a remark: beside them, in the table and in the figure."""

from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
from matplotlib.figure import Figure

from harness.compare import Grid, arrange
from harness.result import MdlResult, read_result
from mdl.figure import draw
from mdl.table import table_of
from tests.runs import write_run


def grid(root: Path, seeds: tuple[int, ...] = (0, 1)) -> Grid[MdlResult]:
    """Control and QLEACE, whose second seed never left the plateau of the first training size, nor of the last."""
    found = []
    for eraser, left in (("control", [True, True]), ("qleace", [True, False])):
        run = write_run(root, dataset="digits", eraser=eraser, seeds=seeds)
        result = read_result(run.directory / "result.json")
        assert isinstance(result, MdlResult)
        first, *others, last = result.curve
        marked = [replace(point, left_plateau=left[: len(seeds)]) for point in (first, last)]
        found.append(replace(result, curve=[marked[0], *others, marked[1]]))
    return arrange(found)


def test_what_rests_on_plateaus_is_marked_in_table_and_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(grid(tmp_path), "")
    assert "1 of 2 coding, 1 of 2 final" in table.markdown()
    assert "‡: seeds that never left it" in table.caption
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    draw(grid(tmp_path), tmp_path / "comparison.png")
    assert drawn[0].axes[0].get_title().endswith("‡ QLEACE: 2 of 4 trainings on the plateau")


@pytest.mark.parametrize(("seeds", "said"), [((0, 1), " ± "), ((0,), ", one seed")])
def test_a_difference_of_one_seed_has_no_error(seeds: tuple[int, ...], said: str, tmp_path: Path, monkeypatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    draw(grid(tmp_path, seeds), tmp_path / "comparison.png")
    assert [said in text.get_text() for text in drawn[0].axes[1].texts] == [True]


@pytest.mark.parametrize("seeds", [(1,), (1, 2), (2, 1, 0)])
def test_differences_are_of_the_seeds_that_both_have(seeds: tuple[int, ...], tmp_path: Path, monkeypatch) -> None:
    cells: dict[str, MdlResult] = {}
    for eraser, of in (("control", (0, 1)), ("qleace", seeds)):
        run = read_result(write_run(tmp_path, dataset="digits", eraser=eraser, seeds=of).directory / "result.json")
        assert isinstance(run, MdlResult)
        cells[eraser] = run
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    draw(Grid(["MLP"], [*cells], {"MLP": cells}), tmp_path / "comparison.png")
    (bar,) = drawn[0].axes[1].texts
    control, erased = (dict(zip(one.seeds, one.mdl.bits_per_sample, strict=True)) for one in cells.values())
    common = [seed for seed in seeds if seed in control]
    expected = mean(erased[seed] - control[seed] for seed in common)
    assert bar.get_text().startswith(f"{expected:+.3f}")
    assert ("one seed" in bar.get_text()) == (len(common) == 1)


def test_it_says_on_which_split_a_promise_holds_and_what_errors_cover(tmp_path: Path) -> None:
    table = table_of(grid(tmp_path), "")
    lines = {row[0]: row[1] for row in table.rows}
    assert lines["  gap of covariances"] == "0.7"  # as people write it
    assert lines["  gap of means, test"] == "4e-09"
    assert "on the training split: no promise goes further" in table.caption
    assert "it speaks of other seeds, not of other test examples" in table.caption


def test_orders_that_are_within_error_of_nothing_are_bounded(tmp_path: Path) -> None:
    plain = grid(tmp_path)
    assert "order 1 left" not in table_of(plain, "").markdown()  # results of an earlier version
    control = plain.cells[plain.rows[0]]["control"]
    left = replace(control.certificate["test"], order_shares=[0.2, 0.01, -0.01], order_errors=[0.01, 0.02, 0.001])
    found = replace(control, certificate={**control.certificate, "test": left})
    rows = [row[1] for row in table_of(arrange([found]), "").rows if row[0].startswith("  order ")]
    assert rows == ["20", "< 5", "< 0.2"]
    assert table_of(arrange([found]), "").records[0]["test_order_shares_2"] == 0.01
    left = replace(left, order_z_scores=[9.0, 2.1, -1.0])  # by which they are judged where they were recorded
    found = replace(control, certificate={**control.certificate, "test": left})
    rows = [row[1] for row in table_of(arrange([found]), "").rows if row[0].startswith("  order ")]
    assert rows == ["20", "1", "< 0.2"]
