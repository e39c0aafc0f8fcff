"""Error estimates of single scores without retraining: each score is compared with a more faithful one.

The plain score linearises at w_0; the other one along the path of one training of the network on all examples, with
its residuals r(t), and with Θ the mean of the kernels at its begin and end. To first order u = f - f_-i then obeys
u ← u - η/n Θ (u + e_i (r_i - u_i)). More kernels on the path gained nothing measurable (docs/sample_info.md). Where the
two scores agree, linearisation holds for this example.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from harness.sample_info_fields import ErrorEstimate
from models.tangent.kernel import Kernels
from sample_info.agreement import spearman
from sample_info.leave_one_out_effects import Changes, Effects
from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.network import LinearizedNetwork
from sample_info.training_problem import TrainingProblem

TRAINED_PATH = "trained path"  # name of the second method among references
_AT_ONCE = 64  # systems per block: their state stays in CPU caches
_FACTOR = 2.0
_SHARE = 0.5  # of the median difference: best of 1, ½, ¼ and 0 on four runs (docs/sample_info.md)


def along_trained_path(
    network: LinearizedNetwork,
    kernels_of: Callable[[TrainingProblem], Kernels],
    progress: Callable[[float], None] = lambda _: None,
) -> Changes:
    """Return leave-one-out changes; `kernels_of` computes the kernels at the trained weights.

    Raises:
        ValueError: the training of the network diverges.
    """
    problem, k = network.problem, network.problem.y.shape[1]
    weights, residuals = problem.training.trained_path(lambda step: progress(0.5 * step / problem.descent.t))
    begin, end = network.kernels, kernels_of(replace(problem, weights=weights))
    kernel, held_out = (begin.train + end.train) / 2, (begin.held_out + end.held_out) / 2
    columns = differences_along(kernel, residuals, problem.descent, lambda done: progress(0.5 + 0.5 * done))
    return Effects.along(columns, kernel, held_out, k).changes


def differences_along(
    kernel: Tensor, residuals: Tensor, descent: LinearizedDescent, progress: Callable[[float], None] = lambda _: None
) -> Tensor:
    """Compute coefficients a of w - w_-i = ∇f(X) a for every example i, as columns [n k, n].

    In the kernel's eigenbasis a step is diagonal except for the outputs of example i: O((n k)²) for all n. The kernel
    Θ is [n k, n k] float64; residuals are f - y before every step of the training on all examples, [t, n, k].
    """
    (_, n, k), left = residuals.shape, descent.effective_n(residuals.shape[1])
    rate, decay = descent.learning_rate / left, descent.weight_decay
    more = rate - descent.learning_rate / n  # additional weight of the others in a mean over n - 1
    values, vectors = torch.linalg.eigh(kernel)
    # the network did not diverge, even where its final kernel has larger eigenvalues
    values = values.clamp(0, 2 / rate - decay)
    rows, shared = vectors.view(n, k, -1), _shared(vectors, residuals, descent) if more else None
    blocks = []
    for block in torch.arange(n, device=kernel.device).split(_AT_ONCE):
        components, a = rows[block], kernel.new_zeros(len(block), n * k)
        outputs, retained = components * values, 1 - rate * (values + decay)
        for t, residual in enumerate(residuals[:, block].to(kernel)):
            push = residual[:, None] - torch.bmm(a[:, None], outputs.mT)  # (r - u) of the example itself, [b, 1, k]
            a.mul_(retained)[:, None].baddbmm_(push, components, alpha=-rate)
            if shared is not None:
                a.add_(shared[t], alpha=more)
        blocks.append(a)
        progress(float(block[-1] + 1) / n)
    return vectors @ torch.cat(blocks).T


def _shared(vectors: Tensor, residuals: Tensor, descent: LinearizedDescent) -> Tensor:
    """Return the gradient of the summed loss before every step, weight decay included, in the eigenbasis, [t, n k]."""
    gradients = residuals.flatten(1).to(vectors) @ vectors
    moved = torch.zeros_like(gradients[0])
    for gradient in gradients:
        gradient.add_(moved, alpha=descent.weight_decay)
        moved.sub_(gradient, alpha=descent.learning_rate / residuals.shape[1])
    return gradients


@dataclass(frozen=True)
class EstimatedErrors:
    """One seed's weight or prediction changes by several methods, [n] each."""

    score: Tensor  # of the network linearised at w_0
    along_path: Tensor  # of the linearisation along the trained path
    truth: Tensor | None = None  # by retraining, NaN for examples that it did not leave out

    @cached_property
    def factor(self) -> Tensor:
        """Factor by which a score may be wrong, either way, [n] from 1 on.

        The ratio of the larger to the smaller score. As two methods may agree by chance, it is widened by a typical
        error of the smaller change √score: half the median difference of the methods' changes. Infinite where a score
        is zero.
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
