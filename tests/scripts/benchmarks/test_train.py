"""Training in both arrangements of the seeds, timed on the same work."""

import argparse
import re

from scripts.benchmarks.train import TrainingBenchmark


def test_both_arrangements_end_at_the_same_validation_loss() -> None:
    options = {"dataset": "cifar", "samples": 100, "model": "linear", "seeds": 2, "epochs": 1, "width": None}
    bench = TrainingBenchmark(argparse.Namespace(**options, images="", device="cpu"))
    notes = {row.who: row.note for row in bench.compare()}
    losses = [
        re.findall(r"validation (\S+) bits", notes[who]) for who in ("ours, in one network", "ours, one after another")
    ]
    assert losses[0] == losses[1] != []
