"""Seconds and memory of the kernel code, in one process.

    uv run python -m scripts.benchmarks.kernel_code                      # n = 10,000, k = 10, one order
    uv run python -m scripts.benchmarks.kernel_code --examples 2000 --test 500

Gaussian images of 28 x 28 with labels by a random linear map. Floors are FLOPs at the rate of a square float64 product
of 4,000: n^3 / 3 for each ridge, 2 n^2 d for the kernel, n^2 m for m test images.
"""

import time
from collections.abc import Sequence

import torch

from mdl.kernel_code import RIDGES, KernelCode
from models.kernel import Kernel
from scripts.benchmarks.benchmark_helpers import Row, argument_parser, machine, matmul_rate, measured, show

SIDE, CLASSES = 28, 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Time the kernel, the code of one order, and the same with test examples."""
    parser = argument_parser("kernel_code", __doc__, examples=10_000, test=1000, kernel="ntk", depth=2, product=4000)
    options = parser.parse_args(arguments)
    n, m, device = options.examples, options.test, torch.device(options.device)
    if n < 10 or m < 1:
        parser.error("--examples must be at least 10, --test at least 1")
    generator, shape = torch.Generator().manual_seed(0), (1, SIDE, SIDE)
    images = torch.randn(n + m, *shape, generator=generator)
    labels = (images.flatten(1) @ torch.randn(SIDE**2, CLASSES, generator=generator)).argmax(1)
    images, labels = images.to(device), labels.to(device)
    order = torch.randperm(n, generator=generator).to(device)
    kernel_function = Kernel(shape, CLASSES, kernel=options.kernel, depth=options.depth, bandwidth=0.5)
    rate = matmul_rate(options.product, torch.float64, device)
    with measured(device) as matrix:
        kernel = kernel_function(images[:n], images[:n])
    code = KernelCode(kernel, labels[:n], CLASSES)
    before = time.process_time()
    with measured(device) as ours:
        bits, _ = code.code(order)
    note = f"{float(bits.mean()):.3f} bits per label; {time.process_time() - before:.0f} CPU s"
    cross, diagonal = kernel_function(images[n:], images[:n]), kernel_function.diagonal(images[n:])
    with measured(device) as tested:
        code.code(order, cross, diagonal, [n])
    factors = len(RIDGES) * n**3 / 3 / rate
    rows = [
        Row("kernel", "ours", matrix, 2 * n**2 * SIDE**2 / rate),
        Row("code, one order", "ours", ours, factors, note),
        Row("code and test examples", "ours", tested, factors + len(RIDGES) * n**2 * m / rate),
    ]
    sizes = f"n = {n:,}, k = {CLASSES}, {len(RIDGES)} ridges, m = {m:,}"
    title = f"{options.kernel}, {sizes}\n{machine(device)}, float64 product {rate / 1e9:,.0f} GFLOP/s"
    show(title, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
