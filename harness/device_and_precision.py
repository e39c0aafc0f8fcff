"""The device and the precision that a configuration names."""

import torch


def pick_device(name: str) -> torch.device:
    """Return the device that the configuration names; "auto" takes a GPU if there is one.

    Raises:
        ValueError: no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device={name}: not a device; choose auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device={name}: this machine has {torch.cuda.device_count()} CUDA devices; try device=auto")
    return device


def pick_precision(name: str, device: str) -> str:
    """Return the precision that the configuration names; "auto" is bfloat16 on a GPU, float32 elsewhere.

    The device need not exist on this machine: run ids are computed on other machines as well.
    """
    if name != "auto":
        return name
    kind = pick_device(device).type if device == "auto" else device.partition(":")[0]
    return "bfloat16" if kind == "cuda" else "float32"
