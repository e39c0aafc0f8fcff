"""Statistics of comparisons: means over seeds, paired differences, Holm's correction, the bootstrap over examples."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
K = TypeVar("K")


LEVEL = 0.05
_SAME = 1e-12  # standard error of equal differences, which differ by rounding, relative to their mean


def compression(bits_per_label: Sequence[float], num_classes: int) -> float:
    """Return the codelength of the uniform code divided by the mean codelength over seeds (Voita & Titov 2020)."""
    return math.log2(num_classes) / Spread.of(bits_per_label).mean


def seeds_text(count: int) -> str:
    """Return "5 seeds", or "one seed"."""
    return "one seed" if count == 1 else f"{count} seeds"


def deviation_over(counts: Iterable[int]) -> list[str]:
    """Return a list with the footnote on the seeds behind a table's ±; empty if every run has one seed."""
    several = sorted({*counts} - {0, 1})
    if not several:
        return []
    return [f"±: standard deviation over {' or '.join([*map(str, several[:-1]), seeds_text(several[-1])])}."]


def signed(value: float) -> str:
    """Return a number with its sign and three decimals; numbers that round to zero have no sign."""
    text = f"{value:+.3f}"
    return text if float(text) else text[1:]


@dataclass(frozen=True)
class Spread:
    """Mean over seeds, with the sample standard deviation (None for one seed)."""

    mean: float
    std: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(mean(values), stdev(values) if len(values) > 1 else None)

    def __format__(self, number_format: str) -> str:
        """`f"{spread:.3f}"` is "1.234 ± 0.056", or "1.234" for one seed."""
        number_format = f"z{number_format or '.3f'}"  # no "-0.000"
        mean = format(self.mean, number_format)
        return mean if self.std is None else f"{mean} ± {format(self.std, number_format)}"


@dataclass(frozen=True)
class Difference:
    """Mean of per-seed differences to the control.

    Attributes:
        mean: mean over seeds.
        standard_error: standard error over seeds; None for one seed.
        p_value: two-sided p-value of Student's t with S - 1 degrees of freedom; NaN for one seed, and if all seeds have
            the same difference, not zero, as after one computation that does not depend on seeds. `holm` corrects it
            for the other differences in its table.
        test_error: standard error of the mean over test examples (`bootstrap_error`); None if unknown.
        seeds: number of paired seeds.
    """

    mean: float
    standard_error: float | None
    p_value: float
    test_error: float | None = None
    seeds: int = 1

    @property
    def significant(self) -> bool:
        return self.p_value <= LEVEL

    @property
    def below(self) -> bool:
        """Whether the mean is significantly below the control's."""
        return self.significant and self.mean < 0

    @property
    def above(self) -> bool:
        """Whether the mean is significantly above the control's."""
        return self.significant and self.mean > 0

    def __str__(self) -> str:
        """ "+0.123 ± 0.004 ± 0.010 *": errors over seeds and, if known, over test examples; a star if significant."""
        if self.standard_error is None:
            examples = "" if self.test_error is None else f"; ± {self.test_error:.3f} over test examples"
            return f"{signed(self.mean)} (one seed{examples})"
        errors = [error for error in (self.standard_error, self.test_error) if error is not None]
        return " ".join([signed(self.mean), *(f"± {error:.3f}" for error in errors), *"*"[: self.significant]])


def difference_fields(value: str) -> Mapping[str, str]:
    """Return attributes of `Difference` by their names in CSV and in `harness.results.compare`.

    Args:
        value: the compared column. Erasure backfires if networks then need fewer bits, or have a higher accuracy.
    """
    return {
        "difference": "mean",
        "standard_error": "standard_error",
        "p_holm": "p_value",
        "significant": "significant",
        "backfires": "above" if "accuracy" in value else "below",
        "error_over_examples": "test_error",
        "paired_seeds": "seeds",
    }


def paired_difference(values: Sequence[float], control: Sequence[float], test_error: float | None = None) -> Difference:
    """Compare values with the control's, seed by seed; both have the same order of seeds."""
    differences = [value - reference for value, reference in zip(values, control, strict=True)]
    middle, degrees = mean(differences), len(differences) - 1
    if not degrees:
        return Difference(middle, None, math.nan, test_error)
    error = stdev(differences) / math.sqrt(len(differences))
    from scipy.special import stdtr  # imported here because a launch of a finished run does not need it

    if error <= _SAME * abs(middle):
        return Difference(middle, error, math.nan if middle else 1.0, test_error, len(differences))
    t = abs(middle) / error
    return Difference(middle, error, float(2 * stdtr(degrees, -t)), test_error, len(differences))


def holm(differences: Mapping[K, Difference]) -> dict[K, Difference]:
    """Return differences with p-values corrected by Holm's method (1979), which controls the family-wise error.

    A family is a column of a table, i.e. all differences of one measure. Differences whose p-value is NaN are not
    tested and do not count.
    """
    corrected, largest = dict(differences), 0.0
    tested = [key for key, difference in differences.items() if not math.isnan(difference.p_value)]
    for rank, key in enumerate(sorted(tested, key=lambda key: differences[key].p_value)):
        largest = max(largest, min(1.0, (len(tested) - rank) * differences[key].p_value))
        corrected[key] = replace(differences[key], p_value=largest)
    return corrected


def bootstrap_error(erased: Array, control: Array) -> float:
    """Return the standard error over test examples of a paired difference of mean losses, for fixed seeds.

    The bootstrap resamples examples in pairs, with all their seeds. With infinitely many resamples, its error of a mean
    is the standard deviation of the n differences over √n (Efron & Tibshirani 1993, chapter 6). This formula is used.

    Args:
        erased: losses [S, n] on the test examples.
        control: the control's losses on the same examples.
    """
    differences = (erased - control).mean(0, dtype=np.float64)
    return float(differences.std() / math.sqrt(len(differences)))
