"""The references that scores can be compared with, by name: `sample_info.references`.

They train or differentiate the network itself, not its linearisation, from the same weights and with the same steps.
Influence functions predict the effect of leaving out an example to first order in its weight: Cook 1977; Koh & Liang
2017, equation 1; the baseline of Harutyunyan et al. 2021, table 1.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from harness.run_directory import Run
from models.tangent.kernel import Kernels
from sample_info.linearized.leave_out_solvers import inverse
from sample_info.references.retraining import trained_without
from sample_info.settings import ReferenceSettings
from sample_info.training_problem import TrainingProblem
from sample_info.unique_information import Effects


def influence(kernels: Kernels, residual: Tensor, damping: float) -> Effects:
    """Predict effects of all examples: w - w_-i ≈ -(Jᵀ J + damping)⁻¹ ∇ ½‖f_w(x_i) - y_i‖², J the Jacobian at w.

    The Gauss-Newton inverse acts through the kernel, (Jᵀ J + cI)⁻¹ Jᵀ = Jᵀ (Θ + cI)⁻¹: one factorisation serves every
    example. The formula assumes that w is a minimum; before convergence it differs from retraining. Kernels and
    residual f_w(X) - Y, [n, k], are those at w; the damping is added to the curvature of the summed loss, and includes
    weight decay.

    Raises:
        ValueError: no damping, and a singular kernel.
    """
    n, k = residual.shape
    columns = inverse(kernels.train, damping).view(n * k, n, k)
    coefficients = -torch.einsum("rnk,nk->rn", columns, residual.to(columns))
    return Effects.along(coefficients, kernels.train, kernels.held_out, k)


def cosine(kernels: Kernels, residual: Tensor) -> Effects:
    """Return the change of held-out outputs by a step of length 1 along -∇ ½‖f_w(x_i) - y_i‖² (Charpiat et al. 2019).

    This is the cosine of the gradients up to the length of the held-out output's gradient, which does not change ranks
    over trainings. Weight changes are NaN.
    """
    n, k = residual.shape
    blocks = kernels.train.view(n, k, n, k).diagonal(dim1=0, dim2=2)  # [k, k, n]
    lengths = torch.einsum("nk,kln,nl->n", residual, blocks, residual).clamp(min=0).sqrt()
    unit = torch.where(lengths[:, None] > 0, residual / lengths[:, None], 0)
    coefficients = -torch.diag_embed(unit.T).permute(1, 0, 2).reshape(n * k, n)
    effects = Effects.along(coefficients, kernels.train, kernels.held_out, k)
    return replace(effects, weight=torch.full_like(effects.weight, math.nan))


@dataclass(frozen=True)
class ReferenceInputs:
    """Inputs of the references of one training, and shared results at its final weights."""

    problem: TrainingProblem
    settings: ReferenceSettings
    run: Run

    @cached_property
    def trained(self) -> TrainingProblem:
        return replace(self.problem, weights=self.problem.training.trained())

    @cached_property
    def kernels(self) -> Kernels:
        return self.trained.kernels()

    @cached_property
    def residual(self) -> Tensor:
        """f_w(X) - Y, [n, k]."""
        return self.trained.outputs(self.problem.x) - self.problem.y


log = logging.getLogger(__name__)

Reference = Callable[[ReferenceInputs], Mapping[str, Effects]]  # effects of all examples, by name; NaN where unknown


def by_retraining(inputs: ReferenceInputs) -> Mapping[str, Effects]:
    """Retrain without each of a sample of examples."""
    n, generator = len(inputs.problem.x), torch.Generator().manual_seed(0)
    wanted = torch.randperm(n, generator=generator)[: inputs.settings.examples].sort().values
    return {"retraining": trained_without(inputs.problem, wanted[:, None], "retrained", inputs.run).among(n, wanted)}


def by_influence(inputs: ReferenceInputs) -> Mapping[str, Effects]:
    """Compute influence functions at the final weights for every requested damping: "influence 10"."""
    log.info("influence functions for seed %d", inputs.problem.seed)
    n, decay = len(inputs.problem.x), inputs.problem.descent.weight_decay
    dampings = inputs.settings.influence_damping
    return {f"influence {d:g}": influence(inputs.kernels, inputs.residual, n * d + decay) for d in dampings}


REFERENCES: dict[str, Reference] = {
    "retraining": by_retraining,
    "influence": by_influence,
    "cosine": lambda inputs: {"gradient cosine": cosine(inputs.kernels, inputs.residual)},
}
SUBSETS = "subsets"  # trainings on random halves, which evaluate all effects: `sample_info.attribution_quality`


def references_of(problem: TrainingProblem, settings: ReferenceSettings, run: Run) -> dict[str, Effects]:
    """Compute all requested references, by name."""
    inputs = ReferenceInputs(problem, settings, run)
    asked = [REFERENCES[key] for key in settings.methods if key != SUBSETS]
    return {name: one for reference in asked for name, one in reference(inputs).items()}


def require_known(names: list[str]) -> None:
    """Raise ValueError for an unknown reference."""
    known = sorted([*REFERENCES, SUBSETS])
    if unknown := [name for name in names if name not in known]:
        raise ValueError(
            f"sample_info.references.methods={names}: there is no {unknown[0]}; choose from {', '.join(known)}"
        )
