"""Warnings of too few examples: erasure then holds only for the examples that it was fitted to."""

import logging
from typing import Any

from erasure.concept_moments import ConceptMoments
from erasure.moments import ClassMoments

log = logging.getLogger(__name__)


def few_examples(n: int, smallest: int | None, dim: int, order: int) -> str | None:
    """Return a warning of too few examples to make class moments equal on other data, or None if there are enough.

    With no more examples than coordinates, the covariance is singular and every labelling is a linear function of the
    examples. The directions that are erased then depend on the sample rather than on its distribution.

    Args:
        n: number of examples that the eraser is fitted to.
        smallest: number of examples of the smallest class; None for a concept without classes.
        dim: number of coordinates of an example.
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
    """Log a warning if an eraser (class or instance) is fitted to too few examples; return whether it was logged."""
    smallest = None if isinstance(moments, ConceptMoments) else min(filter(None, moments.sizes), default=0)
    warning = few_examples(moments.n, smallest, moments.dim, eraser.erased_order)
    if warning is not None:
        log.warning("%s: %s; fit it to more examples, or to fewer coordinates of them", eraser.__name__, warning)
    return warning is not None
