"""Training, validation and test splits of a dataset, with every class in proportion."""

import torch
from torch import Tensor

from erasure.dataset import LabelledImages, RawImages, Source


def splits(source: Source, raw: RawImages) -> dict[str, LabelledImages]:
    """Return the training, validation and test split, which are the same for every run of this dataset.

    Raises:
        ValueError: sizes that do not fit, or labels that do not match the examples or the class names.
    """
    k = len(raw.class_names)
    for part in (raw.train, raw.test):
        if part is not None and (part.labels.dtype != torch.int64 or part.labels.shape != part.images.shape[:1]):
            raise ValueError(
                f"dataset {source.name} has {len(part.images):,} examples and labels of type {part.labels.dtype} and "
                f"shape {list(part.labels.shape)}: need one label for each example, as torch.int64"
            )
        if part is not None and len(part) and not 0 <= int(part.labels.min()) <= int(part.labels.max()) < k:
            raise ValueError(
                f"dataset {source.name} has labels from {int(part.labels.min())} to {int(part.labels.max())}, "
                f"but {k} classes: labels must run from 0 to {k - 1}"
            )
    train, test = raw.train, raw.test
    if test is None:
        n, fraction = len(train), source.test_fraction
        tested = round(fraction * n) if 0 < fraction < 1 else 0
        if not 1 <= tested <= n - 2:
            raise ValueError(
                f"test_fraction={fraction}: {source.name} has no official test split; of its {n:,} examples at least 1 "
                "must be held out for testing, and 2 be left for training and validation: choose in between"
            )
        rest, held_out = stratified_split(train.labels, tested, source.split_seed)
        train, test = train[rest], train[held_out]
    size = source.validation_size
    if size is None:
        size = min(1024, max(1, len(train) // 10))
    if not 0 < size < len(train):
        raise ValueError(
            f"validation_size={size}: {source.name} has {len(train)} training examples, and at least 1 must be left "
            "for training and 1 for validation"
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
