"""Reference methods for scores: `sample_info.references`.

They train or differentiate the network itself, not its linearisation, from the same weights and with the same steps.
Influence functions predict the effect of leaving out an example to first order in its weight (Cook 1977; Koh & Liang
2017, equation 1). They are the baseline of Harutyunyan et al. 2021, table 1.
"""

import functools
import math
from dataclasses import replace

import torch
from torch import Tensor

from harness.run_directory import Run
from models.tangent.kernel import Kernels
from sample_info.leave_one_out_effects import Effects
from sample_info.linearized.leave_out_solvers import inverse
from sample_info.retraining import trained_without
from sample_info.settings import ReferenceSettings
from sample_info.training_problem import EXACT_KERNEL, TrainingProblem


def references_of(problem: TrainingProblem, settings: ReferenceSettings, run: Run) -> dict[str, Effects]:
    """Compute the effects of all examples by the requested methods, by name; NaN for effects that a method lacks.

    Retraining leaves out a seeded sample of the examples.
    """

    @functools.cache
    def at_the_end() -> tuple[Kernels, Tensor]:
        """Return the kernels and f_w(X) - Y, [n, k], at the final weights w of the training on all examples."""
        trained = replace(problem, weights=problem.training.trained(), kernel=EXACT_KERNEL)
        return trained.kernels(), trained.outputs(problem.x) - problem.y

    n, effects = len(problem.x), dict[str, Effects]()
    for method in settings.methods:
        if method == "retraining":
            generator = torch.Generator().manual_seed(0)
            chosen = torch.randperm(n, generator=generator)[: settings.examples].sort().values
            effects["retraining"] = trained_without(problem, chosen[:, None], "retrained", run).among(n, chosen)
        elif method == "influence":
            for damping in settings.influence_damping:  # damping of the mean loss
                of_sum = n * damping + problem.descent.weight_decay
                effects[f"influence {damping:g}"] = influence(*at_the_end(), of_sum)
        elif method == "cosine":
            effects["gradient cosine"] = cosine(*at_the_end())
    return effects


def influence(kernels: Kernels, residual: Tensor, damping: float) -> Effects:
    """Predict effects of all examples: w - w_-i ≈ -(Jᵀ J + damping)⁻¹ ∇ ½‖f_w(x_i) - y_i‖², with the Jacobian J at w.

    By (Jᵀ J + cI)⁻¹ Jᵀ = Jᵀ (Θ + cI)⁻¹, the Gauss-Newton inverse acts through the kernel, and one factorisation serves
    every example. The formula assumes that w is a minimum; before convergence it differs from retraining. Kernels and
    residual f_w(X) - Y, [n, k], are taken at w. The damping is added to the curvature of the summed loss, and includes
    weight decay.

    Raises:
        ValueError: the kernel is singular, and there is no damping.
    """
    n, k = residual.shape
    columns = inverse(kernels.train, damping).view(n * k, n, k)
    coefficients = -torch.einsum("rnk,nk->rn", columns, residual.to(columns))
    return Effects.along(coefficients, kernels.train, kernels.held_out, k)


def cosine(kernels: Kernels, residual: Tensor) -> Effects:
    """Return the change of held-out outputs by a step of length 1 along -∇ ½‖f_w(x_i) - y_i‖² (Charpiat et al. 2019).

    It equals the cosine of the gradients times the length of the held-out output's gradient, which does not affect
    the ranks of training examples. Weight changes are NaN.
    """
    n, k = residual.shape
    blocks = kernels.train.view(n, k, n, k).diagonal(dim1=0, dim2=2)  # [k, k, n]
    lengths = torch.einsum("nk,kln,nl->n", residual, blocks, residual).clamp(min=0).sqrt()
    unit = torch.where(lengths[:, None] > 0, residual / lengths[:, None], 0)
    coefficients = -torch.diag_embed(unit.T).permute(1, 0, 2).reshape(n * k, n)
    effects = Effects.along(coefficients, kernels.train, kernels.held_out, k)
    return replace(effects, weight=torch.full_like(effects.weight, math.nan))
