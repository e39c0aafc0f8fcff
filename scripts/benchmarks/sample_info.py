"""Seconds, memory and exactness of sample information, beside one system at a time, in one process.

    uv run python -m scripts.benchmarks.sample_info                            # n = 1,000, one output
    uv run python -m scripts.benchmarks.sample_info --outputs 10 --examples 500 --held-out 500
    uv run python -m scripts.benchmarks.sample_info --learning-rate 1e-4       # a spectrum like that of smaller weights

An MLP with one hidden layer on scikit-learn's digits enlarged to 28 x 28; one output tells even digits from odd ones.
The systems that are solved alone are a seeded sample; their time is per system, times n. A floor is the FLOPs of the
products that the result needs, at the rate of a square product of the same size measured first.
"""

import argparse
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from models.mlp import MLP
from models.tangent.jacobian import jacobian, network_outputs
from models.tangent.ntk import GIB, Kernels, ntk
from sample_info.changes import Changes
from sample_info.linearized.dynamics import LinearizedDynamics, leave_one_out
from sample_info.linearized.training import LinearizedDescent
from sample_info.problem import initial_weights
from scripts.benchmarks.benchmark import Cost, Row, finish, machine, matmul_rate, measured, parser
from scripts.benchmarks.data import standardised_digits

SIDE = 28


def main(arguments: Sequence[str] | None = None) -> int:
    options = chosen("sample_info", __doc__, arguments)
    bench = Bench(options)
    kernels, rows = bench.kernel_rows()
    return finish(options, bench.title, [*rows, *bench.training_rows(kernels)])


def chosen(name: str, doc: str | None, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of a benchmark of these sizes."""
    sizes = {"examples": 1000, "held_out": 700, "outputs": 1, "width": 1024, "steps": 2000, "learning_rate": 1e-3}
    own = parser(name, doc, **sizes, alone=10, memory_gib=1.0)
    options = own.parse_args(arguments)
    if options.outputs not in (1, 10) or options.examples + options.held_out > 1797 or options.examples < 2:
        own.error("--outputs must be 1 or 10, and --examples and --held-out 1,797 or less together, 2 or more")
    return options


class Bench:
    """The network, its data and the machine's matmul rate."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.device = torch.device(options.device)
        self.n, self.k, self.m = options.examples, options.outputs, options.held_out
        self.width, self.alone, self.memory_bytes = options.width, min(options.alone, self.n), options.memory_gib * GIB
        images, labels = (part.to(self.device) for part in standardised_digits(SIDE, whole=True))
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        images, labels = images[order], labels[order]
        self.x, self.held_out = images[: self.n], images[self.n : self.n + self.m]
        one_output = (labels % 2)[:, None]
        y = (one_output if self.k == 1 else F.one_hot(labels, 10)).double()
        self.y, self.y_held_out = y[: self.n], y[self.n : self.n + self.m]
        shape = (1, SIDE, SIDE)
        model = MLP(shape, self.k, width=self.width, depth=1, activation="relu", parametrization="standard")
        self.model = model.to(self.device).eval()
        self.weights = initial_weights(self.model, 0, 1.0)
        self.residual = network_outputs(self.model, self.weights, self.x) - self.y
        self.initial_held_out = network_outputs(self.model, self.weights, self.held_out)
        self.descent = LinearizedDescent(learning_rate=options.learning_rate, steps=options.steps)
        self.rate = matmul_rate(1000, torch.float64, self.device)
        self.title = (
            f"digits, {SIDE} x {SIDE}, MLP of width {self.width:,}, k = {self.k}, n = {self.n:,}, m = {self.m:,}, "
            f"t = {options.steps:,}, learning rate {options.learning_rate:g}\n{machine(self.device)}, "
            f"float64 product {self.rate / 1e9:,.0f} GFLOP/s"
        )

    def kernels(self, batch_size: int = 64, memory_bytes: float | None = None) -> Kernels:
        memory = self.memory_bytes if memory_bytes is None else memory_bytes
        return ntk(self.model, self.weights, self.x, self.held_out, batch_size=batch_size, memory_bytes=memory)

    def scores(self, kernels: Kernels, memory_bytes: float) -> tuple[Changes, LinearizedDynamics]:
        dynamics = LinearizedDynamics(kernels.train, self.residual, self.descent)
        return leave_one_out(dynamics, kernels.held_out, memory_bytes=memory_bytes), dynamics

    def kernel_rows(self) -> tuple[Kernels, list[Row]]:
        """The kernel by products of layers, and by Jacobians of a few examples."""
        with measured(self.device) as ours:
            kernels = self.kernels()
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
            Row("kernel", "ours", ours, flops / self.rate, kernels.how),
            Row("kernel", "Jacobians", Cost(theirs.seconds * times), note=note),
        ]

    def training_rows(self, kernels: Kernels) -> list[Row]:
        """All leave-one-out changes, against one system at a time, and in other batches and blocks."""
        with measured(self.device) as ours:
            changes, dynamics = self.scores(kernels, self.memory_bytes)
        sample = torch.randperm(self.n, generator=torch.Generator().manual_seed(1))[: self.alone]
        with measured(self.device) as alone:
            everything = self.coefficients(kernels.train, self.residual.flatten(), self.n)
            found = [self._changes_without(i, kernels, everything) for i in sample.tolist()]
        weight, prediction = torch.tensor(found, dtype=torch.float64, device=self.device).T
        error = max(worst_error(changes.weight[sample], weight), worst_error(changes.prediction[sample], prediction))
        each = alone.seconds / len(sample)
        with measured(self.device) as again:
            small = self.memory_bytes / 50
            parts, _ = self.scores(self.kernels(7, small), small)
        change = max(worst_error(parts.weight, changes.weight), worst_error(parts.prediction, changes.prediction))
        floor = 2 * self.m * self.k * (self.n * self.k) * self.n / self.rate  # predictions alone
        note = f"{dynamics.how}, largest relative error of a score {error:.0e}, bound {dynamics.error_bound:.0e}"
        systems = f"{len(sample)} systems by eigendecomposition, {each:.2f} s each, times {self.n:,}"
        batches = f"batches of 7, a fiftieth of the memory: scores change by {change:.0e} at most"
        return [
            Row("leaving out", "ours", ours, floor, note),
            Row("leaving out", "one at a time", Cost(each * self.n, alone.peak_mib), note=systems),
            Row("all of it again", "ours", again, note=batches),
        ]

    def difference_without(self, removed: Tensor, kernels: Kernels, everything: Tensor) -> Tensor:
        """a - a_-S, [n k], given the coefficients of training on everything."""
        kept = torch.ones(self.n, dtype=torch.bool, device=self.device)
        kept[removed] = False
        kept, n = kept.repeat_interleave(self.k), self.descent.effective_n(self.n, removed.numel())
        difference = everything.clone()
        difference[kept] -= self.coefficients(kernels.train[kept][:, kept], self.residual.flatten()[kept], n)
        return difference

    def coefficients(self, kernel: Tensor, residual: Tensor, n: int) -> Tensor:
        """a(t), [n k], by an eigendecomposition (equation 50)."""
        values, vectors = torch.linalg.eigh(kernel)
        gains = self.descent.filter(values.clamp(min=0) + self.descent.weight_decay, n)
        return -(vectors @ (gains * (vectors.T @ residual)))

    def _changes_without(self, i: int, kernels: Kernels, everything: Tensor) -> tuple[float, float]:
        """‖w - w_-i‖² and the mean of ‖f(x) - f_-i(x)‖², given the coefficients [n k] of training on everything."""
        difference = self.difference_without(torch.tensor(i), kernels, everything)
        prediction = (kernels.held_out @ difference).square().sum() * self.k / len(kernels.held_out)
        return float(difference @ kernels.train @ difference), float(prediction)


def relative_error(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


def worst_error(a: Tensor, b: Tensor) -> float:
    return float(((a - b) / b).abs().max())


if __name__ == "__main__":
    raise SystemExit(main())
