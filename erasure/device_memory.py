"""Free memory of devices."""

import math
from pathlib import Path

import torch

_MEMINFO, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> float:
    """Return the memory in bytes that can still be allocated; infinity if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return math.inf
    return free_host_bytes()


def free_host_bytes(meminfo: Path = _MEMINFO, group: Path = _CGROUP) -> float:
    """Return the bytes of memory that Linux estimates as free or that the control group allows, whichever is less.

    Args:
        meminfo: the system's file of memory sizes.
        group: folder of the control group of a container or a cluster's task.
    """
    return min(_available(meminfo), _left_to_group(group))


def _available(meminfo: Path) -> float:
    try:
        (line,) = [line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        return math.inf
    return 1024 * float(line.split()[1])


def _left_to_group(folder: Path) -> float:
    try:
        return float((folder / "memory.max").read_text()) - float((folder / "memory.current").read_text())
    except (OSError, ValueError):  # no group, or no limit ("max")
        return math.inf
