"""Generators of random numbers by seed and purpose."""

import torch

from train.randomness import generator, permutation


def test_generators_differ_by_seed_and_purpose() -> None:
    draws = {
        float(torch.rand(1, generator=generator(*name)))
        for name in [(0, "init"), (1, "init"), (0, "order"), (0, 10, "order"), (0, 1, "0order"), (11, "order")]
    }
    assert len(draws) == 6
    assert torch.equal(permutation(3, 50), permutation(3, 50))
    assert permutation(3, 50).sort().values.tolist() == list(range(50))
