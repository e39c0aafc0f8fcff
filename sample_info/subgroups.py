"""Subgroups of examples: merged classes, datasets of a mixture, wrong labels, adversarial examples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from erasure.classes import ClassSubset
from erasure.source import RawImages, Source
from sample_info.settings import DataSettings


@dataclass(frozen=True)
class Subgroups:
    """Names of groups, and the group of each of n examples, [n] int64; the empty name if there are no groups."""

    names: tuple[str, ...]
    of: Tensor

    @classmethod
    def marked(cls, mask: Tensor, name: str, others: str) -> "Subgroups":
        """Make two groups: examples where `mask` [n] is true, and the others."""
        return cls((others, name), mask.long().cpu())

    def crossed(self, other: "Subgroups") -> "Subgroups":
        """Combine two groupings; combinations are named "cat · wrong label"."""
        names = tuple(" · ".join(filter(None, pair)) for pair in product(self.names, other.names))
        return Subgroups(names, self.of * len(other.names) + other.of).present()

    def present(self) -> "Subgroups":
        """Drop groups without examples."""
        occurring, of = self.of.unique(return_inverse=True)
        return Subgroups(tuple(self.names[j] for j in occurring.tolist()), of)

    def masks(self) -> Mapping[str, Tensor]:
        """Return a boolean mask per named subgroup."""
        return {name: self.of == j for j, name in enumerate(self.names) if name}


def subgroups_of(source: Source, whole: RawImages, index: Tensor) -> Subgroups:
    """Return subgroups of training examples at positions `index` of the whole dataset.

    Merged classes and the parts of a mixture are subgroups.
    """
    groups = Subgroups(("",), torch.zeros_like(index))
    if whole.parts:
        ends = torch.tensor([*whole.parts.values()]).cumsum(0)
        groups = groups.crossed(Subgroups(tuple(whole.parts), torch.searchsorted(ends, index, right=True)))
    if isinstance(source, ClassSubset) and source.merges:
        groups = groups.crossed(Subgroups(whole.class_names, whole.train.labels[index]))
    return groups


def capped(groups: Subgroups, most: Mapping[str, int], seed: int) -> Tensor:
    """Return ascending positions of a seeded random sample with at most `most` examples of each named group.

    Raises:
        ValueError: an unknown group.
    """
    masks = groups.masks()
    if unknown := [name for name in most if name not in masks]:
        known = ", ".join(masks) or "none: merge classes, as in sample_info.classes=[[3,5],4], or mix datasets"
        raise ValueError(f"sample_info.data.at_most: there is no group {unknown[0]}; there are {known}")
    generator, selected = torch.Generator().manual_seed(seed), torch.ones(len(groups.of), dtype=torch.bool)
    for name, mask in masks.items():
        members = mask.nonzero().squeeze(1)
        dropped = members[torch.randperm(len(members), generator=generator)[most.get(name, len(members)) :]]
        selected[dropped] = False
    return selected.nonzero().squeeze(1)


def flip_labels(z: Tensor, num_classes: int, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Flip a fraction of the labels; return labels [n] and the mask of wrong ones [n].

    Exactly round(fraction · n) random examples get one of the other classes, uniformly.
    """
    assert 0 <= fraction <= 1 < num_classes, "settings refuse it"
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(z), generator=generator)[: round(fraction * len(z))].to(z.device)
    shift = torch.randint(1, num_classes, (len(chosen),), generator=generator).to(z)
    noisy, flipped = z.clone(), torch.zeros(len(z), dtype=torch.bool, device=z.device)
    noisy[chosen] = (z[chosen] + shift) % num_classes
    flipped[chosen] = True
    return noisy, flipped


Trained = Callable[[Tensor], Tensor]  # inputs [n, ...] to outputs [n, k]


def fast_gradient_sign(network: Trained, x: Tensor, y: Tensor, *, epsilon: float, batch_size: int = 512) -> Tensor:
    """Return x + ε sign(∂ℓ/∂x), ℓ = ½‖f(x) - y‖², clamped to the range of `x`.

    Goodfellow et al. 2015. Inputs x are [n, ...], targets y [n, k], ε on the scale of x (the paper: 0.01).
    """
    low, high = float(x.min()), float(x.max())
    parts = []
    for part, target in zip(x.split(batch_size), y.split(batch_size), strict=True):
        leaf = part.detach().clone().requires_grad_()
        outputs = network(leaf)
        (slope,) = torch.autograd.grad(outputs, leaf, (outputs - target).detach())
        parts.append((part + epsilon * slope.sign()).clamp(low, high))
    return torch.cat(parts)


def decisions(outputs: Tensor) -> Tensor:
    """Return the predicted classes [n] of outputs [n, k].

    One column is thresholded at ½: its targets are 0 and 1, as in the paper's released code.
    """
    return (outputs[:, 0] > 0.5).long() if outputs.shape[1] == 1 else outputs.argmax(1)


def adversaries(
    network: Trained, x: Tensor, y: Tensor, data: DataSettings, batch_size: int = 512
) -> tuple[Tensor, Tensor]:
    """Replace a fraction of the inputs by adversarial ones (Harutyunyan et al. 2021, appendix A.7).

    Args:
        network: the trained network.
        x: inputs, [n, ...].
        y: targets, [n, k].
        data: the fraction `adversarial`, `epsilon` of `fast_gradient_sign`, and the seed of the sample.
        batch_size: without effect on the result.

    Returns:
        the inputs, [n, ...], and the mask of replaced ones, [n].

    Raises:
        ValueError: fewer inputs fool the network at this ε.
    """
    count, epsilon = round(data.adversarial * len(x)), data.epsilon
    moved = fast_gradient_sign(network, x, y, epsilon=epsilon, batch_size=batch_size)
    with torch.no_grad():
        before, after = (torch.cat([network(part) for part in v.split(batch_size)]) for v in (x, moved))
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
