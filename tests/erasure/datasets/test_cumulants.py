"""The planted test bed: the spectrum finds the planted order, and nothing below."""

from typing import Any

import pytest
import torch

from erasure import order_spectrum
from erasure.datasets.cumulants import Cumulants

STRENGTHS: dict[str, Any] = {"mean": 0.5, "covariance": 0.5, "skewness": 1.0, "kurtosis": 2.0}


def planted(n: int = 5000, d: int = 30, **strengths: Any) -> Cumulants:
    return Cumulants(
        name="cumulants", flip=False, validation_size=None, test_fraction=0.2, split_seed=0, n=n, d=d, **strengths
    )


@pytest.mark.parametrize(("order", "name"), [*enumerate(STRENGTHS, start=1)])
def test_the_spectrum_finds_the_planted_order_and_nothing_below(order: int, name: str) -> None:
    train = planted(**{name: STRENGTHS[name]}).load().train
    (spectrum,) = order_spectrum(train.images.double(), train.labels, directions=[10])
    assert spectrum.z_scores[order - 1] > 10
    assert (spectrum.z_scores[: order - 1].abs() < 4).all()


def test_all_four_are_found_at_once() -> None:
    train = planted(**STRENGTHS).load().train
    (spectrum,) = order_spectrum(train.images.double(), train.labels, directions=[4])
    assert (spectrum.z_scores > 10).all()


def test_without_strengths_classes_are_alike() -> None:
    train = planted().load().train
    (spectrum,) = order_spectrum(train.images.double(), train.labels, directions=[10])
    assert (spectrum.z_scores.abs() < 4).all()


def test_strengths_are_cumulants() -> None:
    n = 200_000
    sign = 1.0 - 2.0 * (torch.arange(n) % 2)
    coordinates = planted(n, 4, **STRENGTHS)._planted(sign, torch.Generator().manual_seed(0))
    mean, covariance, skewness, kurtosis = (one for one in coordinates if one is not None)
    for s in (1.0, -1.0):
        assert float(mean[sign == s].mean()) == pytest.approx(s * 0.5, abs=0.02)
        assert float(covariance[sign == s].var()) == pytest.approx(1 + s * 0.5, abs=0.02)
        assert float(skewness[sign == s].pow(3).mean()) == pytest.approx(s * 1.0, abs=0.06)
        assert float(kurtosis[sign == s].pow(4).mean() - 3) == pytest.approx(s * 2.0, abs=0.15)
        for coordinate in (skewness, kurtosis):
            assert float(coordinate[sign == s].mean()) == pytest.approx(0, abs=0.02)
            assert float(coordinate[sign == s].var()) == pytest.approx(1, abs=0.03)


def test_the_same_options_give_the_same_content() -> None:
    assert planted(100, mean=0.5).content() == planted(100, mean=0.5).content() != planted(100, mean=0.6).content()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"d": 3}, "dataset.n=5000, dataset.d=3: both must be at least 4"),
        ({"covariance": 1.0}, "dataset.covariance=1.0: must be between 0 and 0.99"),
        ({"kurtosis": 3.0}, "dataset.kurtosis=3.0: must be between 0 and 2.0"),
        ({"skewness": -1.0}, "dataset.skewness=-1.0: must not be negative"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        planted(**options).load()
