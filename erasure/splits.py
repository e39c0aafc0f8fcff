"""Training, validation and test splits of a dataset, with every class in proportion."""

import torch
from torch import Tensor

from erasure.dataset import LabelledImages, RawImages, Source


def splits(source: Source, raw: RawImages) -> dict[str, LabelledImages]:
    """Return the training, validation and test split, which are the same for every run of this dataset.

    Raises:
        ValueError: sizes that do not fit, or labels that do not match the class names.
    """
    k = len(raw.class_names)
    for part in (raw.train, raw.test):
        if part is not None and len(part) and not 0 <= int(part.labels.min()) <= int(part.labels.max()) < k:
            raise ValueError(
                f"dataset {source.name} has labels from {int(part.labels.min())} to {int(part.labels.max())}, "
                f"but {k} classes: labels must run from 0 to {k - 1}"
            )
    train, test = raw.train, raw.test
    if test is None:
        if not 0 < source.test_fraction < 1:
            raise ValueError(
                f"test_fraction={source.test_fraction}: {source.name} has no official test split, "
                "so a fraction between 0 and 1 of it must be held out"
            )
        n, tested = len(train), round(source.test_fraction * len(train))
        if not 1 <= tested <= n - 2:
            raise ValueError(
                f"test_fraction={source.test_fraction}: holds out {tested:,} of the {n:,} examples of {source.name} "
                "for testing, and at least 1 must be held out and 2 left for training and validation: choose in between"
            )
        rest, held_out = stratified_split(train.labels, tested, source.split_seed)
        train, test = train[rest], train[held_out]
    size = source.validation_size
    if size is None:
        size = min(1024, max(1, len(train) // 10))
    if len(train) < 2:
        raise ValueError(f"{source.name} has {len(train)} training examples: at least 2 are needed, one for validation")
    if not 0 < size < len(train):
        raise ValueError(
            f"validation_size={size}: must be between 1 and {len(train) - 1}, as {source.name} has {len(train)} "
            "training examples"
        )
    rest, held_out = stratified_split(train.labels, size, source.split_seed + 1)
    return {"train": train[rest], "validation": train[held_out], "test": test}


def stratified_split(labels: Tensor, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return ascending positions (rest, held out) with `size` examples held out, every class in proportion."""
    generator = torch.Generator().manual_seed(seed)
    classes, counts = labels.unique(return_counts=True)
    exact = counts * (size / len(labels))
    quota = exact.floor().long()
    remainders = (exact - quota).argsort(descending=True, stable=True)
    quota[remainders[: size - int(quota.sum())]] += 1  # largest remainders first
    held_out = []
    for label, take in zip(classes, quota.tolist(), strict=True):
        members = (labels == label).nonzero().squeeze(1)
        held_out.append(members[torch.randperm(len(members), generator=generator)[:take]])
    mask = torch.zeros(len(labels), dtype=torch.bool)
    mask[torch.cat(held_out)] = True
    return (~mask).nonzero().squeeze(1), mask.nonzero().squeeze(1)
