"""Made-up finished runs of `python -m sample_info`, for reports to be timed and tested on."""

import itertools
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from conf.groups import keys
from erasure.store.storage import save_tensors, sealed
from harness.run import Run, run_id

_ERASERS = ("control", "leace", "alf_qleace", "qleace", "gradient")
_SHRUNK = {"control": 1.0, "leace": 0.5, "alf_qleace": 0.4, "qleace": 0.2, "gradient": 0.25}
_EXAMPLES, _REMOVED = 1000, (0.0, 0.25, 0.5, 0.75)
_FALLS = {"bottom": 0.05, "random": 0.15, "top": 0.4}  # accuracy lost where nothing is left
_SIZE_PX = (440, 290)  # of noise, which takes as many bytes as a run's own figure


def write_information_runs(root: Path, count: int) -> list[Run]:
    """`count` runs: eraser fastest, then width, seeds of the subset, classes."""
    choices = itertools.product(("all", [4, 9]), range(200), (256, 512, 1024), _ERASERS)
    return [
        write_information_run(root, eraser, width=width, classes=classes, subset_seed=subset_seed)
        for classes, subset_seed, width, eraser in itertools.islice(choices, count)
    ]


def write_information_run(
    root: Path,
    eraser: str = "control",
    *,
    width: int = 1024,
    classes: Sequence[int] | str = "all",
    subset_seed: int = 0,
    seeds: Sequence[int] = (0, 1),
    **changes: Any,
) -> Run:
    """One made-up run with its scores and figure; `changes` of result.json's keys."""
    config = {group: {"name": name, **keys(group, name)} for group, name in (("dataset", "digits"), ("eraser", eraser))}
    config["model"] = keys("model", "wide_mlp") | {"width": width}
    config["sample_info"] = keys("sample_info", "default") | {"classes": classes, "subset_seed": subset_seed}
    config |= {"seeds": list(seeds), "dtype": "float32", "runs_dir": str(root), "cache_dir": "cache", "device": "cpu"}
    run = Run(root, run_id("sample_info", config, {}))
    draw = random.Random(run.id)
    result = {
        "run_id": run.id,
        "verb": "sample_info",
        "config": config,
        "seeds": list(seeds),
        "num_classes": 10 if classes == "all" else len(classes),
        "train_size": _EXAMPLES,
        "held_out_size": _EXAMPLES,
        "parameters": 100 * width,
        "information": {
            name: [_summary(scale * _SHRUNK[eraser] * draw.uniform(0.9, 1.1)) for _ in seeds]
            for name, scale in (("f_si_nats", 1e-5), ("si_nats", 1e-3))
        },
        "network": {
            f"{of}_accuracy": [share for _ in seeds]
            for of, share in (("train", 0.98), ("test", 0.95), ("left_out", 0.9))
        },
        "references": {},
        "how": [{"kernel": "exact"} for _ in seeds],
        "between_seeds": {"pearson": 0.4, "std": None},
        "groups": {
            name: {"examples": n, "mean_nats": [scale * _SHRUNK[eraser] for _ in seeds]}
            | {key: [0.7 for _ in seeds] for key in ("auroc", "auroc_si")}
            for name, n, scale in (("first half", 500, 2e-5), ("second half", 500, 5e-6))
        },
        "summaries": {
            "network": "linearized",
            "removed": list(_REMOVED),
            "accuracy": {order: [_accuracies(fall) for _ in seeds] for order, fall in _FALLS.items()},
            "classes_left": {order: [[2 for _ in _REMOVED] for _ in seeds] for order in _FALLS},
            "random_draws": [[_accuracies(_FALLS["random"]) for _ in range(5)] for _ in seeds],
        },
        "certificate": {"train": {"mean_gap": 0.8, "covariance_gap": 0.7, "edit_size": 0.0, "out_of_range": 0.0}},
        "timing": {"seconds": 10.0, "started": 1.7e9, "stacking": None},
        "versions": {"python": "3.11", "device": "cpu", "erasure-mdl": "0.1.0", "torch": "2.11"},
    }
    run.directory.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_scores(root, eraser, len(seeds), subset_seed), run.directory / "scores.safetensors")
    shutil.copyfile(_figure(root), run.directory / "scores.png")
    (run.directory / "config.yaml").write_text(json.dumps(config))
    (run.directory / "result.json").write_text(sealed(result | changes))
    return run


def _accuracies(fall: float) -> list[float]:
    return [0.95 - fall * fraction for fraction in _REMOVED]


def _summary(mean_nats: float) -> dict[str, Any]:
    return {
        "mean_nats": mean_nats,
        "mean_bits": mean_nats / 0.6931,
        "median_nats": mean_nats / 2,
        "largest_nats": 9 * mean_nats,
        "share_of_top_tenth": 0.4,
        "mean_nats_by_class": [mean_nats] * 2,
        "most_informative": list(range(10)),
        "least_informative": list(range(10, 20)),
    }


def _scores(root: Path, eraser: str, seeds: int, subset_seed: int) -> Path:
    """One file of scores per eraser and subset, to be copied: writing one safely takes far longer than that."""
    path = root / ".made-up" / f"{eraser}-{seeds}-{subset_seed}.safetensors"
    if not path.exists():
        generator = torch.Generator().manual_seed(_ERASERS.index(eraser))
        base = torch.randn(_EXAMPLES, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
        noise = torch.randn(seeds, _EXAMPLES, generator=generator, dtype=torch.float64)
        f_si = 1e-5 * _SHRUNK[eraser] * (base + 0.5 * noise).exp()
        labels = torch.arange(_EXAMPLES) % 10
        index = torch.arange(_EXAMPLES) + _EXAMPLES * subset_seed
        about = {"index": index, "label": labels, "given_label": labels.clone()}
        save_tensors(path, about | {"f_si_nats": f_si, "si_nats": 100 * f_si}, {"seeds": list(range(seeds))})
    return path


def _figure(root: Path) -> Path:
    path = root / ".made-up" / "scores.png"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.frombytes("L", _SIZE_PX, random.Random(0).randbytes(_SIZE_PX[0] * _SIZE_PX[1])).save(path)
    return path
