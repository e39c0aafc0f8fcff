"""Entries of tables: runs and seeds that are one, labels, settings, and what is damaged."""

import shutil
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from conf.groups import keys
from harness.loss_curves import CurveRow
from harness.result import Result
from harness.result_fields import Timing
from harness.results.arrange import Comparison, Entry, arrange
from harness.results.columns import table_of
from harness.results.figures import scaling_panels
from harness.results.read import StoredRun, read_runs
from harness.run_directory import Run
from tests.made_up_runs import edit_result, made_up, result_json, write_run, write_small_run


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


def models_of(comparison: Comparison) -> list[str]:
    return [*dict.fromkeys(str(entry["model"]) for entry in comparison.entries)]


def erasers_of(comparison: Comparison) -> list[str]:
    return [*dict.fromkeys(str(entry["eraser"]) for entry in comparison.entries)]


def entry(*runs: StoredRun) -> Entry:
    (only,) = arrange(runs)
    (entry,) = only.entries
    return entry


def stored_run(root: Path, seeds: list[int], losses: list[float]) -> StoredRun:
    run = Run(root, f"seeds-{seeds}")
    run.save_curves(
        CurveRow(100, seed, e, None, loss + (3 - e)) for seed, loss in zip(seeds, losses, strict=True) for e in range(4)
    )
    return StoredRun.finished(
        made_up(run.id, seeds=seeds, final={"loss_bits": losses, "accuracy": losses}), run.directory
    )


def test_runs_of_different_seeds_are_one_and_no_seed_counts_twice(tmp_path: Path) -> None:
    one = entry(stored_run(tmp_path, [2, 3], [2.0, 3.0]), stored_run(tmp_path, [0, 2], [0.5, 9.0]))
    assert (sorted(one["seed"]), [*dict.fromkeys(one["run_id"])]) == ([0, 2, 3], ["seeds-[2, 3]", "seeds-[0, 2]"])
    assert sorted(one["test_loss_bits"]) == [0.5, 2.0, 3.0]
    assert {seed: result.final.loss_bits[s] for seed, (result, s) in one["members"].items()} == {0: 0.5, 2: 2.0, 3: 3.0}
    assert one["curves"][2].validation_bits.tolist() == [5.0, 4.0, 3.0, 2.0]
    assert one["incomplete"] == ""


def test_an_entry_without_a_finished_run_says_so(tmp_path: Path) -> None:
    started = StoredRun("x", tmp_path, stored_run(tmp_path, [0], [1.0]).config, "train", [0], None, "interrupted")
    assert (entry(started)["incomplete"], entry(started)["seed"]) == ("interrupted", [])


def test_what_is_damaged_is_told_once_and_left_out(tmp_path: Path, caplog) -> None:
    run = stored_run(tmp_path, [0], [1.0])
    (run.directory / "curves.csv").write_text("damaged")
    one = entry(run)
    assert one["curves"] == {}
    (line,) = caplog.messages
    assert "no loss curves" in line


def test_the_control_comes_first_and_nothing_stands_for_what_was_not_run() -> None:
    (grid,) = arrange([result({"name": "leace"}), result(model={"name": "linear"}), result()])
    shown = [(str(entry["model"]), str(entry["eraser"]), entry["is_control"]) for entry in grid.entries]
    assert shown == [("linear", "control", True), ("mlp", "control", True), ("mlp", "leace", False)]
    assert {entry["incomplete"] for entry in grid.entries} == {""}


def test_what_varies_among_namesakes_is_in_their_label() -> None:
    (grid,) = arrange([result(model={"width": w}) for w in (16, 8)] + [result(model={"name": "linear", "width": 8})])
    assert models_of(grid) == ["linear", "mlp (width=8)", "mlp (width=16)"]
    (grid,) = arrange([result(), *(result({"name": "alf", "directions": d}) for d in (15, 5))])
    assert erasers_of(grid) == ["control", "alf (directions=5)", "alf (directions=15)"]


def test_runs_of_different_settings_are_different_tables() -> None:
    runs = [result({"name": e}, train=keys("train", t)) for t in ("default", "quick") for e in ("control", "leace")]
    grids = arrange([*runs, result(train=keys("train", "quick") | {"lr": 0.5})])
    settings = ("train=default", "train=quick", "train=quick, train.lr=0.5")
    assert [grid.title for grid in grids] == [f"train: digits, {setting}" for setting in settings]
    assert [models_of(grid) for grid in grids] == [["mlp"]] * 3
    assert [erasers_of(grid) for grid in grids] == [["control", "leace"], ["control", "leace"], ["control"]]
    coded = [result(mdl=keys("mdl", "paper") | {"code": code}) for code in ("blocks", "replay")]
    (grid,) = arrange(coded)  # but not those that differ in the code of the labels
    assert grid.entries[0]["setting"] == "train.lr=0.1, mdl=paper"
    assert models_of(grid) == ["mlp", "mlp (mdl.code=replay)"]


def test_image_folders_are_told_apart_by_their_last_folder_and_not_by_where_that_is() -> None:
    def folder(root: str) -> Result:
        return result(dataset={"name": "image_folder", "root": root, "size": 16})

    (one,) = arrange([folder("data/cifar10"), folder("/elsewhere/cifar10")])
    assert one.title == "train: image folder (root=cifar10), train.lr=0.1"
    both = arrange([folder("data/cifar10"), folder("data/cifar10-again")])
    names = [str(each.entries[0]["dataset"]) for each in both]
    assert names == ["image_folder (root=cifar10)", "image_folder (root=cifar10-again)"]
    (digits,) = arrange([result(dataset={"name": "digits", "root": root}) for root in ("data", "elsewhere")])
    assert str(digits.entries[0]["dataset"]) == "digits"  # whose name says what it is


def test_of_two_runs_that_differ_in_their_code_alone_the_newer_counts(caplog) -> None:
    older, newer = (
        replace(result(), code={"train": version}, run_id=f"run-{version}", timing=Timing(started=float(version)))
        for version in (1, 2)
    )
    for both in ([older, newer], [newer, older]):
        (entry,) = arrange(both)[0].finished
        assert entry["run_id"] == ["run-2"]
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
    assert sorted((block.name, len(block.entries)) for block in blocks) == [
        ("train-digits-train_size-48976", 2), ("train-digits-train_size-9976", 1),
    ]  # fmt: skip
    smaller = write_small_run(runs, "control", command="train", seeds=(4, 5))
    edit_result(smaller, train_size=9976, config=config | {"dataset": config["dataset"] | {"size": 16}})
    edit_result(more, config=config | {"dataset": config["dataset"] | {"size": None}})
    assert sorted(str(block.entries[0]["dataset"]) for block in arrange(read_runs([runs]))) == [
        "digits (size=16, train_size=9976)", "digits (train_size=48976)", "digits (train_size=9976)",
    ]  # fmt: skip
    shutil.rmtree(smaller.directory)
    edit_result(more, train_size=48976, config=config)
    (block,) = arrange(read_runs([runs]))
    assert [sorted(entry["members"]) for entry in block.finished] == [[0, 1, 2, 3], [0, 1]]


def test_what_is_missing_is_shown_and_not_averaged_away(runs) -> None:
    write_small_run(runs, "control", seeds=(0, 1, 2))
    write_small_run(runs, "leace", seeds=(0, 2))
    write_small_run(runs, "control", options={"width": 64}, seeds=(0, 1, 2))
    (block,) = arrange(read_runs([runs]))
    narrow, control, leace = block.entries
    assert [entry["incomplete"] for entry in (narrow, control, leace)] == ["", "", "2 of 3 seeds"]
    assert "†2 of 3 seeds" in table_of(block).markdown()
    assert "†: not finished, or fewer seeds" in table_of(block).caption()
    # paired with the same seeds of the control, whatever else that has
    expected = [leace["bits_per_label"][i] - control["bits_per_label"][j] for i, j in ((0, 0), (1, 2))]
    assert leace["bits_per_label_difference"].mean == pytest.approx(sum(expected) / 2)


def test_runs_of_different_seeds_belong_together(runs) -> None:
    write_small_run(runs, "leace", seeds=(0, 1))
    write_small_run(runs, "leace", seeds=(3,))
    write_small_run(runs, "control", seeds=(0, 1, 3))
    (block,) = arrange(read_runs([runs]))
    _, leace = block.entries
    assert sorted(leace["members"]) == [0, 1, 3]
    assert leace["incomplete"] == ""
    assert leace["test_loss_bits_difference"] is not None


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
    settings = [each.entries[0]["setting"] for each in (block, quick)]
    assert settings == ["train=paper, mdl=paper", "train=quick, mdl=quick"]
    replayed = {entry["eraser"].name: entry for entry in block.entries if str(entry["model"]) == labels[1]}
    expected = mean(replayed["leace"]["bits_per_label"]) - mean(replayed["control"]["bits_per_label"])
    assert f"{replayed['leace']['bits_per_label_difference']}".startswith(f"{expected:+.3f} ±")
    panels = scaling_panels(block.finished, "width")  # a line never mixes codes
    shown = [[*dict.fromkeys(str(entry["model"]) for entry in entries)] for _, entries in panels]
    assert shown == [labels[::2], labels[1::2]]
    assert [title for title, _ in panels] == ["MLP", "MLP (mdl.code=replay)"]
    alone = tmp_path / "alone"
    write_run(alone, dataset="digits", coding="replay")
    (only,) = arrange(read_runs([alone]))
    assert only.entries[0]["setting"] == "train=paper, mdl=paper, mdl.code=replay"
