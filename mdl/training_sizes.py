"""The training sizes of the curve: parts that grow geometrically."""

import itertools
import math

from mdl.settings import MdlSettings

_MIN_CHUNK = 1024  # ours: the paper's text states none
_MIN_CHUNK_SHARE = 47  # so that 48,976 CIFAR-10 training images still start at 1,024


def chunk_sizes(total: int, settings: MdlSettings) -> list[int]:
    """Return training sizes n_1 < ... < n_m = total; the parts form a geometric series from n_1 on.

    The parts are rounded down and the last takes what is left, so that they never shrink.

    Raises:
        ValueError: sizes that do not fit the dataset; says which would.
    """
    m = settings.num_chunks
    first = settings.min_chunk
    if first is None:
        first = max(1, min(_MIN_CHUNK, total // _MIN_CHUNK_SHARE))
    if m * first > total:
        remedies = (("mdl.num_chunks", total // first, 2), ("mdl.min_chunk", total // m, 1))
        raise ValueError(
            f"mdl.num_chunks={m} chunks of at least min_chunk={first} examples need {m * first:,} training examples, "
            f"but there are {total:,}: "
            + " or ".join(f"set {key} to at most {most}" for key, most, least in remedies if most >= least)
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


def rounded_sizes(total: int, settings: MdlSettings) -> list[int]:
    """Return training sizes whose parts are the geometric series' rounded to the nearest integers that sum to `total`.

    As in the paper's code: what rounding down leaves goes to the parts with the largest remainders. `chunk_sizes` gives
    it to the last part.

    Raises:
        ValueError: as `chunk_sizes`.
    """
    first = chunk_sizes(total, settings)[0]
    ratio = _ratio(total / first, settings.num_chunks)
    exact = [first * ratio**i for i in range(settings.num_chunks)]
    parts = [math.floor(part) for part in exact]
    largest_remainders = sorted(range(len(parts)), key=lambda i: parts[i] - exact[i])
    for i in largest_remainders[: total - sum(parts)]:
        parts[i] += 1
    return list(itertools.accumulate(parts))


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
