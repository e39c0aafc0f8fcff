"""Versions and hardware that a reader needs to repeat a run."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

import erasure


def versions(device: torch.device) -> dict[str, str]:
    """Return the versions and the hardware that a reader needs to repeat a run."""
    hardware = (
        torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    )
    libraries = ("torch", "schedulefree", "numpy", "scikit-learn")
    about = {"python": platform.python_version(), "device": f"{device} ({hardware})", "commit": _commit()}
    return about | {"erasure-mdl": erasure.__version__} | {name: version(name) for name in libraries}


def _commit() -> str:
    """Return the commit of this checkout, with "-dirty" if files differ from it; empty without git."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
