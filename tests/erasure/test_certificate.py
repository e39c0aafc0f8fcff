"""The certificate says what is there, and a broken guarantee is refused."""

import dataclasses

import pytest
import torch

from erasure import ClassMoments, LeaceEraser
from erasure.certificate import BrokenGuaranteeError, Certificate, certify, out_of_range, require_erased
from erasure.order_spectra import order_spectrum
from tests.conftest import gaps


def test_it_measures_what_an_independent_computation_measures(digits) -> None:
    x, z = digits
    erased = LeaceEraser.fit(x, z)(x) * 1.2 - 0.1
    certificate = certify(x, erased, z, ClassMoments.fit(x, z))
    mean_gap, covariance_gap = gaps(erased, z, x)
    variance = x.flatten(1).var(0, correction=0).sum()
    assert certificate.n == len(z)
    assert certificate.mean_gap == pytest.approx(mean_gap, abs=1e-14)
    assert certificate.covariance_gap == pytest.approx(covariance_gap, rel=1e-10)
    assert certificate.edit_size == pytest.approx(float((erased - x).flatten(1).square().sum(1).mean() / variance))
    scale = (x.flatten(1).square().sum(1).mean() / variance).sqrt()  # of values, to which rounding is relative
    assert certificate.rounding / torch.finfo(torch.float64).eps == pytest.approx(float(scale))
    assert out_of_range(erased, 0.0, 1.0) == float(((erased < 0) | (erased > 1)).double().mean())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_leace_keeps_its_promise_in_every_stored_dtype_and_raw_data_does_not(digits, dtype: torch.dtype) -> None:
    x, z = digits
    erased = LeaceEraser.fit(x, z)(x).to(dtype)
    raw = ClassMoments.fit(x, z)
    certificate = certify(x, erased, z, raw)
    require_erased(certificate, 1, "LEACE")
    with pytest.raises(BrokenGuaranteeError, match="LEACE promises equal class covariances"):
        require_erased(certificate, 2, "LEACE")
    require_erased(certify(x, x.to(dtype), z, raw), 0, "control")
    with pytest.raises(BrokenGuaranteeError, match="equal class means, but the relative gap"):
        require_erased(certify(x, x.to(dtype), z, raw), 1, "LEACE")


def test_a_gap_that_is_not_a_number_is_no_proof(digits) -> None:
    x, z = digits
    certificate = certify(x, x, z, ClassMoments.fit(x, z))
    with pytest.raises(BrokenGuaranteeError):
        require_erased(dataclasses.replace(certificate, mean_gap=float("nan")), 1, "LEACE")


def test_a_split_without_one_of_the_classes_is_certified_for_the_others(digits) -> None:
    x, z = digits
    some = z < 9
    certificate = certify(x[some], x[some], z[some], ClassMoments.fit(x, z))
    assert (certificate.mean_gap, certificate.covariance_gap) == pytest.approx(gaps(x[some], z[some], x))
    alike = torch.cat([x[z == 0], x[z == 0]])  # of two classes, of which no example is of a third
    labels = torch.arange(2).repeat_interleave(len(alike) // 2)
    assert certify(alike, alike, labels, ClassMoments.fit(x, z)).covariance_gap == pytest.approx(0, abs=1e-12)
    lone = certify(x[:1], x[:1], z[:1], ClassMoments.fit(x, z))
    assert lone.mean_gap == lone.covariance_gap == 0


def test_images_all_alike_are_refused(digits) -> None:
    x, z = torch.ones_like(digits[0]), digits[1]
    with pytest.raises(ValueError, match="all training examples are alike"):
        certify(x, x, z, ClassMoments.fit(x, z))


def test_a_tolerance_never_grows_past_what_it_is_to_catch(digits) -> None:
    x, z = digits
    shifted = x.flatten(1) + 1e9
    certificate = certify(shifted, shifted.float(), z, ClassMoments.fit(shifted, z))
    assert certificate.rounding > 1  # that of float32 at 1e9: it was once allowed eightfold
    with pytest.raises(BrokenGuaranteeError, match="the relative gap .* above 1.0e-02"):
        require_erased(dataclasses.replace(certificate, mean_gap=0.02), 1, "LEACE")


def test_it_says_what_each_order_has_left_as_the_spectrum_does(digits) -> None:
    x, z = digits
    erased = LeaceEraser.fit(x, z)(x)
    (expected,) = order_spectrum(erased, z, directions=[30])
    certificate = certify(x, erased, z, ClassMoments.fit(x, z))
    assert certificate.order_shares == pytest.approx(expected.shares.tolist())
    assert certificate.order_errors == pytest.approx(expected.errors.tolist())
    assert certificate.order_z_scores == pytest.approx(expected.z_scores.tolist())
    assert certificate.order_directions == 30
    assert certificate.numbers()["order_shares_2"] > 0.03 > certificate.numbers()["order_shares_1"]
    few = certify(x[:12], erased[:12], z[:12], ClassMoments.fit(x, z))  # fewer than three of a class
    assert few.order_shares is None
    assert "order_shares" not in few.numbers()


def test_results_of_before_can_be_read() -> None:
    old = {"n": 9, "mean_gap": 0.1, "covariance_gap": 0.2, "edit_size": 0.0, "out_of_range": 0.0, "rounding": 1e-7}
    assert Certificate(**old).linear_r2 is None


def hidden_states() -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states [40, 5, 6], and a label for each token."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randint(0, 3, (40, 5), generator=generator)
    return torch.randn(40, 5, 6, dtype=torch.float64, generator=generator) * (1 + z[..., None]) + z[..., None], z


@pytest.mark.parametrize("concept", ["classes", "real numbers"])
def test_tokens_are_certified_as_the_vectors_that_they_are(concept: str) -> None:
    x, z = hidden_states()
    if concept == "real numbers":
        z = torch.randn(40, 5, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    erased = 0.9 * LeaceEraser.fit(x, z)(x)
    certificate = certify(x, erased, z)
    assert certificate == certify(x.flatten(0, 1), erased.flatten(0, 1), z.flatten())
    assert certificate.n == 200


def test_tokens_share_the_label_of_their_sequence_where_the_reference_is_of_tokens() -> None:
    x, z = hidden_states()[0], torch.arange(40) % 3
    moments = ClassMoments.fit(x, z, dim=6)
    erased = LeaceEraser.from_moments(moments)(x)
    certificate = certify(x, erased, z, moments)
    assert certificate == certify(x.flatten(0, 1), erased.flatten(0, 1), z.repeat_interleave(5), moments)
    assert certificate.n == 200
    assert certify(x, x, z).n == 40  # by default an example is all of x[0]


def test_arrays_and_lists_are_certified_as_tensors() -> None:
    x, z = hidden_states()[0][:, 0], torch.arange(40) % 2
    erased = LeaceEraser.fit(x, z)(x)
    assert certify(x.numpy(), erased.numpy(), z.tolist()) == certify(x, erased, z)


def test_examples_that_cannot_be_certified_are_refused(digits) -> None:
    x, z = digits
    moments = ClassMoments.fit(x, z)
    with pytest.raises(ValueError, match="erased has dtype torch.int64: pass the examples in the floating dtype"):
        certify(x, x.long(), z)
    for spoilt in ((x, x * torch.nan), (x * torch.nan, x)):
        with pytest.raises(ValueError, match="holds values that are not finite"):
            certify(*spoilt, z, moments)
    with pytest.raises(ValueError, match="there are no examples"):
        certify(x[:0], x[:0], z[:0], moments)


def test_frames_whose_rows_or_columns_are_in_another_order_are_refused() -> None:
    pd = pytest.importorskip("pandas")
    x = pd.DataFrame(torch.randn(30, 3, generator=torch.Generator().manual_seed(0)).numpy(), columns=list("abc"))
    z = pd.Series((torch.arange(30) % 2).numpy())
    with pytest.raises(ValueError, match="same row labels in another order"):
        certify(x, x, z[::-1])
    with pytest.raises(ValueError, match="same row labels in another order"):
        certify(x, x[::-1], z)
    with pytest.raises(ValueError, match="erased has other columns than original, or in another order"):
        certify(x, x[list("cba")], z)
    with pytest.raises(ValueError, match="same row labels in another order"):
        order_spectrum(x, z[::-1], orders=1)
    with pytest.raises(ValueError, match=r"reference has other columns than x, .*: pass reference\[x.columns\]"):
        order_spectrum(x, z, orders=1, reference=x[list("cba")])


def test_categories_are_no_coordinates_before_or_after_erasure() -> None:
    pd = pytest.importorskip("pandas")
    x = pd.DataFrame({"a": range(30), "b": [1.5, 2.5] * 15})
    codes = x.assign(a=x["a"].astype("category"))
    z = pd.Series((torch.arange(30) % 2).numpy())
    for before, after in ((codes, x * 1.0), (x * 1.0, codes)):
        with pytest.raises(ValueError, match="values of type category: pass its .to_numpy"):
            certify(before, after, z)
    with pytest.raises(ValueError, match="reference holds values of type category"):
        order_spectrum(x * 1.0, z, reference=codes, orders=1)
