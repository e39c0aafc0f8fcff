"""Training in both arrangements of the seeds, timed on the same work."""

import argparse
import re

import pytest

from scripts.benchmarks.train import TrainingBenchmark, main


def test_both_arrangements_end_at_the_same_validation_loss() -> None:
    options = {"dataset": "cifar", "samples": 100, "model": "linear", "seeds": 2, "epochs": 1, "width": None}
    bench = TrainingBenchmark(argparse.Namespace(**options, images="", device="cpu"))
    notes = {row.who: row.note for row in bench.compare()}
    losses = [
        re.findall(r"validation (\S+) bits", notes[who]) for who in ("ours, in one network", "ours, one after another")
    ]
    assert losses[0] == losses[1] != []


def test_one_rounding_of_the_initial_weights_moves_losses_a_little() -> None:
    options = {"dataset": "digits", "samples": 100, "model": "mlp", "seeds": 2, "epochs": 2, "width": 8}
    bench = TrainingBenchmark(argparse.Namespace(**options, images="", device="cpu"))
    *_, moved = bench.compare(["rule", "nudged"])
    (away,) = re.findall(r", (\S+) bits away", moved.note)
    assert 0 < float(away) < 1e-5
    assert re.match(r"Between steps the host needs \S+ ms", bench.profile().notes[-1])


def test_mistakes_are_one_line(capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--images", "photos"])
    assert "--images=photos: goes with --dataset cifar" in capsys.readouterr().err
    assert main(["--model", "mpl"]) == 2
    assert capsys.readouterr().err.startswith("unknown model=mpl")
