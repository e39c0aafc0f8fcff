"""The references that scores can be compared with: `sample_info.references`, names to functions of a problem.

They train or differentiate the network itself, not its linearisation, from the same weights and with the same steps.
Influence functions say what leaving out an example would do, to first order in its weight: Cook 1977; Koh & Liang 2017,
equation 1; the baseline of Harutyunyan et al. 2021, table 1.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from harness.run import Run
from models.tangent.ntk import Kernels
from sample_info.effects import Effects
from sample_info.linearized.solvers import inverse
from sample_info.references.truth import trained_without
from sample_info.settings import ReferenceSettings
from sample_info.training_problem import TrainingProblem


def influence(kernels: Kernels, residual: Tensor, damping: float) -> Effects:
    """Predicted effects of all examples: w - w_-i ≈ -(Jᵀ J + damping)⁻¹ ∇ ½‖f_w(x_i) - y_i‖², J the Jacobian at w.

    The Gauss-Newton inverse acts through the kernel, (Jᵀ J + cI)⁻¹ Jᵀ = Jᵀ (Θ + cI)⁻¹, so that one factorisation
    serves every example, however many parameters there are. The formula assumes that w is a minimum; at weights
    that are still in training it says something else than retraining does. Kernels and residual f_w(X) - Y, [n, k], are
    those at w; the damping is added to the curvature of the summed loss, weight decay included.

    Raises:
        ValueError: no damping, and a kernel that is singular.
    """
    n, k = residual.shape
    columns = inverse(kernels.train, damping).view(n * k, n, k)
    coefficients = -torch.einsum("rnk,nk->rn", columns, residual.to(columns))
    return Effects.along(coefficients, kernels.train, kernels.held_out, k)


def cosine(kernels: Kernels, residual: Tensor) -> Effects:
    """Return the cosine of each example's gradient with those of held-out outputs, but for these gradients' lengths.

    A step along -∇ ½‖f_w(x_i) - y_i‖² of length 1 moves outputs by as much: what the example is taken to do (Charpiat
    et al. 2019). Ranks over trainings do not depend on the lengths that are left out; of weights it says nothing.
    """
    n, k = residual.shape
    blocks = kernels.train.view(n, k, n, k).diagonal(dim1=0, dim2=2)  # [k, k, n]
    lengths = torch.einsum("nk,kln,nl->n", residual, blocks, residual).clamp(min=0).sqrt()
    unit = torch.where(lengths[:, None] > 0, residual / lengths[:, None], 0)
    coefficients = -torch.diag_embed(unit.T).permute(1, 0, 2).reshape(n * k, n)
    effects = Effects.along(coefficients, kernels.train, kernels.held_out, k)
    return replace(effects, weight=torch.full_like(effects.weight, math.nan))


@dataclass(frozen=True)
class Judged:
    """A training on whose examples references are asked, and what several of them need of the weights where it ends."""

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

Reference = Callable[[Judged], Mapping[str, Effects]]  # of all examples, by name; NaN where it does not say


def by_retraining(judged: Judged) -> Mapping[str, Effects]:
    """Train without each of a sample of examples."""
    n, generator = len(judged.problem.x), torch.Generator().manual_seed(0)
    wanted = torch.randperm(n, generator=generator)[: judged.settings.examples].sort().values
    return {"retraining": trained_without(judged.problem, wanted[:, None], "retrained", judged.run).among(n, wanted)}


def by_influence(judged: Judged) -> Mapping[str, Effects]:
    """Influence functions at the weights where training ends, for every damping that is asked for: "influence 10"."""
    log.info("influence functions for seed %d", judged.problem.seed)
    n, decay = len(judged.problem.x), judged.problem.descent.weight_decay
    dampings = judged.settings.influence_damping
    return {f"influence {d:g}": influence(judged.kernels, judged.residual, n * d + decay) for d in dampings}


REFERENCES: dict[str, Reference] = {
    "retraining": by_retraining,
    "influence": by_influence,
    "cosine": lambda judged: {"gradient cosine": cosine(judged.kernels, judged.residual)},
}
SUBSETS = "subsets"  # trainings on random halves, by which all effects are judged: `sample_info.attribution_quality`


def references_of(problem: TrainingProblem, settings: ReferenceSettings, run: Run) -> dict[str, Effects]:
    """Compute all references that are asked for, by name."""
    judged = Judged(problem, settings, run)
    asked = [REFERENCES[key] for key in settings.methods if key != SUBSETS]
    return {name: one for reference in asked for name, one in reference(judged).items()}


def require_known(names: list[str]) -> None:
    """Refuse references that there are not, by a `ValueError` that names them, and those there are."""
    known = sorted([*REFERENCES, SUBSETS])
    if unknown := [name for name in names if name not in known]:
        raise ValueError(
            f"sample_info.references.methods={names}: there is no {unknown[0]}; choose from {', '.join(known)}"
        )
