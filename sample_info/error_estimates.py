"""Error estimates of single scores without retraining, by comparison with more faithful scores.

The plain score linearises at w_0, the more faithful score along the path of one training (`linearized.trained_path`).
If the two agree, linearisation holds for this example.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from sample_info.agreement import spearman
from sample_info.result import ErrorEstimate

TRAINED_PATH = "trained path"  # name of the second method among references
_FACTOR = 2.0
_SHARE = 0.5  # share of the median difference: the best of 1, ½, ¼ and 0 on four runs (docs/sample_info.md)


@dataclass(frozen=True)
class EstimatedErrors:
    """Changes of one seed's weights or predictions by several methods, [n] each."""

    score: Tensor  # changes of the network linearised at w_0
    along_path: Tensor  # changes by linearisation along the trained path
    truth: Tensor | None = None  # changes by retraining, NaN for examples that were not left out

    @cached_property
    def factor(self) -> Tensor:
        """Factor, 1 or more, by which each score may be too large or too small, [n].

        The factor is the ratio of the larger to the smaller score. It is widened by a typical error, as two methods may
        agree by chance: the smaller change √score may be wrong by half the median difference of the methods' changes.
        The factor is infinite if one score is zero.
        """
        small = torch.minimum(self.score, self.along_path).sqrt()
        large = torch.maximum(self.score, self.along_path).sqrt()
        typical = _SHARE * (large - small).median()
        margin = 1 + (typical / small).nan_to_num(nan=0.0, posinf=math.inf)
        return _factor(self.score, self.along_path) * margin.square()

    @property
    def believable(self) -> Tensor:
        """Mask [n] of scores whose estimated error is less than a factor of two."""
        return self.factor < _FACTOR

    @property
    def described(self) -> ErrorEstimate:
        """Count the believable scores, and compare them with retraining."""
        count = int(self.believable.sum())
        if self.truth is None:
            return ErrorEstimate(believable=count)
        known = ~self.truth.isnan()
        error, believed = _factor(self.score, self.truth)[known], self.believable[known]
        return ErrorEstimate(
            believable=count,
            retrained=int(known.sum()),
            spearman=spearman(self.factor[known], error),
            believed=int(believed.sum()),
            rightly_believed=int((error[believed] < _FACTOR).sum()),
            rightly_doubted=int((error[~believed] >= _FACTOR).sum()),
        )


def _factor(a: Tensor, b: Tensor) -> Tensor:
    """Return the ratio of the larger to the smaller value: 1 if both are zero, infinite if one of them is."""
    return torch.where(a == b, 1.0, torch.maximum(a, b) / torch.minimum(a, b))
