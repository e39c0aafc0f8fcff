"""Leave-one-out changes by linearisation along the path of one training of the network on all examples.

Let r(t) be the residuals of this training, and Θ the mean of the kernels at its start and end. To first order,
u = f - f_-i obeys u ← u - η/n Θ (u + e_i (r_i - u_i)). More kernels on the path gave no measurable improvement
(docs/sample_info.md).
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from sample_info.leave_one_out_effects import Changes, Effects
from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.network import LinearizedNetwork

_AT_ONCE = 64  # systems per block: their state stays in CPU caches


def along_trained_path(network: LinearizedNetwork, progress: Callable[[float], object] = lambda _: None) -> Changes:
    """Train the network once, and return leave-one-out changes.

    Raises:
        ValueError: training diverges.
    """
    problem, k = network.problem, network.problem.y.shape[1]
    weights, residuals = problem.training.trained_path(lambda step: progress(0.5 * step / problem.descent.t))
    begin, end = network.kernels, replace(problem, weights=weights).kernels()
    kernel, held_out = (begin.train + end.train) / 2, (begin.held_out + end.held_out) / 2
    columns = differences_along(kernel, residuals, problem.descent, lambda done: progress(0.5 + 0.5 * done))
    return Effects.along(columns, kernel, held_out, k).changes


def differences_along(
    kernel: Tensor, residuals: Tensor, descent: LinearizedDescent, progress: Callable[[float], object] = lambda _: None
) -> Tensor:
    """Compute the coefficients a in w - w_-i = ∇f(X) a for every example i, as columns [n k, n].

    In the kernel's eigenbasis a step is diagonal except for the outputs of example i, so a step costs O((n k)²) for all
    n examples. The kernel Θ is [n k, n k] float64. Residuals are f - y before every step of the training on all
    examples, [t, n, k].
    """
    _, n, k = residuals.shape
    rate, decay = descent.learning_rate / n, descent.weight_decay
    values, vectors = torch.linalg.eigh(kernel)
    # the network did not diverge, even if its final kernel has larger eigenvalues
    values = values.clamp(0, 2 / rate - decay)
    rows, blocks = vectors.view(n, k, -1), []
    for block in torch.arange(n, device=kernel.device).split(_AT_ONCE):
        components, a = rows[block], kernel.new_zeros(len(block), n * k)
        outputs, retained = components * values, 1 - rate * (values + decay)
        for residual in residuals[:, block].to(kernel):
            push = residual[:, None] - torch.bmm(a[:, None], outputs.mT)  # (r - u) of the example itself, [b, 1, k]
            a.mul_(retained)[:, None].baddbmm_(push, components, alpha=-rate)
        blocks.append(a)
        progress(float(block[-1] + 1) / n)
    return vectors @ torch.cat(blocks).T
