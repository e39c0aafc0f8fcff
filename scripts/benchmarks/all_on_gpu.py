"""Run all benchmarks that need a GPU in less than nine minutes, and write a page.

    python -m scripts.benchmarks.all_on_gpu --page docs/gpu_benchmarks.md
    python -m scripts.benchmarks.all_on_gpu --device cpu --small    # tries the command itself

Parts, in the order of what they decide: ConvNeXt V2 and Swin V2 at the paper's base size, in other memory formats, in
one network, and in processes side by side; erasers of 768 values; MLP and LeNet; ConvNeXt V2 and Swin V2 compiled; the
tests that need a GPU; erasers of 3,072 values; sample information; a whole cell of Table 16 (without --images: of the
digits).

Each part is one process and writes a file. The page is written after every part, so that nothing is lost: a part that
fails or takes too long says so there, with the rows that it finished. The command stops before its minutes are over,
and the next call continues with the missing parts. Parts that ran on another machine or with other options run again;
so do parts whose file in --folder is deleted.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from erasure.store.atomic_files import write_text
from erasure.store.checked_files import write_json
from scripts.benchmarks.benchmark_helpers import machine
from scripts.command_line import argument_parser

_LEAST_S = 15  # too little for any part: a process takes that long to start
_TIMED_OUT = 124
_DECIDING = ("products", "from_data", "streaming", "leace", "apply", "moments", "qleace", "alf_qleace")
_ERRORS = 20  # last lines of stderr that are shown
_LEGEND = """*x ours* is the time over that of the first row of the same work. *Floor s* is the longer of two times, as
*bound by* says: of matrix products, and of reading and writing memory, at the rates above each table. Examples/s count
all seeds together. *Bits away* is the largest distance of a seed's validation loss from the first row's; a distance as
small as that of *one rounding larger* means nothing. *Peak MiB* is the memory beyond what was in use before."""
_MODEL = "Decides {} in models/{}.py: true if its row is faster than the first."
_STACK = """Decides `train.stack=auto` for this network on a GPU: one network if that is faster than processes side by
side, else processes (`hydra.launcher.workers`), with MPS if that row is faster. Bar: five seeds in 1.5 times the time
of one."""
_COMPILE = """Decides `train.compile=auto` for this network: true where a compiled row has more examples/s than the
uncompiled row of the same arrangement{}, and trainings are long beside the compilation. Bar: {} examples/s."""
_ABOVE = " (in training and in seeds side by side, above)"
_ERASE = """Decides nothing by itself. Bar: concept-erasure at least 1.0 x ours in batches of 64 x 1,024 and in LEACE
from vectors. LEACE applied in float32 replaces float64 if its mean gap is as small as a certificate needs."""


class Part(NamedTuple):
    """A benchmark.

    Attributes:
        command: arguments of `python -m`.
        decides: setting that its rows decide, and the bar, for the page.
        limit_s: most seconds, so that a slow compilation costs no other part; None: as long as there is time.
    """

    command: Sequence[str]
    decides: str
    limit_s: float | None = 100


def parts(device: str, folder: Path, images: str, *, small: bool) -> dict[str, Part]:
    """Return every part by name."""
    on = ["--device", device]
    train = ["scripts.benchmarks.train", "--dataset", "cifar", "--skip-peer", *on]
    few = ["--samples", "200", "--seeds", "2", "--epochs", "1"]
    networks = [] if small else ["convnextv2", "swinv2"]
    made: dict[str, Part] = {}
    switches = {"convnextv2": "`ConvNeXtV2.channels_last`", "swinv2": "`SwinV2.fused_attention`"}
    for model in networks:
        command = [*train, "--samples", "2560", "--model", model, "--only", "rule", "model"]
        made[f"training, {model}"] = Part(command, _MODEL.format(switches[model], model))
    for model in ["linear"] if small else networks:
        together = ["scripts.benchmarks.side_by_side", *on, "--model", model]
        made[f"seeds side by side, {model}"] = Part([*together, *(few if small else [])], _STACK, 150)
    sized = [*(["--images", images] if images else []), *(["--samples", "200"] if small else []), "--dim"]
    erasers = ["scripts.benchmarks.erasers", *sized]
    dims = ["48"] if small else ["768", "3072"]
    made[f"erasers of {dims[0]} values"] = Part([*erasers, dims[0], *on, "--only", *_DECIDING], _ERASE)
    for model, bar in (("mlp", "2,000,000"),) if small else (("mlp", "2,000,000"), ("lenet", "700,000")):
        of_model = [*few, "--width", "20"] if small else ["--samples", "12800"]
        ways = ["rule"] if small else ["rule", "ungraphed", "nudged", "compiled"]
        command = [*train, *of_model, "--model", model, "--only", *ways]
        made[f"training, {model}"] = Part(command, _COMPILE.format("", bar))
    for model in networks:
        ways = ["compiled", "compiled-other", "compiled-model"]
        command = [*train, "--samples", "2560", "--model", model, "--only", *ways]
        made[f"training, {model}, compiled"] = Part(command, _COMPILE.format(_ABOVE, "25,000"), 240)
    tests = ["pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=short", "tests/test_cuda.py"]
    made["tests"] = Part(tests, "If a test fails, do not use the rows above that depend on it.", 150)
    for dim in dims[1:]:
        made[f"erasers of {dim} values"] = Part([*erasers, dim, *on, "--only", *_DECIDING], _ERASE)
    retrain = ["--examples", "20", "--held-out", "5", "--width", "8", "--alone", "2"] if small else []
    known = "Decides nothing: for docs/benchmarks.md."
    made["sample information"] = Part(["scripts.benchmarks.sample_info", *retrain, *on], known)
    cell = ["mdl", "logger.mode=disabled", f"device={device}", f"cache_dir={folder}/cache", f"runs_dir={folder}/runs"]
    cell += ["train=quick", "train.max_epochs=2", "mdl=quick"] if small else ["train=paper"]
    if images:
        cell += ["mdl=paper", "dataset=image_folder", f"dataset.root={images}", "dataset.normalize=zscore"]
    costs = "Its seconds check the hours that scripts.studies.compute_costs prints for this cell."
    name, decides = ("a cell of Table 16", costs) if images else ("the digits with train=paper", known)
    made[name] = Part(cell, decides, None)
    return made


def run(command: Sequence[str], limit_s: float) -> dict[str, Any]:
    """Return a part's output and exit code, `_TIMED_OUT` where it and its processes were killed at the limit.

    The last lines of stderr are part of the output: a traceback, or why a step ran without a CUDA graph.
    """
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
        folders = re.compile(rf"{re.escape(str(Path.cwd()))}/|/\S*/site-packages/")
        printed, said = (folders.sub("", file.read()).splitlines() for file in (output, errors))
    lines = [line for line in printed if code or not line.endswith(" …")]  # no lines of progress
    lines = [line.rstrip() for line in "\n".join(lines).strip().splitlines()]
    return {
        "command": _shell(command),
        "seconds": round(time.monotonic() - started, 1),
        "code": code,
        "printed": lines[-60:] + [line.rstrip() for line in dict.fromkeys(said)][-_ERRORS:],
    }


def _shell(command: Sequence[str]) -> str:
    return f"python -m {' '.join(command)}"


def _undated(hardware: str) -> str:
    return hardware.rpartition(", ")[0]


def page(results: Mapping[str, Mapping], decides: Mapping[str, str], hardware: str, missing: Sequence[str]) -> str:
    """Return the output of every part as Markdown."""
    about = f"{hardware}. `python -m scripts.benchmarks.all_on_gpu` writes this page."
    lines = ["# Benchmarks on one GPU", "", about, "", _LEGEND, ""]
    if missing:
        lines += [f"No time was left for: {', '.join(missing)}.", ""]
    for name, part in results.items():
        lines += [f"## {name}", "", decides[name], "", f"`{part['command']}`, {part['seconds']} s", ""]
        if part["code"] == _TIMED_OUT:
            lines += ["Stopped for lack of time, after:", ""]
        elif part["code"]:
            lines += [f"Failed with exit code {part['code']}:", ""]
        lines += ["```", *part["printed"], "```", ""]
    return "\n".join(lines)


def work(options: argparse.Namespace, chosen: Mapping[str, Part]) -> int:
    """Run the parts whose files are missing, as long as there is time, and write the page after each."""
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    ends, hardware = time.monotonic() + 60 * options.minutes, machine(torch.device(options.device))
    files = {name: folder / f"{name}.json" for name in chosen}
    results = {}
    for name, part in chosen.items():
        if files[name].exists():
            earlier = json.loads(files[name].read_text())
            if (earlier["command"], earlier.get("machine")) == (_shell(part.command), _undated(hardware)):
                results[name] = earlier

    def written() -> str:
        in_order = {name: results[name] for name in chosen if name in results}
        decides = {name: part.decides for name, part in chosen.items()}
        text = page(in_order, decides, hardware, [name for name in chosen if name not in results])
        if options.page:
            write_text(options.page, text)
        return text

    for name, part in chosen.items():
        left_s = ends - time.monotonic()
        if name in results or left_s < _LEAST_S:
            continue
        print(f"{name} …", flush=True)
        limit_s = min(left_s, part.limit_s or left_s)
        results[name] = run(part.command, limit_s) | {"machine": _undated(hardware)}
        if results[name]["code"] != _TIMED_OUT or limit_s == part.limit_s:  # otherwise the next call tries it again
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
