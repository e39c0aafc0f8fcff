"""Too few examples for class moments, in words: erasure then holds for the examples it was fitted to alone."""

import logging
from typing import Any

from erasure.concept_moments import ConceptMoments
from erasure.moments import ClassMoments

log = logging.getLogger(__name__)


def few_examples(n: int, smallest: int | None, dim: int, order: int) -> str | None:
    """Say that there are too few examples to make class moments equal on others as well; None where there are not.

    No more examples than coordinates have a singular covariance, and every labelling of them is linear: the directions
    that are erased follow from the sample, not from what it was drawn from.

    Args:
        n: examples that the eraser is fitted to.
        smallest: those of the smallest class; None for a concept without classes.
        dim: coordinates of an example.
        order: highest order of class moments that the eraser makes equal.
    """
    if order >= 1 and n <= dim:
        what = "moments" if smallest is None else "class moments"
        classes = "" if smallest is None else f" ({smallest:,} in the smallest class)"
        what = f"{what} cannot be estimated from {n:,} examples{classes} of {dim:,} values each"
    elif order >= 2 and smallest is not None and smallest <= dim:
        what = (
            f"class covariances cannot be estimated from the {smallest:,} examples of a class, of {dim:,} values each"
        )
    else:
        return None
    return f"{what}: erasure makes them equal on these very examples, and not on others"


def warned_of_few(eraser: Any, moments: ClassMoments | ConceptMoments) -> bool:
    """Warn where moments are of too few examples for an eraser's class; return whether they are."""
    smallest = None if isinstance(moments, ConceptMoments) else min(moments.sizes)
    said = few_examples(moments.n, smallest, moments.dim, eraser.erased_order)
    if said is not None:
        log.warning("%s: %s; fit it to more examples, or to fewer coordinates of them", eraser.__name__, said)
    return said is not None
