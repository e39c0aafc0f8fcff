"""Generators differ by seed and purpose. Epochs: every example in turn, members independent, batches of one size."""

import dataclasses
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from train.randomness import EpochOrder, generator, permutation
from train.settings import TrainSettings

CPU = torch.device("cpu")


def order(settings: TrainSettings, seeds: list[int], n: int, rates: Sequence[float] = (), **changes) -> EpochOrder:
    return EpochOrder(seeds, n, 9, dataclasses.replace(settings, **changes), rates)


@given(n=st.integers(1, 300), batch_size=st.integers(1, 64), least=st.integers(1, 30))
def test_batches_are_equal_and_passes_visit_nearly_everything(n: int, batch_size: int, least: int) -> None:
    made = order(SETTINGS, [0, 1], n, batch_size=batch_size, min_epoch_steps=least)
    positions, views, factors = made.draw([0, 1], CPU)
    steps, members, batch = positions.shape
    assert members == 2
    assert factors.shape == (steps, 2, 0, batch)
    assert steps == made.steps >= least
    assert batch <= min(batch_size, n)
    assert views.shape == positions.shape
    assert 0 <= int(views.min()) <= int(views.max()) < 9
    one_pass = positions[:, 0].flatten()[: made.batches * batch]
    assert len(one_pass.unique()) == len(one_pass) > n - made.batches  # fewer left out than there are batches


SETTINGS = TrainSettings(
    lr=1.0, betas=(0.9, 0.99), weight_decay=0, warmup_steps=0, batch_size=8, max_epochs=1, patience_steps=1,
    plateau_steps=0, min_improvement_bits=0, eval_every=1, min_epoch_steps=1, crop_padding=0, precision="float32",
    eval_batch_size=8, stack="all", checkpoint_every_s=120.0,
)  # fmt: skip


def test_a_member_draws_what_it_would_draw_alone() -> None:
    together, alone = order(SETTINGS, [3, 4, 5], 20, [0.5]), order(SETTINGS, [4], 20, [0.5])
    together.draw([0, 1, 2], CPU)
    alone.draw([0], CPU)
    drawn = together.draw([1, 2], CPU)  # the first member has stopped
    for both, single in zip(drawn, alone.draw([0], CPU), strict=True):
        assert torch.equal(both[:, :1], single)
        assert not torch.equal(both[:, 0], both[:, 1])


def test_a_state_from_before_the_first_epoch_gives_that_epoch() -> None:
    first, second = order(SETTINGS, [0, 1], 50), order(SETTINGS, [2, 3], 50)
    second.restore(first.state())
    assert all(torch.equal(a, b) for a, b in zip(first.draw([0, 1], CPU), second.draw([0, 1], CPU), strict=True))


def test_branches_are_dropped_at_their_layers_rates_and_keep_their_mean() -> None:
    factors = order(SETTINGS, [0], 20_000, [0.0, 0.25, 0.5]).draw([0], CPU).factors
    by_layer = [sorted(layer.unique().tolist()) for layer in factors.unbind(2)]
    assert by_layer == [[1.0], [0.0, pytest.approx(4 / 3)], [0, 2]]
    assert factors.mean((0, 1, 3)).tolist() == pytest.approx([1.0, 1.0, 1.0], abs=0.04)  # 5 standard errors


def test_generators_differ_by_seed_and_purpose() -> None:
    draws = {
        float(torch.rand(1, generator=generator(*name)))
        for name in [(0, "init"), (1, "init"), (0, "order"), (0, 10, "order"), (0, 1, "0order"), (11, "order")]
    }
    assert len(draws) == 6
    assert torch.equal(permutation(3, 50), permutation(3, 50))
    assert permutation(3, 50).sort().values.tolist() == list(range(50))
