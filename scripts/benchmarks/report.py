"""How long a report over many results takes.

python -m scripts.benchmarks.report                    # 2,000 synthetic results, and 1,000 of sample_info
python -m scripts.benchmarks.report --runs 200 --keep /tmp/synthetic
"""

import argparse
import functools
import itertools
import json
import math
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conf.groups import keys as read_keys
from erasure.progress import Display
from erasure.store.storage import sealed
from harness.loss_curves import sharp_drops
from harness.run import Run, run_id
from mdl.codelength import online_code_bits, paper_units
from scripts.benchmarks.report_information import write_information_runs

keys = functools.cache(read_keys)

ERASERS = ("control", "leace", "alf_qleace", "qleace", "gradient")
MODELS = ("mlp", "convnextv2", "swinv2", "lenet")
DATASETS = ("cifar10", "svhn", "digits")
_COST_BITS = {"control": 0.0, "leace": 0.35, "alf_qleace": 0.6, "qleace": 1.1, "gradient": 0.9}


def main(arguments: Sequence[str] | None = None) -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m scripts.benchmarks.report", description=__doc__, formatter_class=formatter
    )
    parser.add_argument("--runs", type=int, default=2000, help="default: %(default)s")
    parser.add_argument("--information", type=int, default=1000, help="runs of sample_info (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write runs and report here and leave them")
    options = parser.parse_args(arguments)
    from scripts.report.__main__ import main as report

    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        write_runs(folder / "runs", options.runs)
        write_information_runs(folder / "runs", options.information)
        started = time.monotonic()
        code = report([str(folder / "runs"), "--out", str(folder / "report")])
        size = (folder / "report" / "index.html").stat().st_size
        seconds = time.monotonic() - started
        print(f"{options.runs:,} results and {options.information:,} of sample_info: {seconds:.1f} s")
        print(f"index.html {size / 1e6:.1f} MB")
    return code


def write_runs(root: Path, count: int, verbs: Sequence[str] = ("mdl", "train")) -> list[Run]:
    """`count` made-up finished runs: eraser fastest, then depth, width, activation, model, dataset, verb."""
    runs = []
    widths, depths, activations = (32, 64, 128, 256, 512, 1024), (1, 2, 4, 8), ("relu", "gelu")
    choices = itertools.product((5e-3, 3e-3, 1e-3, 5e-4), verbs, DATASETS, MODELS, activations, widths, depths, ERASERS)
    meaningful = (c for c in choices if c[3] == "mlp" or c[4] == "relu")
    with Display("synthetic runs") as display:
        for i, (lr, verb, dataset, model, activation, width, depth, eraser) in enumerate(meaningful):
            if i == count:
                break
            display.update(i / count, f"{i:,} of {count:,}")
            options = {"width": width, "depth": depth} | ({"activation": activation} if model == "mlp" else {})
            runs.append(write_run(root, verb, dataset, eraser, model, options, lr=lr))
    return runs


def write_run(
    root: Path,
    verb: str = "mdl",
    dataset: str = "cifar10",
    eraser: str = "leace",
    model: str = "mlp",
    options: dict[str, Any] | None = None,
    *,
    preset: str = "paper",
    lr: float | None = None,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    **changes: Any,
) -> Run:
    """One made-up run with a plausible result, its curves, and its configuration; `changes` of result.json's keys."""
    changed = {} if lr is None else {"lr": lr}
    config = _config(verb, dataset, eraser, model, options or {}, preset, changed, seeds, root)
    identifying = ("dataset", "eraser", "model", "train", "mdl", "seeds")
    run = Run(root, run_id(verb, {key: config[key] for key in identifying if key in config}, {}))
    draw = random.Random(run.id)
    sizes = [1024, 4096, 15000, 48976]
    scale = 1 + 0.15 * math.log2(128 / config["model"].get("width", 128)) + _COST_BITS.get(eraser, 0.5)
    if eraser == "qleace" and model == "convnextv2":  # backfires
        scale *= 0.5
    losses = [[min(3.3, scale * (30 / n) ** 0.1 * 1.6 + draw.gauss(0, 0.03)) for _ in seeds] for n in sizes]
    rows = [row for n, bits in zip(sizes, losses, strict=True) for row in _curves(n, seeds, bits, draw)]
    last = [row for row in rows if row[0] == sizes[-1]]
    result: dict[str, Any] = {
        "run_id": run.id,
        "verb": verb,
        "config": config,
        "seeds": list(seeds),
        "num_classes": 10,
        "train_size": sizes[-1],
        "parameters": 1000 * config["model"].get("width", 1),
        **(_mdl(sizes, losses, seeds) if verb == "mdl" else _train(losses[-1])),
        "sharp_drop": sharp_drops(
            [([r[2] for r in last if r[1] == s], [r[4] for r in last if r[1] == s]) for s in seeds]
        ),
        "certificate": {
            split: {"n": n, "mean_gap": 4e-9, "covariance_gap": 0.7, "edit_size": 0.57, "out_of_range": 0.1,
                    "rounding": 2e-7}
            for split, n in (("train", sizes[-1]), ("validation", 1024), ("test", 10000))
        },
        "timing": {"seconds": 100.0, "started": 1.7e9, "stacking": None},
        "versions": {"python": "3.11", "device": "cpu", "erasure-mdl": "0.1.0", "torch": "2.11"},
    }  # fmt: skip
    run.directory.mkdir(parents=True, exist_ok=True)  # plain writes: nothing here is worth an fsync
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    header = "n,seed,epoch,train_loss_bits,validation_loss_bits"
    (run.directory / "curves.csv").write_text("\n".join([header, *lines, ""]))
    (run.directory / "config.yaml").write_text(json.dumps(config))
    (run.directory / "result.json").write_text(sealed(result | changes))
    return run


def _config(
    verb: str,
    dataset: str,
    eraser: str,
    model: str,
    options: dict[str, Any],
    preset: str,
    changed: dict[str, Any],
    seeds: Sequence[int],
    root: Path,
) -> dict[str, Any]:
    def section(group: str, name: str) -> dict[str, Any]:
        try:
            return {"name": name, **keys(group, name)}
        except FileNotFoundError:  # a name that nobody knows
            return {"name": name}

    chosen = {"dataset": section("dataset", dataset), "eraser": section("eraser", eraser)}
    chosen["dataset"] |= {"normalize": "zscore"} if dataset == "cifar10" else {}
    config = {**chosen, "model": section("model", model) | options, "train": keys("train", preset) | changed}
    config |= {"seeds": list(seeds), "dtype": "float32", "runs_dir": str(root), "cache_dir": "cache", "device": "cpu"}
    return config | ({"mdl": keys("mdl", preset)} if verb == "mdl" else {})


def _curves(n: int, seeds: Sequence[int], bits: Sequence[float], draw: random.Random) -> list[list[Any]]:
    rows = []
    for seed, final in zip(seeds, bits, strict=True):
        for epoch in range(50):
            loss = final + (3.32 - final) * math.exp(-epoch / 6) + draw.gauss(0, 0.005)
            rows.append([n, seed, epoch, round(0.8 * loss, 5) if epoch else None, round(loss, 5)])
    return rows


def _mdl(sizes: Sequence[int], losses: Sequence[Sequence[float]], seeds: Sequence[int]) -> dict[str, Any]:
    curve = [
        {"n": n, "ce_next_bits": list(bits) if n != sizes[-1] else None, "ce_test_bits": list(bits),
         "test_accuracy": [0.5] * len(seeds), "epochs": [49] * len(seeds), "best_epoch": [49] * len(seeds)}
        for n, bits in zip(sizes, losses, strict=True)
    ]  # fmt: skip
    columns = list(zip(*losses, strict=True))
    total = [online_code_bits(sizes, column[:-1], 10) for column in columns]
    return {
        "mdl": {
            "bits_per_sample": [bits / sizes[-1] for bits in total],
            "total_bits": total,
            "paper": [paper_units(sizes, column, sizes[-1]) for column in columns],
        },
        "curve": curve,
        "power_law": [None] * len(seeds),
        "final": {"loss_bits": list(losses[-1]), "accuracy": [0.5] * len(seeds), "train_loss_bits": list(losses[-1])},
    }


def _train(bits: Sequence[float]) -> dict[str, Any]:
    losses = ("loss_bits", "validation_loss_bits", "train_loss_bits", "end_train_loss_bits")
    return {
        "final": {**{name: list(bits) for name in losses}, "accuracy": [0.5] * len(bits)},
        "label_entropy_bits": math.log2(10),
        "epochs": [49] * len(bits),
    }


if __name__ == "__main__":
    raise SystemExit(main())
