"""Adversarial examples by the fast gradient sign method."""

from collections.abc import Callable

import torch
from torch import Tensor

from sample_info.settings import DataSettings
from sample_info.training_problem import decisions

_BATCH = 64  # examples at a time; does not affect the result
Trained = Callable[[Tensor], Tensor]  # inputs [n, ...] to outputs [n, k]


def fast_gradient_sign(network: Trained, x: Tensor, y: Tensor, *, epsilon: float, batch_size: int = _BATCH) -> Tensor:
    """Return x + ε sign(∂ℓ/∂x), ℓ = ½‖f(x) - y‖², clamped to the range of `x`.

    See Goodfellow et al. 2015. Inputs x are [n, ...], targets y are [n, k], and ε is on the scale of x (the paper:
    0.01).
    """
    low, high = float(x.min()), float(x.max())
    parts = []
    for part, target in zip(x.split(batch_size), y.split(batch_size), strict=True):
        leaf = part.detach().clone().requires_grad_()
        outputs = network(leaf)
        (slope,) = torch.autograd.grad(outputs, leaf, (outputs - target).detach())
        parts.append((part + epsilon * slope.sign()).clamp(low, high))
    return torch.cat(parts)


def adversaries(network: Trained, x: Tensor, y: Tensor, data: DataSettings) -> tuple[Tensor, Tensor]:
    """Replace a fraction of the inputs by adversarial ones (Harutyunyan et al. 2021, appendix A.7).

    Args:
        network: the trained network.
        x: inputs, [n, ...].
        y: targets, [n, k].
        data: options: the fraction `adversarial`, `epsilon` of `fast_gradient_sign`, and the seed of the sample.

    Returns:
        the inputs, [n, ...], and the mask of replaced inputs, [n].

    Raises:
        ValueError: too few adversarial inputs fool the network at this ε.
    """
    count, epsilon = round(data.adversarial * len(x)), data.epsilon
    moved = fast_gradient_sign(network, x, y, epsilon=epsilon)
    with torch.no_grad():
        before, after = (torch.cat([network(part) for part in v.split(_BATCH)]) for v in (x, moved))
    successful = (decisions(before) != decisions(after)).nonzero().squeeze(1).cpu()
    if len(successful) < count:
        raise ValueError(
            f"sample_info.data.epsilon={epsilon:g}: {len(successful)} of {len(x)} examples fool the trained network "
            f"at this distance, and {count} are asked for: raise it, or lower sample_info.data.adversarial"
        )
    chosen = successful[torch.randperm(len(successful), generator=torch.Generator().manual_seed(data.seed))[:count]]
    replaced = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    replaced[chosen.to(x.device)] = True
    return torch.where(replaced.view(-1, *[1] * (x.ndim - 1)), moved, x), replaced
