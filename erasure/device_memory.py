"""Free memory of devices, and the device on which an eraser can be fitted."""

import logging
import math
from pathlib import Path

import torch

from erasure.eraser import Eraser

log = logging.getLogger(__name__)
_CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> float:
    """Return the memory that can still be allocated; infinity if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return math.inf
    return min(_available(Path("/proc/meminfo")), _left_to_group(_CGROUP))


def fitting_device(eraser: type[Eraser], dim: int, num_classes: int, device: torch.device) -> torch.device:
    """Return the device, or the CPU if moments and fitting do not fit there; ValueError if they fit nowhere."""
    needed = eraser.fitting_bytes(dim, num_classes)
    cpu = torch.device("cpu")
    if device.type != "cpu" and (device.type == "mps" or needed > free_bytes(device)):  # no float64 on Apple's
        log.info("%s is fitted on the CPU: it needs %.1f GB in float64", eraser.__name__, needed / 1e9)
        device = cpu
    if device == cpu and needed > (free := free_bytes(cpu)):
        raise ValueError(
            f"{eraser.__name__} needs about {needed / 1e9:.0f} GB at once for {dim:,} values per example and "
            f"{num_classes} classes, but {free / 1e9:.0f} GB are free: take smaller images, fewer classes, or "
            "another machine"
        )
    return device


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
