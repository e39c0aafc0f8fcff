"""Seconds of training one seed, several in one network, and several in processes side by side.

    python -m scripts.benchmarks.side_by_side --device cuda --model convnextv2 --seeds 5 --samples 2560
    python -m scripts.benchmarks.side_by_side --model linear --seeds 2 --samples 200 --epochs 1

Processes share a GPU by turns, or through NVIDIA's Multi-Process Service (MPS), which this command starts for itself
where `nvidia-cuda-mps-control` is installed. Each process warms up first; the time is that from the start of the first
to the end of the last.
"""

import argparse
import contextlib
import dataclasses
import functools
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

import torch

from scripts.benchmarks.benchmark_helpers import Cost, Row, argument_parser, attempt, machine, show
from scripts.benchmarks.step_flops_and_bytes import Floor
from scripts.benchmarks.train import TrainingBenchmark
from train.epoch_trainer import fit_members

_MPS = "nvidia-cuda-mps-control"
_READY_S = 120  # for imports, data and a first epoch


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("side_by_side", __doc__, model="convnextv2", samples=2560, seeds=5, epochs=3)
    options = parser.parse_args(arguments)
    if min(options.seeds, options.epochs, options.samples // 100) < 1:
        parser.error("--seeds and --epochs must be at least 1, --samples at least 100")
    show(f"{options.seeds} seeds of {options.model}\n{machine(torch.device(options.device))}", rows(options))
    return 0


def rows(options: argparse.Namespace) -> list[Row]:
    """Measure every way to train the seeds; one that fails says why in its row."""
    one, seeds = argparse.Namespace(**{**vars(options), "seeds": 1}), options.seeds
    ways = [
        ("one seed", [one], "one", False),
        (f"{seeds} seeds, in one network", [options], "all", False),
        (f"{seeds} processes side by side", [one] * seeds, "one", False),
    ]
    if torch.device(options.device).type == "cuda":
        ways.append((f"{seeds} processes side by side, MPS", [one] * seeds, "one", True))
    measured: list[Row] = []

    def measure(who: str, processes: Sequence[argparse.Namespace], stack: str, with_mps: bool) -> Iterator[Row]:
        with mps() if with_mps else contextlib.nullcontext():
            seconds, floor = run(processes, stack)
        trained = sum(each.seeds for each in processes)
        if measured:  # the rates of a device that processes share are too low for a floor
            floor = measured[0].floor and Floor(*(trained * each for each in measured[0].floor))
        note = f"{trained * options.samples * options.epochs / seconds:,.0f} examples/s"
        if measured and (alone := measured[0].cost):
            note += f", {seconds / alone.seconds:.2f} times the time of one seed"
        yield Row("training", who, Cost(seconds), floor, note)

    for way in ways:
        measured += attempt("training", way[0], functools.partial(measure, *way))
    return measured


def run(processes: Sequence[argparse.Namespace], stack: str) -> tuple[float, Floor]:
    """Return the seconds from the first process's start of training to the last one's end, and the floor of one.

    Raises:
        RuntimeError: a process failed.
    """
    context = multiprocessing.get_context("spawn")
    barrier, times = context.Barrier(len(processes)), context.Queue()
    started = [context.Process(target=_train, args=(each, stack, len(processes), barrier, times)) for each in processes]
    for process in started:
        process.start()
    try:
        training: dict[Any, Any] = {process.sentinel: process for process in started}
        while ended := wait(training, 3 * _READY_S) if training else []:
            for process in map(training.pop, ended):
                process.join()
                if process.exitcode:
                    barrier.abort()  # no process waits for one that failed
        if any(process.exitcode != 0 for process in started):
            codes = [process.exitcode for process in started]
            raise RuntimeError(f"processes ended with exit codes {codes}; None: still running")
        starts, ends, (floor, *_) = zip(*(times.get(timeout=10) for _ in started), strict=True)
    finally:
        for process in started:
            process.kill()
    return max(ends) - min(starts), floor


def _train(
    options: argparse.Namespace,
    stack: str,
    processes: int,
    barrier: Barrier,
    times: "Queue[tuple[float, float, Floor]]",
) -> None:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    bench = TrainingBenchmark(argparse.Namespace(**{"width": None, "dataset": "cifar", "images": "", **vars(options)}))
    data = {"train": bench.train, "validation": bench.validation}

    def train(epochs: int) -> None:
        chosen = dataclasses.replace(bench.settings, max_epochs=epochs)
        members = len(bench.seeds) if stack == "all" else 1
        fit_members(bench.ensemble, data, bench.seeds, bench.subsets, chosen, stack=members)
        if bench.device.type == "cuda":
            torch.cuda.synchronize(bench.device)

    train(1)
    barrier.wait(_READY_S)
    start = time.monotonic()  # all processes read one clock
    train(options.epochs)
    times.put((start, time.monotonic(), bench.floor))


@contextlib.contextmanager
def mps() -> Iterator[None]:
    """Run NVIDIA's Multi-Process Service for the processes that start in the block.

    Raises:
        RuntimeError: it is not installed, or does not start.
    """
    if shutil.which(_MPS) is None:
        raise RuntimeError(f"{_MPS} is not installed")
    with tempfile.TemporaryDirectory() as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        before = {name: os.environ.get(name) for name in places}
        os.environ |= places
        try:
            started = subprocess.run([_MPS, "-d"], capture_output=True, text=True, check=False, timeout=30)
            if started.returncode:
                raise RuntimeError(f"{_MPS} -d: {(started.stderr or started.stdout).strip() or started.returncode}")
            try:
                yield
            finally:
                subprocess.run([_MPS], input="quit\n", capture_output=True, text=True, check=False, timeout=60)
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


if __name__ == "__main__":
    raise SystemExit(main())
