"""Error estimates of single scores without retraining: each score is compared with a more faithful one.

The plain score linearises at w_0, the other one along the path of one training (`linearized.trained_path`). Where the
two agree, linearisation holds for this example.
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
_SHARE = 0.5  # of the median difference: best of 1, ½, ¼ and 0 on four runs (docs/sample_info.md)


@dataclass(frozen=True)
class EstimatedErrors:
    """One seed's weight or prediction changes by several methods, [n] each."""

    score: Tensor  # of the network linearised at w_0
    along_path: Tensor  # of the linearisation along the trained path
    truth: Tensor | None = None  # by retraining, NaN for examples that it did not leave out

    @cached_property
    def factor(self) -> Tensor:
        """Factor by which a score may be wrong, either way, [n] from 1 on.

        The ratio of the larger to the smaller score, widened by a typical error of the smaller change √score, as two
        methods may agree by chance: half the median difference of the methods' changes. Infinite where one score is
        zero.
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
    """Return the ratio of the larger to the smaller: 1 where both are zero, infinite where one of them is."""
    return torch.where(a == b, 1.0, torch.maximum(a, b) / torch.minimum(a, b))
