"""Oracle LEACE (Belrose et al. 2023, Theorem 5.1): classes shifted as a whole to the global mean."""

import pytest
import torch

from erasure import ClassMoments, LeaceEraser, OracleLeaceEraser
from tests.conftest import gaps


def test_class_means_are_equal_and_covariances_are_untouched(digits) -> None:
    x, z = digits
    keep = (z != 3) | (torch.arange(len(z)) % 7 == 0)  # imbalanced
    x, z = x[keep], z[keep]
    erased = OracleLeaceEraser.fit(x, z)(x, z)
    before, after = ClassMoments.fit(x, z), ClassMoments.fit(erased, z)
    assert gaps(x, z, x)[0] > 0.5
    assert gaps(erased, z, x)[0] < 1e-14
    torch.testing.assert_close(after.mean, before.mean, rtol=0, atol=1e-14)
    torch.testing.assert_close(after.covariances, before.covariances, rtol=0, atol=1e-14)


def test_the_edit_is_the_formulas_and_smaller_than_without_labels(digits) -> None:
    x, z = digits
    moments = ClassMoments.fit(x, z)
    erased = OracleLeaceEraser.from_moments(moments)(x, z)
    labels = torch.nn.functional.one_hot(z).double()
    centred = labels - labels.mean(0)
    flat = x.flatten(1)
    regression = torch.linalg.pinv(centred) @ (flat - flat.mean(0))  # Σ_zz⁺ Σ_zx by least squares
    torch.testing.assert_close(erased.flatten(1), flat - centred @ regression, rtol=0, atol=1e-12)
    edit = float((erased - x).square().sum()) / len(x)
    assert edit == pytest.approx(float(moments.between.trace()))
    assert edit < float((LeaceEraser.from_moments(moments)(x) - x).square().sum()) / len(x)


def test_classes_need_two_examples(digits) -> None:
    x, _ = digits
    with pytest.raises(ValueError, match="class 1 has 1"):
        OracleLeaceEraser.fit(x[:3], torch.tensor([0, 1, 0]))


def test_a_column_that_is_the_concept_leaves_no_rounding_to_read_it_from() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.arange(400) % 2
    age = 12.3 * torch.randn(400, generator=generator, dtype=torch.float64) + 40.1
    for concept, column in ((z.double(), z), (age, age), ({"age": age, "z": z}, age)):
        x = torch.randn(400, 3, generator=generator, dtype=torch.float64)
        x[:, 0] = 0.7 * column + 0.1
        erased = OracleLeaceEraser.fit(x, concept)(x, concept)[:, 0]
        assert len(erased.unique()) == 1
        assert float(erased[0]) == pytest.approx(float(x[:, 0].mean()))
