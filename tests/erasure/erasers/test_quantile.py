"""Quantile normalisation: each coordinate has one distribution in every class."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from erasure import ClassMoments, Eraser, QuantileEraser


def draw() -> tuple[Tensor, Tensor]:
    z = torch.arange(600) % 3
    x = torch.randn(600, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (x.abs() ** (1 + z[:, None])) * x.sign() + z[:, None], z


def test_every_coordinate_has_the_same_values_in_every_class(tmp_path: Path) -> None:
    x, z = draw()
    eraser = QuantileEraser.fit(x, z, num_quantiles=200)  # as many as a class has examples
    erased = eraser(x, z)
    classes = torch.stack([erased[z == j].sort(0).values for j in range(3)])
    torch.testing.assert_close(classes[1:], classes[:-1], rtol=0, atol=1e-10)
    for j in range(3):  # the order within a class stays
        assert torch.equal(erased[z == j].argsort(0), x[z == j].argsort(0))
    expected = torch.stack([x[z == j].sort(0).values for j in range(3)]).mean(0)
    torch.testing.assert_close(classes[0], expected, rtol=0, atol=1e-10)
    eraser.save(tmp_path / "eraser.safetensors")
    torch.testing.assert_close(Eraser.load(tmp_path / "eraser.safetensors")(x, z), erased, rtol=0, atol=1e-12)


def test_the_uniform_target_gives_the_cumulative_distribution() -> None:
    stats = pytest.importorskip("scipy.stats")
    x, z = draw()
    erased = QuantileEraser.fit(x, z, num_quantiles=200, target="uniform")(x, z)
    for j in range(3):
        for i in range(4):
            values = x[z == j, i].numpy()
            np.testing.assert_allclose(erased[z == j, i], stats.ecdf(values).cdf.evaluate(values), atol=1 / 199)


def test_new_examples_are_mapped_nearly_alike_and_few_quantiles_are_enough() -> None:
    stats = pytest.importorskip("scipy.stats")
    x, z = draw()
    train, test = torch.arange(600) % 2 == 0, torch.arange(600) % 2 == 1
    erased = QuantileEraser.fit(x[train], z[train], num_quantiles=32)(x[test], z[test])
    assert erased.isfinite().all()
    z = z[test]

    def p_values(data: Tensor) -> list[Any]:
        return [stats.ks_2samp(data[z == 0, i], data[z == 2, i])[1] for i in range(4)]

    before, after = p_values(x[test]), p_values(erased)
    assert max(before) < 1e-6
    assert min(after) > 1e-3


def test_ties_have_the_share_of_examples_that_are_at_most_as_large() -> None:
    stats = pytest.importorskip("scipy.stats")
    x, z = torch.tensor([0.0, 1, 1, 2, 2, 0, 0, 3, 4, 5]).double()[:, None], torch.arange(10) // 5
    erased = QuantileEraser.fit(x, z, num_quantiles=5, target="uniform")(x, z)
    for j in range(2):
        values = x[z == j, 0].numpy()
        # quantiles run from 0 at the smallest value, unless it is tied, to 1 at the largest
        expected = (stats.rankdata(values, "max") - 1) / 4
        np.testing.assert_allclose(erased[z == j, 0], expected, atol=1e-15)


def test_ties_and_constant_coordinates() -> None:
    x, z = draw()
    x[:, 0], x[:, 1] = 3.0, x[:, 1].round()
    erased = QuantileEraser.fit(x, z)(x, z)
    assert torch.equal(erased[:, 0], x[:, 0])
    assert erased.isfinite().all()


def test_wrong_options() -> None:
    x, z = draw()
    with pytest.raises(ValueError, match="num_quantiles=1: a distribution needs at least 2"):
        QuantileEraser.fit(x, z, num_quantiles=1)
    with pytest.raises(ValueError, match="target='uniforn': must be 'mean' or 'uniform'"):
        QuantileEraser.fit(x, z, target="uniforn")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="QuantileEraser needs examples, not only their moments"):
        QuantileEraser.fit_moments(ClassMoments.fit(x, z))
