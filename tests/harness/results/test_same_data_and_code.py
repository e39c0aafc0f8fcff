"""Runs are compared where they had the same examples and the same code, wherever these were."""

from pathlib import Path

import pandas as pd
import pytest

from harness.results import compare, load
from harness.results.arrange import arrange, rows_of
from harness.results.columns import first
from harness.results.comparison import with_controls
from harness.results.read import read_runs
from tests.made_up_runs import write_run

CODE = {"train": 2, "erasure": 3, "models.mlp.MLP": 1}


def write(root: Path, eraser: str, data: str | None, *, path: str = "d/x.npz", **options) -> list[float]:
    """Write a run on a file of vectors, and return its codelengths."""
    options = {"seeds": (0, 1), "code": {**CODE, f"erasers.{eraser}": 1}} | options
    run = write_run(root, dataset="arrays", eraser=eraser, path=path, data=data, **options)
    result = run.result
    assert result is not None
    return result.mdl.bits_per_sample  # pyright: ignore[reportAttributeAccessIssue]


def tables(root: Path) -> list[list[tuple[str, float | None]]]:
    """Return the erasers of each table, and the difference to the control."""
    arranged = arrange(read_runs([root]), lambda _: None)
    differences = [
        [(first(row, "eraser").name, first(row, "bits_per_label_difference")) for row in rows_of(one)]
        for one in arranged
    ]
    return [[(name, None if of is None else of.mean) for name, of in table] for table in differences]


def difference(root: Path) -> float:
    compared = compare(load(root).runs)
    return compared.loc[compared["eraser"] == "leace", "difference"].iloc[0]


@pytest.mark.parametrize("path", ["d/x.npz", "e/x.npz"])
def test_a_control_on_other_examples_is_not_compared_with(tmp_path: Path, path: str) -> None:
    write(tmp_path, "control", "a" * 16, path=path)
    write(tmp_path, "leace", "b" * 16)
    assert sorted(tables(tmp_path)) == [[("control", None)], [("leace", None)]]
    assert pd.isna(difference(tmp_path))
    (erased,) = (run for run in read_runs([tmp_path]) if run.config["eraser"]["name"] == "leace")
    assert with_controls([erased]) == ([erased], 1)


@pytest.mark.parametrize("data", ["a" * 16, None])  # results before version 0.4.0 have none
def test_a_control_on_the_same_examples_is(tmp_path: Path, data: str | None) -> None:
    theirs = write(tmp_path, "control", data)
    ours = write(tmp_path, "leace", "a" * 16, path="./d/x.npz" if data else "d/x.npz")
    expected = sum(ours) / 2 - sum(theirs) / 2
    (((_, none), (_, shown)),) = tables(tmp_path)
    assert none is None
    assert shown == pytest.approx(expected)
    assert difference(tmp_path) == pytest.approx(expected)
    (erased,) = (run for run in read_runs([tmp_path]) if run.config["eraser"]["name"] == "leace")
    assert with_controls([erased])[1] == 0


def test_tables_on_files_of_one_name_say_which(tmp_path: Path) -> None:
    for data, path in (("a" * 16, "d/x.npz"), ("b" * 16, "d/x.npz"), ("c" * 16, "e/x.npz")):
        write(tmp_path, "control", data, path=path)
    titles = {first(one, "title").split(",")[0] for one in arrange(read_runs([tmp_path]), lambda _: None)}
    assert len(titles) == 3
    assert {"data=aaaaaaaa" in title for title in titles} == {True, False}


def test_of_runs_of_changed_code_the_newest_count_in_every_table(tmp_path: Path) -> None:
    theirs = write(tmp_path, "control", "a" * 16)
    write(tmp_path, "leace", "a" * 16)
    changed, later = {**CODE, "erasers.leace": 2}, {"seconds": 1.0, "started": 1.8e9, "stacking": None}
    (ours,) = write(tmp_path, "leace", "a" * 16, seeds=(0,), code=changed, timing=later)
    notes: list[str] = []
    (one,) = arrange(read_runs([tmp_path]), notes.append)
    (row,) = (row for row in rows_of(one) if first(row, "eraser").name == "leace")
    assert [*row["bits_per_label"]] == [ours]
    assert first(row, "bits_per_label_difference").mean == pytest.approx(ours - theirs[0])
    assert len([note for note in notes if "the code of erasers.leace has changed" in note]) == 1
    compared = compare(load(tmp_path).runs)
    (shown,) = compared[compared["eraser"] == "leace"].to_dict("records")
    assert (shown["seeds"], shown["mean"]) == (1, pytest.approx(ours))
    assert shown["difference"] == pytest.approx(ours - theirs[0])


def test_a_frame_that_was_saved_is_compared_as_before(tmp_path: Path) -> None:
    write(tmp_path / "runs", "control", "a" * 16)
    write(tmp_path / "runs", "leace", "a" * 16)
    changed = {**CODE, "erasers.leace": 2, "models.mlp.MLP": 2}
    write(tmp_path / "runs", "qleace", "a" * 16, code=changed)
    runs = load(tmp_path / "runs").runs
    assert compare(runs)["difference"].isna().tolist() == [True, False, True]  # the control, and other code
    runs.to_csv(tmp_path / "runs.csv", index=False)
    runs.to_parquet(tmp_path / "runs.parquet")
    for saved in (pd.read_csv(tmp_path / "runs.csv"), pd.read_parquet(tmp_path / "runs.parquet")):
        assert compare(saved)["difference"].tolist() == pytest.approx(compare(runs)["difference"].tolist(), nan_ok=True)
    with pytest.raises(ValueError, match="runs has no column code"):
        compare(runs.drop(columns="code"))


def test_a_control_of_other_code_is_not_compared_with(tmp_path: Path) -> None:
    write(tmp_path, "control", "a" * 16)
    write(tmp_path, "leace", "a" * 16, code={**CODE, "erasers.leace": 1, "models.mlp.MLP": 2})
    notes: list[str] = []
    (one,) = arrange(read_runs([tmp_path]), notes.append)
    assert [first(row, "bits_per_label_difference") for row in rows_of(one)] == [None, None]
    assert len([note for note in notes if ": the code of models.mlp.MLP has changed in between" in note]) == 1
    assert pd.isna(difference(tmp_path))


def test_an_eraser_of_your_own_is_compared_with_the_control(tmp_path: Path) -> None:
    theirs = write(tmp_path, "control", "a" * 16)
    ours = write(tmp_path, "leace", "a" * 16, code={**CODE, "erasure": "0123456789abcdef", "mine": "fedcba9876543210"})
    assert difference(tmp_path) == pytest.approx(sum(ours) / 2 - sum(theirs) / 2)
