"""The device on which an eraser can be fitted."""

import logging

import torch

from erasure.device_memory import free_bytes
from erasure.eraser import Eraser

log = logging.getLogger(__name__)


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
