"""The references that scores can be compared with: `sample_info.references`, names to functions of a problem.

They train or differentiate the network itself, not its linearisation, from the same weights and with the same steps.
Influence functions say what leaving out an example would do, to first order in its weight: Cook 1977; Koh & Liang 2017,
equation 1; the baseline of Harutyunyan et al. 2021, table 1.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from harness.run import Run
from models.tangent.ntk import Kernels
from sample_info.changes import Changes, Effects
from sample_info.linearized.resolvent import inverse
from sample_info.problem import Problem
from sample_info.references.retraining import retrained_stacks
from sample_info.settings import ReferenceSettings


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


log = logging.getLogger(__name__)

Reference = Callable[[Problem, ReferenceSettings, Run], Mapping[str, Changes]]  # what it finds, by name


def by_retraining(problem: Problem, settings: ReferenceSettings, run: Run) -> Mapping[str, Changes]:
    """Train without each of a sample of examples; what is found is kept, and not left out again by a resumed run."""
    part, n = f"retrained-{problem.seed}", len(problem.x)
    wanted = torch.randperm(n, generator=torch.Generator().manual_seed(0))[: settings.examples].sort().values
    found = run.part(part) or [[], [], []]  # examples, changes of weights and of predictions
    left = wanted[~torch.isin(wanted, torch.tensor(found[0], dtype=torch.int64))]
    if len(left):
        log.info("training without each of %d examples for seed %d", len(left), problem.seed)
        options = {"effective_n": problem.descent.effective_n(n), "memory_bytes": int(problem.memory_bytes)}
        for more in retrained_stacks(problem.training, problem.held_out, left, **options):
            found = [have + new.tolist() for have, new in zip(found, more, strict=True)]
            run.save_part(part, found)
    examples, weight, prediction = (torch.tensor(part, dtype=torch.float64) for part in found)
    return {"retraining": Changes.of(n, examples.long(), weight, prediction)}


def by_influence(problem: Problem, settings: ReferenceSettings, run: Run) -> Mapping[str, Changes]:  # noqa: ARG001
    """Influence functions at the weights where training ends, for every damping that is asked for: "influence 10"."""
    log.info("influence functions for seed %d", problem.seed)
    trained = replace(problem, weights=problem.training.trained())
    kernels, residual = trained.kernels(), trained.outputs(problem.x) - problem.y
    n, decay = len(problem.x), problem.descent.weight_decay
    return {f"influence {d:g}": influence(kernels, residual, n * d + decay).changes for d in settings.influence_damping}


REFERENCES: dict[str, Reference] = {"retraining": by_retraining, "influence": by_influence}


def references_of(problem: Problem, settings: ReferenceSettings, run: Run) -> dict[str, Changes]:
    """What all that are asked for find, by name."""
    return {name: one for key in settings.methods for name, one in REFERENCES[key](problem, settings, run).items()}


def require_known(names: list[str]) -> None:
    """Refuse references that there are not.

    Raises:
        ValueError: names them, and those there are.
    """
    if unknown := [name for name in names if name not in REFERENCES]:
        known = ", ".join(sorted(REFERENCES))
        raise ValueError(f"sample_info.references.methods={names}: there is no {unknown[0]}; choose from {known}")
