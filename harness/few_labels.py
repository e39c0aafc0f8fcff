"""Too few labels for a codelength, in words."""

from collections.abc import Sequence

LEAST_FIRST_SIZE = 10  # or one example per class: fewer teach a network nothing that holds for others
FIRST_SIZE_SHARE = 47  # of all labels, unless that is more than 1,024: 48,976 CIFAR-10 training images start there


def few_labels(sizes: Sequence[int], num_classes: int) -> str | None:
    """Say that the first of the networks is trained on too few examples, or that all labels are few; or None.

    Args:
        sizes: training sizes, ascending; the last is that of all labels.
        num_classes: k.
    """
    least = max(LEAST_FIRST_SIZE, num_classes)
    if sizes[0] >= least and sizes[-1] // FIRST_SIZE_SHARE >= least:
        return None
    return (
        f"the first network learns from {sizes[0]:,} examples of {num_classes} classes and codes the next "
        f"{sizes[1] - sizes[0]:,} of {sizes[-1]:,} labels, so that codelengths depend much on which examples come first"
    )
