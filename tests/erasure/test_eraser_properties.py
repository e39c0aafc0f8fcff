"""Properties of closed-form erasers, whatever the spectra, class sizes, duplicates, constant pixels and classes."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from erasure import (
    AlfQleaceEraser,
    ClassMoments,
    Eraser,
    IdentityEraser,
    LeaceEraser,
    OracleLeaceEraser,
    QleaceEraser,
    RandomEditEraser,
    RandomEraser,
    SplinceEraser,
)
from erasure.projection_eraser import ProjectionEraser
from tests.conftest import gaps

# QLEACE's covariances are equal whatever the tolerance of its edit.
ERASERS: list[tuple[type[Eraser], dict]] = [
    (IdentityEraser, {}),
    (LeaceEraser, {}),
    (OracleLeaceEraser, {}),
    (QleaceEraser, {"tolerance": 1e-4}),
    (AlfQleaceEraser, {}),
    (AlfQleaceEraser, {"num_directions": 2, "target": None}),
    (RandomEraser, {"num_directions": 2}),
    (RandomEditEraser, {"edit_size": 0.3}),
    (SplinceEraser, {}),
]
IDS = [
    "identity",
    "leace",
    "oracle_leace",
    "qleace",
    "alf_qleace",
    "alf_qleace_2",
    "random",
    "random_edit",
    "splince",
]
PROJECTIONS = (IdentityEraser, ProjectionEraser)  # the control of equal edit shrinks its last direction only
every_eraser = pytest.mark.parametrize(("eraser_class", "options"), ERASERS, ids=IDS)


@dataclass(frozen=True)
class Case:
    """A data set by its recipe, so that hypothesis shrinks and prints the recipe."""

    k: int
    shape: tuple[int, int, int]
    counts: tuple[int, ...]  # repeated over the classes
    decay: float  # log10 of the condition of the classes' spectra
    own_bases: bool
    duplicates: bool
    constant_pixels: bool
    scale: float
    seed: int

    def draw(self) -> tuple[Tensor, Tensor]:
        """Examples [n, C, H, W] in float64 and labels, in random order."""
        generator = torch.Generator().manual_seed(self.seed)
        d = self.shape[0] * self.shape[1] * self.shape[2]
        float64 = {"dtype": torch.float64, "generator": generator}
        shared = torch.linalg.qr(torch.randn(d, d, **float64)).Q
        classes, labels = [], []
        for j in range(self.k):
            n = self.counts[j % len(self.counts)]
            spectrum = 10 ** (-self.decay * torch.rand(d, **float64))
            basis = torch.linalg.qr(torch.randn(d, d, **float64)).Q if self.own_bases else shared
            x = (torch.randn(n, d, **float64) * spectrum.sqrt()) @ basis.T + torch.randn(d, **float64)
            if self.duplicates:
                x = torch.cat([x, x[: n // 2 + 1], x[:1]])
            classes.append(x)
            labels += [j] * len(x)
        x, z = torch.cat(classes), torch.tensor(labels)
        if self.constant_pixels:
            x[:, 0] = 0.3
            x[z == 1, -1] = 0.7
        order = torch.randperm(len(z), generator=generator)
        return self.scale * x[order].view(-1, *self.shape), z[order]

    def suiting(self, eraser_class: type[Eraser]) -> "Case":
        """Fewer classes for ALF-QLEACE: it must have dimensions left that LEACE has not removed."""
        d = self.shape[0] * self.shape[1] * self.shape[2]
        return replace(self, k=min(self.k, d // 2)) if eraser_class is AlfQleaceEraser else self


cases = st.builds(
    Case,
    k=st.one_of(st.integers(2, 6), st.just(30)),
    shape=st.sampled_from([(1, 2, 2), (3, 1, 2), (2, 3, 2)]),
    counts=st.lists(st.one_of(st.integers(3, 8), st.integers(20, 40)), min_size=1, max_size=4).map(tuple),
    decay=st.sampled_from([0.0, 2.0, 5.0]),
    own_bases=st.booleans(),
    duplicates=st.booleans(),
    constant_pixels=st.booleans(),
    scale=st.sampled_from([1.0, 1e-6, 255.0]),
    seed=st.integers(0, 10_000),
)


@every_eraser
@given(case=cases)
def test_moments_are_equal_up_to_the_promised_order_and_the_global_mean_is_kept(
    eraser_class: type[Eraser], options: dict, case: Case
) -> None:
    x, z = case.suiting(eraser_class).draw()
    erased = eraser_class.fit(x, z, **options)(x, z)
    spread = float((x - x.mean(0)).square().sum(dim=(1, 2, 3)).mean().sqrt())
    assert (erased.mean(0) - x.mean(0)).norm() < 1e-12 * spread
    mean_gap, covariance_gap = gaps(erased, z, x)
    # rounding, times the root of the condition where a map inverts a covariance
    assert mean_gap < 1e-11 or eraser_class.erased_order < 1
    assert covariance_gap < 1e-10 or eraser_class.erased_order < 2


@every_eraser
@settings(max_examples=5)
@given(case=cases)
def test_maps_keep_shape_and_dtype_and_give_the_same_numbers_again(
    eraser_class: type[Eraser], options: dict, case: Case
) -> None:
    x, z = case.suiting(eraser_class).draw()
    moments = ClassMoments.fit(x, z, pooled=eraser_class.any_concept)
    eraser = eraser_class.fit_examples(x, z, moments, **options)
    erased = eraser(x, z)
    assert erased.shape == x.shape
    assert torch.equal(eraser_class.fit(x, z, **options)(x, z), erased)
    for dtype in (torch.float32, torch.bfloat16):
        low = eraser(x.to(dtype), z)
        assert low.dtype == dtype
        assert low.shape == x.shape
    # one example at a time: no example's map depends on the others in its batch
    rows = torch.tensor([0, len(z) - 1])
    torch.testing.assert_close(eraser(x[rows], z[rows]), erased[rows], rtol=0, atol=1e-11 * float(x.abs().max()))
    if not eraser_class.uses_labels:
        assert torch.equal(eraser(x), erased)


@pytest.mark.parametrize(
    ("eraser_class", "options"),
    [e for e in ERASERS if issubclass(e[0], PROJECTIONS)],
    ids=lambda e: getattr(e, "__name__", ""),
)
@settings(max_examples=15)
@given(case=cases)
def test_projections_are_idempotent(eraser_class: type[Eraser], options: dict, case: Case) -> None:
    x, z = case.suiting(eraser_class).draw()
    eraser = eraser_class.fit(x, z, **options)
    erased = eraser(x)
    torch.testing.assert_close(eraser(erased), erased, rtol=0, atol=1e-10 * float(x.abs().max()))


@settings(max_examples=10)
@given(case=cases)
def test_qleace_fitted_to_its_own_result_finds_nothing_to_do(case: Case) -> None:
    x, z = case.draw()
    erased = QleaceEraser.fit(x, z, tolerance=1e-4)(x, z)
    again = QleaceEraser.fit(erased, z, tolerance=1e-4)(erased, z)
    edit = float((again - erased).square().sum() / (erased - erased.mean(0)).square().sum())
    assert edit < 1e-8


@given(case=cases)
def test_erasing_does_not_depend_on_the_unit_or_the_origin_of_the_data(case: Case) -> None:
    x, z = case.draw()
    for eraser_class in (LeaceEraser, OracleLeaceEraser):
        erased = eraser_class.fit(x, z)(x, z)
        moved = eraser_class.fit(8 * x + 2 * case.scale, z)(8 * x + 2 * case.scale, z)
        torch.testing.assert_close(moved, 8 * erased + 2 * case.scale, rtol=0, atol=1e-10 * float(x.abs().max()))


@pytest.mark.parametrize("eraser_class", [LeaceEraser, OracleLeaceEraser, QleaceEraser, AlfQleaceEraser])
def test_far_from_zero_classes_are_as_equal_as_their_numbers_can_be(eraser_class: type[Eraser]) -> None:
    """At 1e10 they are multiples of 2e-6. One class has fewer examples than columns."""
    generator = torch.Generator().manual_seed(0)
    z = torch.arange(3).repeat_interleave(torch.tensor([10, 40, 60]))
    x = torch.randn(110, 12, generator=generator, dtype=torch.float64) + z[:, None]
    erased = eraser_class.fit(x, z)(x, z)
    assert gaps(erased, z, x)[0] < 1e-14
    far = eraser_class.fit(x + 1e10, z)(x + 1e10, z) - 1e10
    assert gaps(far, z, x)[0] < 2e-6
    assert gaps(far, z, x)[1] == pytest.approx(gaps(erased, z, x)[1], abs=2e-6)


@pytest.mark.parametrize("eraser_class", [LeaceEraser, QleaceEraser])
def test_variance_that_is_rounding_is_refused(eraser_class: type[Eraser]) -> None:
    x = torch.randn(8, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moments = ClassMoments.fit(x, torch.arange(8) % 2)
    moments.scatters.add_(1e-9 * torch.eye(12, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"examples has rank 12, above the possible \d: rounding passes for variance"):
        eraser_class.from_moments(moments)
