"""Seconds, memory and exactness of sample information, compared with one system at a time, in one process.

    uv run python -m scripts.benchmarks.sample_info                            # n = 1,000, one output
    uv run python -m scripts.benchmarks.sample_info --outputs 10 --examples 500 --held-out 500

An MLP with one hidden layer on scikit-learn's digits enlarged to 28 x 28; one output tells even digits from odd ones.
Single systems are a seeded sample; their mean time is multiplied by the number of systems. A floor is the longer of two
times, at rates measured first: of the products that the result needs, and of reading or writing the kernel.
"""

import argparse
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from models.mlp import MLP
from models.tangent.jacobian import jacobian, network_outputs
from models.tangent.kernel import Kernels, ntk
from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.dynamics import LinearizedDynamics, leave_one_out
from sample_info.training_problem import initial_weights
from scripts.benchmarks.benchmark_helpers import (
    Cost,
    Row,
    argument_parser,
    attempt,
    machine,
    matmul_rate,
    measured,
    memory_rate,
    show,
)
from scripts.benchmarks.step_flops_and_bytes import Floor
from scripts.images_for_benchmarks import standardised_digits

SIDE = 28
LEARNING_RATE = 1e-3


def main(arguments: Sequence[str] | None = None) -> int:
    sizes = {"examples": 1000, "held_out": 700, "outputs": 1, "width": 1024, "steps": 2000}
    parser = argument_parser("sample_info", __doc__, **sizes, alone=10)
    options = parser.parse_args(arguments)
    if options.outputs not in (1, 10) or options.examples + options.held_out > 1797 or options.examples < 2:
        parser.error("--outputs must be 1 or 10, and --examples and --held-out 1,797 or less together, 2 or more")
    bench = SampleInfoBenchmark(options)
    show(bench.title, bench.rows())
    return 0


class SampleInfoBenchmark:
    """The network, its data and the machine's matmul rate."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.device = torch.device(options.device)
        self.n, self.k, self.m = options.examples, options.outputs, options.held_out
        self.width, self.alone = options.width, min(options.alone, self.n)
        images, labels = standardised_digits(SIDE, whole=True)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        images, labels = images[order].to(self.device), labels[order].to(self.device)
        self.x, self.held_out = images[: self.n], images[self.n : self.n + self.m]
        y = ((labels % 2)[:, None] if self.k == 1 else F.one_hot(labels, 10)).double()[: self.n]
        network = {"width": self.width, "depth": 1, "activation": "relu", "parametrization": "standard"}
        self.model = MLP((1, SIDE, SIDE), self.k, **network).to(self.device).eval()
        self.weights = initial_weights(self.model, 0, 1.0)
        self.residual = network_outputs(self.model, self.weights, self.x) - y
        self.descent = LinearizedDescent(learning_rate=LEARNING_RATE, steps=options.steps)
        self.rate, self.bandwidth = matmul_rate(1000, torch.float64, self.device), memory_rate(self.device)
        self.title = (
            f"digits, {SIDE} x {SIDE}, MLP of width {self.width:,}, k = {self.k}, n = {self.n:,}, m = {self.m:,}, "
            f"t = {options.steps:,}, learning rate {LEARNING_RATE:g}\n{machine(self.device)}, "
            f"float64 product {self.rate / 1e9:,.0f} GFLOP/s, memory {self.bandwidth / 1e9:,.0f} GB/s"
        )

    def rows(self) -> list[Row]:
        """Measure every work."""
        kernels, rows = self.kernel_rows()
        return [*rows, *attempt("leaving out", "all", lambda: self.training_rows(kernels))]

    def kernel_rows(self) -> tuple[Kernels, list[Row]]:
        """Compute the kernel layer by layer, and by Jacobians of a few examples."""
        with measured(self.device) as ours:
            kernels = ntk(self.model, self.weights, self.x, self.held_out)
        n, m, k = self.n, self.m, self.k
        # per layer (h·h' + 1) (δ·δ'): n (n + m) inputs, n k (n + m) k slopes
        flops = 2 * n * (n + m) * (SIDE**2 + self.width + k * k * (self.width + k))
        some = max(2, min(n, 2000 // k // 10))
        with measured(self.device) as theirs:
            j = jacobian(self.model, self.weights, self.x[:some]).flatten(0, 1)
            slow = j @ j.T
        error, times = relative_error(kernels.train[: some * k, : some * k], slow), (n + m) / some
        note = f"{some} examples, times {times:.0f}, without most products; differs by {error:.0e}"
        return kernels, [
            Row("kernel", "ours", ours, self.floor(flops, n * (n + m) * k * k), kernels.how),
            Row("kernel", "Jacobians", Cost(theirs.seconds * times), note=note),
        ]

    def training_rows(self, kernels: Kernels) -> list[Row]:
        """Compute all leave-one-out changes at once, and one system at a time."""
        with measured(self.device) as ours:
            dynamics = LinearizedDynamics(kernels.train, self.residual, self.descent)
            changes = leave_one_out(dynamics, kernels.held_out)
        sample = torch.randperm(self.n, generator=torch.Generator().manual_seed(1))[: self.alone]
        with measured(self.device) as alone:
            differences = self.differences_alone(sample, kernels)
            weight = ((kernels.train @ differences) * differences).sum(0)
            prediction = (kernels.held_out @ differences).square().sum(0) * self.k / len(kernels.held_out)
        error = max(worst_error(changes.weight[sample], weight), worst_error(changes.prediction[sample], prediction))
        each = alone.seconds / len(sample)
        outputs, of_all = self.m * self.k, self.n * self.k
        floor = self.floor(2 * outputs * of_all * self.n, outputs * of_all)  # predictions alone
        note = f"{dynamics.how}, largest relative error of a score {error:.0e}, bound {dynamics.error_bound:.0e}"
        systems = f"{len(sample)} systems by eigendecomposition, {each:.2f} s each, times {self.n:,}"
        return [
            Row("leaving out", "ours", ours, floor, note),
            Row("leaving out", "one at a time", Cost(each * self.n, alone.peak_mib), note=systems),
        ]

    def floor(self, flops: float, numbers: float) -> Floor:
        """Return the floor of FLOPs, and of float64 numbers read or written."""
        return Floor(flops / self.rate, 8 * numbers / self.bandwidth)

    def differences_alone(self, examples: Tensor, kernels: Kernels) -> Tensor:
        """Return a - a_-i, [n k, b], for each of `examples` [b], one system at a time."""
        residual = self.residual.flatten()
        everything, differences = self.coefficients(kernels.train, residual), []
        for i in examples.tolist():
            others = (torch.arange(self.n, device=self.device) != i).repeat_interleave(self.k)
            differences.append(everything.clone())
            differences[-1][others] -= self.coefficients(kernels.train[others][:, others], residual[others])
        return torch.stack(differences, 1)

    def coefficients(self, kernel: Tensor, residual: Tensor) -> Tensor:
        """Return a(t), [n k], by an eigendecomposition (equation 50)."""
        values, vectors = torch.linalg.eigh(kernel)
        gains = self.descent.filter(values.clamp(min=0), self.n)
        return -(vectors @ (gains * (vectors.T @ residual)))


def relative_error(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


def worst_error(a: Tensor, b: Tensor) -> float:
    return float(((a - b) / b).abs().max())


if __name__ == "__main__":
    raise SystemExit(main())
