"""Adversarial examples by the fast gradient sign method (Goodfellow et al. 2015)."""

import math

import torch
from torch import Tensor

from sample_info.leave_one_out import Network, Weights, check_targets


def fast_gradient_sign(
    network: Network,
    weights: Weights,
    x: Tensor,
    y: Tensor,
    *,
    epsilon: float = 0.01,
    low: float | Tensor = -math.inf,
    high: float | Tensor = math.inf,
    batch_size: int = 512,
) -> Tensor:
    """x + ε sign(∂ℓ/∂x), ℓ = ½‖f_w(x) - y‖², within the admissible range; same shape and dtype.

    Args:
        network: f(w, x), to [n, k].
        weights: w.
        x: inputs, [n, ...].
        y: targets, [n, k].
        epsilon: ε, on the scale of x (the paper: 0.01).
        low: least admissible value, of all coordinates or of each.
        high: largest admissible value, likewise.
        batch_size: inputs at a time.

    Raises:
        ValueError: an ε that is not positive, or targets that are not [n, k].
    """
    check_targets(x, y)
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon={epsilon}: must be positive")
    parts = []
    for part, target in zip(x.split(batch_size), y.split(batch_size), strict=True):
        leaf = part.detach().clone().requires_grad_()
        outputs = network(weights, leaf)
        (slope,) = torch.autograd.grad(outputs, leaf, (outputs - target).detach())
        moved = part + epsilon * slope.sign()
        parts.append(torch.minimum(torch.maximum(moved, _like(low, part)), _like(high, part)))
    return torch.cat(parts)


def fooled(before: Tensor, after: Tensor) -> Tensor:
    """Which of [n] examples change their predicted class, from outputs [n, k]; of one column, the side of ½.

    Targets of one column are 0 and 1, as in the paper's released code.
    """
    return _predicted(before) != _predicted(after)


def adversaries(
    network: Network,
    weights: Weights,
    x: Tensor,
    y: Tensor,
    *,
    count: int,
    epsilon: float,
    seed: int,
    batch_size: int = 512,
) -> tuple[Tensor, Tensor]:
    """Inputs [n, ...] of which `count`, a random sample of those that can be, fool the network; which they are, [n].

    Values stay within the range of `x`. Harutyunyan et al. 2021, appendix A.7.

    Args:
        network: f(w, x), to [n, k].
        weights: of a trained network, w.
        x: inputs, [n, ...].
        y: targets, [n, k].
        count: adversarial examples that there should be.
        epsilon: ε, on the scale of x.
        seed: of the sample.
        batch_size: inputs at a time.

    Raises:
        ValueError: fewer inputs fool the network at this ε.
    """
    low, high = float(x.min()), float(x.max())
    moved = fast_gradient_sign(network, weights, x, y, epsilon=epsilon, low=low, high=high, batch_size=batch_size)
    with torch.no_grad():
        before, after = (torch.cat([network(weights, part) for part in v.split(batch_size)]) for v in (x, moved))
    successful = fooled(before, after).nonzero().squeeze(1).cpu()
    if len(successful) < count:
        raise ValueError(
            f"sample_info.epsilon={epsilon:g}: {len(successful)} of {len(x)} examples fool the trained network "
            f"at this distance, and {count} are asked for: raise it, or lower sample_info.adversarial"
        )
    chosen = successful[torch.randperm(len(successful), generator=torch.Generator().manual_seed(seed))[:count]]
    replaced = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    replaced[chosen.to(x.device)] = True
    return torch.where(replaced.view(-1, *[1] * (x.ndim - 1)), moved, x), replaced


def _predicted(outputs: Tensor) -> Tensor:
    return (outputs[:, 0] > 0.5).long() if outputs.shape[1] == 1 else outputs.argmax(1)


def _like(end: float | Tensor, x: Tensor) -> Tensor:
    return torch.as_tensor(end, dtype=x.dtype, device=x.device)
