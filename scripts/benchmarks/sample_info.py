"""Seconds, memory and exactness of sample information, beside one system at a time, in one process.

    uv run python -m scripts.benchmarks.sample_info                            # n = 1,000, one output
    uv run python -m scripts.benchmarks.sample_info --outputs 10 --examples 500
    uv run python -m scripts.benchmarks.sample_info --learning-rate 1e-4       # a spectrum like that of smaller weights

An MLP with one hidden layer on scikit-learn's digits enlarged to 28 x 28; one output tells even digits from odd ones.
The systems that are solved alone are a seeded sample; their time is per system, times n. A floor is the FLOPs of the
products that the result needs, at the rate of a square product of the same size measured first.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from erasure.datasets.digits import Digits
from models.mlp import MLP
from sample_info.changes import Changes, leave_one_out
from sample_info.kernel.jacobian import jacobian, network_outputs
from sample_info.kernel.ntk import GIB, Kernels, ntk
from sample_info.linearized.dynamics import LinearizedDynamics, Method
from sample_info.linearized.training import LinearizedDescent
from sample_info.problem import initial_weights
from scripts.benchmarks.benchmark import Cost, Row, machine, matmul_rate, measured, save, show

SIDE = 28
METHODS: tuple[Method, ...] = ("resolvent", "series")
PARTS = ("resolvent", "series", "alone", "independence")


def main(arguments: Sequence[str] | None = None) -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m scripts.benchmarks.sample_info", description=__doc__, formatter_class=formatter
    )
    parser.add_argument("--examples", type=int, default=1000, help="n (default: %(default)s)")
    parser.add_argument("--held-out", type=int, default=700, help="m (default: %(default)s)")
    parser.add_argument("--outputs", type=int, default=1, help="1 or 10 (default: %(default)s)")
    parser.add_argument("--width", type=int, default=1024, help="of the hidden layer (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=2000, help="t (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="default: %(default)s")
    parser.add_argument("--alone", type=int, default=10, help="systems solved one at a time (default: %(default)s)")
    parser.add_argument("--memory-gib", type=float, default=1.0, help="for intermediate results (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="default: %(default)s")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="beside the kernel (default: all)")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    options = parser.parse_args(arguments)
    if options.outputs not in (1, 10) or options.examples + options.held_out > 1797 or options.examples < 2:
        parser.error("--outputs must be 1 or 10, and --examples and --held-out 1,797 or less together, 2 or more")
    bench = Bench(options)
    kernels, rows = kernel_rows(bench)
    rows += training_rows(bench, kernels, options.only)
    if "independence" in options.only:
        rows.append(independence(bench, kernels))
    show(bench.title, rows)
    if options.json:
        save(options.json, {"title": bench.title, **{k: str(v) for k, v in vars(options).items()}}, rows)
    return 0


class Bench:
    """The network, its data and the machine's matmul rate."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.device = torch.device(options.device)
        self.n, self.k, self.m = options.examples, options.outputs, options.held_out
        self.width, self.alone, self.memory_bytes = options.width, min(options.alone, self.n), options.memory_gib * GIB
        images, labels = enlarged_digits()
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        images, labels = images[order].to(self.device), labels[order].to(self.device)
        self.x, self.held_out = images[: self.n], images[self.n : self.n + self.m]
        one_output = (labels % 2)[:, None]
        self.y = (one_output if self.k == 1 else F.one_hot(labels, 10)).double()[: self.n]
        shape = (1, SIDE, SIDE)
        model = MLP(shape, self.k, width=self.width, depth=1, activation="relu", parametrization="standard")
        self.model = model.to(self.device).eval()
        self.weights = initial_weights(self.model, 0, 1.0)
        self.descent = LinearizedDescent(learning_rate=options.learning_rate, steps=options.steps)
        self.rate = matmul_rate(1000, torch.float64, self.device)
        self.title = (
            f"digits, {SIDE} x {SIDE}, MLP of width {self.width:,}, k = {self.k}, n = {self.n:,}, m = {self.m:,}, "
            f"t = {options.steps:,}, learning rate {options.learning_rate:g}\n{machine(self.device)}, "
            f"float64 product {self.rate / 1e9:,.0f} GFLOP/s"
        )

    def kernels(self, batch_size: int = 64, share: float = 1.0) -> Kernels:
        """The kernels, in batches of some size and with a share of the memory."""
        memory_bytes = share * self.memory_bytes
        return ntk(self.model, self.weights, self.x, self.held_out, batch_size=batch_size, memory_bytes=memory_bytes)

    def dynamics(self, kernels: Kernels, method: Method = "auto") -> LinearizedDynamics:
        residual = network_outputs(self.model, self.weights, self.x) - self.y
        return LinearizedDynamics(kernels.train, residual, self.descent, method=method)


def enlarged_digits() -> tuple[Tensor, Tensor]:
    """All digits, standardised [n, 1, 28, 28] float32, and their labels."""
    source = Digits(name="digits", flip=False, validation_size=None, test_fraction=0.2, split_seed=0)
    raw = source.load().train
    images = F.interpolate(raw.images.float(), size=(SIDE, SIDE), mode="bilinear")
    return (images - images.mean()) / images.std(), raw.labels


def kernel_rows(bench: Bench) -> tuple[Kernels, list[Row]]:
    """The kernel by products of layers, and by Jacobians of a few examples."""
    with measured(bench.device) as ours:
        kernels = bench.kernels()
    n, m, k, d = bench.n, bench.m, bench.k, SIDE**2
    # per layer (h·h' + 1) (δ·δ'): n (n + m) inputs, n k (n + m) k slopes
    flops = 2 * n * (n + m) * (d + bench.width + k * k * (bench.width + k))
    some = max(2, min(n, 2000 // k // 10))
    with measured(bench.device) as theirs:
        j = jacobian(bench.model, bench.weights, bench.x[:some]).flatten(0, 1)
        slow = j @ j.T
    error = _relative(kernels.train[: some * k, : some * k], slow)
    scaled = theirs.seconds * (n + m) / some
    return kernels, [
        Row("kernel", "ours", ours.seconds, 1, ours.peak_mib, flops / bench.rate, kernels.how),
        Row(
            "kernel", "Jacobians", scaled, scaled / ours.seconds, None, None,
            f"{some} examples, times {(n + m) / some:.0f}, without most products; differs by {error:.0e}",
        ),
    ]  # fmt: skip


def training_rows(bench: Bench, kernels: Kernels, only: Sequence[str]) -> list[Row]:
    """All leave-one-out changes, by both methods, against one system at a time."""
    sample = torch.randperm(bench.n, generator=torch.Generator().manual_seed(1))[: bench.alone]
    alone = _one_at_a_time(bench, kernels, sample.tolist()) if "alone" in only else None
    found: dict[str, tuple[Cost, str]] = {}
    for method in METHODS:
        if method in only:
            with measured(bench.device) as cost:
                dynamics = bench.dynamics(kernels, method)
                changes = leave_one_out(dynamics, kernels.held_out, memory_bytes=bench.memory_bytes)
            found[method] = (
                cost,
                f"{dynamics.how}, {_exactness(changes, sample, alone)}bound {dynamics.error_bound:.0e}",
            )
    best = min((cost.seconds for cost, _ in found.values()), default=float("nan"))
    floor = 2 * bench.m * bench.k * (bench.n * bench.k) * bench.n / bench.rate  # predictions alone
    rows = [
        Row("leaving out", f"ours, {method}", cost.seconds, cost.seconds / best, cost.peak_mib, floor, note)
        for method, (cost, note) in found.items()
    ]
    if alone is not None:
        each = alone[1].seconds / len(sample)
        note = f"{len(sample)} systems by eigendecomposition, {each:.2f} s each, times {bench.n:,}"
        seconds = each * bench.n
        rows.append(Row("leaving out", "one at a time", seconds, seconds / best, alone[1].peak_mib, None, note))
    return rows


def _exactness(changes: Changes, sample: Tensor, alone: tuple[tuple[Tensor, Tensor], Cost] | None) -> str:
    if alone is None:
        return ""
    weight, prediction = alone[0]
    error = max(_relative_each(changes.weight[sample], weight), _relative_each(changes.prediction[sample], prediction))
    return f"largest relative error of a score {error:.0e}, "


def _one_at_a_time(bench: Bench, kernels: Kernels, sample: Sequence[int]) -> tuple[tuple[Tensor, Tensor], Cost]:
    residual = network_outputs(bench.model, bench.weights, bench.x) - bench.y
    everything = _coefficients(kernels.train, residual, bench.descent, bench.n)
    with measured(bench.device) as cost:
        found = [_changes_without(i, kernels, residual, bench.descent, everything) for i in sample]
    weight, prediction = torch.tensor(found, dtype=torch.float64, device=bench.device).T
    return (weight, prediction), cost


def _coefficients(kernel: Tensor, residual: Tensor, descent: LinearizedDescent, n: int) -> Tensor:
    """a(t), [n k], by an eigendecomposition (equation 50)."""
    values, vectors = torch.linalg.eigh(kernel)
    gains = descent.filter(values.clamp(min=0) + descent.weight_decay, n)
    return -(vectors @ (gains * (vectors.T @ residual.flatten())))


def _changes_without(
    i: int, kernels: Kernels, residual: Tensor, descent: LinearizedDescent, everything: Tensor
) -> tuple[float, float]:
    """‖w - w_-i‖² and the mean of ‖f(x) - f_-i(x)‖², given the coefficients [n k] of training on everything."""
    n, k = residual.shape
    kept = (torch.arange(n, device=residual.device) != i).repeat_interleave(k)
    difference = everything.clone()
    difference[kept] -= _coefficients(
        kernels.train[kept][:, kept], residual.flatten()[kept], descent, descent.effective_n(n)
    )
    prediction = (kernels.held_out @ difference).square().sum() * k / len(kernels.held_out)
    return float(difference @ kernels.train @ difference), float(prediction)


def independence(bench: Bench, kernels: Kernels) -> Row:
    """The largest relative change of a score under other batch and block sizes."""

    def scores(kernels: Kernels, memory_bytes: float) -> Changes:
        return leave_one_out(bench.dynamics(kernels), kernels.held_out, memory_bytes=memory_bytes)

    whole = scores(kernels, bench.memory_bytes)
    with measured(bench.device) as cost:
        parts = scores(bench.kernels(batch_size=7, share=0.02), bench.memory_bytes / 50)
    change = max(_relative_each(parts.weight, whole.weight), _relative_each(parts.prediction, whole.prediction))
    note = f"batches of 7, a fiftieth of the memory: scores change by {change:.0e} at most"
    return Row("all of it again", "ours", cost.seconds, None, cost.peak_mib, None, note)


def _relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


def _relative_each(a: Tensor, b: Tensor) -> float:
    return float(((a - b) / b).abs().max())


if __name__ == "__main__":
    raise SystemExit(main())
