"""Shared parts of the benchmarks: seconds, peak memory, floors, and a table of our code and its alternatives."""

import argparse
import contextlib
import datetime
import gc
import os
import platform
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from harness.results.table import Table
from scripts import command_line
from scripts.benchmarks.step_flops_and_bytes import Floor

Result = TypeVar("Result")
_MIB = 2**20


@dataclass
class Cost:
    """Cost of some work; `peak_mib` is the memory above that in use before, None if unknown."""

    seconds: float = 0.0
    peak_mib: float | None = None


@dataclass(frozen=True)
class Row:
    """One row of a benchmark; rows of the same work are compared with the first.

    Attributes:
        what: the work.
        who: the implementation.
        cost: None if it was not run.
        floor: time of the products that the result needs, at the rate of a plain product, and of its memory traffic.
        note: estimate, reason for leaving out, or accuracy.
    """

    what: str
    who: str
    cost: Cost | None
    floor: Floor | None = None
    note: str = ""


def argument_parser(name: str, doc: str | None, **defaults: object) -> argparse.ArgumentParser:
    """Make the parser of `python -m scripts.benchmarks.NAME`, with an option for the device."""
    return command_line.argument_parser(f"benchmarks.{name}", doc, **defaults, device="cpu")


def show(title: str, rows: Sequence[Row]) -> None:
    """Print the title, of one or more lines, and the table."""
    first = {row.what: row.cost.seconds for row in reversed(rows) if row.cost}
    lines = []
    for row in rows:
        seconds, peak, floor = row.cost and row.cost.seconds, row.cost and row.cost.peak_mib, row.floor
        times = (seconds, seconds and seconds / first[row.what], peak)
        least = (floor and floor.seconds, floor and seconds and seconds / floor.seconds)
        lines.append([row.what, row.who, *map(shown, (*times, *least)), floor.bound_by if floor else "", row.note])
    headings = ("work", "code", "seconds", "x ours", "peak MiB", "floor s", "x floor", "bound by", "note")
    print(f"\n{title}")
    Table("benchmark", (), headings, lines).show()


def attempt(what: str, who: str, measure: Callable[[], Iterable[Row]]) -> list[Row]:
    """Return the rows of a measurement, or one row with the reason why it failed.

    Rows are printed at once, so that they are known if the benchmark is stopped later.
    """
    try:
        rows = [*measure()]
    except Exception as error:  # of any kind: the other rows must not be lost
        traceback.print_exc(limit=-5, chain=False)
        lines = str(error).strip().splitlines() or [""]
        rows = [Row(what, who, None, note=f"failed: {type(error).__name__}: {lines[0][:200]}")]
    gc.collect()  # trainers refer to themselves; their memory would count in the next measurement
    for row in rows:
        seconds = f"{shown(row.cost.seconds)} s; " if row.cost else ""
        print(f"{row.what}, {row.who}: {seconds}{row.note} …", flush=True)
    return rows


@contextlib.contextmanager
def measured(device: torch.device) -> Iterator[Cost]:
    """Measure time and peak memory of the block, with the device's queue empty before and after."""
    cost = Cost()
    before = _memory_in_use(device, peak=False)
    _synchronise(device)
    started = time.perf_counter()
    yield cost
    _synchronise(device)
    cost.seconds = time.perf_counter() - started
    after = _memory_in_use(device, peak=True)
    if before is not None and after is not None:
        cost.peak_mib = max(0.0, after - before) / _MIB


def timed(
    work: Callable[..., Result], device: torch.device, prepare: Callable[[], Sequence[object]] = tuple
) -> tuple[Result, Cost]:
    """Return result and cost of `work(*prepare())` without `prepare`; the fastest of three runs if it is short."""
    costs: list[Cost] = []
    while True:
        prepared = prepare()
        with measured(device) as cost:
            result = work(*prepared)
        costs.append(cost)
        if len(costs) == 3 or cost.seconds > 2:
            return result, min(costs, key=lambda cost: cost.seconds)
        del prepared, result


def waits(work: Callable[[], object], device: torch.device) -> str:
    """Return how often the host waits for a GPU in `work()`, as the end of a note; empty for a CPU."""
    if device.type != "cuda":
        return ""
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            work()
    finally:
        torch.cuda.set_sync_debug_mode(mode)
    return f", waits {sum('synchroniz' in str(one.message) for one in caught)} times"


def matmul_rate(size: int, dtype: torch.dtype, device: torch.device) -> float:
    """Return FLOP/s of a square product of this size, the unit of all floors."""
    a = torch.randn(size, size, dtype=torch.float32, device=device).to(dtype)
    return 2 * size**3 / _seconds(lambda: a @ a, device)


def product_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Return FLOP/s of a product that is large enough for the device: a GPU's rate grows up to some thousand rows."""
    return matmul_rate(8192 if device.type == "cuda" else 1024, dtype, device)


def memory_rate(device: torch.device) -> float:
    """Return bytes/s of a sum over 256 MiB."""
    ones = torch.ones(2**25, dtype=torch.float64, device=device)
    return 8 * len(ones) / _seconds(ones.sum, device)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Time one call: on a GPU one of ten in a row, as a launch and a wait take longer than a small product."""
    calls = 10 if device.type == "cuda" else 1
    return timed(lambda: [work() for _ in range(calls)], device)[1].seconds / calls


def machine(device: torch.device) -> str:
    """Return hardware, threads, versions and date, for the line above a table."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{_cpu()}, {os.cpu_count()} cores"
    today = datetime.date.today().isoformat()
    return f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}, {today}"


def shown(value: float | None) -> str:
    """Format three digits, or all before the point; empty if unknown."""
    return "" if value is None else f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _memory_in_use(device: torch.device, *, peak: bool) -> float | None:
    """Return the bytes in use, and restart the peak; or the bytes at the peak since. None if unknown."""
    if device.type == "cuda":
        if peak:
            return torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    with contextlib.suppress(OSError):
        if not peak:
            Path("/proc/self/clear_refs").write_text("5")  # Linux: reset the peak resident set size
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return 1024.0 * int(fields["VmHWM" if peak else "VmRSS"].split()[0])
    return None


def _cpu() -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path("/proc/cpuinfo").read_text().split("model name\t: ")[1].splitlines()[0]
    return platform.processor() or platform.machine()
