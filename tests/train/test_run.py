"""A run's identity and its files."""

import csv
import logging
from pathlib import Path

import pytest

from train import run as run_module
from train.run import Run, run_id

DESCRIBED = {
    "dataset": {"name": "my digits/8x8", "split_seed": 0},
    "eraser": {"name": "leace"},
    "model": {"name": "mlp", "width": 8},
    "seeds": [0, 1],
}


def test_identity_is_readable_and_covers_every_value() -> None:
    identity = run_id("mdl", DESCRIBED)
    assert identity.startswith("mdl-my_digits_8x8-leace-mlp-")
    assert identity == run_id("mdl", dict(reversed(DESCRIBED.items())))
    others = [
        run_id("train", DESCRIBED),
        run_id("mdl", DESCRIBED | {"seeds": [1, 0]}),
        run_id("mdl", DESCRIBED | {"model": {"name": "mlp", "width": 9}}),
    ]
    assert len({identity, *others}) == 4


def test_the_version_of_the_numbers_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = run_id("mdl", DESCRIBED)
    monkeypatch.setattr(run_module, "RESULTS_VERSION", 10**6)
    assert run_id("mdl", DESCRIBED) != before


def test_parts_last_until_the_run_is_finished(tmp_path: Path) -> None:
    run = Run(tmp_path, "x")
    run.start("a: 1\n")
    assert run.result is None
    assert run.part("100") is None
    run.save_part("100", {"loss": 1.5})
    assert Run(tmp_path, "x").part("100") == {"loss": 1.5}
    run.finish({"run_id": "x"})
    assert run.result == {"run_id": "x"}
    assert sorted(path.name for path in run.directory.iterdir()) == ["config.yaml", "result.json", "state.json"]


def test_curves_are_plain_csv(tmp_path: Path) -> None:
    run = Run(tmp_path, "x")
    run.save_curves([[10, 0, 0, None, 3.3], [10, 0, 1, 2.5, 2.0]])
    with (run.directory / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"n": "10", "seed": "0", "epoch": "0", "train_loss_bits": "", "validation_loss_bits": "3.3"}
    assert rows[1]["train_loss_bits"] == "2.5"


def test_a_failure_leaves_its_traceback_in_the_log(tmp_path: Path) -> None:
    run = Run(tmp_path, "x")

    def fail() -> None:
        with run.logging():
            logging.getLogger("test").warning("before it broke")
            raise RuntimeError("it broke")

    with pytest.raises(RuntimeError, match="it broke") as failed:
        fail()
    text = (run.directory / "log.txt").read_text()
    assert "before it broke" in text
    assert "Traceback" in text
    assert text.rstrip().endswith("RuntimeError: it broke")
    assert failed.value.__notes__ == [f"traceback in {run.directory / 'log.txt'}"]
    logging.getLogger("test").warning("after the run")
    assert "after the run" not in (run.directory / "log.txt").read_text()
