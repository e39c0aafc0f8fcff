"""Seconds, memory and exactness of every eraser, beside the public packages, on the same data in one process.

    uv run --group bench python -m scripts.benchmarks.erasers --dim 768
    uv run --group bench python -m scripts.benchmarks.erasers --dim 3072 --full-peer

Statistics and erasers are timed apart. Floors are the FLOPs of the products that the result needs, at the rate of a
square product of the same size measured first.
"""

import argparse
import importlib.util
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from erasure import (
    AlfQleaceEraser,
    ClassMoments,
    GradientEraser,
    LeaceEraser,
    QleaceEraser,
    erase,
    fit_layers,
)
from erasure.certificate import certify
from erasure.hermite import kernel_sum, third_mean, third_slope
from erasure.progress import console
from erasure.spectrum import Whitening, order_spectrum
from scripts.benchmarks.benchmark import (
    Cost,
    Result,
    Row,
    finish,
    machine,
    matmul_rate,
    measured,
    memory_rate,
    parser,
    timed,
)
from scripts.benchmarks.data import CIFAR_JPEG, labelled_images, side_of

PEER_STEPS = 7  # of concept-erasure's fixed point on CIFAR's covariances, counted at d = 768
DIRECTIONS = 15  # the paper's CIFARNet intervention has rank d - 15 (Figure 1)
STREAM = 500  # batches of 64 hidden states
IMAGES = 32  # that a ViT-tiny looks at
SPECTRUM = 10_000  # examples of the order spectrum, whose cost is quadratic in them
MISSING = "not installed: uv run --group bench python -m scripts.benchmarks.erasers"
LEFT_OUT = "left out at this size: --full-peer runs it"


def main(arguments: Sequence[str] | None = None) -> int:
    sizes = {"dim": 768, "classes": 10, "samples": 50_000, "images": CIFAR_JPEG}
    own = parser("erasers", __doc__, **sizes)
    own.add_argument("--only", nargs="+", choices=sorted(PARTS), default=sorted(PARTS), help="default: all")
    own.add_argument("--full-peer", action="store_true", help="run the peers' QLEACE above d = 1,024, too")
    options = own.parse_args(arguments)
    try:
        side = side_of(options.dim)
    except ValueError as error:
        own.error(str(error))
    if options.classes < 2 or options.samples < 2 * options.classes:
        own.error(f"--samples={options.samples}, --classes={options.classes}: need two images for each of 2 classes")
    bench = Bench(options, side)
    rows: list[Row] = []
    for name in [part for part in PARTS if part in options.only]:
        console().print(f"{name} …", style="dim")
        rows += PARTS[name](bench)
    return finish(options, bench.title, rows)


class Bench:
    """The data, its moments, and the machine's rates."""

    def __init__(self, options: argparse.Namespace, side: int) -> None:
        self.device = torch.device(options.device)
        self.full_peer = options.full_peer or options.dim <= 1024
        x, z, what = labelled_images(side, options.samples, options.classes, options.images)
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
        """Somebody else's row, where their package is installed and not too slow."""
        if not installed(package) or (slow and not self.full_peer):
            return Row(what, who, None, note=LEFT_OUT if installed(package) else MISSING)
        cost, note = run()
        return Row(what, who, cost, note=note)

    def floor(self, products: float) -> float:
        """Seconds of so many float64 products of [d, d] matrices (2 d³ FLOPs each)."""
        return products * 2 * self.d**3 / self.rate


def moments(bench: Bench) -> list[Row]:
    """Class moments of 8-bit images, exact, against float64 products of the same code."""
    exact, ours = bench.timed(lambda: ClassMoments.fit(bench.x, bench.z, num_classes=bench.k))
    with measured(bench.device) as plain:
        slow = ClassMoments(bench.d, bench.k, device=bench.device)
        for rows in torch.arange(len(bench.x), device=bench.device).split(4096):
            slow.update(bench.x[rows].double(), bench.z[rows])
    error = max(float((exact.covariance(j) - slow.covariance(j)).abs().max()) for j in range(bench.k))
    note = f"largest difference {error / float(slow.total.abs().max()):.0e} of the largest covariance"
    flops = len(bench.x) * bench.d**2  # half of a product: it is symmetric
    return [
        Row("moments", "ours, uint8", ours, flops / bench.single_rate, "exact integer sums"),
        Row("moments", "float64 products", plain, flops / bench.rate, note),
    ]


def streaming(bench: Bench) -> list[Row]:
    """Moments of batches of 64 vectors of 1,024 dimensions: what a hook in a network gives."""
    x, z = torch.randn(STREAM, 64, 1024, device=bench.device), torch.randint(10, (STREAM, 64), device=bench.device)

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

    flops, work = x[..., 0].numel() * 1024**2, f"{STREAM} batches of 64 x 1,024"  # half of a product: it is symmetric
    single = {"pooled": True, "precision": torch.float32}
    return [
        Row(work, "ours, class covariances", ours(), flops / bench.rate, "float64"),
        Row(work, "ours, pooled", ours(pooled=True), flops / bench.rate, "float64"),
        Row(work, "ours, pooled", ours(**single), flops / bench.single_rate, "float32"),
        bench.peer(work, "concept-erasure", "concept_erasure", theirs, slow=False),
    ]


def hook(bench: Bench) -> list[Row]:
    """A ViT-tiny (random weights) whose twelve blocks are erased, beside itself."""
    import timm

    model = timm.create_model("vit_tiny_patch16_224").eval().to(bench.device)
    images, z = torch.randn(IMAGES, 3, 224, 224, device=bench.device), torch.arange(IMAGES) % 10
    blocks = [name for name, _ in model.named_modules() if re.fullmatch(r"blocks\.\d+", name)]
    fitted = fit_layers(model, [(images, z)], blocks, num_classes=10)
    with torch.no_grad():
        _, plain = bench.timed(lambda: model(images))
        with erase(model, fitted):
            _, scrubbed = bench.timed(lambda: model(images))
    work = f"forward pass of {IMAGES} images, ViT-tiny"
    note = f"{scrubbed.seconds / plain.seconds - 1:.1%} more"
    return [Row(work, "as it is", plain), Row(work, "every block erased (LEACE)", scrubbed, note=note)]


def leace(bench: Bench) -> list[Row]:
    m = bench.moments
    eraser, ours = bench.timed(lambda: LeaceEraser.from_moments(m))

    def theirs() -> tuple[Cost, str]:
        peer, cost = bench.timed(lambda fitter: fitter.eraser, lambda: [leace_fitter(m)])
        return cost, _mean_gap(m, peer.proj_left @ peer.proj_right)

    # one Cholesky factor (d³/3 FLOPs); the rest is O(k d²)
    return [
        Row("LEACE fit", "ours", ours, bench.floor(1 / 6), _mean_gap(m, eraser.left @ eraser.right)),
        bench.peer("LEACE fit", "concept-erasure", "concept_erasure", theirs, slow=False),
    ]


def qleace(bench: Bench) -> list[Row]:
    m, k = bench.moments, bench.k
    eraser, ours = bench.timed(lambda: QleaceEraser.from_moments(m))
    note = _gap_and_edit(m, eraser.maps)
    if ours.peak_mib is not None:
        note += f", {ours.peak_mib / (k * bench.d**2 * 8 / 2**20):.2f} x class covariances of memory"
    del eraser

    def theirs() -> tuple[Cost, str]:
        peer, cost = bench.timed(lambda fitter: fitter.eraser, lambda: [quadratic_fitter(m)])
        return cost, _gap_and_edit(m, peer.ot_maps.mT)

    def pot() -> tuple[Cost, str]:
        """The barycenter only, without the maps; its own rule allows 1,000 rounds."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ot  # pyright: ignore[reportMissingImports]
        with measured(bench.device) as cost:
            found: Any = ot.gaussian.bures_wasserstein_barycenter(
                m.means, m.covariances, m.weights, num_iter=PEER_STEPS
            )
        return cost, f"{PEER_STEPS} rounds; trace {float(found[1].trace()):.6f}; no maps"

    # Per class a Cholesky factor (1/6 of a product), M = FᵀR and F U (1/2 each, F is triangular), a polar factor by
    # no fewer than 3 Halley steps of a symmetric product, a Cholesky factor and two triangular solves (1/2 + 1/6 + 1),
    # and the map (1 + 1/2).
    return [
        Row("QLEACE fit", "ours", ours, bench.floor(k * (1 / 6 + 1 + 5 + 1.5)), note),
        bench.peer("QLEACE fit", "concept-erasure", "concept_erasure", theirs, slow=True),
        bench.peer("QLEACE fit", "POT, barycenter only", "ot", pot, slow=True),
    ]


def alf_qleace(bench: Bench) -> list[Row]:
    m = bench.moments
    eraser, ours = bench.timed(lambda: AlfQleaceEraser.from_moments(m, num_directions=DIRECTIONS, target=None))
    note = f"{DIRECTIONS} directions after LEACE, worst norm down to {eraser.norms[-1] / eraser.norms[0]:.3f}"
    # LEACE first, then at least one product of every covariance with a vector per direction (bound by memory)
    reads = DIRECTIONS * bench.k * bench.d**2 * 8 / bench.bandwidth
    difference = m.covariance(0) - m.within
    _, one = bench.timed(lambda: torch.linalg.eigvalsh(difference))
    estimate = f"estimated: {one.seconds:.3g} s per class and direction, re-projection not counted"
    theirs = Cost(DIRECTIONS * bench.k * one.seconds)
    return [
        Row("ALF-QLEACE fit", "ours", ours, bench.floor(1 / 6) + reads, note),
        Row("ALF-QLEACE fit", "eigenvalues of all classes", theirs, note=estimate),
    ]


def gradient(bench: Bench) -> list[Row]:
    """Seconds per L-BFGS iteration: it takes some hundreds."""
    iterations = 5
    eraser = GradientEraser.from_moments(bench.moments, weights=(120.0, 12.0, 1.0), max_iterations=iterations)
    x = bench.x.float() / 255
    with measured(bench.device) as cost:
        eraser(x, bench.z)
    # covariance (symmetric, half of 2 n d²) and its gradient (2 n d²) per evaluation
    floor = 3 * len(x) * bench.d**2 / bench.single_rate
    each = Cost(cost.seconds / iterations, cost.peak_mib)
    return [Row("gradient, 1 iteration", "ours", each, floor, f"all {len(x):,} images; mean of {iterations}")]


def apply(bench: Bench) -> list[Row]:
    """Erasing float32 images."""
    rows, m = [], bench.moments
    x = bench.x.float() / 255
    maps = torch.eye(bench.d, dtype=torch.float64, device=bench.device).expand(bench.k, -1, -1)
    qleace = QleaceEraser(m.mean, bench.k, m.means, maps, 0.0)  # any maps cost the same
    for name, eraser, flops in (
        ("LEACE apply", LeaceEraser.from_moments(m), 4 * len(x) * bench.d * (bench.k - 1)),
        ("QLEACE apply", qleace, 2 * len(x) * bench.d**2),
    ):
        _, cost = bench.timed(lambda eraser=eraser: eraser(x, bench.z))
        note = f"{len(x) / cost.seconds:,.0f} images/s, float64 inside"
        rows.append(Row(name, "ours", cost, flops / bench.rate, note))
    return rows


def certificate(bench: Bench) -> list[Row]:
    """Gaps and R² of one split, here of images that nothing was done to."""
    x = bench.x.float() / 255
    _, cost = bench.timed(lambda: certify(x, x, bench.z, bench.moments))
    return [Row("certificate", "ours", cost, len(x) * bench.d**2 / bench.rate)]


def spectrum(bench: Bench) -> list[Row]:
    """Orders 1 to 6 in 100 directions, beside whole kernels by the recurrence as Mehler's formula has it."""
    n, orders, shuffles = min(SPECTRUM, len(bench.x)), 6, 20
    x, z = bench.x[:n].double() / 255, bench.z[:n]
    (found,), ours = bench.timed(
        lambda: order_spectrum(x, z, directions=[100], orders=orders, permutations=shuffles, most=n)
    )
    white = Whitening.fit(x, found.directions)(x)[:, : found.directions]
    hot = torch.nn.functional.one_hot(z, bench.k).double()
    gaps, whole = bench.timed(lambda: _whole_gaps(white, hot, orders))
    apart = float((gaps / found.gaps - 1).abs().max())
    # of half the pairs: their product, the recurrence, and every kernel's sums over classes, shuffled ones, too
    each = 2 * found.directions + 9 * orders + 2 * bench.k * (1 + shuffles) * orders
    note = f"{n:,} x {found.directions}, {orders} orders, {shuffles} shuffles"
    return [
        Row("order spectrum", "ours", ours, n**2 / 2 * each / bench.rate, note),
        Row("order spectrum", "whole kernels", whole, note=f"no error, no shuffles; gaps differ by {apart:.0e}"),
    ]


def third(bench: Bench) -> list[Row]:
    """An evaluation of the order-3 term of `gradient_orders`: third tensors beside kernels of all pairs."""
    n, r = min(SPECTRUM, len(bench.x)), 30
    y = torch.randn(n, r, device=bench.device)
    classes = [y[bench.z[:n] == j] for j in range(bench.k)]

    def tensors() -> Tensor:
        return torch.cat([third_slope(own, third_mean(own)) for own in classes])

    def kernels() -> Tensor:
        weights = [0.0, 0.0, 1.0]
        return kernel_sum(y, y, weights)[1] - torch.cat([kernel_sum(own, own, weights)[1] for own in classes])

    work = f"order 3, {n:,} x {r}"
    return [
        Row(work, "third tensors", bench.timed(tensors)[1], 4 * n * r**3 / bench.single_rate, "n r³"),
        Row(work, "kernels of pairs", bench.timed(kernels)[1], note="n²"),
    ]


def _whole_gaps(x: Tensor, hot: Tensor, orders: int) -> Tensor:
    """Gaps [orders] from n x n kernels p k_p = Σ_m m L_m k_(p-m), L_m = x·y or r/m - (|x|² + |y|²)/2 by turns."""
    r = x.shape[1]
    products, squares = x @ x.T, (x.square().sum(1)[:, None] + x.square().sum(1)) / 2
    kernels, means, gaps = [torch.ones_like(products)], hot / hot.sum(0), []
    for p in range(1, orders + 1):
        terms = (m * (products if m % 2 else r / m - squares) * kernels[p - m] for m in range(1, p + 1))
        kernels.append(sum(terms, torch.zeros_like(products)) / p)
        between = (hot.mean(0) * (means.T @ kernels[-1] @ means).diagonal()).sum() - kernels[-1].mean()
        gaps.append(between / kernels[-1].diagonal().mean())
    return torch.stack(gaps)


PARTS: dict[str, Callable[[Bench], list[Row]]] = {
    each.__name__: each
    for each in (moments, streaming, hook, leace, qleace, alf_qleace, gradient, apply, certificate, spectrum, third)
}


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def leace_fitter(m: ClassMoments):
    """concept-erasure's LEACE with our statistics; its eraser is computed on first use of `.eraser`."""
    from concept_erasure import LeaceFitter  # pyright: ignore[reportMissingImports]

    n = torch.tensor(m.n, device=m.means.device)
    own = {"mean_x": m.mean, "mean_z": m.weights, "n": n, "sigma_xx_": m.total * m.n, "sigma_xz_": m.cross * m.n}
    return _filled(LeaceFitter, m, own)


def quadratic_fitter(m: ClassMoments):
    """concept-erasure's QLEACE with our statistics."""
    from concept_erasure import QuadraticFitter  # pyright: ignore[reportMissingImports]

    own = {"mean_x": m.means, "n": m.counts.double(), "sigma_xx_": m.covariances * m.counts[:, None, None]}
    return _filled(QuadraticFitter, m, own)


def _filled(kind: type, m: ClassMoments, statistics: Mapping[str, Tensor]):
    fitter = kind(m.dim, m.num_classes, shrinkage=False, dtype=torch.float64, device=m.means.device)
    for name, value in statistics.items():
        setattr(fitter, name, value)
    return fitter


def _mean_gap(m: ClassMoments, projection: Tensor) -> str:
    """max_j ‖(I - P)(m_j - m̄)‖ / √tr Σ_xx of an eraser x - P (x - m̄)."""
    shifts = m.means - m.mean
    return f"mean gap {float((shifts - shifts @ projection.T).norm(dim=1).max() / m.total.trace().sqrt()):.0e}"


def _gap_and_edit(m: ClassMoments, maps: Tensor) -> str:
    return f"covariance gap {covariance_gap(m, maps):.1e}, edit {edit_size(m, maps):.8f}"


def covariance_gap(m: ClassMoments, maps: Tensor) -> float:
    """max_j ‖A_j Σ_j A_jᵀ - average‖_F / ‖Σ_xx‖_F, for A_jᵀ [k, d, d]."""
    erased = [a.T @ m.covariance(j) @ a for j, a in enumerate(maps)]
    average = sum((w * each for w, each in zip(m.weights, erased, strict=True)), torch.zeros_like(maps[0]))
    return max(float((each - average).norm()) for each in erased) / float(m.total.norm())


def edit_size(m: ClassMoments, maps: Tensor) -> float:
    """E‖x' - x‖² / tr Σ_xx of the covariance part; moving the means costs the same for everybody."""
    edit = 0.0
    for j, weight in enumerate(m.weights.tolist()):
        change = maps[j].T - torch.eye(m.dim, dtype=maps.dtype, device=maps.device)
        edit += weight * float(((change @ m.covariance(j)) * change).sum())
    return edit / float(m.total.trace())


if __name__ == "__main__":
    raise SystemExit(main())
