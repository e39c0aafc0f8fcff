"""Codelengths by networks trained at growing sizes: sums in bits, resuming, a full disk."""

import errno
import json
import math
from pathlib import Path

import pytest
import torch

import erasure.store.checked_files
from conf.compose import composed
from erasure.store.checked_files import load_tensors
from harness.run_directory import Run
from mdl import block_code
from mdl.__main__ import COMMAND as MDL
from mdl.online_code import online_code_bits
from mdl.settings import MdlConfig
from train.prepared_training import PreparedTraining
from train.randomness import permutation, permutations
from train.settings import num_held_out

SMALL = ["model=linear", "eraser=control", "train=quick", "train.max_epochs=3", "mdl.num_chunks=3", "seeds=[0,1]"]
SMALL += ["train.stack=all", "logger.mode=disabled", "cache_dir=cache"]


def numbers(runs: str) -> tuple[dict, list[str]]:
    """A run's numbers and its loss curves."""
    (path,) = Path(runs).glob("mdl-*/result.json")
    result = json.loads(path.read_text())
    fields = {name: result[name] for name in ("run_id", "mdl", "curve", "final")}
    return fields, (path.parent / "curves.csv").read_text().splitlines()


def test_the_order_of_the_sizes_changes_nothing_but_itself(command, monkeypatch: pytest.MonkeyPatch) -> None:
    step, trained = Run.step, []

    def note(self: Run, name: str, compute) -> object:
        trained.append(name)
        return step(self, name, compute)

    monkeypatch.setattr(Run, "step", note)
    assert command(MDL, *SMALL, "runs_dir=smallest").code == 0
    assert command(MDL, *SMALL, "runs_dir=largest", "mdl.order=largest_first").code == 0
    sizes = [name for name in trained if name.isdigit()]
    assert sizes[3:] == sizes[2::-1] == sorted(sizes[:3], key=int, reverse=True)
    assert numbers("smallest") == numbers("largest")
    files = (path for runs in ("smallest", "largest") for path in Path(runs).glob("*/bits.safetensors"))
    smallest, largest = (load_tensors(path)[0]["bits"] for path in files)
    assert torch.equal(smallest, largest)


def test_what_each_label_cost_is_kept_and_adds_up(command) -> None:
    assert command(MDL, *SMALL, "runs_dir=runs").code == 0
    (path,) = Path("runs").glob("mdl-*/result.json")
    result, (coded, about) = json.loads(path.read_text()), load_tensors(path.with_name("bits.safetensors"))
    assert about["seeds"] == [0, 1]
    assert coded["bits"].sum(1).tolist() == pytest.approx(result["mdl"]["total_bits"], rel=1e-5)
    sizes = [point["n"] for point in result["curve"]]
    for row, trained_on, seed in zip(coded["bits"], coded["trained_on"], about["seeds"], strict=True):
        order = permutation(seed, sizes[-1])
        for n, following, point in zip(sizes, sizes[1:], result["curve"], strict=False):
            part = order[n:following]
            assert trained_on[part].unique().tolist() == [n]
            assert float(row[part].mean()) == pytest.approx(point["ce_next_bits"][seed], rel=1e-5)
        assert row[order[: sizes[0]]].unique().tolist() == pytest.approx([math.log2(10)])
    assert len(coded["labels"].bincount()) == 10
    for seed, bits in enumerate(result["mdl"]["calibrated_bits_per_sample"]):  # by the temperatures that are said
        losses = [point["ce_next_calibrated_bits"][seed] for point in result["curve"][:-1]]
        assert bits == pytest.approx(online_code_bits(sizes, losses, 10) / sizes[-1])
    assert all(0.01 < t < 100 for point in result["curve"][:-1] for t in point["temperature"])
    assert result["curve"][-1].get("temperature") is None


def test_a_code_that_pays_for_its_validation_labels_never_looks_at_the_validation_split(command, monkeypatch) -> None:
    paid = [*SMALL, "mdl.validation=prefix", "mdl.min_chunk=100"]
    assert command(MDL, *paid, "runs_dir=whole").code == 0
    code_labels, loaded = block_code.code_labels, []

    def poisoned(prepared: PreparedTraining, *rest):
        validation = prepared.data["validation"]
        validation.labels.copy_(validation.labels.flip(0))
        loaded.append(prepared)
        return code_labels(prepared, *rest)

    monkeypatch.setattr(block_code, "code_labels", poisoned)
    assert command(MDL, *paid, "runs_dir=poisoned").code == 0
    ensemble, train = loaded[0].ensemble, loaded[0].data["train"]
    trained_on = permutations([0, 1], len(train))[:, : -num_held_out(len(train))]
    (path,) = Path("poisoned").glob("mdl-*/weights.safetensors")
    expected = ensemble.score(load_tensors(path)[0], train, trained_on).bits.tolist()
    assert numbers("poisoned")[0]["curve"][-1]["ce_train_bits"] == pytest.approx(expected, rel=1e-5)
    assert numbers("poisoned") == numbers("whole")
    assert command(MDL, *SMALL, "mdl.min_chunk=100", "runs_dir=given").code == 0
    assert numbers("given")[0]["run_id"] != numbers("whole")[0]["run_id"]
    assert numbers("given")[0]["mdl"] != numbers("whole")[0]["mdl"]


def test_a_full_disk_ends_the_run_and_costs_nothing_that_was_finished(command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(MDL, *SMALL, "runs_dir=undisturbed").code == 0
    save_file, saved = erasure.store.checked_files.save_file, []

    def no_space(tensors, path, metadata=None) -> None:
        if len(saved) == 4:
            Path(path).write_bytes(b"half of a checkpoint")
            raise OSError(errno.ENOSPC, "No space left on device")
        saved.append(path)
        save_file(tensors, path, metadata=metadata)

    with monkeypatch.context() as disk:
        disk.setattr(erasure.store.checked_files, "save_file", no_space)
        disk.setattr("train.checkpoint._MAX_SHARE", 1e9)  # save before every step, however long that takes
        failed = command(MDL, *SMALL, "runs_dir=full", "train.checkpoint_every_s=0.001")
    assert failed.code == 1
    assert "no space left on disk" in failed.err
    (directory,) = Path("full").iterdir()
    assert not list(directory.glob(".*"))
    assert len(list(directory.glob("checkpoint-*"))) in (1, 2)
    assert command(MDL, *SMALL, "runs_dir=full").code == 0
    assert numbers("full") == numbers("undisturbed")


@pytest.mark.parametrize("words", [[], ["mdl.code=replay"], ["train=published"], ["model=kernel"]])
def test_sizes_that_do_not_fit_are_refused_before_an_eraser_is_fitted(words: list[str], tmp_path) -> None:
    asked = ["mdl.num_chunks=600", f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache", *words]
    with pytest.raises(ValueError, match=r"mdl.num_chunks=600 chunks of at least .* set mdl.num_chunks to at most \d+"):
        MDL.experiment(composed("mdl", asked, MdlConfig)).carry_out(MDL.prepare, MDL.axes)
    assert not [*tmp_path.glob("cache/*")]
