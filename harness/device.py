"""Device, precision, and the versions that a reader needs to repeat a run."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

import erasure


def pick_device(name: str) -> torch.device:
    """Return the device that the configuration names; "auto" takes a GPU if there is one.

    Raises:
        ValueError: no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device={name}: not a device; choose auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device={name}: this machine has {torch.cuda.device_count()} CUDA devices; try device=auto")
    return device


def pick_precision(name: str, device: str) -> str:
    """Return the precision that the configuration names; "auto" is bfloat16 on a GPU, float32 elsewhere.

    A device that the configuration names need not be on this machine: a run's identity is computed on others as well.
    """
    if name != "auto":
        return name
    kind = pick_device(device).type if device == "auto" else device.partition(":")[0]
    return "bfloat16" if kind == "cuda" else "float32"


def versions(device: torch.device) -> dict[str, str]:
    """Return the versions and the hardware that a reader needs to repeat a run."""
    hardware = (
        torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    )
    libraries = ("torch", "schedulefree", "numpy", "scikit-learn")
    about = {"python": platform.python_version(), "device": f"{device} ({hardware})", "commit": _commit()}
    return about | {"erasure-mdl": erasure.__version__} | {name: version(name) for name in libraries}


def _commit() -> str:
    """Return the checkout's commit, with "-dirty" where files differ from it; empty where there is no git."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
