"""Scored examples: as networks see them and as they are stored, what counts as right, and wrong labels on purpose."""

import pytest
import torch

from conf.compose import composed
from harness.experiment import Experiment
from sample_info.scored_examples import Examples, capped, flip_labels, prepare
from sample_info.settings import SampleInfoConfig
from sample_info.subgroups import Subgroups
from sample_info.training_problem import accuracy

Z = torch.arange(1000) % 5


@pytest.fixture
def examples(tmp_path) -> Examples:
    chosen = ["model=linear", "eraser=control", "sample_info.examples=30", "sample_info.held_out=20"]
    config = composed("sample_info", [*chosen, f"cache_dir={tmp_path}"], SampleInfoConfig)
    return prepare(Experiment.from_config("sample_info", config))


def test_what_networks_see_is_standardised_and_can_be_undone(examples: Examples) -> None:
    stored = examples.stored(examples.x)
    assert 0 <= float(stored.min()) < float(stored.max()) <= 1 + 1e-6
    torch.testing.assert_close(examples.standardised(stored), examples.x)
    mean, std = examples.dataset.channel_mean, examples.dataset.channel_std
    torch.testing.assert_close(stored, examples.x * std.float().view(1, -1, 1, 1) + mean.float().view(1, -1, 1, 1))


def test_accuracy_is_a_share(examples: Examples) -> None:
    k = examples.num_outputs
    right = torch.nn.functional.one_hot(examples.labels, max(k, 2)).double()
    outputs = right if k > 1 else right[:, 1:]
    assert accuracy(outputs, examples.labels) == 1
    outputs[:15] = outputs[:15].roll(1, 1) if k > 1 else 1 - outputs[:15]
    assert accuracy(outputs, examples.labels) == 0.5


def test_exactly_the_fraction_is_wrong_and_known() -> None:
    noisy, flipped = flip_labels(Z, 5, 0.1, seed=0)
    assert int(flipped.sum()) == 100
    assert torch.equal(noisy != Z, flipped)
    assert set(noisy.tolist()) == set(range(5))
    shifts = ((noisy - Z) % 5)[flipped].bincount(minlength=5)
    assert shifts[0] == 0
    assert shifts[1:].min() > 10  # of 25 each
    assert torch.equal(noisy, flip_labels(Z, 5, 0.1, seed=0)[0])
    assert not torch.equal(noisy, flip_labels(Z, 5, 0.1, seed=1)[0])
    assert torch.equal(flip_labels(Z, 5, 0.0, seed=0)[0], Z)


def test_what_makes_no_sense_is_refused() -> None:
    for num_classes, fraction in ((5, 1.5), (1, 0.1)):
        with pytest.raises(AssertionError):
            flip_labels(Z, num_classes, fraction, seed=0)


def test_caps_are_kept_and_seeded() -> None:
    parity = Subgroups(("even", "odd"), torch.tensor([0, 1, 0, 1, 0, 1]))
    positions = capped(parity, {"odd": 1}, seed=0)
    assert len(positions) == 4
    assert {0, 2, 4} < set(positions.tolist())
    drawn = {tuple(capped(parity, {"odd": 1}, seed).tolist()) for seed in range(20)}
    assert len(drawn) == 3
    assert capped(parity, {}, seed=0).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="no group third; there are even, odd"):
        capped(parity, {"third": 1}, seed=0)
    with pytest.raises(ValueError, match="merge classes"):
        capped(Subgroups(("",), torch.zeros(6, dtype=torch.int64)), {"third": 1}, seed=0)
