"""Milliseconds of a step of several seeds in one network and one after another, for every architecture.

    OMP_NUM_THREADS=1 uv run python -m scripts.benchmarks.stacking --seeds 5

The measurement behind the rule of train.stacking_rule, whose choice is printed beside it.
"""

import time
from collections.abc import Sequence

import torch

from conf.compose import composed
from conf.target_class import Target
from erasure.dataset import LabelledImages
from harness.results.table import Table
from mdl.settings import MdlConfig
from models.classifier import Classifier
from scripts.benchmarks.benchmark_helpers import machine
from scripts.command_line import argument_parser
from train.device_images import DeviceImages
from train.ensemble import Ensemble
from train.malloc import keep_freed_memory
from train.randomness import generator
from train.schedule_free import ScheduleFree, ScheduleFreeSettings
from train.stacking_rule import choose, multiply_adds

_SHAPES = {"8 × 8": (1, 8, 8), "16 × 16 × 3": (3, 16, 16), "32 × 32 × 3": (3, 32, 32)}
_NETWORKS = ("linear", "mlp", "mlp model.width=512", "lenet model.width=32", "lenet", "quadratic", "cnn", "resnet")
_ROUNDS = 3  # rounds of both arrangements, so that a slow moment of the machine affects both


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("benchmarks.stacking", __doc__, seeds=5, device="cpu")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error("--seeds must be at least 1")
    device = torch.device(options.device)
    stacking_table(options.seeds, device).show(machine(device))
    return 0


def stacking_table(seeds: int, device: torch.device, networks: Sequence[str] = _NETWORKS) -> Table:
    """Time one optimiser step of `seeds` seeds of each network in both arrangements; show the rule's choice."""
    keep_freed_memory()
    rows = []
    for network in networks:
        config = composed("mdl", [f"model={network.split()[0]}", *network.split()[1:]], MdlConfig)
        settings = config.train
        for size, shape in _SHAPES.items():
            model = Target(config.model).build(Classifier, shape, 10)
            products = multiply_adds(model, shape)
            part = LabelledImages(torch.rand(settings.batch_size, *shape), torch.arange(settings.batch_size) % 10)
            zeros = torch.zeros(shape[0])
            images = DeviceImages(part, zeros, zeros + 1, padding=0, flip=False, device=device)
            ensemble = Ensemble(model.to(device))
            rounds = [[step_seconds(ensemble, n, images, settings.lr) * seeds / n for n in (seeds, 1)]
                      for _ in range(_ROUNDS)]  # fmt: skip
            stacked, single = map(min, zip(*rounds, strict=True))
            rule = choose(ensemble, seeds, images, settings).how
            times = (f"{1e3 * stacked:.2f}", f"{1e3 * single:.2f}", f"{single / stacked:.2f}")
            rows.append([network.replace("model.", ""), size, f"{products:,}", *times, rule])
    headings = ("network", "image", "multiply-adds", "in one network, ms", "one after another, ms", "ratio", "rule")
    caption = f"A step of {seeds} seeds, the fastest of {_ROUNDS} rounds. Ratio: above 1 where one network is faster."
    return Table("stacking", [caption], headings, rows)


def step_seconds(ensemble: Ensemble, members: int, images: DeviceImages, lr: float) -> float:
    """Time one optimiser step of `members` stacked members on a batch of all images; the fastest of several.

    With one thread on the CPU it is CPU time, which does not depend on other load.
    """
    device = images.labels.device
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    batch = torch.arange(len(images), device=device).expand(members, -1)
    initial = ensemble.initial_weights([generator(seed, "scratch") for seed in range(members)], device)
    optimizer = ScheduleFree(initial, ScheduleFreeSettings(lr=lr), ensemble.model.learning_rates())
    x, z = images.plain(batch)
    times: list[float] = []
    while len(times) < 4 or (sum(times) < 0.2 and len(times) < 200):
        started = clock()
        optimizer.step(ensemble.gradients(optimizer.weights, x, z)[1])
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(clock() - started)
    return min(times[1:])


if __name__ == "__main__":
    raise SystemExit(main())
