"""Seconds, memory and exactness of every eraser, beside the public packages, on the same data in one process.

    uv run --group bench python -m scripts.benchmarks.erasers --dim 768
    uv run --group bench python -m scripts.benchmarks.erasers --dim 3072

Statistics and erasers are timed apart. Floors are the FLOPs of the products that the result needs, at the rate of a
square product of the same size measured first.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from erasure import (
    AlfQleaceEraser,
    ClassMoments,
    Eraser,
    GradientEraser,
    LeaceEraser,
    OracleLeaceEraser,
    QleaceEraser,
    RandomEraser,
)
from erasure.progress import console
from scripts.benchmarks import peers
from scripts.benchmarks.benchmark import (
    Cost,
    Result,
    Row,
    machine,
    matmul_rate,
    measured,
    read_bandwidth,
    save,
    show,
    timed,
)
from scripts.benchmarks.data import CIFAR_JPEG, labelled_images, side_of

PEER_STEPS = 7  # of concept-erasure's fixed point on CIFAR's covariances, counted at d = 768
DIRECTIONS = 15  # the paper's CIFARNet intervention has rank d - 15 (Figure 1)


def main(arguments: Sequence[str] | None = None) -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m scripts.benchmarks.erasers", description=__doc__, formatter_class=formatter
    )
    parser.add_argument("--dim", type=int, default=768, help="3 x side x side (default: %(default)s)")
    parser.add_argument("--classes", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--samples", type=int, default=50_000, help="default: %(default)s")
    parser.add_argument("--device", default="cpu", help="default: %(default)s")
    parser.add_argument("--images", type=Path, default=CIFAR_JPEG, help="real images, where present: %(default)s")
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), default=sorted(PARTS), help="default: all")
    parser.add_argument("--full-peer", action="store_true", help="run the peer's QLEACE in full above d = 1,024")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    options = parser.parse_args(arguments)
    try:
        side = side_of(options.dim)
    except ValueError as error:
        parser.error(str(error))
    if options.classes < 2 or options.samples < 2 * options.classes:
        parser.error(f"--samples={options.samples}, --classes={options.classes}: need two images for each of 2 classes")
    bench = Bench(options, side)
    rows: list[Row] = []
    for name in [part for part in PARTS if part in options.only]:
        console().print(f"{name} …", style="dim")
        rows += PARTS[name](bench)
    show(bench.title, rows)
    if options.json:
        save(options.json, {"title": bench.title, "dim": options.dim, "classes": options.classes}, rows)
    return 0


class Bench:
    """The data, its moments, and the machine's matmul rate."""

    def __init__(self, options: argparse.Namespace, side: int) -> None:
        self.device = torch.device(options.device)
        self.full_peer = options.full_peer or options.dim <= 1024
        x, z, what = labelled_images(side, options.samples, options.classes, options.images)
        self.x, self.z = x.flatten(1).to(self.device), z.to(self.device)
        self.k, self.d = options.classes, options.dim
        self.rate = matmul_rate(self.d, torch.float64, self.device)
        self.single_rate = matmul_rate(self.d, torch.float32, self.device)
        self.bandwidth = read_bandwidth(self.device)
        self.moments = ClassMoments.fit(self.x, self.z, num_classes=self.k).rescale(1 / 255)
        self.title = (
            f"{what}, d = {self.d:,}, k = {self.k}\n{machine(self.device)}\nfloat64 product "
            f"{self.rate / 1e9:,.0f} GFLOP/s, float32 {self.single_rate / 1e9:,.0f} GFLOP/s, "
            f"memory {self.bandwidth / 1e9:.0f} GB/s"
        )

    def timed(self, work: Callable[[], Result]) -> tuple[Result, Cost]:
        return timed(lambda _: work(), lambda: None, self.device)

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
    error /= float(slow.total.abs().max())
    flops = len(bench.x) * bench.d**2  # half of a product: it is symmetric
    return [
        Row("moments", "ours, uint8", ours.seconds, 1, ours.peak_mib, flops / bench.single_rate, "exact integer sums"),
        Row(
            "moments",
            "float64 products",
            plain.seconds,
            plain.seconds / ours.seconds,
            plain.peak_mib,
            flops / bench.rate,
            f"largest difference {error:.0e} of the largest covariance",
        ),
    ]


def leace(bench: Bench) -> list[Row]:
    m = bench.moments
    eraser, ours = bench.timed(lambda: LeaceEraser.from_moments(m))
    # one Cholesky factor (d³/3 FLOPs); the rest is O(k d²)
    rows = [
        Row(
            "LEACE fit",
            "ours",
            ours.seconds,
            1,
            ours.peak_mib,
            bench.floor(1 / 6),
            f"mean gap {_mean_gap(m, eraser.left @ eraser.right):.0e}",
        )
    ]
    if not peers.installed("concept_erasure"):
        return [*rows, Row("LEACE fit", "concept-erasure", None, note=peers.MISSING)]
    peer, theirs = timed(lambda fitter: fitter.eraser, lambda: peers.leace_fitter(m), bench.device)
    gap = _mean_gap(m, peer.proj_left @ peer.proj_right)
    return [*rows, _peer("LEACE fit", "concept-erasure", theirs, ours.seconds, f"mean gap {gap:.0e}")]


def qleace(bench: Bench) -> list[Row]:
    m, k = bench.moments, bench.k
    eraser, ours = bench.timed(lambda: QleaceEraser.from_moments(m))
    gap, edit = _covariance_gap(m, eraser.maps), _edit(m, eraser.maps)
    covariances_mib = k * bench.d**2 * 8 / 2**20
    memory = "" if ours.peak_mib is None else f", {ours.peak_mib / covariances_mib:.2f} x class covariances of memory"
    # Per class a Cholesky factor (1/6 of a product), M = FᵀR and F U (1/2 each, F is triangular), a polar factor by
    # no fewer than 3 Halley steps of a symmetric product, a Cholesky factor and two triangular solves (1/2 + 1/6 + 1),
    # and the map (1 + 1/2).
    floor = bench.floor(k * (1 / 6 + 1 + 5 + 1.5))
    note = f"covariance gap {gap:.1e}, edit {edit:.8f}{memory}"
    rows = [Row("QLEACE fit", "ours", ours.seconds, 1, ours.peak_mib, floor, note)]
    del eraser
    if not peers.installed("concept_erasure"):
        rows.append(Row("QLEACE fit", "concept-erasure", None, note=peers.MISSING))
        return rows + _barycenter(bench, ours.seconds)
    if bench.full_peer:
        peer, theirs = timed(lambda fitter: fitter.eraser, lambda: peers.quadratic_fitter(m), bench.device)
        maps = peer.ot_maps.mT
        note = f"covariance gap {_covariance_gap(m, maps):.1e}, edit {_edit(m, maps):.8f}"
        rows.append(_peer("QLEACE fit", "concept-erasure", theirs, ours.seconds, note))
        del peer, maps
    else:
        steps = peers.QuadraticSteps.time(m)
        seconds = steps.total(k, PEER_STEPS)
        note = (
            f"estimated: {PEER_STEPS} steps of {steps.per_step:.3g} s and {steps.per_class:.3g} s per class, then maps "
            f"of {steps.per_map:.3g} s per class; --full-peer runs it"
        )
        rows.append(Row("QLEACE fit", "concept-erasure", seconds, seconds / ours.seconds, note=note))
    return rows + _barycenter(bench, ours.seconds)


def _barycenter(bench: Bench, ours_seconds: float) -> list[Row]:
    """POT has the barycenter only, without the maps."""
    if not peers.installed("ot"):
        return [Row("barycenter only", "POT", None, note=peers.MISSING)]
    if not bench.full_peer:
        return [Row("barycenter only", "POT", None, note="left out at this size: --full-peer runs it")]
    with measured(bench.device) as theirs:
        found = peers.barycenter(bench.moments, PEER_STEPS)
    return [
        _peer(
            "barycenter only",
            "POT",
            theirs,
            ours_seconds,
            f"{PEER_STEPS} rounds; trace {float(found.trace()):.6f}; no maps",
        )
    ]


def alf_qleace(bench: Bench) -> list[Row]:
    m = bench.moments
    eraser, ours = bench.timed(lambda: AlfQleaceEraser.from_moments(m, num_directions=DIRECTIONS, target=None))
    fall = eraser.norms[-1] / eraser.norms[0]
    note = f"{DIRECTIONS} directions after LEACE, worst norm down to {fall:.3f}"
    # LEACE first, then at least one product of every covariance with a vector per direction (bound by memory)
    reads = DIRECTIONS * bench.k * bench.d**2 * 8 / bench.bandwidth
    rows = [Row("ALF-QLEACE fit", "ours", ours.seconds, 1, ours.peak_mib, bench.floor(1 / 6) + reads, note)]
    difference = m.covariance(0) - m.within
    _, one = bench.timed(lambda: torch.linalg.eigvalsh(difference))
    seconds = DIRECTIONS * bench.k * one.seconds
    note = f"estimated: {one.seconds:.3g} s per class and direction, re-projection not counted"
    return [*rows, Row("ALF-QLEACE fit", "eigenvalues of all classes", seconds, seconds / ours.seconds, note=note)]


def others(bench: Bench) -> list[Row]:
    """Oracle LEACE and random projection: nothing to gain, listed for completeness."""
    rows = []
    fits: list[tuple[str, Callable[[], Eraser]]] = [
        ("oracle LEACE fit", lambda: OracleLeaceEraser.from_moments(bench.moments)),
        ("random fit", lambda: RandomEraser.from_moments(bench.moments, num_directions=DIRECTIONS)),
    ]
    for name, fit in fits:
        _, cost = bench.timed(fit)
        rows.append(Row(name, "ours", cost.seconds, 1, cost.peak_mib))
    return rows


def gradient(bench: Bench) -> list[Row]:
    """Seconds per L-BFGS iteration: it takes some hundreds."""
    iterations = 5
    eraser = GradientEraser.from_moments(bench.moments, weights=(120.0, 12.0, 1.0), max_iterations=iterations)
    x = bench.x.float() / 255
    with measured(bench.device) as cost:
        eraser(x, bench.z)
    # covariance (symmetric, half of 2 n d²) and its gradient (2 n d²) per evaluation
    floor = 3 * len(x) * bench.d**2 / bench.single_rate
    note = f"all {len(x):,} images; mean of {iterations}"
    return [Row("gradient, 1 iteration", "ours", cost.seconds / iterations, 1, cost.peak_mib, floor, note)]


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
        rows.append(Row(name, "ours", cost.seconds, 1, cost.peak_mib, flops / bench.rate, note))
    return rows


PARTS: dict[str, Callable[[Bench], list[Row]]] = {
    "moments": moments,
    "leace": leace,
    "qleace": qleace,
    "alf_qleace": alf_qleace,
    "others": others,
    "gradient": gradient,
    "apply": apply,
}


def _peer(what: str, who: str, theirs, ours_seconds: float, note: str) -> Row:
    return Row(what, who, theirs.seconds, theirs.seconds / ours_seconds, theirs.peak_mib, note=note)


def _mean_gap(m: ClassMoments, projection: Tensor) -> float:
    """max_j ‖(I - P)(m_j - m̄)‖ / √tr Σ_xx of an eraser x - P (x - m̄)."""
    shifts = m.means - m.mean
    return float((shifts - shifts @ projection.T).norm(dim=1).max() / m.total.trace().sqrt())


def _covariance_gap(m: ClassMoments, maps: Tensor) -> float:
    """max_j ‖A_j Σ_j A_jᵀ - average‖_F / ‖Σ_xx‖_F, for A_jᵀ [k, d, d]."""
    average = torch.zeros_like(maps[0])
    for j, weight in enumerate(m.weights.tolist()):
        average.add_(maps[j].T @ m.covariance(j) @ maps[j], alpha=weight)
    gaps = [float((maps[j].T @ m.covariance(j) @ maps[j] - average).norm()) for j in range(m.num_classes)]
    return max(gaps) / float(m.total.norm())


def _edit(m: ClassMoments, maps: Tensor) -> float:
    """E‖x' - x‖² / tr Σ_xx of the covariance part; moving the means costs the same for everybody."""
    edit = 0.0
    for j, weight in enumerate(m.weights.tolist()):
        change = maps[j].T - torch.eye(m.dim, dtype=maps.dtype, device=maps.device)
        edit += weight * float(((change @ m.covariance(j)) * change).sum())
    return edit / float(m.total.trace())


if __name__ == "__main__":
    raise SystemExit(main())
