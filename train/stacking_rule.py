"""The rule that decides, by architecture, image size and device, whether seeds train stacked or one after another.

Stacked layers save kernel launches and interpreter time, but on a CPU the batched products of large layers are slower
than plain ones. The rule comes from measurements (docs/benchmarks.md). Nothing is timed at run time, because stacking
changes the last digits of a result, and a rerun on a busier machine must make the same choice.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from models.classifier import count_parameters
from train.device_images import DeviceImages
from train.ensemble import Ensemble
from train.settings import TrainSettings

LARGEST_STACKED = 300_000  # most multiply-adds in one example's forward pass for stacking on a CPU


@dataclass(frozen=True)
class Stacking:
    """The number of seeds that train at once, and the reason for it.

    Attributes:
        stack: number of seeds in one network.
        why: the reason in one line.
    """

    stack: int
    why: str

    @property
    def how(self) -> str:
        return "one after another" if self.stack == 1 else "in one network"


def choose(ensemble: Ensemble, members: int, train: DeviceImages, settings: TrainSettings) -> Stacking:
    """Choose the number of members that train together.

    Args:
        ensemble: the architecture.
        members: number S of seeds.
        train: training split, for the image size and the device.
        settings: training options; `stack` decides unless it is "auto".

    Raises:
        ValueError: train.stack=all with a network that `torch.func.vmap` cannot run.
    """
    name, stackable = type(ensemble.model).__name__, ensemble.model.stackable
    if settings.stack == "all" and members > 1 and not stackable:
        _try_out(ensemble, train)
    if settings.stack != "auto":
        return Stacking(members if settings.stack == "all" else 1, f"train.stack={settings.stack}")
    if members == 1 or not stackable:
        return Stacking(1, "one seed" if members == 1 else f"{name} has no stacked layers; train.stack=all uses vmap")
    if (device := train.labels.device.type) != "cpu":
        return Stacking(members, f"launches cost most on {device}")
    count = multiply_adds(ensemble.model, train.image_shape)
    limit = "at most" if count <= LARGEST_STACKED else "more than"
    why = f"an example takes {count:,} multiply-adds, {limit} {LARGEST_STACKED:,}"
    return Stacking(members if count <= LARGEST_STACKED else 1, why)


def _try_out(ensemble: Ensemble, train: DeviceImages) -> None:
    """Compute the gradients of two members on two examples, as a test of `torch.func.vmap`.

    Raises:
        ValueError: `torch.func.vmap` cannot run the network.
    """
    model, index = ensemble.model, torch.zeros(2, 2, dtype=torch.int64, device=train.labels.device)
    weights = {name: torch.stack([p.detach()] * 2).requires_grad_() for name, p in model.named_parameters()}
    factors = torch.ones(2, len(ensemble.drop_rates), 2, device=index.device)
    try:
        ensemble.gradients(weights, *train.plain(index), factors)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise ValueError(
            f"train.stack=all: {type(model).__name__} cannot be stacked by torch.func.vmap ({reason}): "
            "choose auto or one"
        ) from error


def step_multiply_adds(ensemble: Ensemble, stack: int, train: DeviceImages, settings: TrainSettings) -> float:
    """Return the number of multiplications in a forward pass of one batch of each of `stack` seeds."""
    examples = min(settings.batch_size, len(train)) * stack
    return examples * multiply_adds(ensemble.model, train.image_shape)


def multiply_adds(model: nn.Module, image_shape: Sequence[int]) -> int:
    """Count the products of weights and activations in a forward pass of one image [C, H, W].

    Counts layers with a `weight` [out, in, ...], and returns at least the number of the model's parameters.
    """
    counts: list[int] = []

    def count(layer: nn.Module, _: Any, output: Tensor) -> None:
        weight = layer.get_parameter("weight")
        counts.append(weight.numel() * output.numel() // len(weight))

    model = copy.deepcopy(model).eval()  # so that batch-norm statistics do not change
    for layer in model.modules():
        if isinstance(weight := getattr(layer, "weight", None), nn.Parameter) and weight.ndim > 1:
            layer.register_forward_hook(count)
    with torch.no_grad():
        model(next(model.parameters()).new_zeros(1, *image_shape))
    return max(sum(counts), count_parameters(model))
