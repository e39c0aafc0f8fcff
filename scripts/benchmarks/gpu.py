"""Benchmarks for a machine with a GPU, in one command of less than nine minutes, and a page of them.

    python -m scripts.benchmarks.gpu --page docs/gpu.md
    python -m scripts.benchmarks.gpu --device cpu --small    # tries the command itself

The tests that need a GPU; every eraser, beside the CPU; five seeds of the four architectures at the paper's base size;
a cell of Table 16 to its end; sample information of 1,000 examples. Each part is a process of its own that leaves a
file: a command that was stopped goes on with what is missing, and it ends before its minutes are over.
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

from erasure.store.storage import write_json, write_text
from scripts.benchmarks.benchmark import machine
from scripts.options import parser

_SHAPES = ("mlp", "lenet", "convnextv2", "swinv2")


def parts(device: str, folder: Path, images: str, *, small: bool) -> dict[str, list[str]]:
    """Return the module after `python -m`, by the name of its file."""
    erasers, sized = ["scripts.benchmarks.erasers"], ["--samples", "200", "--dim"] if small else ["--dim"]
    sized = [*(["--images", images] if images else []), *sized]
    few = ["--samples", "200", "--seeds", "2", "--epochs", "1", "--width", "20"] if small else ["--samples", "12800"]
    train = ["scripts.benchmarks.train", "--dataset", "cifar", "--skip-peer", *few]
    retrain = ["scripts.benchmarks.sample_info"]
    retrain += ["--examples", "20", "--held-out", "5", "--width", "8", "--alone", "2"] if small else []
    cell = ["mdl", "logger.mode=disabled", f"device={device}", f"cache_dir={folder}/cache", f"runs_dir={folder}/runs"]
    cell += ["train=quick", "train.max_epochs=2", "mdl=quick"] if small else ["train=paper", "mdl=paper"]
    cell += ["dataset=image_folder", f"dataset.root={images}", "dataset.normalize=zscore"] if images else []
    found = {"tests": ["pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "tests/test_cuda.py"]}
    for dim in (48,) if small else (768, 3072, 12_288):
        found[f"erasers of {dim} values"] = [*erasers, *sized, str(dim), "--device", device]
    for dim in (48,) if small else (768, 3072):
        own = ["--only", "moments", "leace", "qleace", "--device", "cpu"]
        found[f"erasers of {dim} values, CPU"] = [*erasers, *sized, str(dim), *own]
    for model in _SHAPES[:1] if small else _SHAPES:
        found[f"training, {model}"] = [*train, "--model", model, "--device", device]
    found["a cell of Table 16"] = cell
    found["sample information"] = [*retrain, "--device", device]
    return found


def run(command: Sequence[str], limit_s: float) -> Mapping[str, object] | None:
    """Return what a part printed and its exit code; None if time ran out."""
    started, environment = time.monotonic(), {**os.environ, "COLUMNS": "160"}
    try:
        ended = subprocess.run(
            [sys.executable, "-m", *command], capture_output=True, text=True, timeout=limit_s, env=environment
        )
    except subprocess.TimeoutExpired:
        return None
    told = (ended.stderr.strip().splitlines()[-1:] if ended.returncode else ended.stdout.strip().splitlines())[-60:]
    seconds = round(time.monotonic() - started, 1)
    return {"command": f"python -m {' '.join(command)}", "seconds": seconds, "code": ended.returncode, "told": told}


def page(found: Mapping[str, Mapping], hardware: str) -> str:
    """Markdown: what each part printed."""
    lines = ["# On one machine", "", f"{hardware}. `python -m scripts.benchmarks.gpu` writes this page.", ""]
    for name, part in found.items():
        lines += [f"## {name}", "", f"`{part['command']}`, {part['seconds']} s", ""]
        if part["code"]:
            lines += [f"Failed with {part['code']}: {' '.join(part['told'])}", ""]
        else:
            lines += ["```", *part["told"], "```", ""]
    return "\n".join(lines)


def work(options: argparse.Namespace) -> int:
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    ends, found = time.monotonic() + 60 * options.minutes, {}
    chosen = parts(options.device, folder, options.images, small=options.small)
    for name, command in chosen.items():
        file = folder / f"{name}.json"
        if not file.exists() and (left := ends - time.monotonic()) > 1:
            print(f"{name} …", flush=True)
            if (result := run(command, left)) is not None:
                write_json(file, result)
        if file.exists():
            found[name] = json.loads(file.read_text())
    text = page(found, machine(torch.device(options.device)))
    if options.page:
        write_text(options.page, text)
        print(f"page: {options.page}")
    else:
        print(text)
    missing, failed = [name for name in chosen if name not in found], [n for n, part in found.items() if part["code"]]
    if missing:
        print(f"no time was left for {', '.join(missing)}: the same command goes on")
    return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    own = parser("benchmarks.gpu", __doc__, minutes=8.5, device="cuda", folder=Path("runs/gpu"))
    own.add_argument("--images", default="", help="CIFAR-10 as a folder; default: synthetic images, and the digits")
    own.add_argument("--page", type=Path, help="Markdown file to write; default: print it")
    own.add_argument("--small", action="store_true", help="sizes that a CPU does in a minute")
    options = own.parse_args(arguments)
    if torch.device(options.device).type == "cuda" and not torch.cuda.is_available():
        own.error("this machine has no CUDA device: --device cpu --small tries the command itself")
    return work(options)


if __name__ == "__main__":
    raise SystemExit(main())
