"""All randomness of a run, derived from its seeds: one explicit generator per member and purpose."""

import hashlib
from collections.abc import Sequence

import torch


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Create the CPU generator of one seed and one purpose, e.g. `generator(3, "order", 642)`.

    Generators of different purposes are independent, so that no draw depends on how often another
    was used, on what else runs, or on the device.
    """
    name = "/".join(map(str, (seed, *purpose)))
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def permutation(seed: int, n: int) -> torch.Tensor:
    """Return a seed's order of the n training examples; its prefixes are the seed's training sets, [n] int64."""
    return torch.randperm(n, generator=generator(seed, "permutation"))


def permutations(seeds: Sequence[int], n: int) -> torch.Tensor:
    """Return the `permutation` of each seed, [S, n] int64."""
    return torch.stack([permutation(seed, n) for seed in seeds])
