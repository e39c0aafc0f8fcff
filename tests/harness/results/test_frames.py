"""Frames of finished runs: their columns, their numbers, and what is said of runs that cannot be read."""

import itertools
import json
import math
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from erasure.store.storage import save_tensors
from harness.results import compare, load
from harness.results.frames import CURVE, LOSSES, RUNS, UNFINISHED
from mdl.__main__ import COMMAND as MDL
from tests.runs import write_information_run, write_run


def test_a_row_per_run_and_seed_has_what_result_json_has(tmp_path: Path) -> None:
    run = write_run(tmp_path, eraser="leace", options={"width": 64}, seeds=[3, 5])
    stored = json.loads((run.directory / "result.json").read_text())
    runs = load(tmp_path).runs
    assert list(runs.columns[: len(RUNS)]) == list(RUNS)
    assert runs["seed"].tolist() == [3, 5]
    assert runs["bits_per_label"].tolist() == stored["mdl"]["bits_per_sample"]
    assert runs["published_units"].tolist() == stored["mdl"]["published"]
    assert runs["test_loss_bits"].tolist() == stored["final"]["loss_bits"]
    assert runs["model.width"].tolist() == [64, 64]
    assert runs["certificate.train.covariance_gap"].tolist() == [0.7, 0.7]
    assert runs["f_si_nats"].isna().all()
    assert set(runs["setting"]) == {"train=paper, mdl=paper"}


def test_the_excess_is_the_code_less_what_as_many_labels_cost_at_the_end(tmp_path: Path) -> None:
    """EDL (Donoway et al. 2026), label by label."""
    write_run(tmp_path, seeds=[3])
    results = load(tmp_path)
    costs = {0: math.log2(10), **results.curve.set_index("n")["next_loss_bits"].dropna()}
    sizes = [*costs, 48976]
    code = sum((after - before) * costs[before] for before, after in itertools.pairwise(sizes))
    excess, loss = (results.runs[name].item() for name in ("excess_bits", "test_loss_bits"))
    assert excess == pytest.approx(code - 48976 * loss, rel=1e-12)


def test_labels_that_say_nothing_have_no_excess(command, tmp_path: Path) -> None:
    """Labels drawn at random, five times: seeds alone do not cover what the test split's few labels happen to be."""
    quick = ["model=linear", "eraser=control", "train=quick", "train.max_epochs=20", "logger.mode=disabled"]
    found = []
    for draw in range(5):
        generator, path = np.random.default_rng(draw), tmp_path / f"noise{draw}.npz"
        np.savez(path, x=generator.normal(size=(900, 6)), y=generator.integers(0, 4, 900))
        sizes = ["mdl.num_chunks=3", "mdl.min_chunk=60", f"runs_dir=runs{draw}"]
        assert command(MDL, "dataset=arrays", f"dataset.path={path}", "seeds=[0,1]", *quick, *sizes).code == 0
        runs = load(f"runs{draw}").runs
        found.append(runs["excess_bits"].mean() / runs["total_bits"].mean())
    assert abs(np.mean(found)) < 0.01
    assert abs(np.mean(found)) <= 3 * np.std(found, ddof=1) / 5**0.5


def test_a_learning_curve_has_a_row_per_size_and_seed(tmp_path: Path) -> None:
    run = write_run(tmp_path, seeds=[0, 1])
    curve = load(tmp_path).curve
    stored = json.loads((run.directory / "result.json").read_text())["curve"]
    assert list(curve.columns) == list(CURVE)
    assert curve.groupby("n")["test_loss_bits"].apply(list).to_dict() == {
        point["n"]: point["ce_test_bits"] for point in stored
    }
    assert curve.loc[curve["n"] == stored[-1]["n"], "next_loss_bits"].isna().all()


def test_loss_curves_are_those_on_disk(tmp_path: Path) -> None:
    run = write_run(tmp_path, command="train", seeds=[0, 1])
    losses = load(tmp_path).losses
    stored = pd.read_csv(run.directory / "curves.csv")
    stored = stored[stored["n"] == stored["n"].max()]
    assert list(losses.columns) == list(LOSSES)
    for name in ("seed", "epoch", "train_loss_bits", "validation_loss_bits"):
        np.testing.assert_array_equal(losses[name], stored[name])


def test_every_command_is_read(tmp_path: Path) -> None:
    write_run(tmp_path, command="mdl")
    write_run(tmp_path, command="train")
    write_information_run(tmp_path)
    results = load(tmp_path)
    assert set(results.runs["command"]) == {"mdl", "train", "sample_info"}
    scored = results.runs[results.runs["command"] == "sample_info"]
    assert scored["f_si_nats"].notna().all()
    assert scored["accuracy"].tolist() == [0.95, 0.95]
    assert results.problems == []


def test_damaged_foreign_and_unfinished_runs_are_listed(tmp_path: Path) -> None:
    write_run(tmp_path, eraser="control")
    damaged, unfinished = write_run(tmp_path, eraser="leace"), write_run(tmp_path, eraser="qleace")
    (damaged.directory / "result.json").write_text("{")
    (unfinished.directory / "result.json").unlink()
    curves = write_run(tmp_path, eraser="gradient")
    (curves.directory / "curves.csv").write_text("n,seed\n1")
    results = load(tmp_path)
    assert set(results.runs["eraser"]) == {"control", "gradient"}
    assert list(results.unfinished.columns) == list(UNFINISHED)
    assert results.unfinished["run_id"].tolist() == [unfinished.id]
    assert any(str(damaged.directory) in line for line in results.problems)
    assert set(results.losses["run_id"]) == set(results.runs.loc[results.runs["eraser"] == "control", "run_id"])
    assert any(str(curves.directory) in line for line in results.problems)


def test_an_empty_folder_gives_empty_frames_and_a_missing_one_is_named(tmp_path: Path) -> None:
    results = load(tmp_path)
    assert (len(results.runs), len(results.curve), len(results.losses), len(results.unfinished)) == (0, 0, 0, 0)
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        load(tmp_path / "nowhere")


def test_runs_are_paired_where_only_eraser_and_seeds_differ(tmp_path: Path) -> None:
    write_run(tmp_path, eraser="control", seeds=[0])
    write_run(tmp_path, eraser="leace", seeds=[1, 2])
    assert load(tmp_path).runs["pair_id"].nunique() == 1
    write_run(tmp_path, eraser="leace", lr=0.5)
    write_run(tmp_path, eraser="leace", options={"width": 64})
    write_run(tmp_path, eraser="leace", dataset="svhn")
    assert load(tmp_path).runs["pair_id"].nunique() == 4


def row_of(table: pd.DataFrame, eraser: str = "leace") -> dict[Hashable, Any]:
    """Return the row of an eraser."""
    (row,) = (row for row in table.to_dict("records") if row["eraser"] == eraser)
    return row


def frame(**changes: list) -> pd.DataFrame:
    """Three seeds of a control and of LEACE."""
    columns = {
        "run_id": ["a"] * 3 + ["b"] * 3,
        "directory": ["a"] * 3 + ["b"] * 3,
        "dataset": ["digits"] * 6,
        "model": ["mlp"] * 6,
        "setting": ["train=default"] * 6,
        "eraser": ["control"] * 3 + ["leace"] * 3,
        "pair_id": ["p"] * 6,
        "eraser_id": ["c"] * 3 + ["l"] * 3,
        "started": [0.0] * 6,
        "seed": [0, 1, 2, 2, 1, 0],  # not in the same order
        "bits_per_label": [1.0, 2.0, 2.0, 4.0, 3.0, 2.0],
    }
    return pd.DataFrame(columns | changes)


def test_the_comparison_by_hand() -> None:
    """Differences 1, 1 and 2 of seeds 0, 1 and 2: mean 4/3, standard error 1/3, t = 4 with two degrees of freedom."""
    control, leace = compare(frame()).to_dict("records")
    assert np.isnan(control["difference"])
    assert not control["significant"]
    assert leace["mean"] == 3
    assert leace["std"] == 1
    assert leace["difference"] == pytest.approx(4 / 3)
    assert leace["standard_error"] == pytest.approx(1 / 3)
    assert leace["p_value"] == pytest.approx(1 - 4 / np.sqrt(18))  # Student's t: 1 - t / sqrt(t² + 2)
    assert not leace["backfires"]


def test_p_values_are_corrected_together_and_stay_in_order() -> None:
    """Holm's: the least of two is doubled, the other is at least as large."""
    other = frame(eraser=["control"] * 3 + ["qleace"] * 3, eraser_id=["c"] * 3 + ["q"] * 3,
                  bits_per_label=[1.0, 2.0, 2.0, 0.0, 1.0, 0.1])[3:]  # fmt: skip
    both = compare(pd.concat([frame(), other]))
    least, other_row = sorted((row_of(both, "leace"), row_of(both, "qleace")), key=lambda row: row["p_value"])
    assert least["p_holm"] == pytest.approx(2 * least["p_value"])
    assert other_row["p_holm"] == pytest.approx(max(other_row["p_value"], least["p_holm"]))


def test_a_run_that_ends_significantly_below_the_control_backfires() -> None:
    assert row_of(compare(frame(bits_per_label=[3.0, 4.0, 5.0, 4.0, 3.0, 2.0])))["backfires"]
    assert not row_of(compare(frame(bits_per_label=[2.0, 3.0, 4.0, 5.0, 4.0, 3.0])))["backfires"]


def test_only_common_seeds_are_compared_and_one_has_no_error() -> None:
    row = row_of(compare(frame(seed=[0, 1, 2, 2, 8, 9])))
    assert row["seeds"] == 3
    assert row["difference"] == 2.0
    assert np.isnan(row["standard_error"])
    assert np.isnan(row_of(compare(frame(seed=[0, 1, 2, 7, 8, 9])))["difference"])


def test_of_two_runs_of_one_seed_the_later_counts() -> None:
    again = frame(started=[1.0] * 6, bits_per_label=[9.0] * 6)[3:]
    assert row_of(compare(pd.concat([again, frame()])))["mean"] == 9


def test_a_column_that_is_no_number_is_refused_with_the_choice() -> None:
    with pytest.raises(ValueError, match=r"value='setting' is no column of numbers: choose from .*bits_per_label"):
        compare(frame(), "setting")


def test_the_error_over_test_examples_is_the_bootstraps(tmp_path: Path) -> None:
    bits = {"control": torch.tensor([[1.0, 2.0, 3.0, 4.0]]), "leace": torch.tensor([[2.0, 2.0, 4.0, 4.0]])}
    for eraser, own in bits.items():
        run = write_run(tmp_path, command="train", eraser=eraser, seeds=[0])
        save_tensors(run.directory / "test_bits.safetensors", {"test_bits": own}, {"seeds": [0]})
    row = row_of(compare(load(tmp_path).runs, "test_loss_bits"))
    assert row["error_over_examples"] == pytest.approx(0.25)  # differences 1, 0, 1, 0: deviation 0.5, over sqrt(4)
