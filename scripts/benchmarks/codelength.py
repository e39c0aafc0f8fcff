"""Seconds of `codelength` in Python, and of `python -m mdl` after its start-up: the same data, seeds and bits.

    uv run python -m scripts.benchmarks.codelength
    uv run python -m scripts.benchmarks.codelength --train quick      # trainings a tenth as long: a stricter ratio

Both run in one process in turns, after one round that is not counted. The command also stores its run: result, curves,
bits of every label. The ratio of processor time does not depend on other work on the machine.
"""

import tempfile
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch

from conf.compose import composed
from harness.experiment import Experiment, erased
from mdl import codelength
from mdl.__main__ import COMMAND
from mdl.result import MdlResult
from mdl.settings import MdlConfig
from scripts.benchmarks.benchmark_helpers import Cost, Row, argument_parser, machine, measured, show


def main(arguments: Sequence[str] | None = None) -> int:
    """Time both, and print their medians and the median ratio."""
    parser = argument_parser("codelength", __doc__, model="mlp", seeds=5, sizes=10, train="default", rounds=3)
    options = parser.parse_args(arguments)
    if min(options.seeds, options.rounds) < 1 or options.sizes < 2:
        parser.error("--seeds and --rounds must be at least 1, --sizes at least 2")
    device, seeds = torch.device(options.device), list(range(options.seeds))
    words = ["eraser=control", f"model={options.model}", f"train={options.train}", f"seeds={seeds}"]
    words += [f"mdl.num_chunks={options.sizes}", f"device={options.device}", "logger.mode=disabled"]
    settings: dict[str, Any] = {
        "seeds": seeds,
        "sizes": options.sizes,
        "settings": options.train,
        "device": options.device,
    }
    seconds: list[tuple[float, float]] = []  # of the command and of the function, by round
    ratios: list[tuple[float, float]] = []  # function to command, by the clock and by processor time
    with tempfile.TemporaryDirectory() as folder:
        for i in range(options.rounds + 1):
            where = [f"runs_dir={folder}/runs{i}", f"cache_dir={folder}/cache"]
            config = composed("mdl", [*words, *where], MdlConfig)
            before = time.process_time()
            with measured(device) as command:
                result = COMMAND.carry_out(config)
            command_cpu = time.process_time() - before
            splits = erased(Experiment.from_config("mdl", config)).splits
            parts: dict[str, Any] = {name: (part.images, part.labels) for name, part in splits.items()}
            x, y = parts.pop("train")
            before = time.process_time()
            with measured(device) as function:
                code = codelength(x, y, options.model, **settings, **parts)
            function_cpu = time.process_time() - before
            assert isinstance(result, MdlResult)
            if code.total_bits != result.mdl.total_bits:
                raise RuntimeError(f"codelength gives {code.total_bits} bits, the command {result.mdl.total_bits}")
            seconds.append((command.seconds, function.seconds))
            ratios.append((function.seconds / command.seconds, function_cpu / command_cpu))
    command_seconds, function_seconds = map(median, zip(*seconds[1:], strict=True))
    ratio, cpu_ratio = map(median, zip(*ratios[1:], strict=True))
    note = f"{ratio:.3f} of the command's time, {cpu_ratio:.3f} of its processor time; equal bits"
    rows = [
        Row("codes", "codelength", Cost(function_seconds), note=note),
        Row("codes", "python -m mdl", Cost(command_seconds)),
    ]
    title = f"{options.seeds} seeds of {options.model}, {options.sizes} sizes, digits, medians of {options.rounds}"
    show(f"{title}\n{machine(device)}", rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
