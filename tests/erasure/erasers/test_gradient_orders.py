"""Gradient erasure of orders above two: planted third and fourth moments, and the gradient that is followed."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from erasure import ClassMoments, GradientOrdersEraser, QleaceEraser
from erasure.certificate import BrokenGuaranteeError
from erasure.dataset import Source
from erasure.erasers.gradient_orders import _Loss
from erasure.hermite import hermite_kernels
from erasure.order_spectra import order_spectrum
from erasure.pipeline import erased_dataset
from erasure.splits import splits
from erasure.store.cache import Cache

OPTIONS: dict[str, Any] = {"weights": (1e4, 1e4, 1.0), "directions": 4, "max_iterations": 300}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def planted(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two classes in four dimensions whose third moments differ, E[x_1 x_2 x_3], and no moment of order one or two."""
    x, z = normal(n, 4, seed=seed), torch.arange(n) % 2
    x[:, 0] = x[:, 0].abs() * x[:, 1:3].sign().prod(1) * (1 - 2 * z)
    return 0.5 + 0.1 * x.clamp(-4.9, 4.9), z


def eraser_of(**options: Any) -> GradientOrdersEraser:
    return GradientOrdersEraser(**{**OPTIONS, **options})


def gaps(x: Tensor, z: Tensor, orders: int, directions: int = 4) -> list[float]:
    """Return the spectrum of data whitened by itself."""
    (spectrum,) = order_spectrum(x, z, directions=[directions], orders=orders)
    return spectrum.gaps.tolist()


def test_the_loss_is_the_documented_one_and_its_gradient_that_of_differences() -> None:
    x, z = planted(40)
    eraser = GradientOrdersEraser.from_moments(ClassMoments.fit(x, z), **OPTIONS | {"order": 4, "directions": 3})
    loss = _Loss(eraser, x, [(z == j).nonzero().squeeze(1) for j in range(2)])
    moved, towards = x + 0.05 * normal(40, 4, seed=2), normal(40, 4, seed=3)
    value, slope = loss(moved)
    step = 1e-6
    difference = (loss(moved + step * towards)[0] - loss(moved - step * towards)[0]) / (2 * step)
    assert difference == pytest.approx(float((slope * towards).sum()), rel=1e-6)
    assert value == pytest.approx(documented(eraser, moved, x, z), rel=1e-10)


def documented(eraser: GradientOrdersEraser, moved: Tensor, x: Tensor, z: Tensor) -> float:
    """The docstring's formula, from whole Gram matrices."""
    y = (moved - eraser.mean) @ eraser.whitening
    size, target, total = float(eraser.variances.sum()), eraser.variances.diag(), 0.0
    ours = y[:, :3]
    for j in range(2):
        members = y[z == j]
        excess = members.T.cov(correction=0) - target
        loss = 1e4 * members.mean(0).square().sum() / size + 1e4 * excess.square().sum() / size**2
        lead, normal_energy = ours[z == j], {3: 10, 4: 15}  # of three coordinates
        kinds = [hermite_kernels(a, b, 4) for a, b in ((lead, lead), (lead, ours), (ours, ours))]
        for p, (within, across, all_of_them) in enumerate(zip(*kinds, strict=True), start=1):
            if p > 2:
                squared = within.mean() - 2 * across.mean() + all_of_them.mean()
                loss += eraser.order_weight / normal_energy[p] * squared
        total += float(loss) / 2
    return len(x) * (total + float((moved - x).square().sum(1).mean()) / eraser.scales[0])


def test_a_planted_third_moment_is_erased_where_qleace_leaves_it() -> None:
    x, z = planted(300)
    before = gaps(QleaceEraser.fit(x, z)(x, z), z, 3)
    eraser = eraser_of(low=0.0, high=1.0)
    erased = eraser.fit_transform(x.float(), z)
    after = gaps(erased, z, 3)
    eraser.require_orders(erased, z)
    assert before[2] > 0.01  # chance: 1 / 300
    assert after[2] < 0.01 * before[2]
    assert max(after[:2]) < 1e-5
    assert erased.dtype == torch.float32
    assert 0 <= float(erased.min()) <= float(erased.max()) <= 1
    again = eraser_of(low=0.0, high=1.0).fit_transform(x.float(), z)
    assert torch.equal(erased, again)


def test_pixels_that_never_vary_stay_so(digits: tuple[Tensor, Tensor]) -> None:
    x, z = 0.1 + digits[0][:300].flatten(1).float(), digits[1][:300]
    erased = GradientOrdersEraser(max_iterations=5).fit_transform(x, z)
    constant = (x == x[0]).all(0)
    assert constant.any()
    assert torch.equal(erased[:, constant], erased[:1, constant].expand(300, -1))
    torch.testing.assert_close(erased[:, constant], x[:, constant])


def test_examples_that_lack_a_class_or_are_none_are_moved_all_the_same() -> None:
    x, z = planted(300)
    eraser = eraser_of()
    eraser.fit_transform(x, z)
    held_out, labels = planted(120, seed=5)
    assert eraser(held_out[labels == 1], labels[labels == 1]).isfinite().all()
    assert eraser(held_out[:0], labels[:0]).shape == (0, 4)


def test_order_four_goes_too_where_it_is_asked_for() -> None:
    x, z = planted(200)
    x[:, 3] = 0.5 + (x[:, 3] - 0.5) * torch.where((z == 1) & (torch.arange(200) % 4 == 1), 1.5, 1.0)  # kurtosis
    three, four = (gaps(eraser_of(order=order).fit_transform(x, z), z, 4) for order in (3, 4))
    assert max(three[2], four[2], four[3]) < 1e-4 < 0.1 * three[3]


def test_a_promise_that_was_not_kept_stops_the_run(digits_source: Source, tmp_path: Path) -> None:
    options = OPTIONS | {"max_iterations": 2, "low": 0.0, "high": 1.0}
    with pytest.raises(BrokenGuaranteeError, match=r"moments of order \d, but the gap .* raise max_iterations=2 or"):
        erased_dataset(digits_source, GradientOrdersEraser, options, dtype=torch.float32, cache=Cache(tmp_path))


@pytest.mark.parametrize(
    ("order", "shift", "scale"),
    [(1, 0.022, 1.0), (2, 0.0, 1.172**0.5)],  # class means 1.1 %, class covariances 7.9 % off their average
)
def test_orders_one_and_two_are_promised_too(order: int, shift: float, scale: float) -> None:
    half = normal(500, 4)
    x = torch.cat([half, -half])
    z = torch.arange(2).repeat_interleave(1000)
    eraser = GradientOrdersEraser.from_moments(ClassMoments.fit(torch.cat([x, x]), z), **OPTIONS)
    eraser.require_orders(torch.cat([x, x]), z)
    message = f"moments of order {order}, but the gap .* raise max_iterations=300 or raise weights"
    with pytest.raises(BrokenGuaranteeError, match=message):
        eraser.require_orders(torch.cat([x, scale * x + shift]), z)


def test_orders_one_to_three_of_the_digits_go(digits_source: Source) -> None:
    """Four tenths of the default's iterations do."""
    train = splits(digits_source, digits_source.load())["train"]
    x, z = train.images.float() / 16, train.labels
    eraser = GradientOrdersEraser(weights=(1e4, 1e4, 1.0), max_iterations=400, low=0.0, high=1.0)
    erased = eraser.fit_transform(x, z)
    before, after = (gaps(images, z, 3, 30) for images in (QleaceEraser.fit(x, z, tolerance=1e-4)(x, z), erased))
    assert max(after[:2]) < 1e-5
    assert after[2] < 0.01 * before[2]
    assert 0 <= float(erased.min()) <= float(erased.max()) <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 2}, "order=2: must be at least 3; GradientEraser erases orders 1 and 2"),
        ({"directions": 0}, "directions=0, order_weight=10000.0: must be positive"),
        ({"order_weight": 0.0}, "order_weight=0.0: must be positive"),
        ({"weights": (0.0, 0.0, -1.0)}, "none may be negative"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        eraser_of(**options)
