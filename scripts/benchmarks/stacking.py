"""Milliseconds of a step of several seeds in one network and one after another, for every architecture.

    OMP_NUM_THREADS=1 uv run python -m scripts.benchmarks.stacking --seeds 5

The measurement behind the rule of train.stacking_rule, whose choice is printed beside it. Networks without stacked
layers run together by torch.func.vmap.

    uv run python -m scripts.benchmarks.stacking --threads 2             # idle cores
    uv run python -m scripts.benchmarks.stacking --threads 2 --busy 2    # two endless loops beside it

compares one thread with several instead: the measurement behind erasure.threads. OMP_WAIT_POLICY=active in front of it
lets waiting threads spin, as torch does by default.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import torch

from conf.compose import composed
from conf.target_class import Target
from erasure.dataset import LabelledImages
from erasure.threads import threads_for
from harness.results.table import Table
from mdl.settings import MdlConfig
from models.classifier import Classifier
from scripts.benchmarks.benchmark_helpers import machine
from scripts.command_line import argument_parser
from train.device_images import DeviceImages
from train.ensemble import Ensemble
from train.memory import keep_freed_memory
from train.randomness import generator
from train.schedule_free import ScheduleFree
from train.settings import TrainSettings
from train.stacking_rule import choose, multiply_adds
from train.trainer import training_step

_CPU = torch.device("cpu")
_SHAPES = {"8 × 8": (1, 8, 8), "16 × 16 × 3": (3, 16, 16), "32 × 32 × 3": (3, 32, 32)}
_NETWORKS = ("linear", "mlp", "mlp model.width=512", "lenet model.width=32", "lenet", "quadratic", "cnn", "resnet")
_THREADED = ("linear", "mlp", "mlp model.width=512", "lenet", "resnet", "convnextv2", "swinv2")


@dataclass(frozen=True)
class Case:
    """A network on images of one size, and a batch of them.

    Attributes:
        network: its name and options.
        size: of the images.
        products: multiply-adds of a forward pass of one example.
        ensemble: the architecture.
        images: the batch.
        settings: of the training.
    """

    network: str
    size: str
    products: int
    ensemble: Ensemble
    images: DeviceImages
    settings: TrainSettings

    def step(self, members: int) -> Callable[[], None]:
        """Return a function that takes one optimiser step of `members` stacked members on the batch."""
        ensemble, batch = self.ensemble, torch.arange(len(self.images)).expand(members, -1)
        factors = torch.ones(members, len(ensemble.drop_rates), len(self.images))
        initial = ensemble.initial_weights([generator(seed, "scratch") for seed in range(members)], batch.device)
        optimizer = ScheduleFree(initial, ensemble.model.learning_rates(), lr=self.settings.lr)
        x, z = self.images.plain(batch)
        take_step = training_step(ensemble, optimizer)

        def step() -> None:
            take_step(x, z, factors)

        return step


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("benchmarks.stacking", __doc__, seeds=5, threads=1, busy=0)
    usual = f"default: {', '.join(_NETWORKS)}; with --threads {', '.join(_THREADED)}"
    parser.add_argument("--networks", nargs="+", help=usual)
    options = parser.parse_args(arguments)
    if min(options.seeds, options.threads) < 1:
        parser.error("--seeds and --threads must be at least 1")
    if options.threads == 1 and options.busy:
        parser.error(f"--busy={options.busy}: goes with --threads=2 or more")
    if options.threads == 1:
        stacking_table(options.seeds, options.networks or _NETWORKS).show(machine(_CPU))
        return 0
    with endless_loops(options.busy):
        table = threads_table(options.seeds, options.threads, options.networks or _THREADED)
    policy = f"OMP_WAIT_POLICY={os.environ['OMP_WAIT_POLICY']}"
    table.show(f"{machine(_CPU)}, {policy}, {options.busy} endless loops beside it")
    return 0


def cases(networks: Sequence[str]) -> Iterator[Case]:
    """Yield each network on images of each size."""
    keep_freed_memory()
    for network in networks:
        config = composed("mdl", [f"model={network.split()[0]}", *network.split()[1:]], MdlConfig)
        settings = config.train
        for size, shape in _SHAPES.items():
            model = Target(config.model, Classifier).build(shape, 10)
            products = multiply_adds(model, shape)
            part = LabelledImages(torch.rand(settings.batch_size, *shape), torch.arange(settings.batch_size) % 10)
            zeros = torch.zeros(shape[0])
            images = DeviceImages(part, zeros, zeros + 1, padding=0, flip=False, device=_CPU)
            ensemble = Ensemble(model, torch.float32)
            yield Case(network.replace("model.", ""), size, products, ensemble, images, settings)


def stacking_table(seeds: int, networks: Sequence[str] = _NETWORKS, *, repeats: int = 3) -> Table:
    """Time one optimiser step of `seeds` seeds of each network in both arrangements; show the rule's choice.

    The arrangements alternate `repeats` times, so that a slow moment of the machine affects both.
    """
    rows = []
    for case in cases(networks):
        rounds = [[step_seconds(case, n) * seeds / n for n in (seeds, 1)] for _ in range(repeats)]
        stacked, single = map(min, zip(*rounds, strict=True))
        rule = choose(case.ensemble, seeds, case.images, case.settings).how
        times = (f"{1e3 * stacked:.2f}", f"{1e3 * single:.2f}", f"{single / stacked:.2f}")
        rows.append([case.network, case.size, f"{case.products:,}", *times, rule])
    headings = ("network", "image", "multiply-adds", "in one network, ms", "one after another, ms", "ratio", "rule")
    caption = f"A step of {seeds} seeds, the fastest of {repeats} rounds. Ratio: above 1 where one network is faster."
    return Table("stacking", [caption], headings, rows)


def step_seconds(case: Case, members: int) -> float:
    """Time one optimiser step of `members` stacked members; the fastest of several.

    With one thread it is CPU time, which does not depend on other load.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    step, times = case.step(members), list[float]()
    while len(times) < 6 or (sum(times) < 0.2 and len(times) < 200):
        started = clock()
        step()
        times.append(clock() - started)
    return min(times[1:])


def threads_table(
    seeds: int, threads: int, networks: Sequence[str] = _THREADED, *, turns: int = 5, turn_s: float = 0.3
) -> Table:
    """Time steps of each network on one thread and on `threads`, in turn; show the rule's choice."""
    rows, before = [], torch.get_num_threads()
    for case in cases(networks):
        stack = choose(case.ensemble, seeds, case.images, case.settings).stack
        work, step = case.products * len(case.images) * stack, case.step(stack)
        times = [[seconds_on(number, step, turn_s) for number in (1, threads)] for _ in range(turns)]
        one, several = map(median, zip(*times, strict=True))
        torch.set_num_threads(threads)
        with threads_for(work):
            rule = str(torch.get_num_threads())
        shown = (f"{1e3 * one:.2f}", f"{1e3 * several:.2f}", f"{one / several:.2f}")
        rows.append([case.network, case.size, f"{work / 1e6:,.0f}", *shown, rule])
    torch.set_num_threads(before)
    headings = (
        "network",
        "image",
        "million multiply-adds",
        "one thread, ms",
        f"{threads} threads, ms",
        "ratio",
        "rule",
    )
    caption = f"A step of {seeds} seeds, or of one where they train one after another: the median of {turns} turns."
    return Table("threads", [caption, "Ratio: above 1 where several threads are faster."], headings, rows)


def seconds_on(threads: int, step: Callable[[], None], at_least_s: float) -> float:
    """Return the mean time of a step on so many threads, of as many steps as `at_least_s` takes."""
    torch.set_num_threads(threads)
    step()  # wakes the threads
    started, steps = time.perf_counter(), 0
    while not steps or time.perf_counter() - started < at_least_s:
        step()
        steps += 1
    return (time.perf_counter() - started) / steps


@contextmanager
def endless_loops(count: int) -> Iterator[None]:
    """Keep so many cores busy in the block."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    raise SystemExit(main())
