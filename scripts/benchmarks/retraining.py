"""Leave-one-out retraining of an MLP, beside one training after another, per step of gradient descent.

uv run python -m scripts.benchmarks.retraining                                  # the size of the paper's table 1
uv run python -m scripts.benchmarks.retraining --width 64 --n 100 --examples 100 --data digits --side 8
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from erasure.datasets.digits import Digits
from models.mlp import MLP
from sample_info.changes import LeaveOneOut, examples_to_leave_out
from sample_info.references.gradient_descent import GradientDescent
from sample_info.references.retraining import members_at_once, retrain_without_each
from scripts.benchmarks.benchmark import Row, machine, matmul_rate, measured, save, show
from scripts.benchmarks.data import CIFAR_JPEG, read_jpegs

_TEST = 200  # inputs on which predictions are compared


def main(arguments: Sequence[str] | None = None) -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m scripts.benchmarks.retraining", description=__doc__, formatter_class=formatter
    )
    parser.add_argument("--n", type=int, default=1000, help="training examples (default: %(default)s)")
    parser.add_argument("--width", type=int, default=1024, help="hidden units (default: %(default)s)")
    parser.add_argument("--depth", type=int, default=1, help="hidden layers (default: %(default)s)")
    parser.add_argument("--side", type=int, default=28, help="side of the grayscale images (default: %(default)s)")
    parser.add_argument("--data", choices=["cifar10", "digits"], default="cifar10", help="default: %(default)s")
    parser.add_argument("--examples", type=int, default=4, help="left out, one each (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="timed (default: %(default)s)")
    parser.add_argument("--of-steps", type=int, default=2000, help="of a whole training (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=0.001, help="of the mean loss (default: %(default)s)")
    parser.add_argument("--memory-gib", type=float, default=4.0, help="for a stack (default: %(default)s)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    options = parser.parse_args(arguments)
    if min(options.n - 1, options.width, options.depth, options.side, options.examples, options.steps) < 1:
        parser.error("--n must be at least 2, --width, --depth, --side, --examples and --steps at least 1")
    bench = Bench(options)
    rows = bench.compare()
    show(bench.title, rows)
    if options.json:
        save(options.json, {"title": bench.title} | {k: str(v) for k, v in vars(options).items()}, rows)
    return 0


def two_classes(data: str, n: int, side: int) -> tuple[Tensor, Tensor]:
    """Grayscale images [n', 1, side, side] in 0..1 of classes 4 and 9, in random order, and targets 0 and 1."""
    if data == "cifar10":
        images, labels = read_jpegs(CIFAR_JPEG, 50_000)
    else:
        digits = Digits(name="digits", flip=False, validation_size=None, test_fraction=0.2, split_seed=0).load()
        images, labels = digits.train.images, digits.train.labels
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    chosen = order[(labels[order] == 4) | (labels[order] == 9)][: n + _TEST]
    gray = images[chosen].float().mean(1, keepdim=True)
    resized = F.interpolate(gray / gray.max(), (side, side), mode="bilinear", antialias=True)
    return resized, (labels[chosen] == 9).float()[:, None]


class Bench:
    """The problem: an MLP, n examples, targets 0 and 1, gradient descent on the mean loss."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, torch.device(options.device)
        x, y = (part.to(self.device) for part in two_classes(options.data, options.n, options.side))
        n = min(options.n, len(x) - 20)
        self.x_test = x[n:]
        shape, sizes = (1, options.side, options.side), {"width": options.width, "depth": options.depth}
        self.model = MLP(shape, 1, **sizes, activation="relu", parametrization="standard").to(self.device)
        self.model.reset_parameters(torch.Generator().manual_seed(0))
        readout = self.model.readout
        readout.reset_parameters(
            torch.Generator().manual_seed(1), gain=1.0
        )  # at zero, nothing below would move at first
        initial = {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}
        learning_rate = options.learning_rate / n
        self.descent = GradientDescent.of(
            self.model, initial, x[:n], y[:n], steps=options.steps, learning_rate=learning_rate
        )
        self.examples = examples_to_leave_out(n, min(options.examples, n))
        self.rate = matmul_rate(1024, torch.float32, self.device)
        self.rank = len(self.descent.inputs.span[1])
        self.title = (
            f"MLP of {options.depth} x {options.width}, n = {n:,}, {options.side}² inputs ({options.data}, "
            f"4 against 9) of rank {self.rank}; {len(self.examples)} examples left out, {options.steps} steps\n"
            f"{machine(self.device)}\nproduct of 1,024 x 1,024 {self.rate / 1e9:,.0f} GFLOP/s"
        )

    def compare(self) -> list[Row]:
        """One training after another, ours, and ours without each of its two ideas."""
        memory = int(self.options.memory_gib * 2**30)
        plain = dataclasses.replace(self.descent, input_layer=None)
        one = self.descent.bytes_per_member()
        ways = {
            "ours": (self.descent, memory),
            "ours, one at a time": (self.descent, one),
            "ours, first layer as a matrix": (plain, memory),
        }
        found: dict[str, tuple[float, LeaveOneOut | None]] = {}
        for name, (descent, bytes_) in ways.items():
            retrain_without_each(dataclasses.replace(descent, steps=1), self.x_test, self.examples[:1])  # warms up
            with measured(self.device) as cost:
                result = retrain_without_each(descent, self.x_test, self.examples, memory_bytes=bytes_)
            found[name] = cost.seconds, result
        with measured(self.device) as cost:
            theirs = self._one_after_another()
        found["one after another"] = cost.seconds, None
        ours, result = found["ours"]
        assert result is not None
        gap = float((result.weight_change / theirs - 1).abs().max())
        trainings, whole = len(self.examples) + 1, self.options.of_steps / self.options.steps
        rows = []
        for name, (seconds, _) in found.items():
            descent, bytes_ = ways.get(name, (plain, one))
            flops = trainings * self.options.steps * self._flops(descent)
            note = f"{whole * seconds / trainings:.3g} s per training of {self.options.of_steps:,} steps"
            if name in ways:
                note += f"; {members_at_once(descent, bytes_)} at once"
            else:
                note += f"; ‖w - w_-i‖² within {gap:.0e} of ours"
            rows.append(Row("retraining", name, seconds, seconds / ours, floor_seconds=flops / self.rate, note=note))
        return rows

    def _flops(self, descent: GradientDescent) -> int:
        """FLOPs of a step of one training: products only; the first layer hands no gradient down."""
        first, *others = [weight for weight in descent.initial.values() if weight.ndim == 2]
        per_unit = 2 * first.shape[1] if descent.input_layer is None else min(len(descent.x), 2 * self.rank)
        return 2 * len(descent.x) * (first.shape[0] * per_unit + 3 * sum(weight.numel() for weight in others))

    def _one_after_another(self) -> Tensor:
        """‖w - w_-i‖² as one writes it down: a PyTorch module and optimiser for each training."""

        def train(kept: Tensor) -> Tensor:
            layers: list[nn.Module] = []
            for i, layer in enumerate([*self.model.hidden, self.model.readout]):
                weight, bias = layer.get_parameter("weight"), layer.get_parameter("bias")
                own = nn.Linear(weight.shape[1], weight.shape[0], device=self.device)
                own.load_state_dict({"weight": weight.detach(), "bias": bias.detach()})
                layers += [nn.ReLU()] * (i > 0) + [own]
            network = nn.Sequential(nn.Flatten(), *layers)
            optimizer = torch.optim.SGD(network.parameters(), lr=self.descent.learning_rate)
            x, y = self.descent.x[kept], self.descent.y[kept]
            for _ in range(self.descent.steps):
                optimizer.zero_grad()
                (0.5 * (network(x) - y).square().sum()).backward()
                optimizer.step()
            return torch.cat([parameter.detach().flatten() for parameter in network.parameters()]).double()

        everything = torch.arange(len(self.descent.x), device=self.device)
        whole = train(everything)
        return torch.stack(
            [(train(everything[everything != i]) - whole).square().sum().cpu() for i in self.examples.tolist()]
        )


if __name__ == "__main__":
    raise SystemExit(main())
