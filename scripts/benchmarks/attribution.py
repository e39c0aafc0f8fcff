"""What signed effects, sets left out at once and influence functions take, beside one at a time, in one process.

    uv run python -m scripts.benchmarks.attribution --alone 20                  # n = 1,000, one output
    uv run python -m scripts.benchmarks.attribution --outputs 10 --examples 200 --held-out 200

Network, data and floors are those of `scripts.benchmarks.sample_info`. What is done one at a time is done for a seeded
sample, and its time is per system, times all. Influence functions are at the initial weights, damped by 10 on the mean
loss, as in the paper.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp

from models.tangent.jacobian import Weights, in_double
from models.tangent.ntk import Kernels
from sample_info.changes import loss_effects, save_block
from sample_info.linearized.dynamics import LinearizedDynamics
from sample_info.references.registry import influence
from sample_info.references.truth import halves
from scripts.benchmarks.benchmark import Cost, Row, finish, measured, memory_rate, timed
from scripts.benchmarks.sample_info import Bench, chosen, relative_error, worst_error

_SETS = 100  # random halves


def main(arguments: Sequence[str] | None = None) -> int:
    options = chosen("attribution", __doc__, arguments)
    bench = AttributionBench(options)
    kernels = bench.kernels()
    return finish(options, bench.title, [*bench.set_rows(kernels), *bench.influence_rows()])


class AttributionBench(Bench):
    """The same, for effects with a sign."""

    def pairwise(self, kernels: Kernels, directory: Path) -> LinearizedDynamics:
        """The scores, and every effect with its sign, on disk; as `python -m sample_info` has them."""
        dynamics = LinearizedDynamics(kernels.train, self.residual, self.descent)
        trained = dynamics.predictions(self.initial_held_out, kernels.held_out)
        for block in dynamics.blocks(self.memory_bytes, self.m):
            effects, _ = dynamics.effects(block, kernels.held_out)
            save_block(directory, 0, block, effects.outputs, loss_effects(effects.outputs, trained, self.y_held_out))
        return dynamics

    def set_rows(self, kernels: Kernels) -> list[Row]:
        """Signed effects on disk, and random halves left out, all at once and one at a time."""
        _, scores = timed(lambda: self.scores(kernels, self.memory_bytes), self.device)
        with TemporaryDirectory() as directory:
            dynamics, pairwise = timed(lambda: self.pairwise(kernels, Path(directory)), self.device)
        n, m, k, count = self.n, self.m, self.k, _SETS
        sets = halves(n, count).to(self.device)
        with measured(self.device) as ours:
            found = torch.cat([dynamics.differences(part) for part in sets.split(50)], 1)
            moved = kernels.held_out @ found
        with measured(self.device) as alone:
            everything = self.coefficients(kernels.train, self.residual.flatten(), n)
            slow = torch.stack([self.difference_without(one, kernels, everything) for one in sets[: self.alone]], 1)
            slow = kernels.held_out @ slow
        each, few = alone.seconds / slow.shape[1], slow.shape[1]
        beyond = f"{pairwise.seconds - scores.seconds:.2f} s beyond the scores, {scores.seconds:.2f} s"
        error = relative_error(moved[:, :few], slow)
        note = f"{few} sets by eigendecomposition, times {count / few:g}; differs by {error:.0e}"
        write = 2 * 8 * m * n * k / memory_rate(self.device)
        return [
            Row("scores and signed effects", "ours", pairwise, 2 * m * k * n * k * n / self.rate + write, beyond),
            Row(
                f"{count} halves left out",
                "ours",
                ours,
                2 * m * k * n * k * count / self.rate,
                "series for all at once",
            ),
            Row(f"{count} halves left out", "one at a time", Cost(each * count), note=note),
        ]

    def influence_rows(self) -> list[Row]:
        """Influence functions of all examples, kernel included, and of some by conjugate gradients."""
        n, k, damping = self.n, self.k, 10.0 * self.n
        with measured(self.device) as ours:
            effects = influence(self.kernels(), self.residual, damping)
        sample = torch.randperm(n, generator=torch.Generator().manual_seed(1))[: self.alone]
        gauss_newton = GaussNewton(self.model, self.weights, self.x, damping)
        with measured(self.device) as theirs:
            change = torch.stack([-gauss_newton.solve(gauss_newton.gradient(int(i), self.residual)) for i in sample])
        weight, times = change.square().sum(1), n / len(sample)
        error = worst_error(effects.weight[sample], weight)
        note = f"{len(sample)} examples, times {times:g}; ‖w - w_-i‖² differs by {error:.0e} at most"
        floor = (n * k) ** 3 * (1 / 3 + 2 / 3) / self.rate + 2 * (n * k) * (n + self.m) * k * n / self.rate
        return [
            Row("influence functions", "ours", ours, floor, "all examples, kernel included"),
            Row("influence functions", "conjugate gradients", Cost(theirs.seconds * times), note=note),
        ]


class GaussNewton:
    """JᵀJ + damping, by products with J of n examples, never J itself: the usual way to influence functions."""

    def __init__(self, model: nn.Module, weights: Weights, x: Tensor, damping: float) -> None:
        values = in_double(model, weights)
        names, self._x, self._damping = list(weights), x.double(), damping
        sizes = [values[name].numel() for name in names]
        self._at = torch.cat([values[name].flatten() for name in names])

        def outputs(flat: Tensor) -> Tensor:
            parts = zip(names, flat.split(sizes), strict=True)
            return functional_call(model, {name: part.view_as(values[name]) for name, part in parts}, (self._x,))

        self._outputs = outputs
        _, self._back, *_ = vjp(outputs, self._at)

    def gradient(self, i: int, residual: Tensor) -> Tensor:
        """∇ ½‖f_w(x_i) - y_i‖², [p]."""
        own = torch.zeros_like(residual)
        own[i] = residual[i]
        return self._back(own)[0]

    def solve(self, b: Tensor, tolerance: float = 1e-12) -> Tensor:
        """Conjugate gradients."""
        found, left = torch.zeros_like(b), b.clone()
        direction, size = left.clone(), float(left @ left)
        start = size
        while size > tolerance**2 * start:
            _, forward, *_ = jvp(self._outputs, (self._at,), (direction,))
            product = self._back(forward)[0] + self._damping * direction
            step = size / float(direction @ product)
            found += step * direction
            left -= step * product
            before, size = size, float(left @ left)
            direction = left + size / before * direction
        return found


if __name__ == "__main__":
    raise SystemExit(main())
