"""On a GPU every number that the processor asks for is a stop, and every tensor left behind on the CPU an error."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

import erasure
from erasure import (
    AlfQleaceEraser,
    ClassMoments,
    Eraser,
    GradientEraser,
    GradientOrdersEraser,
    IdentityEraser,
    LeaceEraser,
    OracleLeaceEraser,
    PublishedGradientEraser,
    QleaceEraser,
    QuantileEraser,
    RandomEditEraser,
    RandomEraser,
    SplinceEraser,
    TruncatedQleaceEraser,
)  # fmt: skip
from erasure.dataset import LabelledImages, RawImages, Source
from erasure.order_spectra import order_spectrum
from erasure.pipeline import erased_dataset
from erasure.polar import polar_factor
from erasure.store.cache import Cache
from erasure.transport import barycenter, bures_distance, transport_map
from tests.fake_device import DEVICE, Device

ERASERS: dict[type[Eraser], dict] = {
    IdentityEraser: {}, LeaceEraser: {}, OracleLeaceEraser: {}, QleaceEraser: {}, SplinceEraser: {},
    TruncatedQleaceEraser: {}, QuantileEraser: {},
    AlfQleaceEraser: {"num_directions": 2, "target": None}, RandomEraser: {"num_directions": 2},
    RandomEditEraser: {"reference": "leace"},
    GradientEraser: {"weights": (1.0, 1.0, 1.0), "low": -99.0, "high": 99.0, "max_iterations": 5},
    PublishedGradientEraser: {"low": -99.0, "high": 99.0, "max_iterations": 5},
    GradientOrdersEraser: {
        "weights": (1.0, 1.0, 1.0), "order_weight": 1.0, "low": -99.0, "high": 99.0, "max_iterations": 5
    },
}  # fmt: skip


def examples(d: int = 8, k: int = 3, n: int = 600) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    z = torch.arange(n) % k
    scale = 1 + z[:, None] * torch.linspace(0, 1, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale + z[:, None], z


@dataclass(frozen=True, kw_only=True)
class Few(Source):
    """Images of four pixels in three classes."""

    def load(self) -> RawImages:
        x, z = examples(4)
        pixels = (255 * (x - x.min()) / (x.max() - x.min())).to(torch.uint8)
        return RawImages(LabelledImages(pixels.view(-1, 1, 2, 2), z), None, ("a", "b", "c"))

    def content(self) -> str:
        return "seed 0"


def fitted(kind: type[Eraser], d: int, **options) -> tuple[Eraser, int]:
    """On the device, and how often that was waited for."""
    with Device() as device:
        moments = ClassMoments.fit(*(part.to(DEVICE) for part in examples(d)))
        assert moments.n  # no batch waits
        device.waits.clear()
        return kind.from_moments(moments, **options), device.waits.total()


def test_what_waits_is_counted() -> None:
    x = torch.arange(4.0)
    asked: list[Callable[[Tensor], object]] = [
        lambda x: float(x.sum()), lambda x: bool((x > 0).all()), lambda x: x[x > 1], lambda x: x.nonzero(),
        lambda x: x.tolist(), lambda x: x.cpu(), lambda x: torch.tensor([1.0, 2.0], device=x.device),
    ]  # fmt: skip
    with Device() as device:
        x = x.to(DEVICE)
        for ask in asked:
            device.waits.clear()
            ask(x)
            assert device.waits.total() == 1
        device.waits.clear()
        assert (x[1:3].square() + x.sum() + torch.ones(2).to(DEVICE, non_blocking=True)).device == DEVICE
        assert device.waits.total() == 0


def test_every_eraser_is_here() -> None:
    assert {kind for kind in vars(erasure).values() if isinstance(kind, type) and issubclass(kind, Eraser)} == {
        Eraser, *ERASERS
    }  # fmt: skip


@pytest.mark.parametrize("kind", ERASERS)
def test_an_eraser_computes_on_the_device_what_it_computes_on_the_cpu(kind: type[Eraser]) -> None:
    x, z = examples()
    expected = kind.fit(x, z, **ERASERS[kind])(x, z)
    with Device():
        moments = ClassMoments.fit(x, z, device=DEVICE, pooled=kind.any_concept)
        eraser = kind.fit_examples(x, z, moments, **ERASERS[kind])
        assert torch.equal(eraser(x, z), expected)  # streamed from the CPU, and back
        moved = eraser(x.to(DEVICE), z.to(DEVICE))
        assert moved.device == DEVICE
        assert torch.equal(moved.cpu(), expected)


@pytest.mark.parametrize("kind", [LeaceEraser, QleaceEraser, QuantileEraser, PublishedGradientEraser])
def test_a_dataset_is_erased_on_the_device(kind: type[Eraser], tmp_path: Path) -> None:
    """With one map, maps by class, a fit to examples, and no map at all."""
    source = Few(name="few", flip=False, validation_size=None, test_fraction=0.2, split_seed=0)
    options = {"max_iterations": 3} if kind is PublishedGradientEraser else ERASERS[kind]

    def erased(place: str, device: torch.device | str):
        cache = Cache(tmp_path / place)
        return erased_dataset(source, kind, options, dtype=torch.float32, cache=cache, device=device)

    expected = erased("here", "cpu")
    with Device() as device:
        result = erased("there", DEVICE)
    assert device.waits.total() > 10  # it was there
    assert result.certificate == expected.certificate
    for name, part in expected.splits.items():
        assert torch.equal(result.splits[name].images, part.images)


def test_transport_and_spectra_are_computed_on_the_device() -> None:
    x, z = examples()
    covariances = ClassMoments.fit(x, z).covariances
    expected = [transport_map(*covariances[:2]), bures_distance(*covariances[:2]), barycenter(covariances).covariance]
    (spectrum,) = order_spectrum(x, z, directions=[5])
    with Device():
        there = covariances.to(DEVICE)
        results = [transport_map(*there[:2]), bures_distance(*there[:2]), barycenter(there).covariance]
        torch.testing.assert_close([one.cpu() for one in results], expected, rtol=1e-12, atol=1e-12)
        (spectrum_there,) = order_spectrum(x.to(DEVICE), z.to(DEVICE), directions=[5])
        torch.testing.assert_close(spectrum_there.shares.cpu(), spectrum.shares, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("pooled", [False, True])
def test_small_batches_wait_only_when_they_are_multiplied(pooled: bool) -> None:
    x, z = examples(n=6400)
    expected = ClassMoments.fit(x, z, pooled=pooled)
    with Device() as device:
        batches = [*zip(x.to(DEVICE).split(64), z.to(DEVICE).split(64), strict=True)]
        device.waits.clear()
        moments = ClassMoments(8, 3, device=DEVICE, pooled=pooled)
        for i, batch in enumerate(batches):
            moments.update(*batch)
            assert i >= 63 or not device.waits.total()  # 4,096 examples
        means, scatters = moments.means, moments.scatters
        assert 2 <= device.waits.total() <= 20  # for 100 batches
        torch.testing.assert_close(means.cpu(), expected.means, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(scatters.cpu(), expected.scatters, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(
    ("value", "label", "refusal"), [(torch.nan, 0, "not finite .* in example 5"), (0.0, 7, "label 7 is out of range")]
)
def test_a_wrong_batch_on_a_device_is_refused_when_it_is_read_and_left_out(
    value: float, label: int, refusal: str
) -> None:
    x, z = examples(n=192)
    expected = ClassMoments.fit(x[:128], z[:128])
    x[133], z[133] = value or x[133], label or z[133]
    with pytest.raises(ValueError, match=refusal):  # at once on a CPU
        ClassMoments(8, 3).update(x[128:], z[128:])
    with Device():
        moments = ClassMoments(8, 3, device=DEVICE)
        for start in (0, 128, 64):
            part = slice(start, start + 64)
            moments.update(x[part].to(DEVICE), z[part].to(DEVICE))
        with pytest.raises(ValueError, match=refusal):
            _ = moments.means
        torch.testing.assert_close(moments.means.cpu(), expected.means, rtol=1e-12, atol=1e-12)
        assert moments.sizes == expected.sizes
        moments.update(x[128:].to(DEVICE), z[128:].to(DEVICE))
        with pytest.raises(ValueError, match=refusal):  # another dtype ends the collection, and is added all the same
            moments.update(x[:64].float().to(DEVICE), z[:64].to(DEVICE))
        assert moments.n == 192
        moments.update(torch.full((2, 8), torch.nan).to(DEVICE), torch.zeros(2, dtype=torch.int64).to(DEVICE))
        with pytest.raises(ValueError, match="not finite"):
            _ = moments.n
        assert moments.n == 192


@pytest.mark.parametrize("d", [6, 60])
def test_leace_and_means_stop_four_times_at_most(d: int) -> None:
    for kind in (LeaceEraser, OracleLeaceEraser):
        assert fitted(kind, d)[1] <= 4
    assert fitted(RandomEraser, d, num_directions=2)[1] <= 2  # random numbers are the CPU's


def test_fitting_leace_waits_eight_times() -> None:
    """For the labels' range (twice) and counts, the examples' range, three ranks and the constant columns."""
    x, z = torch.randn(500, 6, generator=torch.Generator().manual_seed(0)), torch.arange(500) % 4
    with Device() as device:
        there = x.to(DEVICE), z.to(DEVICE)
        device.waits.clear()
        eraser = LeaceEraser.fit(*there)
        assert device.waits.total() <= 8
        erased = eraser(there[0]).cpu()
    assert torch.equal(erased, LeaceEraser.fit(x, z)(x))


def test_applying_qleace_stops_three_times_whatever_the_number_of_classes() -> None:
    x, z = examples(k=6)
    with Device() as device:
        x, z = x.to(DEVICE), z.to(DEVICE)
        eraser = QleaceEraser.fit(x, z)
        device.waits.clear()
        eraser(x, z)
    assert device.waits.total() <= 3  # one of them for the range of the labels


def test_alf_qleace_stops_twice_per_direction() -> None:
    eraser, waits = fitted(AlfQleaceEraser, 12)
    assert isinstance(eraser, AlfQleaceEraser)
    assert len(eraser.norms) > 5
    assert waits <= 4 + 2 * len(eraser.norms)


def test_a_polar_factor_stops_twice() -> None:
    matrix = torch.randn(30, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with Device() as device:
        there = matrix.to(DEVICE)
        device.waits.clear()
        polar_factor(there)
    assert device.waits.total() <= 2
