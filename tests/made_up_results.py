"""Made-up results for tests that need one, and do not mind what is in it."""

from typing import Any

from harness.result import Result, result_of

CERTIFICATE = {"n": 100, "mean_gap": 0.0, "covariance_gap": 0.0, "edit_size": 0.0, "out_of_range": 0.0, "rounding": 0.0}


def made_up(run_id: str = "x", **changes: Any) -> Result:
    """A finished run of `python -m train`; `changes` of result.json's keys."""
    seeds = changes.get("seeds", [0])
    per_seed = [1.0 for _ in seeds]
    content = {
        "verb": "train",
        "run_id": run_id,
        "config": {part: {"name": name} for part, name in (("dataset", "d"), ("eraser", "control"), ("model", "m"))},
        "seeds": seeds,
        "num_classes": 10,
        "train_size": 100,
        "parameters": 8,
        "certificate": {"train": CERTIFICATE, "test": CERTIFICATE},
        "timing": {},
        "versions": {},
        "final": {"loss_bits": per_seed, "accuracy": per_seed},
        "label_entropy_bits": 3.3,
        "epochs": [5 for _ in seeds],
    }
    if "command" in changes:
        changes["verb"] = changes.pop("command")
    return result_of(content | changes)
