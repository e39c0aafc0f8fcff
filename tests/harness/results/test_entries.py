"""Runs of one entry of a table as one: their seeds, curves and losses, and what is damaged."""

from pathlib import Path

import torch

from harness.example_bits import save_test_bits
from harness.loss_curves import CurveRow
from harness.results.arrange import Entry, arrange
from harness.results.read import StoredRun
from harness.run_directory import Run
from tests.made_up_runs import made_up


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
