"""Entries of tables: runs and seeds that are one, labels, settings, and what is damaged."""

from dataclasses import replace
from pathlib import Path

import torch

from conf.groups import keys
from harness.example_bits import save_test_bits
from harness.loss_curves import CurveRow
from harness.result import Result
from harness.result_fields import Timing
from harness.results.arrange import Comparison, Entry, arrange, by_setting
from harness.results.read import StoredRun
from harness.run_directory import Run
from tests.made_up_runs import made_up


def result(eraser: dict | None = None, model: dict | None = None, **config) -> Result:
    sections = {
        "dataset": {"name": "digits"},
        "eraser": {"name": "control"} | (eraser or {}),
        "model": {"name": "mlp", "width": 8} | (model or {}),
        "train": {"lr": 0.1},
        "seeds": [0, 1],
    }
    return made_up(config=sections | {"runs_dir": "nowhere"} | config)


def rows_of(comparison: Comparison) -> list[str]:
    return [*map(str, comparison.rows)]


def columns_of(comparison: Comparison) -> list[str]:
    return [str(eraser) for eraser in comparison.erasers]


def entry(*runs: StoredRun) -> Entry:
    (only,) = arrange(runs).entries
    return only


def stored_run(root: Path, seeds: list[int], losses: list[float]) -> StoredRun:
    run = Run(root, f"seeds-{seeds}")
    run.save_curves(
        CurveRow(100, seed, e, None, loss + (3 - e)) for seed, loss in zip(seeds, losses, strict=True) for e in range(4)
    )
    save_test_bits(run, seeds, torch.full((len(seeds), 5), 2.0))
    return StoredRun.finished(
        made_up(run.id, seeds=seeds, final={"loss_bits": losses, "accuracy": losses}), run.directory
    )


def test_runs_of_different_seeds_are_one_and_no_seed_counts_twice(tmp_path: Path) -> None:
    one = entry(stored_run(tmp_path, [2, 3], [2.0, 3.0]), stored_run(tmp_path, [0, 2], [0.5, 9.0]))
    assert (sorted(one["seed"]), [*dict.fromkeys(one["run_id"])]) == ([0, 2, 3], ["seeds-[2, 3]", "seeds-[0, 2]"])
    assert sorted(one["test_loss_bits"]) == [0.5, 2.0, 3.0]
    assert {seed: result.final.loss_bits[s] for seed, (result, s) in one["members"].items()} == {0: 0.5, 2: 2.0, 3: 3.0}
    assert one["curves"][2].validation_bits.tolist() == [5.0, 4.0, 3.0, 2.0]
    assert one["final_loss_test_error"] == 0.0
    assert one["incomplete"] == ""


def test_an_entry_without_a_finished_run_says_so(tmp_path: Path) -> None:
    started = StoredRun("x", tmp_path, stored_run(tmp_path, [0], [1.0]).config, "train", [0], None, "interrupted")
    assert (entry(started)["incomplete"], entry(started)["seed"]) == ("interrupted", [])


def test_what_is_damaged_is_told_once_and_left_out(tmp_path: Path, caplog) -> None:
    run = stored_run(tmp_path, [0], [1.0])
    for name in ("curves.csv", "test_bits.safetensors"):
        (run.directory / name).write_text("damaged")
    one = entry(run)
    assert (one["curves"], one["final_loss_test_error"]) == ({}, None)
    curves, test_bits = caplog.messages
    assert "no loss curves" in curves
    assert test_bits.endswith("no error over test examples")


def test_rows_and_columns_with_the_control_first() -> None:
    grid = arrange([result({"name": "leace"}), result(), result(model={"name": "linear"})])
    assert rows_of(grid) == ["digits · mlp", "digits · linear"]
    assert columns_of(grid) == ["control", "leace"]
    assert [[entry["is_control"] for entry in entries] for entries in grid.rows.values()] == [[True, False]] * 2
    missing = [(str(entry["model"]), str(entry["eraser"])) for entry in grid.entries if entry["incomplete"]]
    assert missing == [("digits · linear", "leace")]


def test_what_varies_among_namesakes_is_in_their_label() -> None:
    grid = arrange([result(model={"width": w}) for w in (8, 16)] + [result(model={"name": "linear", "width": 8})])
    assert rows_of(grid) == ["digits · mlp (width=8)", "digits · mlp (width=16)", "digits · linear"]
    grid = arrange([result(train={"lr": lr}) for lr in (0.1, 0.2)])
    assert rows_of(grid) == ["digits · mlp (train.lr=0.1)", "digits · mlp (train.lr=0.2)"]
    grid = arrange([result(), *(result({"name": "alf", "directions": d}) for d in (5, 15))])
    assert columns_of(grid) == ["control", "alf (directions=5)", "alf (directions=15)"]


def test_runs_of_different_settings_are_different_tables() -> None:
    runs = [result({"name": e}, train=keys("train", t)) for t in ("default", "quick") for e in ("control", "leace")]
    grids = by_setting([*runs, result(train=keys("train", "quick") | {"lr": 0.5})])
    assert [grid.setting for grid in grids] == ["train=default", "train=quick", "train=quick, train.lr=0.5"]
    assert [rows_of(grid) for grid in grids] == [["digits · mlp"]] * 3
    assert [columns_of(grid) for grid in grids] == [["control", "leace"], ["control", "leace"], ["control"]]
    assert rows_of(arrange(runs)) == ["digits · mlp (train=default)", "digits · mlp (train=quick)"]
    coded = [result(mdl=keys("mdl", "paper") | {"code": code}) for code in ("blocks", "replay")]
    (grid,) = by_setting(coded)  # but not those that differ in the code of the labels
    assert grid.setting == "train.lr=0.1, mdl=paper"
    assert rows_of(grid) == ["digits · mlp", "digits · mlp (mdl.code=replay)"]


def test_of_two_runs_that_differ_in_their_code_alone_the_newer_counts(caplog) -> None:
    older, newer = (
        replace(result(), code={"train": version}, run_id=f"run-{version}", timing=Timing(started=float(version)))
        for version in (1, 2)
    )
    for both in ([older, newer], [newer, older]):
        (entry,) = arrange(both).run
        assert entry["run_id"] == ["run-2"]
        assert "run-1: left out: run-2 has the same configuration and seeds and is newer" in caplog.messages.pop()
