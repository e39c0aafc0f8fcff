"""`python -m mdl` in miniature, through its real command line."""

import csv
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from erasure.datasets.digits import Digits
from erasure.store.cache import Cache
from erasure.store.checked_files import read_json
from harness.command import end_sweep
from harness.sweep_files import Sweep, SweepJob
from mdl.__main__ import COMMAND as MDL
from models.classifier import Classifier
from tests.wandb_file import only_run
from train.epoch_trainer import EpochTrainer

QUICK = ["train=quick", "train.max_epochs=12", "mdl=quick", "seeds=[0,1,2]"]
TINY = ["train=quick", "train.max_epochs=2", "mdl=quick", "seeds=[0,1]", "logger.mode=disabled"]


def sweep_directory() -> Path:
    (directory,) = Path("runs/sweeps").iterdir()
    return directory


def result_of(identity: str) -> dict:
    return read_json(Path("runs") / identity / "result.json")


def test_a_sweep_compares_erasers_and_models_and_loads_nothing_again(command, monkeypatch, real_figures) -> None:
    arguments = ["-m", "eraser=control,leace", "model=linear,mlp", *QUICK, "logger.mode=disabled", "device=cpu"]
    first = command(MDL, *arguments)
    assert first.code == 0, first.err
    results = [read_json(path) for path in Path("runs").glob("*/result.json")]
    assert len(results) == 4
    table = first.out[first.out.index("mdl: digits") :]
    for expected in ("control", "LEACE", "MLP", "linear", "bits per label", "Δ to control", "seeds"):
        assert expected in table
    figure = Path(first.out.split("figure: ")[1].splitlines()[0])
    assert Image.open(figure).size[0] > 1000
    with (sweep_directory() / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    leace = next(row for row in rows if row["eraser"] == "leace" and "mlp" in row["model"])
    assert float(leace["bits_per_label_difference"]) > 2 * float(leace["bits_per_label_standard_error"]) > 0
    assert float(leace["certificate.train.mean_gap"]) < 1e-6

    def touch(*_: object, **__: object) -> None:
        raise AssertionError("touched")

    for owner, name in (
        (Digits, "load"), (Cache, "fetch"), (Classifier, "__init__"), (torch.cuda, "is_available"),
        (torch.cuda, "device_count"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, touch)
    again = command(MDL, *arguments)
    assert again.code == 0, again.err
    assert "4 of 4 runs finished" in again.out
    assert first.out[first.out.index("mdl: digits") : first.out.index("4 of 4 runs")] in again.out
    other = command(MDL, *arguments, "train.max_epochs=2")  # the negative control
    assert other.code == 1
    assert "touched" in other.err


def test_a_run_that_had_finished_names_its_tables_and_makes_missing_ones_with_the_control_of_now(command) -> None:
    arguments = ["eraser=leace", "model=linear", *TINY]
    alone = command(MDL, *arguments)
    assert "no finished control run to compare with" in alone.out
    assert command(MDL, *arguments, "eraser=control").code == 0
    (run,) = Path("runs").glob("mdl-digits-leace-*")
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    headline, *named = command(MDL, *arguments).out.splitlines()
    assert headline.partition("  (")[0] == alone.out.partition("  (")[0]
    assert named == [
        f"figure: {run}/comparison.png",
        f"tables: {run}/table.md",
        "made when the run ended; python -m scripts.report runs compares it with all runs",
    ]
    assert {path.name: path.stat().st_mtime_ns for path in run.iterdir()} == before
    (run / "table.md").unlink()
    assert "Δ to control" in command(MDL, *arguments).out
    assert "Δ to control" in (run / "table.md").read_text()


def test_a_result_holds_what_it_says_it_holds(command) -> None:
    outcome = command(MDL, "eraser=leace", "model=linear", *QUICK)
    assert outcome.code == 0, outcome.err
    (path,) = Path("runs").glob("*/result.json")
    result = read_json(path)
    assert result["run_id"] == path.parent.name
    assert result["seeds"] == [0, 1, 2]
    sizes = [point["n"] for point in result["curve"]]
    assert sizes[-1] == result["train_size"] == 1295
    for point in result["curve"]:
        for name in ("ce_test_bits", "epochs", "test_accuracy", "untrained", "left_plateau"):
            assert len(point[name]) == 3
        assert set(point["ended"]) <= {"patience", "max_epochs"}
    assert result["curve"][-1]["ce_next_bits"] is None
    for s in range(3):
        nexts = [point["ce_next_bits"][s] for point in result["curve"][:-1]]
        total = sizes[0] * math.log2(10) + sum((b - a) * ce for a, b, ce in zip(sizes, sizes[1:], nexts, strict=False))
        assert result["mdl"]["total_bits"][s] == pytest.approx(total)
        assert result["mdl"]["bits_per_sample"][s] == pytest.approx(total / 1295)
        tested = [point["ce_test_bits"][s] for point in result["curve"][:-1]]
        published = sum(n * bits for n, bits in zip(sizes[1:], tested, strict=True)) / 1295
        assert result["mdl"]["published"][s] == pytest.approx(published)
    assert result["final"]["train_loss_bits"] == result["curve"][-1]["ce_train_bits"]
    # the theorem: a linear model on data without class means stays at chance
    assert result["mdl"]["bits_per_sample"] == pytest.approx([math.log2(10)] * 3, abs=0.03)
    assert set(result["certificate"]) == {"train", "validation", "test"}
    assert {"python", "torch", "device", "erasure-mdl", "commit"} <= set(result["versions"])
    assert result["config"]["train"]["max_epochs"] == 12
    with (path.parent / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["n"] for row in rows} == {str(n) for n in sizes}
    assert not list(path.parent.glob("step-*"))
    logged = only_run(path.parent)
    assert logged.exit_code == 0
    assert logged.run.run_id == result["run_id"]
    assert logged.config["model"]["name"] == "linear"
    points = {row["mdl/n"]: row.get("mdl/ce_test_bits") for row in logged.history if "mdl/n" in row}
    assert list(points) == sizes
    assert points[1295] == pytest.approx(sum(result["curve"][-1]["ce_test_bits"]) / 3)
    assert logged.summary["result/bits_per_sample"] == pytest.approx(sum(result["mdl"]["bits_per_sample"]) / 3)
    assert any("loss/epoch" in row for row in logged.history)


def test_a_single_run_is_compared_with_its_control_if_that_has_run(command, monkeypatch) -> None:
    tiny = [*TINY, "model=linear"]
    command(MDL, "eraser=control", *tiny)
    compared = command(MDL, "eraser=leace", *tiny)
    assert compared.code == 0
    (difference,) = re.findall(r"LEACE .* (\+\d\.\d+ ± \S+)", compared.out)
    assert "no finished control" not in compared.out
    several = command(MDL, "-m", "eraser=leace,qleace", *tiny)
    assert difference in several.out
    assert len(re.findall(r"LEACE .* \+\d\.\d+ ± ", several.out)) == 2
    assert "no finished control" not in several.out
    Path("runs").rename("moved")
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert difference in command(MDL, "-m", "eraser=leace", *tiny, "runs_dir=../moved").out


def test_a_sweep_goes_on_past_a_failed_job_and_says_so(command) -> None:
    outcome = command(MDL, "-m", "train.lr=1e38,0.005", "eraser=control", "model=linear", *TINY)
    assert outcome.code == 1
    assert "1 of 2 runs finished, 1 failed" in outcome.out
    assert "failed: train.lr=1e+38 eraser=control model=linear" in outcome.err
    assert "the loss is not finite" in outcome.err
    assert "bits per label" in outcome.out
    assert len([*sweep_directory().glob("error-*.json")]) == 1


def test_an_interrupted_run_continues_after_its_last_finished_size(command, monkeypatch) -> None:
    command(MDL, *TINY)
    (path,) = Path("runs").glob("*/result.json")
    undisturbed = read_json(path)
    for file in path.parent.iterdir():
        file.unlink()
    real, trained = EpochTrainer.run, []

    def interrupted(self):
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(self.n)
        return real(self)

    monkeypatch.setattr(EpochTrainer, "run", interrupted)
    stopped = command(MDL, *TINY)
    assert stopped.code == 130
    assert "interrupted: launch the same command again to continue" in stopped.err
    assert read_json(path.parent / "state.json")["state"] == "interrupted"
    before, trained[:] = list(trained), []
    monkeypatch.setattr(EpochTrainer, "run", lambda self: (trained.append(self.n), real(self))[1])
    assert command(MDL, *TINY).code == 0
    sizes = [point["n"] for point in undisturbed["curve"]]
    assert (before, trained) == (sizes[:2], sizes[2:])
    continued = read_json(path)
    for name in ("mdl", "curve", "final", "run_id"):
        assert continued[name] == undisturbed[name]


def test_an_edited_result_is_named_and_left_out_and_computed_again(command, capsys, caplog) -> None:
    arguments = ["-m", "eraser=control,leace", "model=linear", *TINY]
    assert command(MDL, *arguments).code == 0
    (path,) = Path("runs").glob("mdl-digits-leace-*/result.json")
    whole = read_json(path)
    loss = str(whole["final"]["loss_bits"][0])
    path.write_text(path.read_text().replace(loss, "0.5"))
    sweep = Sweep(sweep_directory(), "mdl", [])
    sweep.jobs = [SweepJob(0, [], run) for run in Path("runs").glob("mdl-*")]
    assert end_sweep(MDL, sweep) == 1
    shown = capsys.readouterr()
    assert "1 of 2 runs finished, 1 failed" in shown.out
    assert "0.500" not in shown.out
    assert f"{path} was edited or damaged: its checksum does not match its content; launch the run again" in shown.err
    assert command(MDL, *arguments).code == 0
    assert "kept as result.damaged-" in caplog.text
    again = read_json(path)
    assert {key: again[key] for key in ("mdl", "curve", "final")} == {
        key: whole[key] for key in ("mdl", "curve", "final")
    }


def test_the_label_entropy_of_unequal_classes_is_stored_and_noted(command, tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).standard_normal((150, 3)), np.arange(150) % 5 == 0
    np.savez(tmp_path / "vectors.npz", x=x, y=y.astype(int))
    vectors = ["dataset=arrays", f"dataset.path={tmp_path}/vectors.npz"]
    outcome = command(MDL, "model=linear", "eraser=control", *QUICK, *vectors, "logger.mode=disabled")
    assert outcome.code == 0, outcome.err
    (path,) = Path("runs").glob("mdl-*/result.json")
    entropy = read_json(path)["label_entropy_bits"]
    assert entropy == pytest.approx(-0.8 * np.log2(0.8) - 0.2 * np.log2(0.2), abs=0.01)
    assert f"log2 k is 1.000 bits, the label entropy {entropy:.3f}" in " ".join(outcome.out.split())
