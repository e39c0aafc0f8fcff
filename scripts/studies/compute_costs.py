"""Cost of a sweep of `python -m mdl`: least and likely hours on one GPU, on eight, on a cluster.

    python -m scripts.studies.compute_costs                      of +experiment=table16
    python -m scripts.studies.compute_costs dataset=digits model=mlp,lenet

Takes the overrides of python -m mdl -m; every training has 100 epochs, or train.max_epochs if these are fewer. Nothing
is loaded or trained: each architecture sees six black images. FLOPs are those of products and convolutions. Bytes of a
step: 36 per parameter (y, z, v read and written, the gradient written and read, y read again), and the activations
saved for the backward pass, written and read. The floor of a training is the larger of FLOPs by rate and bytes by
bandwidth, without evaluations, crops, pointwise operations and kernel launches; caches can be faster. Likely hours are
floors times a multiple that `scripts.benchmarks.train` measured of the architecture (`MEASURED`); those of other sizes
are extrapolated.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from conf import Options
from conf.check import ConfigError
from conf.command_process import exit_code
from conf.compose import composed, jobs_of
from conf.run_identity import identifying
from conf.schema import plain, validate
from conf.target_class import Target
from harness.device_and_precision import pick_device
from harness.results.run_labels import labels
from harness.results.table import Table
from mdl.settings import MdlConfig
from mdl.training_sizes import chunk_sizes
from models.classifier import Classifier
from scripts.benchmarks.benchmark_helpers import machine, memory_rate, product_rate, shown
from scripts.benchmarks.step_flops_and_bytes import Device, Step
from scripts.command_line import argument_parser
from train.randomness import EpochOrder

CIFAR = (3, 32, 32)  # image; below: image, classes, images before the validation split
KNOWN = {"cifar10": (CIFAR, 10, 50_000), "svhn": (CIFAR, 10, 73_257), "digits": ((1, 8, 8), 10, 1_438)}
# SXM, NVIDIA's data sheet: bfloat16 dense, float32 without tensor cores
H100 = {"H100, bfloat16": Device(989e12, 3.35e12, 2), "H100, float32": Device(67e12, 3.35e12, 4)}
EPOCHS = 100  # of every training; nobody knows when they will stop
BATCH = 64  # examples in a step of the measurements below


# Examples a second on images of 32 × 32 × 3, those of all seeds together, by an H100 80GB HBM3 on 2026-11-27: the first
# row of `python -m scripts.benchmarks.train --dataset cifar --model MODEL --device cuda`, at the model's default size.
MEASURED = {"mlp": 809_232, "lenet": 240_754, "convnextv2": 6_221, "swinv2": 5_482}
MEASURED_ON = "H100, bfloat16"
CPU_MULTIPLES = "2 to 3.2"  # MLP and LeNet, two cores, 2026-11-21


class RunGroup(NamedTuple):
    """Runs that differ only in their eraser. `trainings`: per size, steps of all seeds, and examples per step."""

    name: str
    model: str
    runs: int
    step: Step
    trainings: Sequence[tuple[int, int]]

    def hours(self, device: Device) -> float:
        """Return the least hours of one run."""
        return sum(self.step.floor(examples, device, steps).seconds for steps, examples in self.trainings) / 3600

    def likely_hours(self) -> float | None:
        """Return the hours of one run at the multiple of the floor that was measured; None if none was."""
        multiple = measured_multiple(self.model)
        return multiple and multiple * self.hours(H100[MEASURED_ON])


def measured_multiple(model: str) -> float | None:
    """Return the measured time of a model's step over its floor; None if it was not measured."""
    if model not in MEASURED:
        return None
    step = step_of(json.dumps(composed("mdl", [f"model={model}"], MdlConfig).model), CIFAR, 10)
    return BATCH / MEASURED[model] / step.floor(BATCH, H100[MEASURED_ON]).seconds


def sized(dataset: Options) -> tuple[tuple[int, int, int], int, int]:
    """Return image shape, classes and training examples of a known dataset."""
    if dataset["name"] not in KNOWN:
        raise ConfigError(f"dataset={dataset['name']}: unknown size: choose one of {', '.join(KNOWN)}")
    shape, classes, images = KNOWN[dataset["name"]]
    held_out = dataset["validation_size"]
    return shape, classes, images - (min(1024, images // 10) if held_out is None else held_out)


@functools.cache
def step_of(model: str, shape: tuple[int, int, int], classes: int) -> Step:
    """Return the step of a model, a configuration's section as JSON, on images of a shape."""
    return Step.of(Target(json.loads(model), Classifier).build(shape, classes), shape)


def run_group(name: str, runs: int, config: MdlConfig) -> RunGroup:
    """Return the group of a configuration and of its `runs` erasers.

    Raises:
        ConfigError: it does not train networks at several sizes.
    """
    if config.mdl.code != "blocks":
        raise ConfigError(f"mdl.code={config.mdl.code}: what one pass costs is not known: leave it at blocks")
    if not issubclass(Target(config.model, object).resolve(), Classifier):
        raise ConfigError(f"model={config.model['name']}: trains no networks: choose one, e.g. model=mlp")
    shape, classes, examples = sized(config.dataset)
    settings, sizes = config.train, chunk_sizes(examples, config.mdl, classes)
    step = step_of(json.dumps(config.model), shape, classes)
    orders = [EpochOrder([0], n, 1, settings) for n in sizes]
    epochs = len(config.seeds) * min(EPOCHS, settings.max_epochs)
    model = str(config.model["name"])
    return RunGroup(name, model, runs, step, [(epochs * order.steps, order.batch_size) for order in orders])


def run_groups(overrides: Sequence[str]) -> list[RunGroup]:
    """Return the groups of the sweep's runs, each run counted once."""
    groups: dict[str, tuple[MdlConfig, set[str]]] = {}
    for _, job in jobs_of("mdl", overrides):
        config = validate(plain(job), MdlConfig)
        key = json.dumps(identifying(config.plain, "mdl") | {"eraser": None}, sort_keys=True)
        groups.setdefault(key, (config, set()))[1].add(json.dumps(config.eraser, sort_keys=True))
    configs = [*map(json.loads, groups)]
    parts = [{part: config.pop(part) for part in ("dataset", "model")} | {"setting": config} for config in configs]
    names = labels(parts, ["model"])
    made = zip(names, groups.values(), strict=True)
    return [run_group(str(name), len(erasers), config) for name, (config, erasers) in made]


def sweep_hours(groups: Sequence[RunGroup], hours: Sequence[float | None]) -> dict[str, float | None]:
    """Return hours of a run of each group, and of the whole sweep on one device, on eight, and on one per run.

    Args:
        groups: of the sweep.
        hours: of a run of each; None where they are unknown.
    """
    known = [hour for hour in hours if hour is not None]
    runs = {group.name: hour for group, hour in zip(groups, hours, strict=True)}
    if len(known) < len(groups):
        return runs | dict.fromkeys(("one device", "eight", "a cluster, a task per run"))
    total, longest = sum(group.runs * hour for group, hour in zip(groups, known, strict=True)), max(known)
    whole = {"one device": total, "eight": max(total / 8, longest), "a cluster, a task per run": longest}
    return {**runs, **whole}


def print_hours(groups: Sequence[RunGroup], devices: Mapping[str, Device], this_machine: str) -> None:
    likely = sweep_hours(groups, [group.likely_hours() for group in groups])
    least = [sweep_hours(groups, [group.hours(device) for group in groups]) for device in devices.values()]
    rows = [[what, *(shown(column[what]) for column in (likely, *least))] for what in likely]
    rates = (f"{d.flops / 1e12:.3g} TFLOP/s and {d.memory_bytes / 1e12:.3g} TB/s" for d in devices.values())
    multiples = {group.model: measured_multiple(group.model) for group in groups}
    times = ", ".join(f"{model} {multiple:.3g}" for model, multiple in multiples.items() if multiple)
    caption = [
        f"A run is of all seeds and sizes, at most {EPOCHS} epochs each.",
        "Likely: the floor of an H100 in bfloat16, times what was measured there on 2026-11-27: "
        f"{times or 'nothing of these models'}.",
        f"At least, by column: {', '.join(rates)}. This machine: {this_machine}.",
        f"On CPUs trainings took {CPU_MULTIPLES} times the floor (docs/benchmarks.md).",
    ]
    headings = ["hours: a run, or all on", "H100, likely", *(f"{device}, at least" for device in devices)]
    Table("hours", caption, headings, rows).show()


def show(overrides: Sequence[str]) -> int:
    groups, this_machine = run_groups(overrides), pick_device("auto")
    precision = torch.bfloat16 if this_machine.type == "cuda" else torch.float32
    rates = product_rate(precision, this_machine), memory_rate(this_machine)
    print_hours(groups, H100 | {"this machine": Device(*rates, precision.itemsize)}, machine(this_machine))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("studies.compute_costs", __doc__)
    parser.add_argument("overrides", nargs="*", default=["+experiment=table16"], help="as of python -m mdl -m")
    overrides = parser.parse_args(arguments).overrides
    return exit_code(functools.partial(show, overrides), "mdl", overrides)


if __name__ == "__main__":
    raise SystemExit(main())
