"""Seconds, memory and exactness of every eraser and of the public packages, on the same data in one process.

    uv run --group bench python -m scripts.benchmarks.erasers --dim 768
    uv run --group bench python -m scripts.benchmarks.erasers --dim 3072 --images DIR

Statistics and erasers are timed separately. A floor is the longer of two times: of the products that the result needs,
at the rate of a square product of the same size, and of reading the input and writing the result. Rates are measured
first.
"""

import argparse
import importlib.util
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from erasure import ClassMoments, LeaceEraser, QleaceEraser, erase, fit_layers
from erasure.progress import console
from scripts.benchmarks.benchmark_helpers import (
    Cost,
    Result,
    Row,
    argument_parser,
    attempt,
    machine,
    matmul_rate,
    measured,
    memory_rate,
    show,
    timed,
)
from scripts.benchmarks.step_flops_and_bytes import Floor
from scripts.images_for_benchmarks import labelled_images, side_of

MISSING = "not installed: uv run --group bench python -m scripts.benchmarks.erasers"
CLASSES = 10
LARGEST_PEER = 1024  # dimensions of another package's QLEACE


class EraserBenchmark:
    """The data, its moments, and the machine's rates."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.device = torch.device(options.device)
        x, z, what = labelled_images(side_of(options.dim), options.samples, CLASSES, options.images)
        self.x, self.z = x.flatten(1).to(self.device), z.to(self.device)
        self.k, self.d = CLASSES, options.dim
        self.rate = matmul_rate(self.d, torch.float64, self.device)
        self.single_rate = matmul_rate(self.d, torch.float32, self.device)
        self.bandwidth = memory_rate(self.device)
        self.moments = ClassMoments.fit(self.x, self.z, num_classes=self.k).rescale(1 / 255)
        self.title = (
            f"{what}, d = {self.d:,}, k = {self.k}\n{machine(self.device)}\nfloat64 product "
            f"{self.rate / 1e9:,.0f} GFLOP/s, float32 {self.single_rate / 1e9:,.0f} GFLOP/s, "
            f"memory {self.bandwidth / 1e9:.0f} GB/s"
        )

    def timed(
        self, work: Callable[..., Result], prepare: Callable[[], Sequence[object]] = tuple
    ) -> tuple[Result, Cost]:
        return timed(work, self.device, prepare)

    def peer(self, what: str, run: Callable[[], tuple[Cost, str]]) -> Row:
        """Return the row of concept-erasure, if it is installed."""
        if importlib.util.find_spec("concept_erasure") is None:
            return Row(what, "concept-erasure", None, note=MISSING)
        cost, note = run()
        return Row(what, "concept-erasure", cost, note=note)

    def floor(self, flops: float, moved_bytes: float, rate: float | None = None) -> Floor:
        """Return the floor of FLOPs in float64, or at another rate, and of memory traffic."""
        return Floor(flops / (rate or self.rate), moved_bytes / self.bandwidth)

    def matrix_floor(self, products: float, matrices: float) -> Floor:
        """Return the floor of products of [d, d] matrices in float64 (2 d³ FLOPs), and of those read and written."""
        return self.floor(products * 2 * self.d**3, matrices * 8 * self.d**2)


def leace(bench: EraserBenchmark) -> list[Row]:
    m = bench.moments
    eraser, ours = bench.timed(lambda: LeaceEraser.from_moments(m))

    def theirs() -> tuple[Cost, str]:
        peer, cost = bench.timed(lambda fitter: fitter.eraser, lambda: [leace_fitter(m)])
        return cost, _mean_gap(m, peer.proj_left @ peer.proj_right)

    # one Cholesky factor (d³/3 FLOPs); the rest is O(k d²)
    return [
        Row("LEACE fit", "ours", ours, bench.matrix_floor(1 / 6, 1), _mean_gap(m, eraser.left @ eraser.right)),
        bench.peer("LEACE fit", theirs),
    ]


def qleace(bench: EraserBenchmark) -> list[Row]:
    m, k = bench.moments, bench.k
    eraser, ours = bench.timed(lambda: QleaceEraser.from_moments(m))
    note = _gap_and_edit(m, eraser.maps)
    if ours.peak_mib is not None:
        note += f", {ours.peak_mib / (k * bench.d**2 * 8 / 2**20):.2f} x class covariances of memory"
    del eraser

    def theirs() -> tuple[Cost, str]:
        peer, cost = bench.timed(lambda fitter: fitter.eraser, lambda: [quadratic_fitter(m)])
        return cost, _gap_and_edit(m, peer.ot_maps.mT)

    # Per class a Cholesky factor (1/6 of a product), M = FᵀR and F U (1/2 each, F is triangular), a polar factor by
    # no fewer than 3 Halley steps of a symmetric product, a Cholesky factor and two triangular solves (1/2 + 1/6 + 1),
    # and the map (1 + 1/2).
    row = Row("QLEACE fit", "ours", ours, bench.matrix_floor(k * (1 / 6 + 1 + 5 + 1.5), 2 * k), note)
    return [row, bench.peer("QLEACE fit", theirs)] if bench.d <= LARGEST_PEER else [row]


def leace_fitter(m: ClassMoments):
    """Return concept-erasure's LEACE with our statistics; it computes the eraser on first use of `.eraser`."""
    from concept_erasure import LeaceFitter  # pyright: ignore[reportMissingImports]

    n = torch.tensor(m.n, device=m.means.device)
    statistics = {"mean_x": m.mean, "mean_z": m.weights, "n": n, "sigma_xx_": m.total * m.n, "sigma_xz_": m.cross * m.n}
    return _filled(LeaceFitter, m, statistics)


def quadratic_fitter(m: ClassMoments):
    from concept_erasure import QuadraticFitter  # pyright: ignore[reportMissingImports]

    statistics = {"mean_x": m.means, "n": m.counts.double(), "sigma_xx_": m.covariances * m.counts[:, None, None]}
    return _filled(QuadraticFitter, m, statistics)


def _filled(fitter_class: type, m: ClassMoments, statistics: Mapping[str, Tensor]):
    fitter = fitter_class(m.dim, m.num_classes, shrinkage=False, dtype=torch.float64, device=m.means.device)
    for name, value in statistics.items():
        setattr(fitter, name, value)
    return fitter


def _mean_gap(m: ClassMoments, projection: Tensor) -> str:
    """Format max_j ‖(I - P)(m_j - m̄)‖ / √tr Σ_xx of an eraser x - P (x - m̄)."""
    shifts = m.means - m.mean
    return f"mean gap {float((shifts - shifts @ projection.T).norm(dim=1).max() / m.total.trace().sqrt()):.0e}"


def _gap_and_edit(m: ClassMoments, maps: Tensor) -> str:
    return f"covariance gap {covariance_gap(m, maps):.1e}, edit {edit_size(m, maps):.8f}"


def covariance_gap(m: ClassMoments, maps: Tensor) -> float:
    """Return max_j ‖A_j Σ_j A_jᵀ - average‖_F / ‖Σ_xx‖_F, for A_jᵀ [k, d, d]."""
    erased = [a.T @ m.covariance(j) @ a for j, a in enumerate(maps)]
    average = sum((w * each for w, each in zip(m.weights, erased, strict=True)), torch.zeros_like(maps[0]))
    return max(float((each - average).norm()) for each in erased) / float(m.total.norm())


def edit_size(m: ClassMoments, maps: Tensor) -> float:
    """Return E‖x' - x‖² / tr Σ_xx of the covariance part; the means' part is the same for all packages."""
    edit = 0.0
    for j, weight in enumerate(m.weights.tolist()):
        change = maps[j].T - torch.eye(m.dim, dtype=maps.dtype, device=maps.device)
        edit += weight * float(((change @ m.covariance(j)) * change).sum())
    return edit / float(m.total.trace())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("erasers", __doc__, dim=768, samples=50_000)
    parser.add_argument("--images", default="", help="folder of images, <root>/train/<class>; default: synthetic ones")
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), default=sorted(PARTS), help="default: all")
    options = parser.parse_args(arguments)
    if options.samples < 2 * CLASSES:
        parser.error(f"--samples={options.samples}: must be at least {2 * CLASSES}, two images of each class")
    try:
        bench = EraserBenchmark(options)
    except ValueError as error:
        parser.error(str(error))
    rows: list[Row] = []
    for name in [part for part in PARTS if part in options.only]:
        console().print(f"{name} …", style="dim")
        rows += attempt(name, "all", lambda name=name: PARTS[name](bench))
    show(bench.title, rows)
    return 0


def moments(bench: EraserBenchmark) -> list[Row]:
    """Compare exact class moments of 8-bit images with float64 products."""
    exact, ours = bench.timed(lambda: ClassMoments.fit(bench.x, bench.z, num_classes=bench.k))
    with measured(bench.device) as plain:
        slow = ClassMoments(bench.d, bench.k, device=bench.device)
        for rows in torch.arange(len(bench.x), device=bench.device).split(4096):
            slow.update(bench.x[rows].double(), bench.z[rows])
    error = max(float((exact.covariance(j) - slow.covariance(j)).abs().max()) for j in range(bench.k))
    note = f"largest difference {error / float(slow.total.abs().max()):.0e} of the largest covariance"
    work = (len(bench.x) * bench.d**2, bench.x.nbytes)  # half of a product: it is symmetric
    return [
        Row("moments", "ours, uint8", ours, bench.floor(*work, bench.single_rate), "exact integer sums"),
        Row("moments", "float64 products", plain, bench.floor(*work), note),
    ]


def layers(bench: EraserBenchmark, depths: Sequence[int] = (12, 32), count: int = 4) -> list[Row]:
    """Fit LEACE at every block of a GPT-2 with random weights: in one sweep, block by block, and in a pass for each."""
    from transformers import GPT2Config, GPT2Model

    rows: list[Row] = []
    for depth in depths:
        torch.manual_seed(0)
        config = GPT2Config(n_layer=depth, n_embd=256, n_head=4, vocab_size=1000, bos_token_id=0, eos_token_id=0)
        model: Any = GPT2Model(config).eval()
        model.to(bench.device)
        ids = torch.randint(1000, (count, 4, 64), device=bench.device)
        batches = [(batch, batch % 2) for batch in ids]
        blocks, runs = [f"h.{i}" for i in range(depth)], Counter[str]()
        for block in model.h:
            block.mlp.register_forward_hook(lambda *_, runs=runs: runs.update(["blocks"]))
        ways: dict[str, Callable[[], Any]] = {
            "ours, one sweep": partial(fit_layers, model, batches, blocks, num_classes=2),
            "block by block, as concept-erasure": partial(_block_by_block, model, batches),
            "a pass for each block": partial(_pass_for_each_block, model, batches, blocks),
        }
        for who, fit in ways.items():
            runs.clear()
            with torch.no_grad(), measured(bench.device) as cost:
                fit()
            work = f"{depth} blocks, {count} batches of 4 x 64 tokens, d = 256"
            rows.append(Row(work, who, cost, note=f"{runs['blocks'] / count:.1f} block runs per batch"))
    return rows


def _block_by_block(model: Any, batches: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Follow the pattern of concept-erasure's `scrub`: each block runs to fit its eraser, and again with it."""
    position = torch.arange(batches[0][0].shape[1], device=model.wte.weight.device)
    states = [model.wte(x) + model.wpe(position) for x, _ in batches]
    for block in model.h:
        moments = ClassMoments(model.config.n_embd, 2, device=position.device, pooled=True)
        for each, (_, z) in zip(states, batches, strict=True):
            moments.update(block(each), z)
        eraser = LeaceEraser.from_moments(moments).to(torch.float32)
        states = [eraser(block(each)) for each in states]


def _pass_for_each_block(model: torch.nn.Module, batches: Sequence[tuple[Tensor, Tensor]], blocks: list[str]) -> None:
    fitted: dict[str, LeaceEraser] = {}
    for name in blocks:
        moments = ClassMoments(256, 2, device=batches[0][0].device, pooled=True)
        outputs: list[Tensor] = []
        hook = model.get_submodule(name).register_forward_hook(lambda *given, outputs=outputs: outputs.append(given[2]))
        with erase(model, fitted):
            for x, z in batches:
                model(x)
                moments.update(outputs.pop(), z)
        hook.remove()
        fitted[name] = LeaceEraser.from_moments(moments).to(torch.float32)


PARTS: dict[str, Callable[..., list[Row]]] = {each.__name__: each for each in (moments, leace, qleace, layers)}


if __name__ == "__main__":
    raise SystemExit(main())
