"""Wrong labels on purpose."""

import pytest
import torch

from sample_info.label_noise import flip_labels

Z = torch.arange(1000) % 5


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
