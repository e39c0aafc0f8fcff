"""Run all benchmarks that need a GPU in less than nine minutes, and write a page.

    python -m scripts.benchmarks.all_on_gpu --page docs/gpu_benchmarks.md
    python -m scripts.benchmarks.all_on_gpu --device cpu --small    # tries the command itself

Parts, in the order of what they decide: ConvNeXt V2 and Swin V2 at the paper's base size, in other memory formats, in
one network, in processes side by side, and compiled; MLP and LeNet; erasers of 768 values; the tests that need a GPU;
erasers of 3,072 values; sample information; a whole cell of Table 16 (without --images: of the digits).

Each part is one process and writes a file. The page is written after every part, so that nothing is lost: a part that
fails or takes too long says so there. The command stops before its minutes are over, and the next call continues with
the missing parts.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from erasure.store.atomic_files import write_text
from erasure.store.checked_files import write_json
from scripts.benchmarks.benchmark_helpers import machine
from scripts.command_line import argument_parser

_LIMIT_S = 100  # of a part: a compilation that takes longer must not cost the others
_UNLIMITED = ("a cell of Table 16",)  # as long as there is time
_LEAST_S = 15  # too little for any part: a process takes that long to start
_TIMED_OUT = 124
_DECIDING = ("products", "from_data", "streaming", "leace", "apply", "moments", "qleace", "alf_qleace")


def parts(device: str, folder: Path, images: str, *, small: bool) -> dict[str, list[str]]:
    """Return the arguments of `python -m` for every part, by name."""
    on = ["--device", device]
    train = ["scripts.benchmarks.train", "--dataset", "cifar", "--skip-peer", *on]
    few = ["--samples", "200", "--seeds", "2", "--epochs", "1"]
    networks = [] if small else ["convnextv2", "swinv2"]
    commands: dict[str, list[str]] = {}
    for model in networks:
        commands[f"training, {model}"] = [*train, "--samples", "2560", "--model", model, "--only", "rule", "model"]
    for model in ["linear"] if small else networks:
        together = ["scripts.benchmarks.side_by_side", *on, "--model", model]
        commands[f"seeds side by side, {model}"] = [*together, *(few if small else [])]
    compiled = ["compiled", "compiled-other", "compiled-model"]
    for model in networks:
        ways = [*train, "--samples", "2560", "--model", model, "--only", *compiled]
        commands[f"training, {model}, compiled"] = ways
    for model in ["mlp"] if small else ["mlp", "lenet"]:
        of_model = [*few, "--width", "20"] if small else ["--samples", "12800"]
        ways = ["rule"] if small else ["rule", "ungraphed", "compiled"]
        commands[f"training, {model}"] = [*train, *of_model, "--model", model, "--only", *ways]

    sized = [*(["--images", images] if images else []), *(["--samples", "200"] if small else []), "--dim"]
    erasers = ["scripts.benchmarks.erasers", *sized]
    dims = ["48"] if small else ["768", "3072"]
    tests = ["pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=short", "tests/test_cuda.py"]
    commands[f"erasers of {dims[0]} values"] = [*erasers, dims[0], *on, "--only", *_DECIDING]
    commands["tests"] = tests
    for dim in dims[1:]:
        commands[f"erasers of {dim} values"] = [*erasers, dim, *on, "--only", *_DECIDING]
    retrain = ["--examples", "20", "--held-out", "5", "--width", "8", "--alone", "2"] if small else []
    commands["sample information"] = ["scripts.benchmarks.sample_info", *retrain, *on]
    cell = ["mdl", "logger.mode=disabled", f"device={device}", f"cache_dir={folder}/cache", f"runs_dir={folder}/runs"]
    cell += ["train=quick", "train.max_epochs=2", "mdl=quick"] if small else ["train=paper"]
    if images:
        cell += ["mdl=paper", "dataset=image_folder", f"dataset.root={images}", "dataset.normalize=zscore"]
    commands["a cell of Table 16" if images else "the digits with train=paper"] = cell
    if not small:  # numbers that decide nothing
        stacking = ["scripts.benchmarks.stacking", "--networks", "resnet", *on]
        commands["five ResNets in one network"] = stacking
        for dim in dims:
            on_cpu = ["--only", "moments", "leace", "qleace", "--device", "cpu"]
            commands[f"erasers of {dim} values, CPU"] = [*erasers, dim, *on_cpu]
        commands["erasers of 12288 values"] = [*erasers, "12288", *on]
    return commands


def run(command: Sequence[str], limit_s: float) -> dict[str, Any]:
    """Return a part's output and exit code, `_TIMED_OUT` where it and its processes were killed at the limit."""
    started, environment = time.monotonic(), {**os.environ, "COLUMNS": "160", "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], stdout=output, stderr=errors, env=environment, start_new_session=True
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = _TIMED_OUT
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for file in (output, errors):
            file.seek(0)
        printed = output.read() + (errors.read() if code else "")
    lines = printed.replace(f"{Path.cwd()}/", "").strip().splitlines()
    return {
        "command": f"python -m {' '.join(command)}",
        "seconds": round(time.monotonic() - started, 1),
        "code": code,
        "printed": [line.rstrip() for line in lines if code or not line.endswith(" …")][-60:],  # no lines of progress
    }


def page(results: Mapping[str, Mapping], hardware: str, missing: Sequence[str]) -> str:
    """Return the output of every part as Markdown."""
    about = f"{hardware}. `python -m scripts.benchmarks.all_on_gpu` writes this page."
    lines = ["# Benchmarks on one GPU", "", about, ""]
    if missing:
        lines += [f"No time was left for: {', '.join(missing)}.", ""]
    for name, part in results.items():
        lines += [f"## {name}", "", f"`{part['command']}`, {part['seconds']} s", ""]
        if part["code"] == _TIMED_OUT:
            lines += ["Stopped for lack of time, after:", ""]
        elif part["code"]:
            lines += [f"Failed with exit code {part['code']}:", ""]
        lines += ["```", *part["printed"], "```", ""]
    return "\n".join(lines)


def work(options: argparse.Namespace, chosen: Mapping[str, Sequence[str]]) -> int:
    """Run the parts whose files are missing, as long as there is time, and write the page after each."""
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    ends, hardware = time.monotonic() + 60 * options.minutes, machine(torch.device(options.device))
    files = {name: folder / f"{name}.json" for name in chosen}
    results = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}

    def written() -> str:
        in_order = {name: results[name] for name in chosen if name in results}
        text = page(in_order, hardware, [name for name in chosen if name not in results])
        if options.page:
            write_text(options.page, text)
        return text

    for name, command in chosen.items():
        left_s = ends - time.monotonic()
        if name in results or left_s < _LEAST_S:
            continue
        print(f"{name} …", flush=True)
        limit_s = left_s if name in _UNLIMITED else min(left_s, _LIMIT_S)
        results[name] = run(command, limit_s)
        if results[name]["code"] != _TIMED_OUT or limit_s == _LIMIT_S:  # otherwise the next call tries it again
            write_json(files[name], results[name])
        written()
    text = written()
    print(f"page: {options.page}" if options.page else text)
    if missing := [name for name in chosen if name not in results]:
        print(f"no time was left for {', '.join(missing)}: the same command goes on")
    return 1 if any(part["code"] for part in results.values()) else 0


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
