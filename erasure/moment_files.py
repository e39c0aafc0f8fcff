"""Checks of untrusted files of moments, of classes or of other concepts."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor


@contextmanager
def explained(path: Path | str) -> Iterator[None]:
    """Turn errors in reading moments into a ValueError that names the file."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} holds no moments of examples ({str(error)[:160]}): save them again") from error


def require_sums(tensors: Mapping[str, Tensor], dim: int, num_classes: int, *, pooled: bool) -> None:
    """Check the tensors of a `state_dict` from an untrusted file, before more memory is allocated for them.

    Raises:
        ValueError: a tensor is missing, has another shape or dtype, or holds impossible values.
    """
    shapes = {
        "sizes": [num_classes],
        "origins": [num_classes, dim],
        "offsets": [num_classes, dim],
        "scatters": [1 if pooled else num_classes, dim, dim],
    }
    described = f"moments of {num_classes} classes in {dim} dimensions"
    for name, shape in shapes.items():
        stored = list(tensors[name].shape) if name in tensors else "missing"
        if stored != shape:
            raise ValueError(f"{described}: {name} is {stored}, expected {shape}")
        if (dtype := tensors[name].dtype) != (torch.int64 if name == "sizes" else torch.float64):
            raise ValueError(f"{described}: {name} is of {dtype}")
        if not tensors[name].isfinite().all():
            raise ValueError(f"{described}: {name} has values that are not finite")
    epsilon = tensors.get("epsilon", torch.tensor(0.0))  # files of 0.3.0 have none
    if epsilon.numel() != 1 or not 0 <= float(epsilon) < 1:
        raise ValueError(f"{described}: epsilon is {epsilon.tolist()!s:.40}, expected a number from 0 to 1")
    if (tensors["sizes"] < 0).any():
        raise ValueError(f"{described}: a class has {int(tensors['sizes'].min())} examples")
    if (tensors["scatters"].diagonal(dim1=1, dim2=2) < 0).any():
        raise ValueError(f"{described}: scatters has negative variances")
