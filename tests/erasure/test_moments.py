"""Class moments: exact, mergeable, and clear about bad input."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from erasure import (
    ClassMoments,
    ConceptMoments,
    LeaceEraser,
    OracleLeaceEraser,
    QleaceEraser,
    fit_layers,
    order_spectrum,
)


def random_data(seed: int, n: int = 60, d: int = 5, k: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.cat([torch.arange(k), torch.randint(k, (n - k,), generator=generator)])
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) + z[:, None] * 10 + 100
    return x, z


def test_moments_are_the_textbook_ones() -> None:
    x, z = random_data(0)
    moments = ClassMoments.fit(x, z)
    for j in range(3):
        members = x[z == j]
        torch.testing.assert_close(moments.means[j], members.mean(0))
        covariance = torch.cov(members.T, correction=0)
        torch.testing.assert_close(moments.covariances[j], covariance)
        torch.testing.assert_close(moments.covariance(j), covariance)
        torch.testing.assert_close(moments.multiply(j, x[:2].T), covariance @ x[:2].T)
    torch.testing.assert_close(moments.mean, x.mean(0))
    torch.testing.assert_close(moments.total, torch.cov(x.T, correction=0))
    one_hot = torch.nn.functional.one_hot(z).double()
    cross = (x - x.mean(0)).T @ (one_hot - one_hot.mean(0)) / len(x)
    torch.testing.assert_close(moments.cross, cross)


@given(seed=st.integers(0, 1000), cuts=st.lists(st.integers(0, 60), max_size=4), order=st.randoms())
def test_moments_by_merging_shards_are_moments_at_once(seed: int, cuts: list[int], order) -> None:
    x, z = random_data(seed)
    edges = sorted({0, *cuts, len(x)})
    shards = [ClassMoments(5, 3).update(x[a:b], z[a:b]) for a, b in itertools.pairwise(edges)]
    order.shuffle(shards)
    merged = ClassMoments(5, 3)
    for shard in shards:
        merged.merge(shard)
    at_once = ClassMoments.fit(x, z)
    torch.testing.assert_close(merged.counts, at_once.counts, rtol=0, atol=0)
    torch.testing.assert_close(merged.means, at_once.means, rtol=1e-13, atol=1e-12)
    torch.testing.assert_close(merged.covariances, at_once.covariances, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("value", "label"), [(torch.nan, 0), (0.0, 7)])
def test_a_wrong_batch_is_left_out(value: float, label: int) -> None:
    x, z = random_data(3)
    moments, wrong = ClassMoments(5, 3).update(x[:30], z[:30]), x[30:].clone()
    wrong[4] += value
    with pytest.raises(ValueError, match=r"not finite .* in example 4|label 7 is out of range"):
        moments.update(wrong, torch.cat([z[30:-1], z[-1:] + label]))
    equal(moments.update(x[30:], z[30:]), ClassMoments.fit(x, z))


def test_one_number_per_example_still_needs_a_dimension_of_its_own() -> None:
    with pytest.raises(ValueError, match=r"shape \(4,\): expected \[n, ...\] with 1 values"):
        ClassMoments(1, 2).update(torch.ones(4), torch.tensor([0, 1, 0, 1]))


def hidden_states(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """[batch, tokens, d] and a label per token."""
    x, z = random_data(seed)
    return x.reshape(12, 5, 5), z.reshape(12, 5)


def equal(one: ClassMoments, other: ClassMoments) -> None:
    assert one.sizes == other.sizes
    torch.testing.assert_close(one.means, other.means, rtol=1e-13, atol=1e-12)
    torch.testing.assert_close(one.total, other.total, rtol=1e-12, atol=1e-11)


def test_examples_and_labels_come_in_the_forms_that_users_have() -> None:
    x, z = random_data(0)
    expected = ClassMoments.fit(x, z)
    one_hot = torch.nn.functional.one_hot(z)
    for labels in (z.int(), z.tolist(), z.numpy(), one_hot, one_hot.bool(), one_hot.float().numpy()):
        equal(ClassMoments.fit(x.numpy(), labels), expected)
    states, tokens = hidden_states()
    equal(ClassMoments.fit(states, tokens), expected)
    equal(ClassMoments(5, 3).update(states, one_hot.view(12, 5, 3)), expected)
    shared = torch.arange(12) % 3  # a label per example, for all of its tokens
    by_example = ClassMoments.fit(states, shared, dim=5)
    equal(by_example, ClassMoments.fit(x, shared.repeat_interleave(5)))
    assert ClassMoments.fit(x, z > 1).num_classes == 2
    equal(
        ClassMoments.fit(states[:, :1], tokens[:, :1], num_classes=3), ClassMoments.fit(x[::5], z[::5], num_classes=3)
    )
    whole = ClassMoments(5, 3).update(torch.full((1, 5), 2**24 + 1), [0]).update(torch.ones(1, 5), [1])
    assert float(whole.means[0, 0]) == 2**24 + 1  # which float32 has not
    assert ClassMoments.fit(states, shared).dim == 25
    rows = ClassMoments(5, 3)
    for one, label in zip(x, z, strict=True):
        rows.update(one, label)
    equal(rows, expected)


@pytest.mark.parametrize(
    "fit",
    [
        lambda x, z: ClassMoments(5, 5).update(x, z),
        lambda x, z: ConceptMoments(5, 5).update(x, z),
        *(lambda x, z, fit=fit: fit(x, z) for fit in (ClassMoments.fit, ConceptMoments.fit, order_spectrum)),
        *(lambda x, z, kind=kind: kind.fit(x, z) for kind in (LeaceEraser, QleaceEraser, OracleLeaceEraser)),
        lambda x, z: LeaceEraser.fit(x, z, dim=5),
        lambda x, z: LeaceEraser.fit(x, {"group": z}),
        lambda x, z: LeaceEraser.fit(x, z, num_classes=5),
        lambda x, z: fit_layers(torch.nn.Sequential(torch.nn.Identity()).eval(), [(x, z)], ["0"], num_classes=5),
        lambda x, z: fit_layers(
            torch.nn.Sequential(torch.nn.Identity()).eval(), [(x, {"group": z})], ["0"], num_classes={"group": 5}
        ),
    ],
)
def test_labels_that_may_be_either_are_refused(fit: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
    states, _ = hidden_states()
    with pytest.raises(ValueError, match="may be labels or one-hot: pass one integer per example"):
        fit(states, torch.nn.functional.one_hot(torch.arange(12) % 5, 5))


def test_labels_that_can_only_be_either_are_taken() -> None:
    states, _ = hidden_states()
    hot = torch.nn.functional.one_hot(torch.arange(12) % 5, 5)
    for z, k in ((hot, 2), (hot[..., None], None), (hot[..., None], 2), (hot[..., None], 5)):
        expected = ClassMoments.fit(states.flatten(0, 1), hot.flatten(), num_classes=k)
        torch.testing.assert_close(ClassMoments.fit(states, z, num_classes=k).shifts, expected.shifts)
        model = torch.nn.Sequential(torch.nn.Identity()).eval()
        fitted = fit_layers(model, [(states, z)], ["0"], num_classes=k or 2)["0"]
        assert ClassMoments.fit(fitted(states), hot[..., None]).shifts.abs().max() < 1e-12
    whole = ClassMoments.fit(states.flatten(1), hot)
    torch.testing.assert_close(ClassMoments.fit(states, torch.arange(12) % 5).shifts, whole.shifts)


def test_small_batches_that_wait_are_seen_in_every_number() -> None:
    x, z = random_data(1)
    reads: list[Callable[[ClassMoments], torch.Tensor]] = [
        lambda m: m.counts, lambda m: m.means, lambda m: m.mean, lambda m: m.within, lambda m: m.total,
        lambda m: m.cross, lambda m: m.covariances, lambda m: m.covariance(1), lambda m: m.multiply(1, x[0]),
        lambda m: m.state_dict()["scatters"], lambda m: m.rescale(2.0).within,
        lambda m: ClassMoments(5, 3).merge(m).within, lambda m: m.merge(ClassMoments(5, 3)).within,
    ]  # fmt: skip
    for read in reads:  # each as the first
        moments = ClassMoments(5, 3)
        batch = torch.empty(10, 5, dtype=torch.float64)
        for a in range(0, 60, 10):
            batch.copy_(x[a : a + 10])  # whose memory is used again
            moments.update(batch.requires_grad_(), z[a : a + 10])
            batch = batch.detach()
        result = read(moments)
        assert not result.requires_grad
        torch.testing.assert_close(result, read(ClassMoments.fit(x, z)), rtol=1e-12, atol=1e-11)


def test_pooled_moments_have_all_but_the_class_covariances(tmp_path) -> None:
    x, z = random_data(2)
    expected = ClassMoments.fit(x, z)
    parts = [ClassMoments.fit(x[a:b], z[a:b], num_classes=3, pooled=True) for a, b in ((0, 7), (7, 31), (31, 60))]
    merged = ClassMoments(5, 3, pooled=True)
    for part in parts:
        merged.merge(part)
    equal(merged, expected)
    equal(merged.rescale(2.0, 1.0), ClassMoments.fit(2 * x + 1, z))
    assert merged.state_dict()["scatters"].shape == (1, 5, 5)
    with pytest.raises(ValueError, match="pooled moments have no class covariances: collect them with pooled=False"):
        merged.covariance(0)
    with pytest.raises(ValueError, match=r"moments of 3 classes in 5 dimensions into .* \(pooled\)"):
        merged.merge(expected)


@pytest.mark.parametrize("pooled", [False, True])
def test_moments_far_from_zero_are_those_near_zero(pooled: bool) -> None:
    """In whatever parts they come; these numbers are exact in float64 at both places."""
    x, z = random_data(6)
    x = (x * 2**18).round() / 2**18
    near = ClassMoments(5, 3, pooled=pooled).update(x, z)
    parts = [ClassMoments(5, 3, pooled=pooled).update(x[rows] + 2.0**33, z[rows]) for rows in torch.arange(60).split(7)]
    far = ClassMoments(5, 3, pooled=pooled).update(x + 2.0**33, z)
    merged, rescaled = parts[0], ClassMoments(5, 3, pooled=pooled).update(2 * x, z).rescale(0.5, 2.0**33)
    for part in parts[1:]:
        merged.merge(part)
    for moments in (far, merged, rescaled):
        torch.testing.assert_close(moments.shifts, near.shifts, rtol=0, atol=1e-13)
        torch.testing.assert_close(moments.scatters, near.scatters, rtol=1e-13, atol=1e-12)
        torch.testing.assert_close(moments.total, near.total, rtol=1e-13, atol=1e-12)
    torch.testing.assert_close(far.means, near.means + 2.0**33, rtol=1e-15, atol=0)
    assert torch.linalg.matrix_rank(ClassMoments.fit(x[:4] + 2.0**33, z[:4]).total, hermitian=True) == 3


@pytest.mark.parametrize("pooled", [False, True])
def test_loaded_moments_replace_those_before(pooled: bool) -> None:
    x, z = random_data(7)
    loaded = ClassMoments(5, 3, pooled=pooled).update(x[:30].float(), z[:30])
    loaded.load_state_dict(ClassMoments(5, 3, pooled=pooled).update(x[30:], z[30:]).state_dict())
    assert (loaded.n, loaded.epsilon) == (30, torch.finfo(torch.float64).eps)
    torch.testing.assert_close(loaded.mean, x[30:].mean(0))
    torch.testing.assert_close(loaded.total, torch.cov(x[30:].T, correction=0))


@pytest.mark.parametrize("concept", [False, True])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_with_waiting_batches_shares_nothing(copied: Callable[[Any], Any], concept: bool) -> None:
    x, z = random_data(7)
    moments = (ConceptMoments(5, 3) if concept else ClassMoments(5, 3)).update(x[:30], z[:30])
    other = copied(moments).update(x[30:], z[30:])
    torch.testing.assert_close(other.total, torch.cov(x.T, correction=0))
    torch.testing.assert_close(moments.total, torch.cov(x[:30].T, correction=0))


def test_tiny_values_are_taken_where_the_column_is_constant_or_also_has_others() -> None:
    x, z = random_data(0)
    x[:, 0] = 1e-170
    x[:50, 1] = 1e-170 * torch.rand(50, dtype=torch.float64)
    moments = ClassMoments(5, 4)  # without examples of the last class
    for rows in torch.arange(60).split(7):
        moments.update(x[rows], z[rows])
    eraser = LeaceEraser.from_moments(moments)
    means = torch.stack([eraser(x)[z == j].mean(0) for j in range(3)])
    assert float((means - means[0]).abs().max()) < 1e-12


@pytest.mark.parametrize("pooled", [False, True])
def test_a_class_without_examples_has_a_mean_of_zero(pooled: bool) -> None:
    x, z = random_data(7)
    moments = ClassMoments(5, 4, pooled=pooled).update(x, z).rescale(2.0, 3.0)
    assert moments.means[3].tolist() == [0] * 5
    torch.testing.assert_close(moments.means[0], 2 * x[z == 0].mean(0) + 3)
    moments.update(2 * x + 3, torch.full_like(z, 3))
    torch.testing.assert_close(moments.means[3], 2 * x.mean(0) + 3)


@pytest.mark.parametrize("pooled", [False, True])
def test_moments_stored_while_batches_wait_go_on_as_they_would_have(pooled: bool) -> None:
    x, z = random_data(7)
    moments = ClassMoments(5, 3, pooled=pooled).update(x[:30], z[:30])
    state = moments.state_dict()
    resumed = ClassMoments(5, 3, pooled=pooled).load_state_dict(state).update(x[30:], z[30:])
    moments.update(x[30:], z[30:])
    assert resumed.sizes == moments.sizes
    for name, tensor in moments.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name
    with pytest.raises(ValueError, match=r"3 classes in 5 dimensions.*: scatters is missing, expected finite torch.f"):
        resumed.load_state_dict({name: tensor for name, tensor in state.items() if name != "scatters"})
    with pytest.raises(ValueError, match=r"4 classes in 5 .*: sizes is torch.int64 \[3\], expected finite"):
        ClassMoments(5, 4, pooled=pooled).load_state_dict(state)
    for name in ("sizes", "scatters"):
        with pytest.raises(ValueError, match="3 classes in 5 .*: sizes or the diagonals of scatters are negative"):
            resumed.load_state_dict(state | {name: -state[name]})
