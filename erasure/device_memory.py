"""Free memory of devices."""

import math
from pathlib import Path

import torch

_CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> float:
    """Return the memory that can still be allocated; infinity if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return math.inf
    return min(_available(Path("/proc/meminfo")), _left_to_group(_CGROUP))


def _available(meminfo: Path) -> float:
    """Return Linux's estimate."""
    try:
        (line,) = [line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        return math.inf
    return 1024 * float(line.split()[1])


def _left_to_group(folder: Path) -> float:
    """Return the memory that the control group of a container or a cluster's task may still take."""
    try:
        return float((folder / "memory.max").read_text()) - float((folder / "memory.current").read_text())
    except (OSError, ValueError):  # none, or no limit: "max"
        return math.inf
