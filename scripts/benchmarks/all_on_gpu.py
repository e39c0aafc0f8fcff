"""Run all benchmarks that need a GPU in less than nine minutes, and write a page.

    python -m scripts.benchmarks.all_on_gpu --page runs/gpu.md
    python -m scripts.benchmarks.all_on_gpu --device cpu --small    # tries the command itself

Parts: the tests that need a GPU; every eraser, on GPU and CPU; seeds of the four architectures at the paper's base
size, in one network and one after another; sample information of 1,000 examples; a whole cell of Table 16 (without
--images: of the digits). Each part is one process and writes a file: the command stops before its minutes are over, and
the next call continues with the missing parts.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from erasure.store.atomic_files import write_text
from erasure.store.checked_files import write_json
from scripts.benchmarks.benchmark_helpers import machine
from scripts.command_line import argument_parser

_STACKED, _ALONE = ["--samples", "12800"], ["--samples", "2560", "--seeds", "2"]
_TRAINED = {"mlp": _STACKED, "lenet": _STACKED, "convnextv2": _ALONE, "swinv2": _ALONE}


def parts(device: str, folder: Path, images: str, *, small: bool) -> dict[str, list[str]]:
    """Return the arguments of `python -m` for every part, by name."""
    erasers, sized = ["scripts.benchmarks.erasers"], ["--samples", "200", "--dim"] if small else ["--dim"]
    sized = [*(["--images", images] if images else []), *sized]
    few = ["--samples", "200", "--seeds", "2", "--epochs", "1", "--width", "20"] if small else []
    train = ["scripts.benchmarks.train", "--dataset", "cifar", "--skip-peer"]
    retrain = ["scripts.benchmarks.sample_info"]
    retrain += ["--examples", "20", "--held-out", "5", "--width", "8", "--alone", "2"] if small else []
    cell = ["mdl", "logger.mode=disabled", f"device={device}", f"cache_dir={folder}/cache", f"runs_dir={folder}/runs"]
    cell += ["train=quick", "train.max_epochs=2", "mdl=quick"] if small else ["train=paper"]
    if images:
        cell += ["mdl=paper", "dataset=image_folder", f"dataset.root={images}", "dataset.normalize=zscore"]
    commands = {"tests": ["pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=short", "tests/test_cuda.py"]}
    for dim in (48,) if small else (768, 3072):
        commands[f"erasers of {dim} values"] = [*erasers, *sized, str(dim), "--device", device]
    for model, of_model in [("mlp", few)] if small else _TRAINED.items():
        commands[f"training, {model}"] = [*train, *of_model, "--model", model, "--device", device]
    together = ["--networks", *(["linear"] if small else ["resnet", "convnextv2", "swinv2"])]
    commands["five seeds in one network"] = ["scripts.benchmarks.stacking", *together, "--device", device]
    commands["sample information"] = [*retrain, "--device", device]
    commands["a cell of Table 16" if images else "the digits with train=paper"] = cell
    for dim in (48,) if small else (768, 3072):  # what takes longest comes last
        cpu_options = ["--only", "moments", "leace", "qleace", "--device", "cpu"]
        commands[f"erasers of {dim} values, CPU"] = [*erasers, *sized, str(dim), *cpu_options]
    if not small:
        commands["erasers of 12288 values"] = [*erasers, *sized, "12288", "--device", device]
    return commands


def run(command: Sequence[str], limit_s: float) -> Mapping[str, object] | None:
    """Return a part's output and exit code; None if time ran out."""
    started, environment = time.monotonic(), {**os.environ, "COLUMNS": "160"}
    try:
        ended = subprocess.run(
            [sys.executable, "-m", *command], capture_output=True, text=True, timeout=limit_s, env=environment
        )
    except subprocess.TimeoutExpired:
        return None
    printed = ended.stdout + (ended.stderr if ended.returncode else "")
    lines = printed.replace(f"{Path.cwd()}/", "").strip().splitlines()
    return {
        "command": f"python -m {' '.join(command)}",
        "seconds": round(time.monotonic() - started, 1),
        "code": ended.returncode,
        "printed": [line.rstrip() for line in lines if not line.endswith(" …")][-60:],  # without what shows progress
    }


def page(results: Mapping[str, Mapping], hardware: str) -> str:
    """Return the output of every part as Markdown."""
    about = f"{hardware}. `python -m scripts.benchmarks.all_on_gpu` writes this page."
    lines = ["# Benchmarks on one GPU", "", about, ""]
    for name, part in results.items():
        lines += [f"## {name}", "", f"`{part['command']}`, {part['seconds']} s", ""]
        if part["code"]:
            lines += [f"Failed with exit code {part['code']}:", ""]
        lines += ["```", *part["printed"], "```", ""]
    return "\n".join(lines)


def work(options: argparse.Namespace, chosen: Mapping[str, Sequence[str]]) -> int:
    """Run the parts whose files are missing, as long as there is time, and write the page."""
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    ends, results = time.monotonic() + 60 * options.minutes, {}
    for name, command in chosen.items():
        file = folder / f"{name}.json"
        if not file.exists() and (left := ends - time.monotonic()) > 1:
            print(f"{name} …", flush=True)
            if (result := run(command, left)) is not None:
                write_json(file, result)
        if file.exists():
            results[name] = json.loads(file.read_text())
    text = page(results, machine(torch.device(options.device)))
    if options.page:
        write_text(options.page, text)
        print(f"page: {options.page}")
    else:
        print(text)
    missing, failed = (
        [name for name in chosen if name not in results],
        [n for n, part in results.items() if part["code"]],
    )
    if missing:
        print(f"no time was left for {', '.join(missing)}: the same command goes on")
    return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("benchmarks.all_on_gpu", __doc__, minutes=8.5, device="cuda", folder=Path("runs/gpu"))
    parser.add_argument("--images", default="", help="CIFAR-10 as a folder; default: synthetic images, and the digits")
    parser.add_argument("--page", type=Path, help="Markdown file to write; default: print it")
    parser.add_argument("--small", action="store_true", help="sizes that a CPU does in a minute")
    options = parser.parse_args(arguments)
    if torch.device(options.device).type == "cuda" and not torch.cuda.is_available():
        parser.error("this machine has no CUDA device: --device cpu --small tries the command itself")
    return work(options, parts(options.device, options.folder, options.images, small=options.small))


if __name__ == "__main__":
    raise SystemExit(main())
