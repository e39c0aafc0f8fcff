"""Exact sums of products of 8-bit images, several times faster than float64 where processors multiply bytes.

Grey levels are integers, and so are their second moments. Tensor cores of a GPU and AVX-512 VNNI multiply 8-bit
integers and add them in 32 bits without rounding. Other processors multiply in float64, whose sums of integers are
exact below 2⁵³.
"""

import functools

import torch
from torch import Tensor

from erasure.polar import gram

_LONGEST_BLOCK = 4096


def integer_moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean [d] and scatter Σ (x - m)(x - m)ᵀ [d, d] in float64 of uint8 examples [n, d], in grey levels.

    The sums are exact integers and only one division rounds. Above 370,000 images a product may round as well.
    """
    n, d = images.shape
    total = images.sum(0, dtype=torch.int64)
    if multiplies_bytes(images.device) and d % 8 == 0 and d > 16:  # sizes that CUDA's 8-bit product needs
        products = byte_gram(images)
    else:
        products = functools.reduce(torch.add, (gram(part.double() - 128) for part in images.split(_LONGEST_BLOCK)))
    rest = (total - 128 * n).double()
    # n Σ (x - 128)(x - 128)ᵀ - Σ (x - 128) Σ (x - 128)ᵀ is an integer below 2⁵³, so that no digits are lost
    return total.double() / n, products.mul_(n).addr_(rest, rest, alpha=-1).div_(n)


def multiplies_bytes(device: torch.device) -> bool:
    """Return whether exact 8-bit products are fast on a device."""
    if device.type == "cuda":
        return True
    # without VNNI the CPU's 8-bit kernels are slow, and may saturate
    return device.type == "cpu" and bool(getattr(torch.cpu, "_is_vnni_supported", lambda: False)())


def byte_gram(images: Tensor) -> Tensor:
    """Return Σ (x - 128)(x - 128)ᵀ [d, d] by 8-bit integer products with 32-bit sums, for d a multiple of 8."""
    products = torch.zeros(images.shape[1], images.shape[1], dtype=torch.float64, device=images.device)
    for block in images.split(2**16):  # 2¹⁶ · 128² < 2³¹
        centred = torch.nn.functional.pad((block ^ 128).view(torch.int8), (0, 0, 0, -len(block) % 32))
        # CUDA multiplies only a plain matrix by a transposed one; the CPU needs no copy
        rows = centred.T if images.device.type == "cpu" else centred.T.contiguous()
        products += torch._int_mm(rows, rows.T)  # pyright: ignore[reportPrivateImportUsage]
    return products
