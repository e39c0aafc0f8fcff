"""Pairing of runs with their control, and families of differences that are corrected together."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from erasure.store.checked_files import save_tensors
from harness.results import compare, load
from harness.results.columns import difference
from harness.results.comparison import with_controls
from harness.results.read import read_run
from tests.made_up_runs import write_run


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
        "code": ["{}"] * 6,
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


def test_options_that_differ_are_columns_and_certificates_and_names_are_none() -> None:
    differs = {
        "model.width": [8] * 6, "eraser.directions": [0] * 3 + [5] * 3, "train.lr": [0.1] * 6,
        "certificate.train.mean_gap": [0.5] * 3 + [0.0] * 3, "eraser.name": ["control"] * 3 + ["leace"] * 3,
    }  # fmt: skip
    narrow = frame(**differs)
    wide = narrow.assign(**{"pair_id": "q", "model.width": 16, "certificate.train.mean_gap": 0.7})
    assert "model.width" not in compare(narrow).columns
    both = compare(pd.concat([narrow, wide]))
    assert sorted(both["model.width"]) == [8, 8, 16, 16]
    options = ("train.lr", "eraser.directions", "eraser.name", "certificate.train.mean_gap")
    assert not {*options} & {*both.columns}  # the same in all rows of an eraser, or no option


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
    lower, higher = [3.0, 4.0, 5.0, 4.01, 3.0, 2.0], [2.0, 3.0, 4.0, 5.01, 4.0, 3.0]
    assert row_of(compare(frame(bits_per_label=lower)))["backfires"]
    assert not row_of(compare(frame(bits_per_label=higher)))["backfires"]
    assert not row_of(compare(frame(accuracy=lower), "accuracy"))["backfires"]
    assert row_of(compare(frame(accuracy=higher), "accuracy"))["backfires"]
    assert (difference("", "accuracy").fields or {})["accuracy_backfires"] == "above"  # in the CSV of tables


def test_only_common_seeds_are_compared_and_one_has_no_error() -> None:
    row = row_of(compare(frame(seed=[0, 1, 2, 2, 8, 9])))
    assert (row["seeds"], row["paired_seeds"]) == (3, 1)
    assert row["difference"] == 2.0
    assert np.isnan(row["standard_error"])
    two = compare(frame(seed=[0, 1, 2, 2, 1, 9])).set_index("eraser")["paired_seeds"]
    assert two.to_dict() == {"control": 0, "leace": 2}
    none = row_of(compare(frame(seed=[0, 1, 2, 7, 8, 9])))
    assert np.isnan(none["difference"])
    assert none["paired_seeds"] == 0


def test_of_two_runs_of_one_seed_the_later_counts() -> None:
    again = frame(started=[1.0] * 6, bits_per_label=[9.0] * 6)[3:]
    assert row_of(compare(pd.concat([again, frame()])))["mean"] == 9


def test_a_column_that_is_no_number_is_refused_with_the_choice() -> None:
    with pytest.raises(ValueError, match=r"value='setting' is no column of numbers: choose from .*bits_per_label"):
        compare(frame(), "setting")
    with pytest.raises(ValueError, match="value='seed' is no column of numbers: choose from started, bits_per_label"):
        compare(frame(), "seed")


def test_runs_without_their_baseline_are_refused() -> None:
    with pytest.raises(
        ValueError, match="no run of eraser=control here has bits_per_label: select runs with those of their pair_id"
    ):
        compare(frame()[frame()["eraser"] == "leace"])
    for none_left in (frame()[:0], frame(bits_per_label=[np.nan] * 6)):
        with pytest.raises(ValueError, match="no run of eraser=control here has bits_per_label"):
            compare(none_left)


def test_the_error_over_test_examples_is_the_bootstraps(tmp_path: Path) -> None:
    bits = {"control": torch.tensor([[1.0, 2.0, 3.0, 4.0]]), "leace": torch.tensor([[2.0, 2.0, 4.0, 4.0]])}
    for eraser, losses in bits.items():
        run = write_run(tmp_path, command="train", eraser=eraser, seeds=[0])
        save_tensors(run.directory / "test_bits.safetensors", {"test_bits": losses}, {"seeds": [0]})
    runs = load(tmp_path).runs
    error = row_of(compare(runs, "test_loss_bits"))["error_over_examples"]
    assert error == pytest.approx(0.25)  # differences 1, 0, 1, 0: deviation 0.5, over sqrt(4)
    assert np.isnan(row_of(compare(runs, "accuracy"))["error_over_examples"])  # which is no mean of these losses


def two_models(**changes: list) -> pd.DataFrame:
    """Three seeds of an MLP and of LeNet under LEACE."""
    models = {"model": ["mlp"] * 3 + ["lenet"] * 3, "pair_id": ["p"] * 3 + ["q"] * 3}
    return frame(**(models | {"eraser": ["leace"] * 6, "eraser_id": ["l"] * 6, "model_pair_id": ["m"] * 6} | changes))


def test_models_are_compared_under_one_eraser_by_hand() -> None:
    """The same numbers as between erasers: 4/3 ± 1/3 over three seeds."""
    mlp, lenet = compare(two_models(), baseline="mlp", by="model").to_dict("records")
    assert np.isnan(mlp["difference"])
    assert (lenet["model"], lenet["eraser"]) == ("lenet", "leace")
    assert lenet["difference"] == pytest.approx(4 / 3)
    assert lenet["standard_error"] == pytest.approx(1 / 3)
    assert lenet["paired_seeds"] == 3
    apart = two_models(model_pair_id=["m"] * 3 + ["n"] * 3)  # under different erasers
    assert compare(apart, baseline="mlp", by="model")["paired_seeds"].tolist() == [0, 0]


def test_a_baseline_that_is_no_model_or_several_is_refused() -> None:
    with pytest.raises(ValueError, match="baseline=None: name the model to compare with: mlp, lenet"):
        compare(two_models(), by="model")
    with pytest.raises(ValueError, match="no run of model=cnn here has bits_per_label"):
        compare(two_models(), baseline="cnn", by="model")
    with pytest.raises(ValueError, match="by='dataset': choose from eraser, model"):
        compare(two_models(), by="dataset")  # pyright: ignore[reportArgumentType]
    widths = two_models(model=["mlp"] * 6, **{"model.width": [8] * 3 + [16] * 3})
    with pytest.raises(ValueError, match="baseline='mlp' is the name of several models here: select one of them"):
        compare(widths, baseline="mlp", by="model")
    named = widths.assign(model=widths["model"] + widths["model.width"].astype(str))
    wide = row_of(compare(named, baseline="mlp8", by="model").query("model == 'mlp16'"))
    assert wide["difference"] == pytest.approx(4 / 3)


def test_models_of_stored_runs_are_paired_under_each_eraser(tmp_path: Path) -> None:
    for eraser in ("control", "leace"):
        for model in ("lenet", "mlp"):
            write_run(tmp_path, dataset="digits", eraser=eraser, model=model, seeds=range(3))
    runs = load(tmp_path).runs
    table = compare(runs, baseline="lenet", by="model").set_index(["eraser", "model"])["difference"]
    means = runs.groupby(["eraser", "model"])["bits_per_label"].mean()
    for eraser in ("control", "leace"):
        assert float(table[eraser, "mlp"]) == pytest.approx(means[eraser, "mlp"] - means[eraser, "lenet"])
    assert table.isna().sum() == 2, "LeNet's own"


def test_a_run_s_control_trains_at_the_rate_that_the_published_procedure_has_for_it(tmp_path: Path) -> None:
    options: Any = {"command": "train", "dataset": "digits", "seeds": (0, 1), "preset": "published"}
    run = read_run(write_run(tmp_path, eraser="gradient", lr=1e-4, **options).directory)
    assert with_controls([run]) == ([run], 1)
    write_run(tmp_path, eraser="control", lr=1e-4, **options)  # another setting: the published rate is 5e-4
    write_run(tmp_path, eraser="control", lr=5e-4, **options | {"seeds": (0,)})
    assert with_controls([run]) == ([run], 1)
    control = write_run(tmp_path, eraser="control", lr=5e-4, **options | {"seeds": (1, 0)})
    assert with_controls([run]) == ([read_run(control.directory), run], 0)


def test_a_network_called_control_is_no_control(tmp_path: Path) -> None:
    options: Any = {"command": "train", "dataset": "digits", "seeds": (0, 1), "options": {"name": "control"}}
    written = (write_run(tmp_path, eraser=eraser, **options) for eraser in ("control", "qleace", "leace"))
    control, *runs = (read_run(run.directory) for run in written)
    assert with_controls(runs) == ([control, *runs], 0)
    assert with_controls([*runs, control]) == ([*runs, control], 0)
