"""Seconds, gaps and edits of erasers fitted from moments, by us and by public packages on the same statistics."""

import argparse
import importlib.util
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from erasure import ClassMoments, LeaceEraser, QleaceEraser
from scripts.benchmarks.benchmark import Cost, Result, Row, machine, matmul_rate, measured, memory_rate, timed
from scripts.benchmarks.images import labelled_images, side_of

PEER_STEPS = 7  # of concept-erasure's fixed point on CIFAR's covariances, counted at d = 768
STREAM = 500  # batches of 64 hidden states
EXAMPLES = 20_000  # of `from_data`
MISSING = "not installed: uv run --group bench python -m scripts.benchmarks.erasers"
LEFT_OUT = "left out at this size: --full-peer runs it"


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

    def floor(self, products: float) -> float:
        """Return the seconds of float64 products of [d, d] matrices (2 d³ FLOPs each)."""
        return products * 2 * self.d**3 / self.rate


def streaming(bench: EraserBenchmark) -> list[Row]:
    """Accumulate moments of batches of 64 vectors of 1,024 dimensions, as from a hook in a network."""
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


def from_data(bench: EraserBenchmark) -> list[Row]:
    x, z = bench.x[:EXAMPLES].double() / 255, bench.z[:EXAMPLES]
    _, ours = bench.timed(lambda: LeaceEraser.fit(x, z, num_classes=bench.k))

    def theirs() -> tuple[Cost, str]:
        from concept_erasure import LeaceFitter  # pyright: ignore[reportMissingImports]

        return bench.timed(lambda: LeaceFitter.fit(x, torch.nn.functional.one_hot(z, bench.k)).eraser)[1], "float64"

    work = f"LEACE from {len(x):,} float64 vectors"
    return [
        Row(work, "ours", ours, len(x) * bench.d**2 / bench.rate, "float64"),
        bench.peer(work, "concept-erasure", "concept_erasure", theirs, slow=False),
    ]


def leace(bench: EraserBenchmark) -> list[Row]:
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

    def pot() -> tuple[Cost, str]:
        """Fit the barycenter only, without the maps; POT's default is 1,000 rounds."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ot  # pyright: ignore[reportMissingImports]
        with measured(bench.device) as cost:
            barycenter: Any = ot.gaussian.bures_wasserstein_barycenter(
                m.means, m.covariances, m.weights, num_iter=PEER_STEPS
            )
        return cost, f"{PEER_STEPS} rounds; trace {float(barycenter[1].trace()):.6f}; no maps"

    # Per class a Cholesky factor (1/6 of a product), M = FᵀR and F U (1/2 each, F is triangular), a polar factor by
    # no fewer than 3 Halley steps of a symmetric product, a Cholesky factor and two triangular solves (1/2 + 1/6 + 1),
    # and the map (1 + 1/2).
    return [
        Row("QLEACE fit", "ours", ours, bench.floor(k * (1 / 6 + 1 + 5 + 1.5)), note),
        bench.peer("QLEACE fit", "concept-erasure", "concept_erasure", theirs, slow=True),
        bench.peer("QLEACE fit", "POT, barycenter only", "ot", pot, slow=True),
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
