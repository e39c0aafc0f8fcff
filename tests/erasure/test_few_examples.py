"""Fits to too few examples say that they hold for these alone, once, and others say nothing."""

import logging

import pytest
import torch
from torch import Tensor

from erasure import AlfQleaceEraser, IdentityEraser, LeaceEraser, QleaceEraser, RandomEraser, SplinceEraser, fit_layers
from erasure.few_examples import few_examples
from tests.conftest import gaps


def two_classes(n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Classes whose means differ in one of many directions."""
    z = torch.arange(n) % 2
    x = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    x[:, 0] += 3 * z
    return x, z


@pytest.mark.parametrize(
    ("n", "smallest", "order", "said"),
    [
        (130, 43, 1, r"class moments cannot be estimated from 130 examples \(43 in the smallest class\) of 192 values"),
        (192, 64, 2, "class moments cannot be estimated from 192 examples"),
        (193, 64, 1, None),
        (1000, 192, 2, "class covariances cannot be estimated from the 192 examples of a class, of 192 values each"),
        (1000, 193, 2, None),
        (130, None, 1, "^moments cannot be estimated from 130 examples of 192 values"),
        (1000, None, 1, None),
        (10, 5, 0, None),
    ],
)
def test_a_covariance_of_no_more_examples_than_values_is_not_estimated(
    n: int, smallest: int | None, order: int, said: str | None
) -> None:
    sentence = few_examples(n, smallest, 192, order)
    if said is None:
        assert sentence is None
    else:
        with pytest.raises(ValueError, match=said):
            raise ValueError(sentence)


@pytest.mark.parametrize(("n", "left"), [(60, (0.6, 0.9)), (4000, (0.0, 0.15))])
def test_leace_of_too_few_examples_leaves_others_as_they_were(n: int, left: tuple[float, float]) -> None:
    x, z = two_classes(n, 100)
    others, labels = two_classes(20_000, 100, seed=1)
    eraser = LeaceEraser.fit(x, z)
    assert gaps(eraser(x), z, x)[0] < 1e-12
    share = gaps(eraser(others), labels, others)[0] / gaps(others, labels, others)[0]
    assert left[0] < share < left[1]


def test_fits_to_too_few_examples_warn_once(caplog) -> None:
    x, z = two_classes(60, 100)
    concept = x[:, :1] + 1.0
    for fit, said in (
        (lambda: LeaceEraser.fit(x, z), "LeaceEraser: class moments cannot be estimated from 60 examples (30 in the"),
        (lambda: AlfQleaceEraser.fit(x, z, num_directions=1, target=None), "AlfQleaceEraser: class moments cannot"),
        (lambda: LeaceEraser.fit(x, concept), "LeaceEraser: moments cannot be estimated from 60 examples of 100"),
        (
            lambda: SplinceEraser.fit(x, z, keep=x[:, 1]),
            "SplinceEraser: moments cannot be estimated from 60 examples of 100",
        ),
        (lambda: QleaceEraser.fit(x[:, :40], z), "the 30 examples of a class, of 40 values each"),
        (lambda: QleaceEraser.fit(x[:, :20], z * (torch.arange(60) < 36)), "the 18 examples of a class, of 20 values"),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "erasure.few_examples"):
            fit()
        messages = [record.getMessage() for record in caplog.records if record.name == "erasure.few_examples"]
        assert len(messages) == 1
        assert said in messages[0]
        assert messages[0].endswith("not on others; fit it to more examples, or to fewer coordinates of them")


def test_fits_to_enough_examples_and_erasers_that_promise_nothing_do_not_warn(digits, caplog) -> None:
    x, z = digits
    x, z = x.flatten(1)[:1600], z[:1600]
    few, labels = two_classes(60, 100)
    for fit in (
        lambda: LeaceEraser.fit(x, z),
        lambda: QleaceEraser.fit(x, z),
        lambda: RandomEraser.fit(few, labels, num_directions=2),
        lambda: IdentityEraser.fit(few, labels),
    ):
        fit()
    assert not [record for record in caplog.records if record.name == "erasure.few_examples"]


def test_layers_warn_once(caplog) -> None:
    network = torch.nn.Sequential(torch.nn.Linear(100, 90), torch.nn.ReLU(), torch.nn.Linear(90, 80)).eval()
    x, z = two_classes(60, 100)
    fit_layers(network, [(x.float(), z)], ["0", "1", "2"], num_classes=2)
    assert [record.name for record in caplog.records] == ["erasure.few_examples"]
