"""Seconds, memory and exactness of every eraser and of the public packages, on the same data in one process.

    uv run --group bench python -m scripts.benchmarks.erasers --dim 768
    uv run --group bench python -m scripts.benchmarks.erasers --dim 3072 --full-peer --images DIR

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

from erasure import AlfQleaceEraser, ClassMoments, LeaceEraser, QleaceEraser, erase, fit_layers
from erasure.polar import gram
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
    waits,
)
from scripts.benchmarks.step_flops_and_bytes import Floor
from scripts.images_for_benchmarks import labelled_images, side_of

EXAMPLES = 20_000  # of `from_data`
MISSING = "not installed: uv run --group bench python -m scripts.benchmarks.erasers"
LEFT_OUT = "left out at this size: --full-peer runs it"
DIRECTIONS = 15  # the paper's CIFARNet intervention has rank d - 15 (Figure 1)


class EraserBenchmark:
    """The data, its moments, and the machine's rates."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.device = torch.device(options.device)
        self.full_peer = options.full_peer or options.dim <= 1024
        x, z, what = labelled_images(side_of(options.dim), options.samples, options.classes, options.images)
        self.x, self.z = x.flatten(1).to(self.device), z.to(self.device)
        self.k, self.d = options.classes, options.dim
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

    def peer(self, what: str, who: str, package: str, run: Callable[[], tuple[Cost, str]], *, slow: bool) -> Row:
        """Return the row of another package, if it is installed and not too slow."""
        if not installed(package) or (slow and not self.full_peer):
            return Row(what, who, None, note=LEFT_OUT if installed(package) else MISSING)
        cost, note = run()
        return Row(what, who, cost, note=note)

    def floor(self, flops: float, moved_bytes: float, rate: float | None = None) -> Floor:
        """Return the floor of FLOPs in float64, or at another rate, and of memory traffic."""
        return Floor(flops / (rate or self.rate), moved_bytes / self.bandwidth)

    def matrix_floor(self, products: float, matrices: float) -> Floor:
        """Return the floor of products of [d, d] matrices in float64 (2 d³ FLOPs), and of those read and written."""
        return self.floor(products * 2 * self.d**3, matrices * 8 * self.d**2)


def streaming(bench: EraserBenchmark, batches: int = 500) -> list[Row]:
    """Accumulate moments of batches of 64 vectors of 1,024 dimensions, as from a hook in a network."""
    x, z = torch.randn(batches, 64, 1024, device=bench.device), torch.randint(10, (batches, 64), device=bench.device)

    def ours(**options: Any) -> Cost:
        def run() -> int:
            moments = ClassMoments(1024, 10, device=bench.device, **options)
            for batch, labels in zip(x, z, strict=True):
                moments.update(batch, labels)
            return moments.n

        return bench.timed(run)[1]

    def theirs() -> tuple[Cost, str]:
        from concept_erasure import LeaceFitter  # pyright: ignore[reportMissingImports]

        def run() -> None:
            fitter = LeaceFitter(1024, 10, dtype=torch.float32, device=str(bench.device))
            for batch, labels in zip(x, z, strict=True):
                fitter.update(batch, torch.nn.functional.one_hot(labels, 10).to(batch))

        return bench.timed(run)[1], "float32"

    rate = matmul_rate(1024, torch.float64, bench.device)
    floor = bench.floor(x[..., 0].numel() * 1024**2, x.nbytes, rate)  # half of a product: it is symmetric
    work = f"{batches} batches of 64 x 1,024"
    return [
        Row(work, "ours, class covariances", ours(), floor, "float64"),
        Row(work, "ours, pooled", ours(pooled=True), floor, "float64"),
        bench.peer(work, "concept-erasure", "concept_erasure", theirs, slow=False),
    ]


def from_data(bench: EraserBenchmark) -> list[Row]:
    x, z = bench.x[:EXAMPLES].double() / 255, bench.z[:EXAMPLES]
    _, ours = bench.timed(lambda: LeaceEraser.fit(x, z, num_classes=bench.k))

    def theirs() -> tuple[Cost, str]:
        from concept_erasure import LeaceFitter  # pyright: ignore[reportMissingImports]

        return bench.timed(lambda: LeaceFitter.fit(x, torch.nn.functional.one_hot(z, bench.k)).eraser)[1], "float64"

    work = f"LEACE from {len(x):,} float64 vectors"
    waited = waits(lambda: LeaceEraser.fit(x, z, num_classes=bench.k), bench.device)
    return [
        Row(work, "ours", ours, bench.floor(len(x) * bench.d**2, x.nbytes), f"float64{waited}"),
        bench.peer(work, "concept-erasure", "concept_erasure", theirs, slow=False),
    ]


def products(bench: EraserBenchmark) -> list[Row]:
    """Compare a symmetric product by blocks, as moments take it, with a general one."""
    x = torch.randn(8192, bench.d, dtype=torch.float64, device=bench.device)
    floor, work = bench.floor(len(x) * bench.d**2, x.nbytes), f"XᵀX of {len(x):,} x {bench.d:,}"
    ways: dict[str, Callable[[], Tensor]] = {"ours, by blocks": lambda: gram(x), "a general product": lambda: x.T @ x}
    return [Row(work, who, bench.timed(way)[1], floor, "float64") for who, way in ways.items()]


def leace(bench: EraserBenchmark) -> list[Row]:
    m = bench.moments
    eraser, ours = bench.timed(lambda: LeaceEraser.from_moments(m))

    def theirs() -> tuple[Cost, str]:
        peer, cost = bench.timed(lambda fitter: fitter.eraser, lambda: [leace_fitter(m)])
        return cost, _mean_gap(m, peer.proj_left @ peer.proj_right)

    waited = waits(lambda: LeaceEraser.from_moments(m), bench.device)
    # one Cholesky factor (d³/3 FLOPs); the rest is O(k d²)
    return [
        Row("LEACE fit", "ours", ours, bench.matrix_floor(1 / 6, 1), _mean_gap(m, eraser.left @ eraser.right) + waited),
        bench.peer("LEACE fit", "concept-erasure", "concept_erasure", theirs, slow=False),
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
    return [
        Row("QLEACE fit", "ours", ours, bench.matrix_floor(k * (1 / 6 + 1 + 5 + 1.5), 2 * k), note),
        bench.peer("QLEACE fit", "concept-erasure", "concept_erasure", theirs, slow=True),
    ]


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


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


def _gap_left(m: ClassMoments, erased: Tensor, z: Tensor) -> str:
    """Format max_j ‖m_j - m̄‖ / √tr Σ_xx of erased examples, with the trace before erasure."""
    after = ClassMoments.fit(erased, z, num_classes=m.num_classes, pooled=True)
    return f"mean gap {float(after.shifts.norm(dim=1).max() / m.total.trace().sqrt()):.0e} of the result"


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
    parser = argument_parser("erasers", __doc__, dim=768, classes=10, samples=50_000)
    parser.add_argument("--images", default="", help="folder of images, <root>/train/<class>; default: synthetic ones")
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), default=sorted(PARTS), help="default: all")
    parser.add_argument("--full-peer", action="store_true", help="run the peers' QLEACE also above d = 1,024")
    options = parser.parse_args(arguments)
    if options.classes < 2 or options.samples < 2 * options.classes:
        parser.error(f"--samples={options.samples}, --classes={options.classes}: need two images for each of 2 classes")
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


def alf_qleace(bench: EraserBenchmark) -> list[Row]:
    m = bench.moments
    eraser, ours = bench.timed(lambda: AlfQleaceEraser.from_moments(m, num_directions=DIRECTIONS, target=None))
    note = f"{DIRECTIONS} directions after LEACE, worst norm down to {eraser.norms[-1] / eraser.norms[0]:.3f}"
    # LEACE, and at least one product of every covariance with a vector per direction
    floor = bench.matrix_floor(1 / 6, DIRECTIONS * bench.k)
    difference = m.covariance(0) - m.within
    _, one = bench.timed(lambda: torch.linalg.eigvalsh(difference))
    estimate = f"estimated: {one.seconds:.3g} s per class and direction, re-projection not counted"
    theirs = Cost(DIRECTIONS * bench.k * one.seconds)
    return [
        Row("ALF-QLEACE fit", "ours", ours, floor, note),
        Row("ALF-QLEACE fit", "eigenvalues of all classes", theirs, note=estimate),
    ]


def apply(bench: EraserBenchmark) -> list[Row]:
    rows, m = [], bench.moments
    x = bench.x.float() / 255
    maps = torch.eye(bench.d, dtype=torch.float64, device=bench.device).expand(bench.k, -1, -1)
    qleace = QleaceEraser(m.mean, bench.k, m.means, maps, 0.0)  # any maps cost the same
    exact = LeaceEraser.from_moments(m)
    leace_flops = 4 * len(x) * bench.d * (bench.k - 1)
    for name, eraser, flops in (
        ("LEACE apply", exact, leace_flops),
        ("LEACE apply", exact.to(torch.float32), leace_flops),
        ("QLEACE apply", qleace, 2 * len(x) * bench.d**2),
    ):
        erased, cost = bench.timed(lambda eraser=eraser: eraser(x, bench.z))
        inside = eraser.mean.dtype
        note = f"{len(x) / cost.seconds:,.0f} images/s, {str(inside)[6:]} inside"
        if name == "LEACE apply":
            note += f", {_gap_left(m, erased, bench.z)}"
        rate = bench.rate if inside == torch.float64 else bench.single_rate
        rows.append(Row(name, f"ours, {str(inside)[6:]}", cost, bench.floor(flops, 2 * x.nbytes, rate), note))
    return rows


PARTS: dict[str, Callable[..., list[Row]]] = {
    each.__name__: each
    for each in (
        moments,
        streaming,
        from_data,
        layers,
        products,
        leace,
        qleace,
        alf_qleace,
        apply,
    )
}


if __name__ == "__main__":
    raise SystemExit(main())
