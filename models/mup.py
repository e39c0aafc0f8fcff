"""The maximal update parametrisation (μP) for Adam, derived for each parameter from shapes alone.

The architecture is built at two widths on the meta device, where nothing is allocated, to find the dimensions that grow
with width. Yang et al. 2021, "Tensor Programs V", table 8; the depth rule is equation 1 of Quirke & Belrose 2025, after
Jelassi et al. 2023. docs/training.md explains and tests it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

Parametrization = Literal["mup", "standard"]
Role = Literal["input", "hidden", "output", "vector"]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Scaling:
    """The changes of one parameter between the base width and the actual width.

    Attributes:
        role: "hidden": fan-in and fan-out grow with width; "input": fan-out only (stems, depthwise kernels);
            "output": fan-in only (the readout); "vector": one growing dimension or none (biases, norms).
        width_ratio: fan-in over fan-in at base width; 1 where the fan-in does not grow.
        learning_rate: factor on Adam's learning rate.
        initial_std: factor on the standard deviation at base width, so that it stays ∝ fan_in^-½.
        output: factor on the input of the parameter's layer.
    """

    role: Role
    width_ratio: float
    learning_rate: float
    initial_std: float
    output: float


def scaling(role: Role, width_ratio: float) -> Scaling:
    """Return a parameter's scaling by μP's rule for Adam, from its role and fan-in ratio alone."""
    if role == "hidden":
        return Scaling(role, width_ratio, 1 / width_ratio, width_ratio**-0.5, 1.0)
    if role == "output":
        return Scaling(role, width_ratio, 1.0, 1.0, 1 / width_ratio)
    return Scaling(role, width_ratio, 1.0, 1.0, 1.0)


def scalings(base: Shapes, wider: Shapes, target: Shapes) -> dict[str, Scaling]:
    """Return the scaling of every parameter of `target`.

    Args:
        base: parameter shapes at base width; weights [fan_out, fan_in, ...].
        wider: shapes of the same architecture at another width; the dimensions that differ are those that grow.
        target: shapes at the actual width.

    Raises:
        ValueError: a parameter that fits no role; the message names it and its shapes.
    """
    if not base.keys() == wider.keys() == target.keys():
        odd = sorted(base.keys() ^ target.keys() | base.keys() ^ wider.keys())
        raise ValueError(f"{odd[0]} is not in the network at every width: μP needs the same parameters at all widths")
    return {name: scaling(*_role(name, base[name], wider[name], shape)) for name, shape in target.items()}


def _role(name: str, base: tuple[int, ...], wider: tuple[int, ...], target: tuple[int, ...]) -> tuple[Role, float]:
    described = f"{name}: shape {list(base)} at base width, {list(wider)} at another, {list(target)} here"
    if not len(base) == len(wider) == len(target):
        raise ValueError(f"{described}: μP needs the same number of dimensions at every width")
    grows = [b != w for b, w in zip(base, wider, strict=True)]
    if any(b != t for b, t, g in zip(base, target, grows, strict=True) if not g):
        raise ValueError(f"{described}: a dimension changed that does not grow with width")
    if any(grows[2:]):
        raise ValueError(f"{described}: μP has no rule for a dimension after the second that grows with width")
    if len(base) < 2 or not any(grows):
        return "vector", 1.0
    fan_out_grows, fan_in_grows = grows[:2]
    if not fan_in_grows:
        return "input", 1.0
    return ("hidden" if fan_out_grows else "output"), math.prod(target[1:]) / math.prod(base[1:])


def shapes_of(build: Callable[[], nn.Module]) -> Shapes:
    """Return parameter shapes of the network that `build` makes, built on the meta device."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return {name: tuple(parameter.shape) for name, parameter in build().named_parameters()}


def depth_factor(base_depth: int, depth: int, exponent: float) -> float:
    """Return (L_base / L)^p, by which every learning rate is multiplied."""
    return (base_depth / depth) ** exponent
