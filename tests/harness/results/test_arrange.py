"""Entries of tables: runs and seeds that are one, labels, settings, differences to the control, and what is damaged."""

import shutil
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np
import pandas as pd
import pytest

from conf.groups import keys
from harness.loss_curves import CurveRow
from harness.result import Result
from harness.result_fields import Timing
from harness.results.arrange import arrange, finished_rows, rows_of
from harness.results.columns import Row, first, members_of, values
from harness.results.read import StoredRun, read_runs
from harness.run_directory import Run
from harness.statistics import Difference, holm, paired_difference
from mdl.codelength_report import scaling_panels, table_of
from mdl.result import MdlResult
from tests.made_up_runs import edit_result, made_up, result_json, stored, trained, write_run, write_small_run
from train.final_losses_report import measured


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def result(eraser: dict | None = None, model: dict | None = None, **config) -> Result:
    sections = {
        "dataset": {"name": "digits"},
        "eraser": {"name": "control"} | (eraser or {}),
        "model": {"name": "mlp", "width": 8} | (model or {}),
        "train": {"lr": 0.1},
        "seeds": [0, 1],
    }
    return made_up(config=sections | {"runs_dir": "nowhere"} | config)


def coding(**config) -> StoredRun:
    """An unfinished run of `python -m mdl`."""
    return StoredRun(Path("mdl-x"), result(**config).config, None, "interrupted")


def models_of(frame: pd.DataFrame) -> list[str]:
    return [*dict.fromkeys(map(str, frame["model"]))]


def erasers_of(frame: pd.DataFrame) -> list[str]:
    return [*dict.fromkeys(map(str, frame["eraser"]))]


def names_of(frames: list[pd.DataFrame], name: str) -> list[str]:
    return [str(first(frame, name)) for frame in frames]


def entry(*runs: StoredRun) -> pd.DataFrame:
    (only,) = arrange(runs)
    (entry,) = rows_of(only)
    return entry


def stored_run(root: Path, seeds: list[int], losses: list[float]) -> StoredRun:
    run = Run(root, f"train-seeds-{seeds}")
    run.save_curves(
        CurveRow(100, seed, e, None, loss + (3 - e)) for seed, loss in zip(seeds, losses, strict=True) for e in range(4)
    )
    result = made_up(run.id, seeds=seeds, final={"loss_bits": losses, "accuracy": [0.5 for _ in losses]})
    return StoredRun(run.directory, result.config, result)


def test_runs_of_different_seeds_are_one_and_no_seed_counts_twice(tmp_path: Path) -> None:
    one = entry(stored_run(tmp_path, [2, 3], [2.0, 3.0]), stored_run(tmp_path, [0, 2], [0.5, 9.0]))
    assert (sorted(one["seed"]), [*dict.fromkeys(one["run_id"])]) == (
        [0, 2, 3],
        ["train-seeds-[2, 3]", "train-seeds-[0, 2]"],
    )
    assert sorted(one["test_loss_bits"]) == [0.5, 2.0, 3.0]
    assert {seed: result.final.loss_bits[s] for seed, (result, s) in members_of(one).items()} == {
        0: 0.5,
        2: 2.0,
        3: 3.0,
    }
    curves = dict(zip(one["seed"], one["loss_curve"], strict=True))
    assert curves[2].validation_bits.tolist() == [5.0, 4.0, 3.0, 2.0]
    assert first(one, "incomplete") == ""


def test_a_run_whose_seeds_others_have_is_left_out_with_a_line(tmp_path: Path) -> None:
    notes: list[str] = []
    runs = [stored_run(tmp_path, seeds, [2.0 for _ in seeds]) for seeds in ([1], [0, 1], [2])]
    (table,) = arrange(runs, notes.append)
    assert sorted(table["seed"]) == [0, 1, 2]
    (line,) = notes
    assert line.endswith("train-seeds-[1]: left out: other runs of the same configuration have its seeds")


def test_an_entry_without_a_finished_run_says_so(tmp_path: Path) -> None:
    config = stored_run(tmp_path, [0], [1.0]).config | {"seeds": [0]}
    started = StoredRun(tmp_path / "train-x", config, None, "interrupted")
    assert (first(entry(started), "incomplete"), values(entry(started), "seed")) == ("interrupted", [])


def test_the_control_comes_first_and_nothing_stands_for_what_was_not_run() -> None:
    (grid,) = arrange(stored([result({"name": "leace"}), result(model={"name": "linear"}), result()]))
    lines = zip(grid["model"], grid["eraser"], grid["is_control"], strict=True)
    shown = [*dict.fromkeys((str(model), str(eraser), is_control) for model, eraser, is_control in lines)]
    assert shown == [("linear", "control", True), ("mlp", "control", True), ("mlp", "leace", False)]
    assert {*grid["incomplete"]} == {""}


def test_what_varies_among_namesakes_is_in_their_label() -> None:
    (grid,) = arrange(
        stored([result(model={"width": w}) for w in (16, 8)] + [result(model={"name": "linear", "width": 8})])
    )
    assert models_of(grid) == ["linear", "mlp (width=8)", "mlp (width=16)"]
    (grid,) = arrange(stored([result(), *(result({"name": "alf", "directions": d}) for d in (15, 5))]))
    assert erasers_of(grid) == ["control", "alf (directions=5)", "alf (directions=15)"]


def test_runs_of_different_settings_are_different_tables() -> None:
    runs = [result({"name": e}, train=keys("train", t)) for t in ("default", "quick") for e in ("control", "leace")]
    grids = arrange(stored([*runs, result(train=keys("train", "quick") | {"lr": 0.5})]))
    settings = ("train=default", "train=quick", "train=quick, train.lr=0.5")
    assert names_of(grids, "title") == [f"train: digits, {setting}" for setting in settings]
    assert [models_of(grid) for grid in grids] == [["mlp"]] * 3
    assert [erasers_of(grid) for grid in grids] == [["control", "leace"], ["control", "leace"], ["control"]]
    coded = [coding(mdl=keys("mdl", "paper") | {"code": code}) for code in ("blocks", "replay")]
    (grid,) = arrange(coded)  # but not those that differ in the code of the labels
    assert first(grid, "setting") == "train.lr=0.1, mdl=paper"
    assert models_of(grid) == ["mlp", "mlp (mdl.code=replay)"]
    linear = coding(mdl=keys("mdl", "paper"), model={"name": "linear"})
    assert models_of(*arrange([linear, coded[1]])) == ["linear", "mlp (mdl.code=replay)"]  # no title says it
    assert models_of(*arrange([linear, coded[0]])) == ["linear", "mlp"]


def test_files_of_one_name_in_two_folders_are_told_apart() -> None:
    def arrays(path: str) -> Result:
        return result(dataset={"name": "arrays", "path": path})

    same = arrange(stored([arrays("a/x.npz"), arrays("b/x.npz")]))
    assert sorted(names_of(same, "title")) == [
        f"train: arrays (path={path}), train.lr=0.1" for path in ("a/x.npz", "b/x.npz")
    ]
    others = arrange(stored([arrays("a/x.npz"), arrays("b/y.npz")]))
    assert {*names_of(others, "dataset")} == {"arrays (path=x.npz)", "arrays (path=y.npz)"}


def test_image_folders_are_distinguished_by_their_last_folder_and_not_by_where_that_is() -> None:
    def folder(root: str) -> Result:
        return result(dataset={"name": "image_folder", "root": root, "size": 16})

    (one,) = arrange(stored([folder("data/cifar10"), folder("/elsewhere/cifar10")]))
    assert first(one, "title") == "train: image folder (root=cifar10), train.lr=0.1"
    both = arrange(stored([folder("data/cifar10"), folder("data/cifar10-again")]))
    assert names_of(both, "dataset") == ["image_folder (root=cifar10)", "image_folder (root=cifar10-again)"]
    digits = arrange(stored([result(dataset={"name": "digits", "root": root}) for root in ("data", "elsewhere")]))
    assert names_of(digits, "dataset") == ["digits"]  # whose name says what it is


def test_of_two_runs_that_differ_in_their_code_alone_the_newer_counts(caplog) -> None:
    older, newer = (
        replace(result(), code={"results": version}, run_id=f"run-{version}", timing=Timing(started=float(version)))
        for version in (1, 2)
    )
    for both in ([older, newer], [newer, older]):
        assert values(entry(*stored(both)), "run_id") == ["run-2"]
        assert "run-1: left out: run-2 has the same configuration and seeds and is newer" in caplog.messages.pop()


def test_folders_of_one_name_but_of_other_sizes_stand_in_tables_of_their_own(runs) -> None:
    """A control of 2,880 images once was the baseline of one of 9,976, which was said to backfire."""
    write_small_run(runs, "control", command="train")
    write_small_run(runs, "leace", command="train")
    more = write_small_run(runs, "control", command="train", seeds=(2, 3))
    config = result_json(more)["config"]
    config["dataset"]["root"] = "elsewhere"
    edit_result(more, train_size=9976, config=config)
    blocks = arrange(read_runs([runs]))
    assert sorted((first(block, "table"), len(rows_of(block))) for block in blocks) == [
        ("train-digits-train_size-48976", 2), ("train-digits-train_size-9976", 1),
    ]  # fmt: skip
    smaller = write_small_run(runs, "control", command="train", seeds=(4, 5))
    edit_result(smaller, train_size=9976, config=config | {"dataset": config["dataset"] | {"size": 16}})
    edit_result(more, config=config | {"dataset": config["dataset"] | {"size": None}})
    assert sorted(names_of(arrange(read_runs([runs])), "dataset")) == [
        "digits (train_size=48976)", "digits (train_size=9976)", "digits (train_size=9976, size=16)",
    ]  # fmt: skip
    shutil.rmtree(smaller.directory)
    edit_result(more, train_size=48976, config=config)
    (block,) = arrange(read_runs([runs]))
    assert [sorted(row["seed"]) for row in rows_of(block)] == [[0, 1, 2, 3], [0, 1]]


def test_what_is_missing_is_shown_and_not_averaged_away(runs) -> None:
    write_small_run(runs, "control", seeds=(0, 1, 2))
    write_small_run(runs, "leace", seeds=(0, 2))
    write_small_run(runs, "control", options={"width": 64}, seeds=(0, 1, 2))
    (block,) = arrange(read_runs([runs]))
    narrow, control, leace = rows_of(block)
    assert [first(entry, "incomplete") for entry in (narrow, control, leace)] == ["", "", "2 of 3 seeds"]
    assert "Not finished: MLP (width=128), LEACE (2 of 3 seeds)." in table_of(block).caption()
    # paired with the same seeds of the control, whatever else that has
    bits = [values(row, "bits_per_label") for row in (leace, control)]
    expected = [bits[0][i] - bits[1][j] for i, j in ((0, 0), (1, 2))]
    assert first(leace, "bits_per_label_difference").mean == pytest.approx(sum(expected) / 2)


def test_two_codes_of_the_same_labels_share_a_block_each_beside_its_own_control(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for code in ("blocks", "replay"):
        for eraser in ("control", "leace"):
            for width in (64, 128):
                write_run(runs, dataset="digits", eraser=eraser, coding=code, options={"width": width}, seeds=range(3))
    write_run(runs, dataset="digits", eraser="control", preset="quick")
    block, quick = arrange(read_runs([runs]))
    labels = [
        "mlp (width=64)",
        "mlp (width=64, mdl.code=replay)",
        "mlp (width=128)",
        "mlp (width=128, mdl.code=replay)",
    ]
    assert models_of(block) == labels
    assert names_of([block, quick], "setting") == ["train=paper, mdl=paper", "train=quick, mdl=quick"]
    replayed = {first(row, "eraser").name: row for row in rows_of(block) if str(first(row, "model")) == labels[1]}
    expected = mean(replayed["leace"]["bits_per_label"]) - mean(replayed["control"]["bits_per_label"])
    assert f"{first(replayed['leace'], 'bits_per_label_difference')}".startswith(f"{expected:+.3f} ±")
    panels = scaling_panels(finished_rows(rows_of(block)), "width")  # a line never mixes codes
    shown = [[*dict.fromkeys(str(first(entry, "model")) for entry in entries)] for _, entries in panels]
    assert shown == [labels[::2], labels[1::2]]
    assert [title for title, _ in panels] == ["MLP", "MLP (mdl.code=replay)"]
    alone = tmp_path / "alone"
    write_run(alone, dataset="digits", coding="replay")
    (only,) = arrange(read_runs([alone]))
    assert first(only, "setting") == "train=paper, mdl=paper, mdl.code=replay"


def test_differences_are_those_of_erased_runs_with_a_control_in_their_row() -> None:
    entries = rows_of(arrange(stored([trained(), trained("leace"), trained("leace", width=9)]))[0])
    compared = [
        (str(first(entry, "model")), str(first(entry, "eraser")))
        for entry in entries
        if first(entry, "test_loss_bits_difference") is not None
    ]
    assert compared == [("mlp (width=8)", "leace")]
    assert [first(entry, "is_control") for entry in entries] == [True, False, False]


def test_what_stands_in_one_table_is_corrected_together() -> None:
    runs = [trained(losses=[1.0, 2.0, 3.0]), trained("leace", [1.5, 2.4, 3.6]), trained("qleace", [1.4, 2.5, 3.4])]
    alone = [paired_difference(one.final.loss_bits, runs[0].final.loss_bits) for one in runs[1:]]
    differences = [first(row, "test_loss_bits_difference") for row in rows_of(arrange(stored(runs))[0])]
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
                    train_size=max(test_bits),
                    final={"loss_bits": bits, "accuracy": [0.5 for _ in bits]})  # fmt: skip
    assert isinstance(mdl_result, MdlResult)
    return mdl_result


def against(erased: MdlResult, control: MdlResult) -> tuple[Difference, Row]:
    erased = replace(erased, config={**erased.config, "eraser": {"name": "leace"}})
    _, entry = rows_of(measured(arrange(stored([control, erased]))[0]))
    return first(entry, "test_loss_bits_difference"), entry


def test_backfire_is_significant_and_paired() -> None:
    control = code_result([1.0, 2.0, 3.0], {10: [3.0] * 3, 100: [2.0] * 3})
    below_gap, below = against(code_result([0.8, 1.7, 2.8], {10: [3.1] * 3, 100: [1.8] * 3}), control)
    assert below_gap.below
    assert first(below, "crossing_size") == 100
    assert below_gap.mean == pytest.approx(-0.7 / 3)
    assert below_gap.standard_error == pytest.approx(np.std([-0.2, -0.3, -0.2], ddof=1) / 3**0.5)
    above_gap, above = against(code_result([1.2, 2.3, 3.2], {10: [3.1] * 3, 100: [2.2] * 3}), control)
    assert not above_gap.below
    assert first(above, "crossing_size") is None
    unclear_gap, unclear = against(code_result([0.0, 2.5, 3.0], {10: [3.1] * 3, 100: [1.9] * 3}), control)
    assert not unclear_gap.below  # below on average, but not significantly
    assert first(unclear, "crossing_size") == 100
    assert first(unclear, "crossing_epoch") is None
    _, alike = against(code_result([1.0] * 3), code_result([1.0] * 3))
    assert first(alike, "crossing_size") is None  # one training on everything has no sizes
