"""The device and the precision that a configuration names."""

import torch


def pick_device(name: str | torch.device) -> torch.device:
    """Return the device that a configuration or a caller names; "auto" takes a GPU if there is one.

    Raises:
        ValueError: no such device here.
    """
    device = _device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device={name}: this machine has {torch.cuda.device_count()} CUDA devices; try device=auto")
    if device.type not in ("cpu", "cuda"):
        try:
            torch.zeros(1, device=device).item()
        except Exception as error:  # each kind of device has its own
            raise ValueError(f"device={name}: cannot compute here; choose auto, cpu, cuda or cuda:N") from error
    return device


def _device(name: str | torch.device) -> torch.device:
    """Return the device of a name, whether or not this machine has it."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(name)
    except (RuntimeError, TypeError):
        raise ValueError(f"device={name}: not a device; choose auto, cpu, cuda or cuda:N") from None


def pick_precision(name: str, device: str | torch.device) -> str:
    """Return the precision that the configuration names; "auto" is bfloat16 on a GPU, float32 elsewhere.

    The device need not exist on this machine, because run ids are also computed on other machines.
    """
    if name != "auto":
        return name
    return "bfloat16" if _device(device).type == "cuda" else "float32"
