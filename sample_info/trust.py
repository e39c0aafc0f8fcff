"""How far to trust one score, without training anything again: it is compared with a second, more faithful account.

The plain score linearises at w_0; the other one along the path that training takes (`sample_info.linearized.path`).
Where the two agree the network stays near its linearisation as far as this example goes.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from harness.information import ErrorEstimate
from sample_info.changes import spearman

TRAINED_PATH = "trained path"  # what the second account is called among references
_FACTOR = 2.0
_SHARE = 0.5  # of the usual difference: of 1, ½, ¼ and 0 what served best on four runs (docs/sample_info.md)


@dataclass(frozen=True)
class Trust:
    """One seed's changes of one kind, [n] each, by several accounts.

    Attributes:
        score: of the network linearised at w_0.
        along_path: of the linearisation along the trained path.
        truth: of retraining, NaN for examples that it did not leave out; None where there was none.
    """

    score: Tensor
    along_path: Tensor
    truth: Tensor | None = None

    @cached_property
    def factor(self) -> Tensor:
        """By what factor a score may be wrong, either way, [n] from 1 on.

        The larger account over the smaller, which may agree by chance; so the smaller change is also given the error
        that is usual, half the median difference between the accounts' changes √score, as real networks differ from
        linearised ones by about as much whichever example is left out. Infinite where that is all there is.
        """
        small = torch.minimum(self.score, self.along_path).sqrt()
        large = torch.maximum(self.score, self.along_path).sqrt()
        usual = _SHARE * (large - small).median()
        margin = 1 + (usual / small).nan_to_num(nan=0.0, posinf=math.inf)
        return _factor(self.score, self.along_path) * margin.square()

    @property
    def believable(self) -> Tensor:
        """Which are wrong by less than a factor of two, by the estimate, [n] bool."""
        return self.factor < _FACTOR

    @property
    def described(self) -> ErrorEstimate:
        """How many are believable, and what retraining says to that."""
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
    """The larger over the smaller: 1 where both are zero, infinite where one of them is."""
    return torch.where(a == b, 1.0, torch.maximum(a, b) / torch.minimum(a, b))
