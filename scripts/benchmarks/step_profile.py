"""The kernels of a step and the gaps between them, by `torch.profiler`."""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from harness.results.table import Table
from scripts.benchmarks.benchmark_helpers import shown, timed

_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch")
_STEPS = 10
_SHOWN = 8  # kernels


def profile_table(step: Callable[[], None], device: torch.device, title: str) -> Table:
    """Profile steps on a GPU by kernel, on a CPU by operation.

    The time in which no kernel runs is that of a step without the profiler, less that in kernels.

    Args:
        step: takes a step and waits for the device.
        device: of the step.
        title: first line of the caption.
    """
    for _ in range(5):  # libraries choose kernels, and a CUDA graph is captured
        step()
    _, cost = timed(lambda: [step() for _ in range(_STEPS)], device)
    on_gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as record:
        for _ in range(_STEPS):
            step()
    events = record.key_averages()
    launches = sum(event.count for event in events if event.key in _LAUNCHES)
    if on_gpu:
        kernels = {e.key: (e.self_device_time_total, e.count) for e in events if e.device_type.name == "CUDA"}
    else:
        kernels = {e.key: (e.self_cpu_time_total, e.count) for e in events}
    in_kernels_ms = sum(time_us for time_us, _ in kernels.values()) / _STEPS / 1e3
    step_ms, ran = 1e3 * cost.seconds / _STEPS, sum(count for _, count in kernels.values()) / _STEPS
    what = "kernels" if on_gpu else "operations"
    caption = [f"{title}: {shown(step_ms)} ms, and {ran:,.0f} {what} of {shown(in_kernels_ms)} ms under the profiler."]
    if on_gpu and not kernels:
        caption.append("The profiler saw no kernels: the gaps between them are unknown.")
    elif on_gpu:
        gaps_ms = max(0.0, step_ms - in_kernels_ms)
        caption.append(f"{launches / _STEPS:,.0f} launches a step; no kernel runs for {shown(gaps_ms)} ms of it.")
    longest = sorted(kernels.items(), key=lambda each: -each[1][0])[:_SHOWN]
    rows = [
        [name[:100], f"{count / _STEPS:,.0f}", shown(us / _STEPS / 1e3), f"{us / _STEPS / 10 / in_kernels_ms:.0f}%"]
        for name, (us, count) in longest
    ]
    return Table("profile", caption, (what[:-1], "times", "ms", "share"), rows)
