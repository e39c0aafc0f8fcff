"""The references that scores can be compared with, by name: `sample_info.references`.

They train or differentiate the network itself, not its linearisation, from the same weights and with the same steps.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from harness.run_directory import Run
from models.tangent.kernel import Kernels
from sample_info.leave_one_out_effects import Effects
from sample_info.references.influence_and_cosine import cosine, influence
from sample_info.references.retraining import trained_without
from sample_info.settings import ReferenceSettings
from sample_info.training_problem import EXACT_KERNEL, TrainingProblem


@dataclass(frozen=True)
class ReferenceInputs:
    """Inputs of the references of one training, and shared results at its final weights."""

    problem: TrainingProblem
    settings: ReferenceSettings
    run: Run

    @cached_property
    def trained(self) -> TrainingProblem:
        return replace(self.problem, weights=self.problem.training.trained(), kernel=EXACT_KERNEL)

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
    """Raise ValueError for an unknown reference, or one that is named twice."""
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"sample_info.references.methods=[{','.join(names)}]: {twice[0]} is named twice: name it once")
    known = sorted([*REFERENCES, SUBSETS])
    if unknown := [name for name in names if name not in known]:
        raise ValueError(
            f"sample_info.references.methods={names}: there is no {unknown[0]}; choose from {', '.join(known)}"
        )
