"""Temperature scaling: one temperature for a network's logits, fitted on examples it was not trained on."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Nats = Callable[[Tensor, Tensor], Tensor]  # logits [S, B, k] and labels [S, B] to what each label costs, [S, B]

_WIDEST = math.log(100)  # temperatures lie between 1/100 and 100
_HALVINGS = 40  # of that interval, on the logarithmic scale


def temperatures(logits: Tensor, z: Tensor) -> Tensor:
    """Fit temperatures [S], at which softmax(logits / T) [S, n, k] predicts the labels `z` [S, n] best.

    Guo et al. 2017, section 4.2; here with a log-normal prior of unit width on T, so that few examples move it little:
    the minimum over t = -ln T of Σ_i CE_i(e^t) + t²/2, by bisection of its derivative.
    """
    of_label = logits.gather(2, z[:, :, None]).squeeze(2)
    low = logits.new_full((len(logits),), -_WIDEST, dtype=torch.float64)
    high = -low
    for _ in range(_HALVINGS):
        t = (low + high) / 2
        scale = t.exp().to(logits)
        expected = ((logits * scale[:, None, None]).softmax(2) * logits).sum(2)
        rising = t + scale * (expected - of_label).sum(1, dtype=torch.float64) > 0
        low, high = torch.where(rising, low, t), torch.where(rising, t, high)
    return (-(low + high) / 2).exp()


def cross_entropy(logits: Tensor, z: Tensor) -> Tensor:
    """Return the cost of labels [S, B] under the softmax of logits [S, B, k], in nats [S, B]."""
    return F.cross_entropy(logits.flatten(0, 1), z.flatten(), reduction="none").view_as(z)


def tempered(temperatures: Tensor | None) -> Nats:
    """Return the cross-entropy of logits divided by temperatures [S]."""
    if temperatures is None:
        return cross_entropy
    return lambda logits, z: cross_entropy(logits / temperatures.to(logits)[:, None, None], z)
