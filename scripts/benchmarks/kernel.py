"""Seconds and memory of the kernel code, beside refitting for every label, in one process.

    uv run python -m scripts.benchmarks.kernel                      # n = 10,000, k = 10, one order
    uv run python -m scripts.benchmarks.kernel --examples 2000 --test 500

Gaussian images of 28 x 28, labels by a random linear map: seconds depend on neither. Floors are FLOPs at the rate
of a square float64 product of 4,000: n^3 / 3 for each ridge, 2 n^2 d for the kernel, n^2 m for m test images.
Refitting for every label is a factor per label and ridge; a few labels are timed, and their predictions compared.
"""

import argparse
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from mdl.kernel_code import RIDGES, KernelCode
from models.kernel import Kernel
from scripts.benchmarks.benchmark import Cost, Row, finish, machine, matmul_rate, measured, parser

SIDE, CLASSES = 28, 10


def main(arguments: Sequence[str] | None = None) -> int:
    own = parser("kernel", __doc__, examples=10_000, test=1000, kernel="ntk", depth=2, refits=3, product=4000)
    options = own.parse_args(arguments)
    if options.examples < 10 or options.test < 1 or options.refits < 1:
        own.error("--examples must be at least 10, --test and --refits at least 1")
    bench = Bench(options)
    return finish(options, bench.title, bench.rows())


class Bench:
    """Images, labels, an order, and the machine's matmul rate."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.device = torch.device(options.device)
        self.n, self.m, self.refits = options.examples, options.test, options.refits
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(self.n + self.m, 1, SIDE, SIDE, generator=generator)
        labels = (images.flatten(1) @ torch.randn(SIDE**2, CLASSES, generator=generator)).argmax(1)
        self.images, self.labels = images.to(self.device), labels.to(self.device)
        self.order = torch.randperm(self.n, generator=generator).to(self.device)
        shape = (1, SIDE, SIDE)
        self.kernel = Kernel(shape, CLASSES, kernel=options.kernel, depth=options.depth, bandwidth=0.5)
        self.rate = matmul_rate(options.product, torch.float64, self.device)
        self.title = (
            f"{options.kernel}, n = {self.n:,}, k = {CLASSES}, {len(RIDGES)} ridges, m = {self.m:,}\n"
            f"{machine(self.device)}, float64 product {self.rate / 1e9:,.0f} GFLOP/s"
        )

    def rows(self) -> list[Row]:
        """The kernel, the code of one order, the same with test examples, and refitting."""
        n, m, train = self.n, self.m, self.images[: self.n]
        with measured(self.device) as matrix:
            kernel = self.kernel(train, train)
        code = KernelCode(kernel, self.labels[:n], CLASSES)
        before = time.process_time()
        with measured(self.device) as ours:
            bits, _ = code.code(self.order)
        cpu = time.process_time() - before
        cross, diagonal = self.kernel(self.images[n:], train), self.kernel.diagonal(self.images[n:])
        with measured(self.device) as tested:
            code.code(self.order, cross, diagonal, [n])
        alone, error = self._refitted(code, kernel)
        factors = len(RIDGES) * n**3 / 3 / self.rate
        both = factors + len(RIDGES) * n**2 * m / self.rate
        note = f"{self.refits} labels, times n / {self.refits}; predictions differ by {error:.0e}"
        return [
            Row("kernel", "ours", matrix, 2 * n**2 * SIDE**2 / self.rate),
            Row("code, one order", "ours", ours, factors, f"{float(bits.mean()):.3f} bits per label; {cpu:.0f} CPU s"),
            Row("code, one order", "refitting", alone, note=note),
            Row("code and test examples", "ours", tested, both),
        ]

    def _refitted(self, code: KernelCode, kernel: Tensor) -> tuple[Cost, float]:
        """A factor for each of a few labels, spread evenly, by one ridge; seconds for all, and the largest error."""
        narrow = KernelCode(kernel, self.labels[: self.n], CLASSES, ridges=RIDGES[:1])
        ((_, factor),) = narrow.factors(self.order)
        mean, _ = factor.ahead()
        places = [max(1, self.n * (2 * i + 1) // (2 * self.refits)) for i in range(self.refits)]
        found = []
        with measured(self.device) as cost:
            for i in places:
                before, here = self.order[:i], self.order[i]
                system = kernel[before][:, before]
                system.diagonal().add_(RIDGES[0])
                targets = code.targets(before)
                found.append(kernel[here, before] @ torch.cholesky_solve(targets, torch.linalg.cholesky(system)))
        error = max(float((mean[i] - one).abs().max()) for i, one in zip(places, found, strict=True))
        return Cost(cost.seconds * self.n / self.refits * len(RIDGES), cost.peak_mib), error


if __name__ == "__main__":
    raise SystemExit(main())
