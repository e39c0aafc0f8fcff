"""Pairing of runs with their control, and families of differences that are corrected together."""

import csv
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from conf.groups import keys
from erasure.store.checked_files import save_tensors
from harness.result import MdlResult, TrainResult
from harness.results import compare, load
from harness.results.arrange import Entry, arrange
from harness.results.frames import pair_id
from harness.statistics import Difference, holm, paired_difference
from tests.made_up_runs import made_up, write_run


def run(eraser: str = "control", losses: list[float] | None = None, width: int = 8) -> TrainResult:
    losses = losses or [1.0, 2.0]
    sections = {"dataset": {"name": "digits"}, "eraser": {"name": eraser}, "model": {"name": "mlp", "width": width}}
    seeds = list(range(len(losses)))
    config = {**sections, "seeds": seeds, "runs_dir": "nowhere"}
    result = made_up(config=config, seeds=seeds, final={"loss_bits": losses, "accuracy": losses})
    assert isinstance(result, TrainResult)
    return result


def test_differences_are_those_of_erased_runs_with_a_control_in_their_row() -> None:
    entries = arrange([run(), run("leace"), run("leace", width=9)])[0].entries
    compared = [
        (str(entry["model"]), str(entry["eraser"]))
        for entry in entries
        if entry["test_loss_bits_difference"] is not None
    ]
    assert compared == [("mlp (width=8)", "leace")]
    assert [entry["is_control"] for entry in entries] == [True, False, False]


def test_what_stands_in_one_table_is_corrected_together() -> None:
    runs = [run(losses=[1.0, 2.0, 3.0]), run("leace", [1.5, 2.4, 3.6]), run("qleace", [1.4, 2.5, 3.4])]
    alone = [paired_difference(one.final.loss_bits, runs[0].final.loss_bits) for one in runs[1:]]
    differences = [entry["test_loss_bits_difference"] for entry in arrange(runs)[0].entries]
    assert differences == [None, *holm(dict(enumerate(alone))).values()]


def code_result(finals, test_bits=None) -> MdlResult:
    bits = list(finals)
    test_bits = test_bits or {100: finals}
    points = [
        {"n": n, "ce_next_bits": at if n < max(test_bits) else None, "ce_test_bits": at, "epochs": [5 for _ in at]}
        for n, at in test_bits.items()
    ]
    code = dict.fromkeys(("bits_per_sample", "total_bits", "published"), bits)
    config = {**made_up().config, "runs_dir": "nowhere"}
    mdl_result = made_up(command="mdl", config=config, seeds=[0, 1, 2], mdl=code, curve=points,
                    train_size=max(test_bits), power_law=[None] * 3,
                    final={"loss_bits": bits, "accuracy": bits})  # fmt: skip
    assert isinstance(mdl_result, MdlResult)
    return mdl_result


def against(erased: MdlResult, control: MdlResult) -> tuple[Difference, Entry]:
    _, entry = arrange([control, replace(erased, config={**erased.config, "eraser": {"name": "leace"}})])[0].entries
    return entry["test_loss_bits_difference"], entry


def test_backfire_is_significant_and_paired() -> None:
    control = code_result([1.0, 2.0, 3.0], {10: [3.0] * 3, 100: [2.0] * 3})
    below_gap, below = against(code_result([0.8, 1.7, 2.8], {10: [3.1] * 3, 100: [1.8] * 3}), control)
    assert below_gap.below
    assert below["crossing_size"] == 100
    assert below_gap.mean == pytest.approx(-0.7 / 3)
    assert below_gap.standard_error == pytest.approx(np.std([-0.2, -0.3, -0.2], ddof=1) / 3**0.5)
    above_gap, above = against(code_result([1.2, 2.3, 3.2], {10: [3.1] * 3, 100: [2.2] * 3}), control)
    assert not above_gap.below
    assert above["crossing_size"] is None
    unclear_gap, unclear = against(code_result([0.0, 2.5, 3.0], {10: [3.1] * 3, 100: [1.9] * 3}), control)
    assert not unclear_gap.below  # below on average, but not significantly
    assert unclear["crossing_size"] == 100
    assert unclear["crossing_epoch"] is None
    _, alike = against(code_result([1.0] * 3), code_result([1.0] * 3))
    assert alike["crossing_size"] is None  # one training on everything has no sizes


def test_the_analysis_is_in_results_and_tables(command, tmp_path) -> None:
    """A small sweep of both commands: result.json, the terminal's table, table.csv."""
    from conf.sweep_process import process
    from erasure.store.checked_files import read_json
    from mdl.__main__ import COMMAND as MDL
    from train.__main__ import COMMAND as TRAIN

    quick = ["-m", "eraser=control,leace", "model=linear", "train=quick", "train.max_epochs=4", "seeds=[0,1]"]
    for chosen, extra in ((MDL, ["mdl=quick"]), (TRAIN, [])):
        outcome = command(chosen, *quick, *extra, "logger.mode=disabled")
        assert outcome.code == 0, outcome.err
        assert "test loss (bits)" in outcome.out
    for path in (tmp_path / "runs").glob("*/result.json"):
        drop = read_json(path)["sharp_drop"]
        assert drop["window_epochs"] == 5
        assert len(drop["bits"]) == len(drop["epoch"]) == 2
    command(MDL, *quick, "mdl=quick", "logger.mode=disabled")
    with (process.sweep.directory / "table.csv").open() as file:
        control, leace = csv.DictReader(file)
    assert control["test_loss_bits_difference"] == ""
    assert float(leace["test_loss_bits_difference"]) > 0
    assert 0 < float(leace["test_loss_bits_error_over_examples"]) < float(leace["test_loss_bits_difference"])
    assert 0 <= float(leace["test_loss_bits_p_holm"]) <= 1
    assert (leace["test_loss_bits_backfires"], leace["crossing_size"], leace["crossing_epoch"]) == ("False", "", "")
    assert float(control["sharp_drop_bits"]) > 0


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


def test_one_seed_is_not_tested_and_makes_no_other_p_value_larger() -> None:
    other = frame(eraser=["control"] * 3 + ["qleace"] * 3, eraser_id=["c"] * 3 + ["q"] * 3)[3:4]
    both = compare(pd.concat([frame(), other]))
    assert np.isnan([row_of(both, "qleace")[name] for name in ("p_value", "p_holm")]).all()
    assert row_of(both, "leace")["p_holm"] == row_of(both, "leace")["p_value"]


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
    for eraser, losses in bits.items():
        run = write_run(tmp_path, command="train", eraser=eraser, seeds=[0])
        save_tensors(run.directory / "test_bits.safetensors", {"test_bits": losses}, {"seeds": [0]})
    runs = load(tmp_path).runs
    error = row_of(compare(runs, "test_loss_bits"))["error_over_examples"]
    assert error == pytest.approx(0.25)  # differences 1, 0, 1, 0: deviation 0.5, over sqrt(4)
    assert np.isnan(row_of(compare(runs, "accuracy"))["error_over_examples"])  # which is no mean of these losses


def test_rows_name_the_options_in_which_they_differ() -> None:
    wide = frame(pair_id=["q"] * 6)
    runs = pd.concat(
        [frame().assign(**{"model.width": 8, "model.depth": 2}), wide.assign(**{"model.width": 16, "model.depth": 2})]
    )
    runs["eraser.rank_tolerance"] = np.where(runs["eraser"] == "leace", 1e-10, np.nan)  # no option of the control
    table = compare(runs)
    assert table["model.width"].tolist() == [8, 8, 16, 16]
    assert not {"model.depth", "eraser.rank_tolerance"} & set(table.columns)


def test_a_rate_that_the_preset_sets_by_eraser_pairs_with_the_control() -> None:
    """The paper's code trains an MLP on gradient-erased images at 1e-4, others at 5e-4."""
    published = keys("train", "published") | {"betas": [0.95, 0.999], "warmup_steps": 1000}
    control, erased, other = (
        replace(one, config=one.config | {"train": published | {"lr": lr}})
        for one, lr in ((run(), 5e-4), (run("gradient"), 1e-4), (run("leace"), 1e-4))
    )
    assert pair_id(erased) == pair_id(control)
    assert pair_id(other) != pair_id(control)
