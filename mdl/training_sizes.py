"""Training sizes of the learning curve, whose parts grow geometrically."""

import itertools
import logging
import math
from collections.abc import Sequence

from mdl.settings import MdlSettings

log = logging.getLogger(__name__)

_MIN_CHUNK = 1024  # our choice: the paper's text states none
_LEAST_FIRST_SIZE = 10  # or one example per class: networks do not generalise from fewer
_FIRST_SIZE_SHARE = 47  # first size is a 47th of all labels, at most 1,024 (reached by CIFAR-10's 48,976 images)


def chunk_sizes(total: int, settings: MdlSettings, num_classes: int = 2) -> list[int]:
    """Return training sizes n_1 < ... < n_m = total, whose parts form a geometric series that begins with n_1.

    The parts are rounded down, and the last part takes the remainder, so no part is smaller than the one before.

    Args:
        total: number of training examples.
        settings: number of parts, and optionally the first part.
        num_classes: k; by default the first part has at least k examples, and at least 10.

    Raises:
        ValueError: the sizes do not fit the dataset; the message names options that would.
    """
    m, first = settings.num_chunks, first_size(total, settings, num_classes)
    if m * first > total:
        least_first = 2 if settings.validation == "prefix" else 1
        remedies = (("mdl.num_chunks", total // first, 2), ("mdl.min_chunk", total // m, least_first))
        useful = [f"set {key} to at most {most}" for key, most, least in remedies if most >= least]
        if not useful and total >= 2 * least_first:
            useful = [f"set both mdl.num_chunks=2 and mdl.min_chunk={least_first}"]
        raise ValueError(
            f"mdl.num_chunks={m} chunks of at least min_chunk={first} examples need {m * first:,} training examples, "
            f"but there are {total:,}: {' or '.join(useful) or 'take more examples'}"
        )
    if settings.validation == "prefix" and first < 2:
        raise ValueError(
            f"mdl.validation=prefix with a first training size of {first}: one example cannot stop the training on "
            "none: set mdl.min_chunk to at least 2"
        )
    ratio = _ratio(total / first, m)
    parts = [math.floor(first * ratio**i) for i in range(m)]
    parts[-1] = total - sum(parts[:-1])
    return [sum(parts[: i + 1]) for i in range(m)]


def first_size(total: int, settings: MdlSettings, num_classes: int) -> int:
    """Return the first training size; see `chunk_sizes`."""
    if settings.min_chunk is not None:
        return settings.min_chunk
    return max(min(_MIN_CHUNK, total // _FIRST_SIZE_SHARE), _LEAST_FIRST_SIZE, num_classes)


def rounded_sizes(total: int, settings: MdlSettings, num_classes: int = 2) -> list[int]:
    """Return training sizes whose parts are a geometric series, rounded to nearby integers that sum to `total`.

    As in the paper's code, the parts with the largest remainders are rounded up and the others down. `chunk_sizes`
    rounds down all parts but the last.

    Raises:
        ValueError: raised by `chunk_sizes`.
    """
    first = chunk_sizes(total, settings, num_classes)[0]
    ratio = _ratio(total / first, settings.num_chunks)
    exact = [first * ratio**i for i in range(settings.num_chunks)]
    parts = [math.floor(part) for part in exact]
    largest_remainders = sorted(range(len(parts)), key=lambda i: parts[i] - exact[i])
    for i in largest_remainders[: total - sum(parts)]:
        parts[i] += 1
    return list(itertools.accumulate(parts))


def few_labels(sizes: Sequence[int], num_classes: int) -> str | None:
    """Return a remark if the first network has too few examples or there are too few labels in all, else None.

    Args:
        sizes: training sizes, ascending, ending in the number of labels.
        num_classes: k.
    """
    least = max(_LEAST_FIRST_SIZE, num_classes)
    if sizes[0] >= least and sizes[-1] // _FIRST_SIZE_SHARE >= least:
        return None
    return (
        f"the first network learns from {sizes[0]:,} examples of {num_classes} classes and codes the next "
        f"{sizes[1] - sizes[0]:,} of {sizes[-1]:,} labels, so that codelengths depend much on which examples come first"
    )


def warn_of_few(sizes: Sequence[int], num_classes: int, remedy: str = "take more examples") -> None:
    """Warn if the smallest training size, or the number of labels, is too small for informative codelengths."""
    if said := few_labels(sizes, num_classes):
        log.warning("training sizes %s: %s; %s", ", ".join(map(str, sizes)), said, remedy)


def _ratio(sum_of_powers: float, m: int) -> float:
    """Solve 1 + r + ... + r^(m-1) = sum_of_powers >= m for r >= 1."""

    def excess(r: float) -> float:
        return sum(r**i for i in range(m)) - sum_of_powers

    if excess(1.0) >= 0:
        return 1.0
    from scipy.optimize import brentq

    root = brentq(excess, 1.0, sum_of_powers ** (1 / (m - 1)), xtol=1e-14)
    assert isinstance(root, float)
    return root
