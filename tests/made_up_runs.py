"""Made-up results, and finished runs of every command with plausible numbers and their files."""

import json
import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from conf.commands import config_of, result_type
from conf.groups import keys
from erasure.store.checked_files import read_json, save_tensors, sealed, write_json
from harness.loss_curves import CurveRow, sharp_drops
from harness.result import Result, as_json, parsed
from harness.results.read import StoredRun
from harness.run_directory import Run
from harness.run_ids import command_of, run_id
from mdl.online_code import online_code_bits, published_units
from train.result import TrainResult

ERASERS = ("control", "leace", "alf_qleace", "qleace", "gradient")
MADE_UP = "train-d-control-m-00000000"  # id of a made-up run
_COST_BITS = {"control": 0.0, "leace": 0.35, "alf_qleace": 0.6, "qleace": 1.1, "gradient": 0.9}
_SIZES = [1024, 4096, 15000, 48976]
_EXAMPLES, _REMOVED = 1000, (0.0, 0.25, 0.5, 0.75)
_INFORMATION_KEPT = {"control": 1.0, "leace": 0.5, "alf_qleace": 0.4, "qleace": 0.2, "gradient": 0.25}
_FALLS = {"bottom": 0.05, "random": 0.15, "top": 0.4}  # accuracy lost where nothing is left
_FINISHED = {
    "timing": {"seconds": 100.0, "started": 1.7e9, "stacking": None},
    "versions": {"python": "3.11", "device": "cpu", "erasure-mdl": "0.1.0", "torch": "2.11"},
}
CERTIFICATE = {"n": 100, "mean_gap": 0.0, "covariance_gap": 0.0, "edit_size": 0.0, "out_of_range": 0.0, "rounding": 0.0}


def made_up(run_id: str = "", **changes: Any) -> Result:
    """A finished run of `mdl` or `train`; `changes` of result.json's keys, and of those of its configuration."""
    command = changes.setdefault("command", command_of(run_id or MADE_UP))
    seeds = changes.get("seeds", [0])
    per_seed = [1.0 for _ in seeds]
    config = {part: {"name": name} for part, name in (("dataset", "d"), ("eraser", "control"), ("model", "m"))}
    config |= {section: {} for section in config_of(command).sections()} | {"seeds": seeds}
    content = {
        "run_id": run_id or MADE_UP.replace("train", command),
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
        "mdl": {
            "bits_per_sample": per_seed,
            "total_bits": [100.0 for _ in seeds],
            "published": [published_units([10, 100], [1.0]) for _ in seeds],
        },
        "curve": [
            {"n": n, "ce_next_bits": following, "ce_test_bits": per_seed, "epochs": [5 for _ in seeds]}
            for n, following in ((10, per_seed), (100, None))
        ],
    }
    return parsed(result_type(command), content | changes | {"config": config | changes.get("config", {})})


def write_run(
    root: Path,
    command: str = "mdl",
    dataset: str = "cifar10",
    eraser: str = "leace",
    model: str = "mlp",
    options: dict[str, Any] | None = None,
    *,
    preset: str = "paper",
    coding: str = "blocks",
    lr: float | None = None,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    path: str | None = None,
    **changes: Any,
) -> Run:
    """One run of `mdl` or `train` with its curves and its configuration; `changes` of result.json's keys."""
    config = {"dataset": _section("dataset", dataset), "eraser": _section("eraser", eraser)}
    config["dataset"] |= {"normalize": "zscore"} if dataset == "cifar10" else {}
    config["dataset"] |= {} if path is None else {"path": path}
    config["model"] = _section("model", model) | (options or {})
    config["train"] = keys("train", preset) | ({} if lr is None else {"lr": lr})
    config |= {"mdl": keys("mdl", preset) | {"code": coding}} if command == "mdl" else {}
    described = config | {"seeds": list(seeds), "data": changes.get("data")}
    run = Run(root, run_id(command, described, changes.get("code", {})))
    draw = random.Random(run.id)
    scale = 1 + 0.15 * math.log2(128 / config["model"].get("width", 128)) + _COST_BITS.get(eraser, 0.5)
    if eraser == "qleace" and model == "convnextv2":  # backfires
        scale *= 0.5
    losses = [[min(3.3, scale * (30 / n) ** 0.1 * 1.6 + draw.gauss(0, 0.03)) for _ in seeds] for n in _SIZES]
    curves = [(n, s, _curve(bits, draw)) for n, each in zip(_SIZES, losses, strict=True)
              for s, bits in zip(seeds, each, strict=True)]  # fmt: skip
    last = [CurveRow(n, seed, epoch, *losses) for n, seed, curve in curves if n == _SIZES[-1]
            for epoch, losses in enumerate(curve)]  # fmt: skip
    result = {
        "train_size": _SIZES[-1],
        "num_classes": 10,
        "parameters": 1000 * config["model"].get("width", 1),
        **(_mdl(losses) if command == "mdl" else _train(losses[-1])),
        "sharp_drop": sharp_drops(last),
        "certificate": {
            split: {"n": n, "mean_gap": 4e-9, "covariance_gap": 0.7, "edit_size": 0.57, "out_of_range": 0.1,
                    "rounding": 2e-7}
            for split, n in (("train", _SIZES[-1]), ("validation", 1024), ("test", 10000))
        },
    }  # fmt: skip
    _write(run, command, config, seeds, result | changes)
    rows = [f"{n},{seed},{epoch},{'' if train is None else train},{bits}"
            for n, seed, curve in curves for epoch, (train, bits) in enumerate(curve)]  # fmt: skip
    (run.directory / "curves.csv").write_text(
        "\n".join(["n,seed,epoch,train_loss_bits,validation_loss_bits", *rows, ""])
    )
    return run


def stored(results: Iterable[Result]) -> list[StoredRun]:
    """Made-up results as runs of the folder that their configuration names."""
    return [StoredRun(Path(one.config.get("runs_dir", "nowhere"), one.run_id), one.config, one) for one in results]


def write_small_run(root: Path, eraser: str = "leace", **options: Any) -> Run:
    """One run of the digits with two seeds; `options` of `write_run`."""
    return write_run(root, dataset="digits", eraser=eraser, seeds=options.pop("seeds", (0, 1)), **options)


def result_json(run: Run) -> dict[str, Any]:
    return read_json(run.directory / "result.json")


def edit_result(run: Run, **changes: Any) -> None:
    """Change keys of a run's result.json, with a checksum that fits."""
    write_json(run.directory / "result.json", result_json(run) | changes)


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
    """One run of `sample_info` with its scores and a figure; `changes` of result.json's keys."""
    config = {"dataset": _section("dataset", "digits"), "eraser": _section("eraser", eraser)}
    config["model"] = keys("model", "wide_mlp") | {"width": width}
    config["sample_info"] = keys("sample_info", "default") | {"classes": classes, "subset_seed": subset_seed}
    run = Run(root, run_id("sample_info", config | {"seeds": list(seeds)}, {}))
    draw, remaining = random.Random(run.id), _INFORMATION_KEPT[eraser]
    result = {
        "train_size": _EXAMPLES,
        "held_out_size": _EXAMPLES,
        "num_classes": 10 if classes == "all" else len(classes),
        "parameters": 100 * width,
        "information": {
            name: [_summary(scale * remaining * draw.uniform(0.9, 1.1)) for _ in seeds]
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
            name: {"examples": n, "mean_nats": [scale * remaining for _ in seeds]}
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
        "certificate": {
            "train": {
                "n": _EXAMPLES,
                "mean_gap": 0.8,
                "covariance_gap": 0.7,
                "edit_size": 0.0,
                "out_of_range": 0.0,
                "rounding": 2e-7,
            }
        },
    }
    _write(run, "sample_info", config, seeds, result | changes)
    Image.frombytes("L", (440, 290), random.Random(0).randbytes(440 * 290)).save(run.directory / "scores.png")
    _save_scores(run.directory, eraser, len(seeds), subset_seed)
    return run


def _section(group: str, name: str) -> dict[str, Any]:
    try:
        return {"name": name, **keys(group, name)}
    except FileNotFoundError:  # a name that nobody knows
        return {"name": name}


def _write(run: Run, command: str, config: dict[str, Any], seeds: Sequence[int], result: dict[str, Any]) -> None:
    config |= {"seeds": list(seeds), "dtype": "float32", "runs_dir": str(run.directory.parent), "cache_dir": "cache"}
    config["device"] = "cpu"
    about = {"run_id": run.id, "command": command, "config": config, "seeds": list(seeds)}
    run.directory.mkdir(parents=True, exist_ok=True)  # plain writes: nothing here is worth an fsync
    (run.directory / "config.yaml").write_text(json.dumps(config))
    (run.directory / "result.json").write_text(sealed(as_json(about | _FINISHED | result)))


def _curve(final: float, draw: random.Random) -> list[tuple[float | None, float]]:
    """Training and validation losses in bits after every epoch."""
    bits = [final + (3.32 - final) * math.exp(-epoch / 6) + draw.gauss(0, 0.005) for epoch in range(50)]
    return [(round(0.8 * each, 5) if epoch else None, round(each, 5)) for epoch, each in enumerate(bits)]


def _mdl(losses: Sequence[Sequence[float]]) -> dict[str, Any]:
    count = len(losses[0])
    curve = [
        {"n": n, "ce_next_bits": list(bits) if n != _SIZES[-1] else None, "ce_test_bits": list(bits),
         "test_accuracy": [0.5] * count, "epochs": [49] * count, "best_epoch": [49] * count}
        for n, bits in zip(_SIZES, losses, strict=True)
    ]  # fmt: skip
    columns = list(zip(*losses, strict=True))
    total = [online_code_bits(_SIZES, column[:-1], 10) for column in columns]
    return {
        "mdl": {
            "bits_per_sample": [bits / _SIZES[-1] for bits in total],
            "total_bits": total,
            "published": [published_units(_SIZES, column[:-1]) for column in columns],
        },
        "curve": curve,
        "final": {"loss_bits": list(losses[-1]), "accuracy": [0.5] * count, "train_loss_bits": list(losses[-1])},
    }


def _train(bits: Sequence[float]) -> dict[str, Any]:
    losses = ("loss_bits", "validation_loss_bits", "train_loss_bits", "end_train_loss_bits")
    return {
        "final": {**{name: list(bits) for name in losses}, "accuracy": [0.5] * len(bits)},
        "label_entropy_bits": math.log2(10),
        "epochs": [49] * len(bits),
    }


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


def _save_scores(directory: Path, eraser: str, seeds: int, subset_seed: int) -> None:
    """Write scores.safetensors with thumbnails of the first twenty examples, and these examples to scores.csv."""
    generator = torch.Generator().manual_seed(ERASERS.index(eraser))
    base = torch.randn(_EXAMPLES, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    noise = torch.randn(seeds, _EXAMPLES, generator=generator, dtype=torch.float64)
    f_si = 1e-5 * _INFORMATION_KEPT[eraser] * (base + 0.5 * noise).exp()
    si = 100 * f_si
    index, labels = torch.arange(_EXAMPLES) + _EXAMPLES * subset_seed, torch.arange(_EXAMPLES) % 10
    about = {"index": index, "label": labels, "given_label": labels.clone()}
    images = {"thumbnails": torch.arange(20 * 64).view(20, 1, 8, 8).byte(), "thumbnail_index": index[:20].clone()}
    tensors = about | {"f_si_nats": f_si, "si_nats": si} | images
    save_tensors(directory / "scores.safetensors", tensors, {"seeds": list(range(seeds))})
    rows = [
        f"{s},{i},row {i},{i % 10},{i % 10},{i % 10},1,{i % 10},{si[s, i]}\n" for s in range(seeds) for i in range(20)
    ]
    header = "seed,index,name,label,given_label,class,left_out_correct,left_out_label,si_nats\n"
    (directory / "scores.csv").write_text("".join([header, *rows]))


def trained(eraser: str = "control", losses: list[float] | None = None, width: int = 8) -> TrainResult:
    """Return a result of `train` with a test loss for each seed."""
    losses = losses or [1.0, 2.0]
    sections = {"dataset": {"name": "digits"}, "eraser": {"name": eraser}, "model": {"name": "mlp", "width": width}}
    seeds = list(range(len(losses)))
    config = {**sections, "seeds": seeds, "runs_dir": "nowhere"}
    result = made_up(config=config, seeds=seeds, final={"loss_bits": losses, "accuracy": [0.5 for _ in losses]})
    assert isinstance(result, TrainResult)
    return result
