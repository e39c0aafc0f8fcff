"""Label noise: some labels replaced by wrong ones."""

import torch
from torch import Tensor


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
