"""Seconds, memory and exactness of every eraser and of the public packages, on the same data in one process.

    uv run --group bench python -m scripts.benchmarks.erasers --dim 768
    uv run --group bench python -m scripts.benchmarks.erasers --dim 3072 --full-peer --images DIR

Statistics and erasers are timed separately. Floors are the FLOPs of the products that the result needs, at the rate of
a square product of the same size measured first.
"""

import copy
import re
from collections.abc import Callable, Sequence
from functools import partial

import torch

from erasure import AlfQleaceEraser, ClassMoments, GradientEraser, LeaceEraser, QleaceEraser, erase, fit_layers
from erasure.certificate import certify
from erasure.order_spectra import order_spectrum
from erasure.progress import console
from scripts.benchmarks.benchmark import Cost, Row, argument_parser, finish, measured
from scripts.benchmarks.eraser_fits import EraserBenchmark, from_data, leace, qleace, streaming

DIRECTIONS = 15  # the paper's CIFARNet intervention has rank d - 15 (Figure 1)
IMAGES = 32  # in a ViT-tiny's batch
FROM_IMAGES = 500  # iterations of the gradient eraser from the images
SPECTRUM = 10_000  # examples of the order spectrum; its cost is quadratic


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
        rows += PARTS[name](bench)
    return finish(options, bench.title, rows)


def moments(bench: EraserBenchmark) -> list[Row]:
    """Compare exact class moments of 8-bit images with float64 products."""
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


def hook(bench: EraserBenchmark) -> list[Row]:
    """Compare a ViT-tiny (random weights) with and without erasure at its twelve blocks."""
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


def alf_qleace(bench: EraserBenchmark) -> list[Row]:
    m = bench.moments
    eraser, ours = bench.timed(lambda: AlfQleaceEraser.from_moments(m, num_directions=DIRECTIONS, target=None))
    note = f"{DIRECTIONS} directions after LEACE, worst norm down to {eraser.norms[-1] / eraser.norms[0]:.3f}"
    # LEACE, then at least one product of every covariance with a vector per direction (memory-bound)
    reads = DIRECTIONS * bench.k * bench.d**2 * 8 / bench.bandwidth
    difference = m.covariance(0) - m.within
    _, one = bench.timed(lambda: torch.linalg.eigvalsh(difference))
    estimate = f"estimated: {one.seconds:.3g} s per class and direction, re-projection not counted"
    theirs = Cost(DIRECTIONS * bench.k * one.seconds)
    return [
        Row("ALF-QLEACE fit", "ours", ours, bench.floor(1 / 6) + reads, note),
        Row("ALF-QLEACE fit", "eigenvalues of all classes", theirs, note=estimate),
    ]


def gradient(bench: EraserBenchmark) -> list[Row]:
    """Optimise one class, from the optimum without a range and from the images."""
    ours = GradientEraser.from_moments(bench.moments, weights=(150.0, 24.0, 1.0), low=0.0, high=1.0)
    longer = copy.copy(ours)
    longer.max_iterations = FROM_IMAGES
    x, z = bench.x[bench.z == 0].float() / 255, bench.z[bench.z == 0]
    loss = partial(ours._loss, original=x, mean=ours.mean.to(x), covariance=ours.covariance.to(x))
    erased, cost = bench.timed(lambda: ours(x, z))
    with measured(bench.device) as slow:
        theirs = longer._minimise(loss, x, lambda *_: None)
    # covariance (symmetric, half of 2 n d²) and its gradient (2 n d²) per evaluation
    floor, work = 3 * len(x) * bench.d**2 / bench.single_rate, "gradient, one class"
    return [
        Row(work, who, spent, iterations * floor, f"{len(x):,} images, loss {loss(images)[0] / len(x):.4f}")
        for who, spent, iterations, images in (
            (f"ours, {ours.max_iterations} iterations", cost, ours.max_iterations, erased),
            (f"{FROM_IMAGES} iterations from the images", slow, FROM_IMAGES, theirs),
        )
    ]


def apply(bench: EraserBenchmark) -> list[Row]:
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


def certificate(bench: EraserBenchmark) -> list[Row]:
    """Measure gaps and R² of one unchanged split."""
    x = bench.x.float() / 255
    _, cost = bench.timed(lambda: certify(x, x, bench.z, bench.moments))
    return [Row("certificate", "ours", cost, len(x) * bench.d**2 / bench.rate)]


def spectrum(bench: EraserBenchmark) -> list[Row]:
    """Measure orders 1 to 6 in 100 directions, with errors and shuffled labels."""
    n, orders, shuffles = min(SPECTRUM, len(bench.x)), 6, 20
    x, z = bench.x[:n].double() / 255, bench.z[:n]
    asked = {"directions": [100], "orders": orders, "permutations": shuffles, "most": n}
    (order_spectra,), cost = bench.timed(lambda: order_spectrum(x, z, **asked))
    # per pair (half of them): product, recurrence, and sums of every kernel over classes and shuffled classes
    each = 2 * order_spectra.directions + 9 * orders + 2 * bench.k * (1 + shuffles) * orders
    note = f"{n:,} x {order_spectra.directions}, {orders} orders, {shuffles} shuffles"
    return [Row("order spectrum", "ours", cost, n**2 / 2 * each / bench.rate, note)]


PARTS: dict[str, Callable[[EraserBenchmark], list[Row]]] = {
    each.__name__: each
    for each in (moments, streaming, from_data, hook, leace, qleace, alf_qleace, gradient, apply, certificate, spectrum)
}


if __name__ == "__main__":
    raise SystemExit(main())
