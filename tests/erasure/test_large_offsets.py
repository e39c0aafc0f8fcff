"""Vectors that rounding would blur are refused."""

import pytest
import torch

from erasure import ClassMoments
from erasure.large_offsets import require_precision


@pytest.mark.parametrize(
    ("offset", "spread", "dtype", "refused"),
    [
        (1e9, 1.0, torch.float32, True),
        (1e5, 1.0, torch.float32, True),
        (1e3, 1.0, torch.float32, False),
        (1e3, 1e-3, torch.float32, True),
        (1e9, 1.0, torch.float64, False),
        (1e14, 1.0, torch.float64, True),
        (1.0, 1.0, torch.bfloat16, False),
        (10.0, 1.0, torch.bfloat16, True),
    ],
)
def test_offsets_that_rounding_would_blur_are_refused(
    offset: float, spread: float, dtype: torch.dtype, refused: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, 3, generator=generator, dtype=torch.float64)
    x[:, 1] = offset + spread * x[:, 1]
    x[:, 2] = 1e9 + 0.3  # constant: nothing to blur
    moments = ClassMoments.fit(x, torch.arange(500) % 2)
    if not refused:
        return require_precision(x, moments, dtype, "do it")
    with pytest.raises(
        ValueError, match=r"column 1 has mean .* blurs it by more than a thousandth, as 1 of 3.*; do it"
    ):
        require_precision(x, moments, dtype, "do it")
    return None


def test_offsets_that_have_made_all_vectors_alike_are_refused() -> None:
    x = (torch.rand(50, 3) + 1e9).float()
    with pytest.raises(ValueError, match="all training examples are alike"):
        require_precision(x, ClassMoments.fit(x, torch.arange(50) % 2), torch.float32, "")
