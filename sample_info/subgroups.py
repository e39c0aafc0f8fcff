"""Subgroups of examples: merged classes, datasets of a mixture, or examples marked by a mask."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from erasure.dataset import RawImages, Source
from erasure.datasets.class_subset import ClassSubset


@dataclass(frozen=True)
class Subgroups:
    """Names of groups, and the group of each example, [n] int64; the only name is empty if there are no groups."""

    names: tuple[str, ...]
    of: Tensor

    @classmethod
    def marked(cls, mask: Tensor, name: str, others: str) -> "Subgroups":
        """Make two groups: the examples for which `mask` [n] is true, and the others."""
        return cls((others, name), mask.long().cpu())

    def crossed(self, other: "Subgroups") -> "Subgroups":
        """Combine two groupings; combinations are named "cat · wrong label"."""
        names = tuple(" · ".join(filter(None, pair)) for pair in product(self.names, other.names))
        return Subgroups(names, self.of * len(other.names) + other.of).present()

    def present(self) -> "Subgroups":
        """Drop groups without examples."""
        occurring, of = self.of.unique(return_inverse=True)
        return Subgroups(tuple(self.names[j] for j in occurring.tolist()), of)

    def masks(self) -> Mapping[str, Tensor]:
        """Return a boolean mask per named subgroup."""
        return {name: self.of == j for j, name in enumerate(self.names) if name}


def subgroups_of(source: Source, whole: RawImages, index: Tensor) -> Subgroups:
    """Return the subgroups of the training examples at positions `index` of the whole dataset.

    Subgroups are merged classes and the parts of a mixture.
    """
    groups = Subgroups(("",), torch.zeros_like(index))
    if whole.parts:
        ends = torch.tensor([*whole.parts.values()]).cumsum(0)
        groups = groups.crossed(Subgroups(tuple(whole.parts), torch.searchsorted(ends, index, right=True)))
    if isinstance(source, ClassSubset) and source.merges:
        groups = groups.crossed(Subgroups(whole.class_names, whole.train.labels[index]))
    return groups
