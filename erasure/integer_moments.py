"""Exact sums of products of 8-bit images at the speed of low precision.

Grey levels are integers, and so are their second moments. Processors that multiply 8-bit integers (tensor cores of a
GPU, AVX-512 VNNI) add them in 32 bits without rounding. Other processors multiply in single precision, which adds
integers exactly as long as no partial sum reaches 2²⁴. By Cauchy-Schwarz none does if no pixel's sum of squares over
the block of images does. Subtracting the rounded mean of each pixel keeps these sums small and the blocks long.
"""

import torch
from torch import Tensor

from erasure.polar import gram

_EXACT_BELOW = 2**24  # integers that float32 holds exactly
_LONGEST_BLOCK = 4096


def integer_moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean [d] and scatter Σ (x - m)(x - m)ᵀ [d, d] in float64 of uint8 examples [n, d], in grey levels.

    The sums are exact integers and only one division rounds. Above 370,000 images a product may round as well.
    """
    n, d = images.shape
    total = images.sum(0, dtype=torch.int64)
    shift = (total.double() / n).round().to(torch.int64)
    if multiplies_bytes(images.device) and d % 8 == 0 and d > 16:  # sizes that CUDA's 8-bit product needs
        shift = torch.full_like(shift, 128)
        products = byte_gram(images)
    else:
        products = shifted_gram(images, shift)
    rest = (total - n * shift).double()
    # n Σ (x - s)(x - s)ᵀ - Σ (x - s) Σ (x - s)ᵀ is an integer below 2⁵³, so that no digits are lost
    return total.double() / n, products.mul_(n).addr_(rest, rest, alpha=-1).div_(n)


def multiplies_bytes(device: torch.device) -> bool:
    """Return whether exact 8-bit products are fast on a device."""
    if device.type == "cuda":
        return True
    # without VNNI the CPU's 8-bit kernels are slow, and may saturate
    return device.type == "cpu" and bool(getattr(torch.cpu, "_is_vnni_supported", lambda: False)())


def shifted_gram(images: Tensor, shift: Tensor) -> Tensor:
    """Return Σ (x - s)(x - s)ᵀ [d, d], integers in float64, for uint8 `images` [n, d] and integer `shift` s [d]."""
    d = images.shape[1]
    products = torch.zeros(d, d, dtype=torch.float64, device=images.device)
    blocks = list(images.tensor_split(max(1, -(-len(images) // _LONGEST_BLOCK))))
    while blocks:
        block = blocks.pop()
        centred = block.float().sub_(shift.float())
        largest = float(centred.square().sum(0, dtype=torch.float64).max()) if len(block) else 0.0
        if largest >= _EXACT_BELOW:
            blocks += block.tensor_split(2)
            continue
        products += gram(centred)
    return products


def byte_gram(images: Tensor) -> Tensor:
    """Return Σ (x - 128)(x - 128)ᵀ [d, d] by 8-bit integer products with 32-bit sums, for d a multiple of 8."""
    products = torch.zeros(images.shape[1], images.shape[1], dtype=torch.float64, device=images.device)
    for block in images.split(2**16):  # 2¹⁶ · 128² < 2³¹
        centred = torch.nn.functional.pad((block ^ 128).view(torch.int8), (0, 0, 0, -len(block) % 32))
        # CUDA multiplies only a plain matrix by a transposed one; the CPU needs no copy
        rows = centred.T if images.device.type == "cpu" else centred.T.contiguous()
        products += torch._int_mm(rows, rows.T)  # pyright: ignore[reportPrivateImportUsage]
    return products
