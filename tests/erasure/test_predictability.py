"""R² of least squares against textbook regressions on explicit features."""

from dataclasses import asdict
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from erasure import ClassMoments, IdentityEraser, LeaceEraser, OracleLeaceEraser, QleaceEraser
from erasure.certificate import certify
from erasure.predictability import linear_prediction, quadratic_prediction
from erasure.splits import splits


def regression_r2(features: Tensor, z: Tensor) -> float:
    features = features - features.mean(0)
    labels = torch.nn.functional.one_hot(z).double()
    labels = labels - labels.mean(0)
    rest = labels - features @ torch.linalg.lstsq(features, labels, driver="gelsd").solution
    return 1 - float(rest.square().sum() / labels.square().sum())


def sample(n: int = 400, d: int = 6, k: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Classes of different mean and covariance, coordinates of very different size."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randint(k, (n,), generator=generator)
    mixing = torch.eye(d, dtype=torch.float64) + 0.3 * torch.randn(k, d, d, generator=generator, dtype=torch.float64)
    x = torch.einsum("nd,nde->ne", torch.randn(n, d, generator=generator, dtype=torch.float64), mixing[z])
    x = x + 0.4 * torch.randn(k, d, generator=generator, dtype=torch.float64)[z]
    return x * torch.logspace(-5, 5, d, dtype=torch.float64) + 3, z


def certificate(x: Tensor, erased: Tensor, z: Tensor) -> SimpleNamespace:
    return SimpleNamespace(**asdict(certify(x, erased, z, ClassMoments.fit(x, z))))


def test_linear_r2_is_that_of_a_regression_whatever_the_scale() -> None:
    x, z = sample()
    prediction = linear_prediction(ClassMoments.fit(x, z), x.dtype)
    assert prediction is not None
    assert prediction.r2 == pytest.approx(regression_r2(x, z), rel=1e-9)
    assert prediction.r2 > 0.05
    assert prediction.chance == pytest.approx(6 / 399, rel=1e-9)


def test_quadratic_r2_is_that_of_a_regression_on_all_products_where_examples_allow_all_directions() -> None:
    x, z = sample()
    prediction = quadratic_prediction(x, z, ClassMoments.fit(x, z), x.dtype)
    assert prediction is not None
    scaled = (x - x.mean(0)) / x.std(0)
    products = torch.stack([scaled[:, a] * scaled[:, b] for a in range(6) for b in range(a + 1)], 1)
    assert prediction.directions == 6
    assert prediction.r2 == pytest.approx(regression_r2(torch.cat([scaled, products], 1), z), rel=1e-9)
    assert prediction.chance == pytest.approx((6 + 21) / 399, rel=1e-6)
    assert prediction.r2 > regression_r2(x, z) + 0.05


def test_shuffled_labels_are_predicted_as_well_as_chance_says() -> None:
    x, z = sample(n=300)
    linear, quadratic = [], []
    for seed in range(40):
        shuffled = z[torch.randperm(300, generator=torch.Generator().manual_seed(seed))]
        certified = certificate(x, x, shuffled)
        linear.append(certified.linear_r2 - certified.linear_chance)
        quadratic.append(certified.quadratic_r2 - certified.quadratic_chance)
    for excess in (torch.tensor(linear), torch.tensor(quadratic)):
        assert abs(float(excess.mean())) < 4 * float(excess.std()) / 40**0.5


def test_each_eraser_leaves_what_its_order_says_on_the_digits(digits) -> None:
    x, z = digits
    moments = ClassMoments.fit(x, z)
    before, leace, oracle, qleace = (
        certificate(x, eraser.from_moments(moments)(x, z).float(), z)
        for eraser in (IdentityEraser, LeaceEraser, OracleLeaceEraser, QleaceEraser)
    )
    assert before.linear_r2 > 0.6
    assert before.quadratic_r2 > 0.9
    for erased in (leace, oracle):
        assert erased.linear_r2 < 1e-4
        assert erased.quadratic_r2 > 2 * erased.quadratic_chance
    assert qleace.linear_r2 < 1e-4
    assert qleace.quadratic_r2 < 1e-6


def test_quadratic_r2_is_near_chance_where_few_of_many_scaled_coordinates_tell_and_order_2_is_not() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.arange(1000) % 4
    x = torch.randn(1000, 100, generator=generator, dtype=torch.float64)
    x[torch.arange(1000), z] *= 3
    erased = certificate(x, LeaceEraser.fit(x, z)(x), z)
    assert erased.quadratic_r2 < erased.quadratic_chance + 0.05
    assert erased.order_z_scores[1] > 30
    assert erased.order_z_scores[0] < -5  # made equal on this very sample


def test_thin_directions_show_here_where_gaps_hide_them() -> None:
    x, z = sample()
    thin = x[:, 5:] * (1 + 1e-6 * z[:, None])
    erased = torch.cat([LeaceEraser.fit(x, z)(x), thin - x[:, 5:] + x[:, :1] * 0], 1)
    certified = certificate(torch.cat([x, x[:, :1]], 1), erased, z)
    assert certified.mean_gap < 1e-5
    assert certified.linear_r2 > 0.01


def test_directions_that_exist_by_rounding_only_predict_nothing(digits) -> None:
    x, z = digits
    erased = LeaceEraser.fit(x, z)(x).float()  # nine directions hold rounding, and nothing else
    varying = (erased.double().flatten(1).std(0) > 0).nonzero().squeeze(1)
    assert regression_r2(erased.double().flatten(1)[:, varying], z) > 5 / len(z)
    assert certificate(x, erased, z).linear_r2 < 1e-4


@pytest.mark.parametrize("examples", [1, 2, 9, 40])
def test_few_examples_are_no_error_and_chance_says_how_little_they_tell(digits, examples: int) -> None:
    x, z = digits
    certified = certify(x[:examples], x[:examples], z[:examples], ClassMoments.fit(x, z))
    numbers = SimpleNamespace(**asdict(certified))
    assert numbers.linear_r2 is None if examples == 1 else numbers.linear_r2 <= 1
    assert (numbers.quadratic_r2 is None) == (examples < 8)
    if 1 < examples < 50:
        assert numbers.linear_chance > 0.9 or examples == 40


def test_pixels_that_hardly_ever_vary_tell_classes_on_other_images(digits_source) -> None:
    """LEACE subtracts a regression on what it erases, also from dark pixels (docs/methods/leace.md)."""
    parts = splits(digits_source, digits_source.load())
    x, z = ({name: getattr(parts[name], kind) for name in ("train", "test")} for kind in ("images", "labels"))
    flat = {name: images.flatten(1).double() / 16 for name, images in x.items()}
    common = (flat["train"] != flat["train"].mode(0).values).sum(0)

    def on_test(pixels: torch.Tensor) -> tuple[float, float]:
        erased = LeaceEraser.fit(flat["train"][:, pixels], z["train"])(flat["test"][:, pixels])
        prediction = linear_prediction(ClassMoments.fit(erased, z["test"]), erased.dtype)
        assert prediction is not None
        return prediction.r2, prediction.chance

    assert int((common >= 20).sum()) == 53
    assert on_test(common >= 1) == pytest.approx((0.441, 0.145), abs=1e-3)
    assert on_test(common >= 20) == pytest.approx((0.147, 0.123), abs=1e-2)
