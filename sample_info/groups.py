"""Kinds of example beside their classes: the classes that were merged into one, the dataset that each came from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from erasure.classes import ClassSubset
from erasure.source import RawImages, Source


@dataclass(frozen=True)
class Groups:
    """A name for each of n examples.

    Attributes:
        names: of the groups.
        of: which one each example is in, [n] int64.
    """

    names: tuple[str, ...]
    of: Tensor

    @classmethod
    def marked(cls, mask: Tensor, name: str, others: str) -> "Groups":
        """Two groups: those where `mask` [n] is true, and the others."""
        return cls((others, name), mask.long().cpu())

    @classmethod
    def crossed(cls, several: Sequence["Groups"]) -> "Groups | None":
        """Every combination that occurs, named "cat · wrong label"; None of none."""
        if len(several) < 2:
            return several[0].present() if several else None
        first, rest = several[0], cls.crossed(several[1:])
        assert rest is not None
        names = tuple(f"{a} · {b}" for a in first.names for b in rest.names)
        return cls(names, first.of * len(rest.names) + rest.of).present()

    def present(self) -> "Groups":
        """Without groups that have no example."""
        kept, of = self.of.unique(return_inverse=True)
        return Groups(tuple(self.names[j] for j in kept.tolist()), of)

    def masks(self) -> Mapping[str, Tensor]:
        """Who is in each, [n] bool."""
        return {name: self.of == j for j, name in enumerate(self.names)}

    def __getitem__(self, index: Tensor) -> "Groups":
        return Groups(self.names, self.of[index.cpu()])


def groups_of(source: Source, whole: RawImages, index: Tensor) -> Groups | None:
    """Of training examples at `index` of the whole dataset's images, before anything was left out; None if all alike.

    They differ where classes are merged, and where the dataset is a mixture of several.
    """
    found = []
    if whole.parts:
        ends = torch.tensor([*whole.parts.values()]).cumsum(0)
        found.append(Groups(tuple(whole.parts), torch.searchsorted(ends, index, right=True)))
    if isinstance(source, ClassSubset) and source.merges:
        found.append(Groups(whole.class_names, whole.train.labels[index]))
    return Groups.crossed(found)


def capped(groups: Groups | None, most: Mapping[str, int], seed: int) -> Tensor | None:
    """Positions, ascending, of a seeded random sample with at most so many examples of each named group.

    None where nothing is capped.

    Raises:
        ValueError: a group that there is not.
    """
    if not most:
        return None
    names = groups.names if groups is not None else ()
    if unknown := [name for name in most if name not in names]:
        known = ", ".join(names) or "none: merge classes, as in sample_info.classes=[[3,5],4], or mix datasets"
        raise ValueError(f"sample_info.at_most: there is no group {unknown[0]}; there are {known}")
    assert groups is not None
    generator, kept = torch.Generator().manual_seed(seed), torch.ones(len(groups.of), dtype=torch.bool)
    for name, mask in groups.masks().items():
        members = mask.nonzero().squeeze(1)
        dropped = members[torch.randperm(len(members), generator=generator)[most.get(name, len(members)) :]]
        kept[dropped] = False
    return kept.nonzero().squeeze(1)
