"""Seconds, memory and exactness of sample information, compared with one system at a time, in one process.

    uv run python -m scripts.benchmarks.sample_info                            # n = 1,000, one output
    uv run python -m scripts.benchmarks.sample_info --outputs 10 --examples 500 --held-out 500
    uv run python -m scripts.benchmarks.sample_info --learning-rate 1e-4       # a spectrum like that of smaller weights

An MLP with one hidden layer on scikit-learn's digits enlarged to 28 x 28; one output tells even digits from odd ones.
Single systems are a seeded sample; their mean time is multiplied by the number of systems. A floor is the FLOPs of the
products that the result needs, at the rate of a square product measured first. Influence functions are at the initial
weights, damped by 10 on the mean loss, as in the paper.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from torch import Tensor

from models.mlp import MLP
from models.tangent.jacobian import jacobian, network_outputs
from models.tangent.kernel import GIB, Kernels, ntk
from sample_info.leave_one_out_effects import Changes, loss_effects
from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.dynamics import LinearizedDynamics, leave_one_out
from sample_info.pairwise_files import save_pairwise
from sample_info.references import influence
from sample_info.retraining import halves
from sample_info.training_problem import initial_weights
from scripts.benchmarks.benchmark_helpers import (
    Cost,
    Row,
    argument_parser,
    machine,
    matmul_rate,
    measured,
    memory_rate,
    show,
    timed,
)
from scripts.images_for_benchmarks import standardised_digits

SIDE = 28
SETS = 100  # random halves


def main(arguments: Sequence[str] | None = None) -> int:
    sizes = {"examples": 1000, "held_out": 700, "outputs": 1, "width": 1024, "steps": 2000, "learning_rate": 1e-3}
    parser = argument_parser("sample_info", __doc__, **sizes, alone=10, memory_gib=1.0)
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
        self.width, self.alone, self.memory_bytes = options.width, min(options.alone, self.n), options.memory_gib * GIB
        images, labels = standardised_digits(SIDE, whole=True)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        images, labels = images[order].to(self.device), labels[order].to(self.device)
        self.x, self.held_out = images[: self.n], images[self.n : self.n + self.m]
        y = ((labels % 2)[:, None] if self.k == 1 else F.one_hot(labels, 10)).double()
        self.y, self.y_held_out = y[: self.n], y[self.n : self.n + self.m]
        network = {"width": self.width, "depth": 1, "activation": "relu", "parametrization": "standard"}
        self.model = MLP((1, SIDE, SIDE), self.k, **network).to(self.device).eval()
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

    def rows(self) -> list[Row]:
        """Measure every work."""
        kernels, rows = self.kernel_rows()
        rows += [*self.training_rows(kernels), self.effects_row(kernels), *self.set_rows(kernels)]
        return [*rows, self.influence_row()]

    def kernel_rows(self) -> tuple[Kernels, list[Row]]:
        """Compute the kernel layer by layer, and by Jacobians of a few examples."""
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
        """Compute all leave-one-out changes; one system at a time; and in other batches and blocks."""
        with measured(self.device) as ours:
            changes, dynamics = self.scores(kernels, self.memory_bytes)
        sample = torch.randperm(self.n, generator=torch.Generator().manual_seed(1))[: self.alone]
        with measured(self.device) as alone:
            differences = self.differences_alone(sample, kernels)
            weight = ((kernels.train @ differences) * differences).sum(0)
            prediction = (kernels.held_out @ differences).square().sum(0) * self.k / len(kernels.held_out)
        error = max(worst_error(changes.weight[sample], weight), worst_error(changes.prediction[sample], prediction))
        each = alone.seconds / len(sample)
        small = self.memory_bytes / 50
        with measured(self.device) as again:
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

    def effects_row(self, kernels: Kernels) -> Row:
        """Compute scores and write all signed effects to disk, as `python -m sample_info` does."""

        def work(directory: str) -> None:
            dynamics = LinearizedDynamics(kernels.train, self.residual, self.descent)
            trained = dynamics.predictions(self.initial_held_out, kernels.held_out)
            outputs, losses = [], []
            for block in dynamics.blocks(self.memory_bytes, self.m):
                effects, _ = dynamics.effects(block, kernels.held_out)
                outputs.append(effects.outputs.cpu())
                losses.append(loss_effects(effects.outputs, trained, self.y_held_out).cpu())
            save_pairwise(Path(directory), 0, torch.cat(outputs), torch.cat(losses))

        _, scores = timed(lambda: self.scores(kernels, self.memory_bytes), self.device)
        with TemporaryDirectory() as directory:
            _, cost = timed(work, self.device, lambda: [directory])
        n, m, k = self.n, self.m, self.k
        floor = 2 * m * k * n * k * n / self.rate + 2 * 8 * m * n * k / memory_rate(self.device)
        note = f"{cost.seconds - scores.seconds:.2f} s beyond the scores, {scores.seconds:.2f} s"
        return Row("scores and signed effects", "ours", cost, floor, note)

    def set_rows(self, kernels: Kernels) -> list[Row]:
        """Leave out random halves, all at once and one at a time."""
        sets, work = halves(self.n, SETS).to(self.device), f"{SETS} halves left out"
        dynamics = LinearizedDynamics(kernels.train, self.residual, self.descent)
        with measured(self.device) as ours:
            moved = kernels.held_out @ torch.cat([dynamics.differences(part) for part in sets.split(50)], 1)
        some = sets[: self.alone]
        with measured(self.device) as alone:
            slow = kernels.held_out @ self.differences_alone(some, kernels)
        error, times = relative_error(moved[:, : len(some)], slow), SETS / len(some)
        note = f"{len(some)} sets by eigendecomposition, times {times:g}; differs by {error:.0e}"
        floor = 2 * self.m * self.k * self.n * self.k * SETS / self.rate
        return [
            Row(work, "ours", ours, floor, "series for all at once"),
            Row(work, "one at a time", Cost(alone.seconds * times), note=note),
        ]

    def influence_row(self) -> Row:
        """Compute influence functions of all examples, kernel included."""
        n, k = self.n, self.k
        with measured(self.device) as cost:
            influence(self.kernels(), self.residual, 10.0 * n)
        floor = (n * k) ** 3 / self.rate + 2 * (n * k) * (n + self.m) * k * n / self.rate
        return Row("influence functions", "ours", cost, floor, "all examples, kernel included")

    def differences_alone(self, removed: Tensor, kernels: Kernels) -> Tensor:
        """Return a - a_-S, [n k, S], for each example or row of examples of `removed`, one system at a time."""
        everything = self.coefficients(kernels.train, self.residual.flatten(), self.n)
        differences = []
        for one in removed:
            rows = torch.ones(self.n, dtype=torch.bool, device=self.device)
            rows[one] = False
            rows, n = rows.repeat_interleave(self.k), self.descent.effective_n(self.n, one.numel())
            differences.append(everything.clone())
            differences[-1][rows] -= self.coefficients(kernels.train[rows][:, rows], self.residual.flatten()[rows], n)
        return torch.stack(differences, 1)

    def coefficients(self, kernel: Tensor, residual: Tensor, n: int) -> Tensor:
        """Return a(t), [n k], by an eigendecomposition (equation 50)."""
        values, vectors = torch.linalg.eigh(kernel)
        gains = self.descent.filter(values.clamp(min=0) + self.descent.weight_decay, n)
        return -(vectors @ (gains * (vectors.T @ residual)))


def relative_error(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


def worst_error(a: Tensor, b: Tensor) -> float:
    return float(((a - b) / b).abs().max())


if __name__ == "__main__":
    raise SystemExit(main())
