"""Least cost of a sweep of `python -m mdl`: FLOPs, bytes and hours on one GPU, on eight, on a cluster.

    python -m scripts.studies.costs                                        of +experiment=table16
    python -m scripts.studies.costs +experiment=fig3 --epochs 50 --teraflops 312 --terabytes 1.6
    python -m scripts.studies.costs --runs docs/study                      epochs as finished runs had them

Takes the overrides of python -m mdl -m. No data is loaded, nothing trained: each architecture sees six black images.
FLOPs are of products and convolutions. Bytes of a step: 36 per parameter (y, z, v read and written, the gradient
written and read, y read again), and all that the forward pass keeps for the backward pass, written and read. Hours are
floors: the larger of FLOPs by rate and bytes by bandwidth. Evaluations, crops, what lies between products, and
launching kernels come on top; what stays in a cache can be faster. scripts.benchmarks.train sets seconds beside floors.
"""

import argparse
import functools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from conf import Options
from conf.check import ConfigError
from conf.compose import jobs_of
from conf.errors import exit_code
from conf.groups import look_in
from conf.schema import identifying, plain, validate
from conf.target import Target
from harness.device import pick_device
from harness.result import MdlResult
from harness.results.labels import labels
from harness.results.read import read_runs
from harness.results.table import Table
from mdl.chunks import MdlConfig, chunk_sizes
from models.classifier import Classifier
from scripts.benchmarks.benchmark import machine, matmul_rate, memory_rate, shown
from scripts.benchmarks.step_cost import Device, Step
from scripts.options import parser
from train.order import EpochOrder

CIFAR = (3, 32, 32)  # image; below: image, classes, images before the validation split
KNOWN = {"cifar10": (CIFAR, 10, 50_000), "svhn": (CIFAR, 10, 73_257), "digits": ((1, 8, 8), 10, 1_438)}
# SXM, NVIDIA's data sheet: bfloat16 dense, float32 without tensor cores
H100 = {"H100, bfloat16": Device(989e12, 3.35e12, 2), "H100, float32": Device(67e12, 3.35e12, 4)}
Epochs = Mapping[str, Sequence[float]]  # at each size, by `training`


class Kind(NamedTuple):
    """Runs that differ in their eraser alone. `trainings`: per size, steps of all seeds, and examples of a step."""

    name: str
    runs: int
    step: Step
    trainings: Sequence[tuple[int, int]]

    def hours(self, device: Device) -> list[float]:
        """Return the hours of one run, by training size."""
        return [steps * self.step.hours(examples, device) for steps, examples in self.trainings]

    def totals(self) -> tuple[float, float, float]:
        """Return steps, PFLOP and TB of one run; what is kept has two bytes for a number."""
        flops = sum(steps * examples * self.step.flops for steps, examples in self.trainings)
        moved = sum(steps * self.step.moved_bytes(examples, 2) for steps, examples in self.trainings)
        return sum(steps for steps, _ in self.trainings), flops / 1e15, moved / 1e12


def sized(dataset: Options, given: Sequence[int] | None) -> tuple[tuple[int, int, int], int, int]:
    """Shape of an image, classes, training examples: as given, or as they are known."""
    if given:
        return (given[0], given[1], given[2]), given[3], given[4]
    if dataset["name"] not in KNOWN:
        raise ConfigError(f"dataset={dataset['name']}: its size is not known here: say --size C H W CLASSES EXAMPLES")
    shape, classes, images = KNOWN[dataset["name"]]
    held_out = dataset["validation_size"]
    return shape, classes, images - (min(1024, images // 10) if held_out is None else held_out)


def training(config: Options, sizes: Sequence[int]) -> str:
    """Return the options that decide how many epochs are trained, but for the eraser and the data."""
    own = identifying(config)
    return json.dumps([own["model"], own["train"] | {"precision": None}, list(sizes)], sort_keys=True)


def epochs_seen(roots: Sequence[Path]) -> Epochs:
    """Return epochs of finished runs below `roots`: means over their erasers and seeds."""
    seen: dict[str, list[list[float]]] = {}
    for run in read_runs(roots).finished:
        curve = run.result.curve if isinstance(run.result, MdlResult) else []
        if curve and all(point.epochs for point in curve):  # kernels have none
            own = seen.setdefault(training(run.config, [point.n for point in curve]), [])
            own += [list(map(float, seed)) for seed in zip(*(point.epochs for point in curve), strict=True)]
    return {key: [sum(size) / len(size) for size in zip(*own, strict=True)] for key, own in seen.items()}


def kind_of(name: str, runs: int, config: MdlConfig, chosen: argparse.Namespace, seen: Epochs) -> Kind:
    shape, classes, examples = sized(config.dataset, chosen.size)
    settings, sizes = config.train, chunk_sizes(examples, config.mdl)
    step = Step.of(Target(config.model).build(Classifier, shape, classes), shape)
    assumed = [min(chosen.epochs, settings.max_epochs)] * len(sizes)
    epochs = seen.get(training(config.plain, sizes), assumed)
    orders = [EpochOrder([0], n, 1, settings) for n in sizes]
    steps = [round(len(config.seeds) * own * order.steps) for own, order in zip(epochs, orders, strict=True)]
    return Kind(name, runs, step, [(own, order.batch_size) for own, order in zip(steps, orders, strict=True)])


def kinds(chosen: argparse.Namespace) -> list[Kind]:
    """Return the kinds of the sweep's runs, each run counted once."""
    found: dict[str, tuple[MdlConfig, set[str]]] = {}
    for _, composed in jobs_of("mdl", chosen.overrides):
        config = validate(plain(composed), MdlConfig)
        key = json.dumps(identifying(config.plain) | {"eraser": None}, sort_keys=True)
        found.setdefault(key, (config, set()))[1].add(json.dumps(config.eraser, sort_keys=True))
    names = labels([*map(json.loads, found)], ["model"])
    made, seen = zip(names, found.values(), strict=True), epochs_seen(chosen.runs)
    return [kind_of(str(name), len(own), config, chosen, seen) for name, (config, own) in made]


def places(found: Sequence[Kind], device: Device) -> dict[str, float]:
    """Hours of the whole sweep on one of a device, on eight, on as many as there are tasks."""
    runs = [hours for kind in found for hours in [kind.hours(device)] * kind.runs]
    total, run, size = sum(map(sum, runs)), max(map(sum, runs)), max(map(max, runs))
    return {
        "one device": total,
        "eight": max(total / 8, run),
        "eight, mdl.share=true": max(total / 8, size),
        "a cluster, a task per run": run,
        "a cluster, a task per size, mdl.share=true": size,
    }


def print_work(found: Sequence[Kind], epochs: str) -> None:
    rows = []
    for kind in found:
        step, batch = kind.step, max(examples for _, examples in kind.trainings)
        of_step = step.forward_flops / 1e6, step.flops * batch / 1e9, step.moved_bytes(batch, 2) / 1e6
        rows.append([kind.name, *map(shown, (kind.runs, step.parameters, *of_step, *kind.totals()))])
    whole = [sum(kind.runs * kind.totals()[i] for kind in found) for i in range(3)]
    rows.append(["all runs", shown(sum(kind.runs for kind in found)), *[""] * 4, *map(shown, whole)])
    headings = ("model", "runs", "parameters", "forward, MFLOP an example", "step, GFLOP", "step, MB")
    caption = f"A step is one seed's; a run is of all seeds and sizes, {epochs}."
    Table("work", caption, [*headings, "run, steps", "run, PFLOP", "run, TB"], rows).show()


def print_hours(found: Sequence[Kind], devices: Mapping[str, Device], here: str) -> None:
    hours = [{kind.name: sum(kind.hours(d)) for kind in found} | places(found, d) for d in devices.values()]
    rows = [[what, *(shown(column[what]) for column in hours)] for what in hours[0]]
    rates = (f"{d.flops / 1e12:.3g} TFLOP/s and {d.memory_bytes / 1e12:.3g} TB/s" for d in devices.values())
    caption = f"By column: {', '.join(rates)}. This machine: {here}."
    Table("hours", caption, ["hours at least: a run, or all on", *devices], rows).show()


def show(chosen: argparse.Namespace) -> int:
    found, devices, here = kinds(chosen), dict(H100), pick_device("auto")
    if chosen.teraflops:
        devices["as given"] = Device(chosen.teraflops * 1e12, chosen.terabytes * 1e12, 2)
    precision = torch.bfloat16 if here.type == "cuda" else torch.float32
    devices["this machine"] = Device(matmul_rate(1024, precision, here), memory_rate(here), precision.itemsize)
    seen = (
        f"as many as in {' '.join(map(str, chosen.runs))} where there are such runs, otherwise " if chosen.runs else ""
    )
    print_work(found, f"{seen}{chosen.epochs} epochs each (no more than train.max_epochs)")
    print_hours(found, devices, machine(here))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    own = parser("studies.costs", __doc__)
    own.add_argument("overrides", nargs="*", default=["+experiment=table16"], help="as of python -m mdl -m")
    own.add_argument("--epochs", type=int, default=100, help="of every training; nobody knows when they will stop")
    own.add_argument(
        "--runs", type=Path, nargs="+", default=[], help="folders of finished runs: epochs are their means"
    )
    size = ("C", "H", "W", "CLASSES", "EXAMPLES")
    own.add_argument("--size", type=int, nargs=5, metavar=size, help="of a training split that is not known here")
    own.add_argument("--teraflops", type=float, help="a second, of another device, in bfloat16")
    own.add_argument("--terabytes", type=float, help="a second, of its memory")
    chosen = own.parse_intermixed_args(look_in(sys.argv[1:] if arguments is None else arguments))
    if chosen.epochs < 1 or (chosen.teraflops is None) != (chosen.terabytes is None):
        own.error("--epochs must be at least 1, and --teraflops and --terabytes go together")
    return exit_code(functools.partial(show, chosen), "mdl", chosen.overrides)


if __name__ == "__main__":
    raise SystemExit(main())
