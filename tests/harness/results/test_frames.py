"""Frames of finished runs: their columns, their numbers, and what is said of runs that cannot be read."""

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conf.groups import keys
from harness.results import load
from harness.results.frames import CURVE, LOSSES, RUNS, UNFINISHED, pair_id
from mdl.__main__ import COMMAND as MDL
from tests.made_up_runs import edit_result, result_json, trained, write_information_run, write_run


def test_every_column_is_described_and_none_is_empty_in_runs_of_all_commands(tmp_path: Path) -> None:
    write_run(tmp_path, command="train", seeds=[0], ended=["patience"], best_epoch=[3], untrained=[False],
              left_plateau=[True])  # fmt: skip
    run = write_run(tmp_path, seeds=[0], data="0123456789abcdef")
    curve = [point | {"left_plateau": [True]} for point in result_json(run)["curve"]]
    edit_result(run, curve=curve, mdl=result_json(run)["mdl"] | {"calibrated_bits_per_sample": [2.0]})
    run = write_information_run(tmp_path, seeds=[0])
    scores = result_json(run)["information"]
    edit_result(run, information=scores | {"si_sgd_nats": scores["si_nats"]})
    page = (Path(__file__).parents[3] / "docs/api/results.md").read_text(encoding="utf-8")
    _, *sections = page.split("\n`Results.")
    described, *others = ([*re.findall(r"^\| `(\w+)` \| \w", section, re.MULTILINE)] for section in sections)
    runs = load(tmp_path).runs
    assert {*described} == {name for name in runs if "." not in str(name)} - {"dtype"}  # an option
    assert described[: len(RUNS)] == [*RUNS]
    assert others == [[*CURVE], [*LOSSES], [*UNFINISHED]]
    assert [name for name in described if runs[name].isna().all()] == []


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
    assert "f_si_nats" not in runs
    assert set(runs["setting"]) == {"train=paper, mdl=paper"}


def test_columns_of_a_training_have_the_values_of_its_seeds(tmp_path: Path) -> None:
    of_seeds = {  # result.json's values of two seeds, all different
        "epochs": [40, 50], "best_epoch": [0, 45], "ended": ["patience", "max_epochs"],
        "untrained": [True, False], "left_plateau": [False, True],
    }  # fmt: skip
    final = {"loss_bits": [1.0, 1.1], "accuracy": [0.6, 0.7], "train_loss_bits": [1.2, 1.3],
             "validation_loss_bits": [1.4, 1.5], "end_train_loss_bits": [1.6, 1.7]}  # fmt: skip
    drops = {"window_epochs": 5, "bits": [0.1, 0.2], "epoch": [3, 4]}
    write_run(
        tmp_path, command="train", seeds=[0, 1], final=final, sharp_drop=drops, label_entropy_bits=3.3, **of_seeds
    )
    (row, other) = load(tmp_path).runs.to_dict("records")
    columns = {
        "epochs": (40, 50), "best_epoch": (0, 45), "ended": ("patience", "max_epochs"), "untrained": (1, 0),
        "final_on_plateau": (True, False), "test_loss_bits": (1.0, 1.1), "accuracy": (0.6, 0.7),
        "train_loss_bits": (1.2, 1.3), "validation_loss_bits": (1.4, 1.5), "end_train_loss_bits": (1.6, 1.7),
        "sharp_drop_bits": (0.1, 0.2), "sharp_drop_epoch": (3, 4), "label_entropy_bits": (3.3, 3.3),
    }  # fmt: skip
    assert {name: (row[name], other[name]) for name in columns} == columns


def test_columns_of_a_codelength_count_trainings_that_were_of_no_use(tmp_path: Path) -> None:
    run = write_run(tmp_path, seeds=[0, 1])
    stored = result_json(run)
    left, untrained = ([[0, 1], [0, 1], [1, 1], [1, 0]], [[1, 1], [0, 1], [0, 0], [1, 0]])  # by size and seed
    for point, *of_seeds in zip(stored["curve"], left, untrained, strict=True):
        point["left_plateau"], point["untrained"] = ([*map(bool, values)] for values in of_seeds)
    codelength = stored["mdl"] | {"calibrated_bits_per_sample": [1.8, 1.9]}
    edit_result(run, curve=stored["curve"], mdl=codelength)
    runs = load(tmp_path).runs
    assert runs["coding_on_plateau"].tolist() == [2, 0]  # of the first three sizes
    assert runs["final_on_plateau"].tolist() == [False, True]
    assert runs["untrained"].tolist() == [2, 2]
    assert runs["total_bits"].tolist() == stored["mdl"]["total_bits"]
    assert runs["calibrated_bits_per_label"].tolist() == [1.8, 1.9]


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
    excess_shares = []
    for draw in range(5):
        generator, path = np.random.default_rng(draw), tmp_path / f"noise{draw}.npz"
        np.savez(path, x=generator.normal(size=(900, 6)), y=generator.integers(0, 4, 900))
        sizes = ["mdl.num_chunks=3", "mdl.min_chunk=60", f"runs_dir=runs{draw}"]
        assert command(MDL, "dataset=arrays", f"dataset.path={path}", "seeds=[0,1]", *quick, *sizes).code == 0
        runs = load(f"runs{draw}").runs
        excess_shares.append(runs["excess_bits"].mean() / runs["total_bits"].mean())
    assert abs(np.mean(excess_shares)) < 0.01
    assert abs(np.mean(excess_shares)) <= 3 * np.std(excess_shares, ddof=1) / 5**0.5


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


def test_a_rate_that_the_preset_sets_by_eraser_pairs_with_the_control() -> None:
    """The paper's code trains an MLP on gradient-erased images at 1e-4, others at 5e-4."""
    published = keys("train", "published") | {"betas": [0.95, 0.999], "warmup_steps": 1000}
    control, erased, other = (
        replace(one, config=one.config | {"train": published | {"lr": lr}})
        for one, lr in ((trained(), 5e-4), (trained("gradient"), 1e-4), (trained("leace"), 1e-4))
    )
    assert pair_id(erased) == pair_id(control)
    assert pair_id(other) != pair_id(control)
