"""Wrong labels on purpose, to see which measure finds them."""

import torch
from torch import Tensor


def flip_labels(z: Tensor, num_classes: int, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Labels of which a fraction is wrong, and which those are: labels [n] and booleans [n].

    Exactly round(fraction · n) examples, drawn at random, get one of the other classes, each as likely.

    Raises:
        ValueError: a fraction outside [0, 1], or fewer than two classes.
    """
    if not 0 <= fraction <= 1 or num_classes < 2:
        raise ValueError(f"fraction={fraction}, num_classes={num_classes}: need 0 to 1, and at least 2 classes")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(z), generator=generator)[: round(fraction * len(z))].to(z.device)
    shift = torch.randint(1, num_classes, (len(chosen),), generator=generator).to(z)
    noisy, flipped = z.clone(), torch.zeros(len(z), dtype=torch.bool, device=z.device)
    noisy[chosen] = (z[chosen] + shift) % num_classes
    flipped[chosen] = True
    return noisy, flipped
