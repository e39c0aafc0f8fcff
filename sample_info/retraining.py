"""Retraining of the network without some examples, the ground truth; many trainings run at once.

Retraining without single examples is the "brute force" of Harutyunyan et al. 2021, table 1. Retraining on random halves
follows Park et al. 2023 (TRAK). `sample_info.data_summarization` retrains on summaries.
"""

import functools
import logging
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from erasure.progress import Display
from harness.run_directory import Run, Tensors
from harness.steps import Steps, computed
from sample_info.gradient_descent import GradientDescent
from sample_info.leave_one_out_effects import Effects
from sample_info.training_problem import TrainingProblem
from train.memory import keep_freed_memory

log = logging.getLogger(__name__)


def retrained(
    descent: GradientDescent,
    x_test: Tensor,
    sets: Tensor,
    *,
    memory_bytes: int,
    name: str = "retrained",
    steps: Steps = computed,
) -> Effects:
    """Return effects on test inputs [m, ...] of training without each of `sets` [b, s], on the CPU.

    Trains on all examples, then on what each set leaves, as many networks at a time as memory holds. Each such stack is
    a step, named by `name` and its first set.

    Raises:
        ValueError: less memory than one training needs, or a learning rate that is too large.
    """
    keep_freed_memory()  # every step allocates the same activations
    n = len(descent.x)
    assert not len(sets) or 0 <= int(sets.min()) <= int(sets.max()) < n, "examples that there are"
    members = descent.members_at_once(memory_bytes)

    def progress(before: int, members: int) -> Callable[[int], object]:
        whole, detail = descent.steps * (1 + len(sets)), f"{members} trainings at once"
        return lambda step: display.update((before * descent.steps + members * step) / whole, detail)

    @functools.cache
    def with_all() -> tuple[dict[str, Tensor], Tensor]:
        weights = descent.train(descent.everything, progress(0, 1))
        return weights, descent.predictions(weights, x_test)

    def train(begun: int) -> Tensors:
        (everything, predicted), left_out = with_all(), sets[begun : begun + members]
        log.info("training %d networks without %d of %d examples", len(left_out), sets.shape[1], n)
        remaining = torch.ones(len(left_out), n).scatter_(1, left_out, 0)
        change = descent.train(positions(remaining), progress(1 + begun, len(left_out)))
        moved = [(change[name] - everything[name]).flatten(1).double().square().sum(1) for name in change]
        outputs = (predicted - descent.predictions(change, x_test)).double()
        prediction = outputs.square().sum(-1).mean(-1)
        weight = torch.stack(moved).sum(0)
        return Tensors({"weight": weight.cpu(), "prediction": prediction.cpu(), "outputs": outputs.cpu()})

    stacks, begun = list[Effects](), 0
    with Display("retraining") as display:
        while begun < len(sets):
            stacks.append(Effects(**steps(f"{name}-{begun}", functools.partial(train, begun)).tensors))
            begun += len(stacks[-1].weight)
    return Effects.joined(stacks)


def trained_without(problem: TrainingProblem, sets: Tensor, name: str, run: Run) -> Effects:
    """Return effects of leaving out each of `sets` [S, s] by retraining; every stack is a step of the run."""
    options = {"memory_bytes": int(problem.memory_bytes), "name": f"{name}-{problem.seed}", "steps": run.step}
    return retrained(problem.training, problem.held_out, sets, **options)


def train_on_each(
    problem: TrainingProblem, left: Tensor, progress: Callable[[float], object] = lambda _: None
) -> Tensor:
    """Return outputs on the held-out inputs, [S, m, k], after training from the same weights on S subsets.

    The loss is the mean over a subset, as in `LinearizedNetwork`. `left` [S, n] is true for the examples in a
    subset; all subsets have the same size.

    Raises:
        ValueError: there is not enough memory for one training, or the learning rate is too large.
    """
    assert len(left.sum(1).unique()) == 1, "subsets of different sizes"
    parts = positions(left)
    keep_freed_memory()
    descent = replace(problem.training, learning_rate=problem.descent.learning_rate / parts.shape[1])
    outputs: list[Tensor] = []
    for some in parts.split(descent.members_at_once(int(problem.memory_bytes))):
        begun = sum(map(len, outputs))

        def done(step: int, begun: int = begun, members: int = len(some)) -> None:
            progress((begun + members * step / descent.steps) / len(left))

        outputs.append(descent.predictions(descent.train(some, done), problem.held_out))
    return torch.cat(outputs)


def positions(mask: Tensor) -> Tensor:
    """Return the positions [b, m] of the nonzero entries of `mask` [b, n], which has m of them in every row."""
    return mask.nonzero()[:, 1].view(len(mask), -1)


def halves(n: int, count: int) -> Tensor:
    """Return positions [count, n // 2] of seeded random halves of n examples, to leave out."""
    generator = torch.Generator().manual_seed(0)
    return torch.stack([torch.randperm(n, generator=generator)[: n // 2] for _ in range(count)])
