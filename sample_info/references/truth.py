"""Ground truth: the network trained again without some examples, many at once, kept as they end.

Without single examples: Harutyunyan et al. 2021, table 1 ("brute force"); on random halves: Park et al. 2023 (TRAK); on
summaries: `sample_info.summaries`.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from erasure.progress import Display
from erasure.store.storage import DamagedFileError, load_tensors, save_tensors
from harness.run import Run
from sample_info.leave_one_out import Effects
from sample_info.references.retraining import GradientDescent
from sample_info.training_problem import TrainingProblem
from train.memory import keep_freed_memory

log = logging.getLogger(__name__)


def retrained_stacks(
    descent: GradientDescent, x_test: Tensor, sets: Tensor, *, effective_n: int, memory_bytes: int
) -> Iterator[Effects]:
    """Train with all examples, then without each of `sets` [b, s], as many trainings at a time as memory holds.

    Without a set the loss is divided by `effective_n`. Effects, on test inputs [m, ...], come a stack at a time, as it
    ends; on the CPU.

    Raises:
        ValueError: less memory than one training needs, or a learning rate that is too large.
    """
    keep_freed_memory()  # every step allocates the same activations again
    n = len(descent.x)
    assert not len(sets) or 0 <= int(sets.min()) <= int(sets.max()) < n, "examples that there are"
    members = descent.members_at_once(memory_bytes)
    reduced = replace(descent, learning_rate=descent.learning_rate * n / effective_n)
    with Display("retraining") as display:

        def progress(before: int, members: int) -> Callable[[int], None]:
            whole, detail = descent.steps * (1 + len(sets)), f"{members} trainings at once"
            return lambda step: display.update((before * descent.steps + members * step) / whole, detail)

        everything = descent.train(torch.ones(1, n), progress(0, 1))
        predicted = descent.predictions(everything, x_test)
        for i, left_out in enumerate(sets.split(members)):
            c, shown = torch.ones(len(left_out), n).scatter_(1, left_out, 0), progress(1 + i * members, len(left_out))
            single = sets.shape[1] == 1  # then nearly all examples are shared
            change = reduced.train(c, shown) if single else reduced.train_on(positions(c), shown)
            moved = [(change[name] - everything[name]).flatten(1).double().square().sum(1) for name in change]
            outputs = (predicted - descent.predictions(change, x_test)).double()
            prediction = outputs.square().sum(-1).mean(-1)
            yield Effects(torch.stack(moved).sum(0).cpu(), prediction.cpu(), outputs.cpu())


def train_on_each(problem: TrainingProblem, left: Tensor, progress: Callable[[float], None] = lambda _: None) -> Tensor:
    """Return outputs on the held-out inputs, [S, m, k], of trainings from the same weights on S parts of the examples.

    The loss is the mean over a part, as in `LinearizedNetwork`. `left`, [S, n] bool, says which of the problem's
    examples each part has, as many in each.

    Raises:
        ValueError: less memory than one training needs, or a learning rate that is too large.
    """
    sizes = left.sum(1).unique().tolist()
    assert len(sizes) == 1, "those that are trained together are of one size"
    keep_freed_memory()
    descent = replace(problem.training, learning_rate=problem.descent.learning_rate / sizes[0])
    outputs: list[Tensor] = []
    for some in left.to(problem.x.device).split(descent.members_at_once(int(problem.memory_bytes))):
        begun = sum(map(len, outputs))

        def done(step: int, begun: int = begun, members: int = len(some)) -> None:
            progress((begun + members * step / descent.steps) / len(left))

        used = some.any(0)  # examples that are in none of the parts need not be seen
        change = replace(descent, x=descent.x[used], y=descent.y[used]).train(some[:, used], done)
        outputs.append(descent.predictions(change, problem.held_out))
    return torch.cat(outputs)


def positions(kept: Tensor) -> Tensor:
    """Return the positions in each row of `kept` [b, n] that are not 0, [b, m]; every row has as many."""
    return kept.nonzero()[:, 1].view(len(kept), -1)


def trained_without(problem: TrainingProblem, sets: Tensor, name: str, run: Run) -> Effects:
    """Return true effects of leaving out each of `sets` [S, s]; a resumed run trains those that are left.

    Every stack is kept as checkpoint-NAME-SEED-FIRST.safetensors until the run is finished.
    """
    pattern = f"checkpoint-{name}-{problem.seed}-*.safetensors"
    found, (n, size) = _kept(run.directory, pattern), (len(problem.x), sets.shape[1])
    done = found[0].long() if found else torch.zeros(0, dtype=torch.int64)
    left = (~torch.isin(torch.arange(len(sets)), done)).nonzero().squeeze(1)
    if len(left):
        log.info("training %d networks without %d of %d examples for seed %d", len(left), size, n, problem.seed)
        options = {"effective_n": problem.descent.effective_n(n, size), "memory_bytes": int(problem.memory_bytes)}
        begun = 0
        for stack in retrained_stacks(problem.training, problem.held_out, sets[left], **options):
            which = left[begun : begun + len(stack.weight)]
            begun += len(which)
            run.require_lease()
            path = run.directory / pattern.replace("*", str(int(which[0])))
            save_tensors(path, {"which": which, **vars(stack)}, {"run": run.id})
        found = _kept(run.directory, pattern)
    which, *effects = found
    order = which.argsort()
    return Effects(*(part[order] for part in effects))


def _kept(directory: Path, pattern: str) -> list[Tensor]:
    """Return stored sets and the three parts of their effects; empty if nothing is kept; damaged files are left out."""
    found: list[list[Tensor]] = []
    for path in sorted(directory.glob(pattern)):
        try:
            tensors, _ = load_tensors(path)
        except DamagedFileError as error:
            log.warning("%s; trained again", error)
            path.unlink()
            continue
        found.append([tensors[name] for name in ("which", "weight", "prediction", "outputs")])
    return [torch.cat(parts) for parts in zip(*found, strict=True)]


def halves(n: int, count: int) -> Tensor:
    """Seeded random halves of n examples, [count, n // 2] positions: what is left out."""
    generator = torch.Generator().manual_seed(0)
    return torch.stack([torch.randperm(n, generator=generator)[: n // 2] for _ in range(count)])
