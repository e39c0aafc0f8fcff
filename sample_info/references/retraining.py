"""The reference without any approximation: train again without each example, as many trainings at once as fit.

Harutyunyan et al. 2021, table 1 ("brute force"): n trainings to find out what n examples did.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from erasure.progress import Display
from sample_info.changes import LeaveOneOut, Weights, mean_square
from sample_info.references.gradient_descent import GradientDescent
from train.memory import keep_freed_memory

_SHOW_EVERY_S = 0.2
_CACHED_BYTES = 2**26  # on the CPU larger stacks fall out of caches between steps, and gain nothing


def retrain_without_each(
    descent: GradientDescent,
    x_test: Tensor,
    examples: Tensor | None = None,
    **options: Any,
) -> LeaveOneOut:
    """Train once with all examples, and once without each of `examples`, from the same weights; compare.

    All that `retrained_stacks` yields, joined; options and errors are its own.
    """
    return LeaveOneOut.joined([*retrained_stacks(descent, x_test, examples, **options)])


def retrained_stacks(
    descent: GradientDescent,
    x_test: Tensor,
    examples: Tensor | None = None,
    *,
    effective_n: int | None = None,
    memory_bytes: int = 2**31,
) -> Iterator[LeaveOneOut]:
    """Train with all examples, then without each of `examples`; yield every stack of trainings as it ends.

    Args:
        descent: how to train, and on what.
        x_test: inputs on which predictions are compared, [m, ...].
        examples: positions of those to leave out; all by default. See `examples_to_leave_out`.
        effective_n: what the loss without an example is divided by; n, the examples that there are, by default.
        memory_bytes: what a stack of trainings may take.

    Raises:
        ValueError: examples that are not there, or less memory than one training needs.
        DivergedError: the learning rate is too large.
    """
    keep_freed_memory()  # every step allocates the same activations again
    n = len(descent.x)
    examples = torch.arange(n) if examples is None else examples.cpu()
    if len(examples) and not 0 <= int(examples.min()) <= int(examples.max()) < n:
        raise ValueError(f"examples from {int(examples.min())} to {int(examples.max())}: there are 0 to {n - 1}")
    members = members_at_once(descent, memory_bytes)
    reduced = replace(descent, learning_rate=descent.learning_rate * n / (effective_n or n))
    with Display("retraining") as display:
        progress = _Progress(display, descent.steps * (1 + len(examples)))
        everything = descent.train(torch.ones(1, n), progress.of(1))
        predicted = predictions(descent, everything, x_test)
        for left_out in examples.split(members):
            c = torch.ones(len(left_out), n)
            c[torch.arange(len(left_out)), left_out] = 0
            change = reduced.train(c, progress.of(len(left_out)))
            weight_change = torch.stack([_squares(change[name] - everything[name]) for name in change]).sum(0)
            yield LeaveOneOut(left_out, weight_change, mean_square(predictions(descent, change, x_test) - predicted))


def members_at_once(descent: GradientDescent, memory_bytes: int) -> int:
    """Trainings in a stack: what memory holds; on the CPU no more than caches do, but several of small ones.

    Raises:
        ValueError: not even one.
    """
    each = descent.bytes_per_member()
    if each > memory_bytes:
        raise ValueError(
            f"memory_bytes={memory_bytes:,}: one training needs {each:,}; allow more, or use fewer examples"
        )
    usable = min(memory_bytes, _CACHED_BYTES) if descent.x.device.type == "cpu" else memory_bytes
    return max(1, usable // each)


@torch.no_grad()
def predictions(descent: GradientDescent, change: Weights, x: Tensor) -> Tensor:
    """Outputs [S, m, k] of members that have moved from the initial weights by `change` [S, ...]."""
    weights = {name: descent.initial[name] + moved for name, moved in change.items()}
    return torch.cat([descent.outputs(weights, part) for part in x.split(len(descent.x))], dim=1)


def _squares(change: Tensor) -> Tensor:
    return change.flatten(1).double().square().sum(1).cpu()


class _Progress:
    """Steps of stacks, one after another, as a share of all trainings' steps."""

    def __init__(self, display: Display, total: int) -> None:
        self._display, self._total, self._before, self._shown = display, total, 0, 0.0

    def of(self, members: int) -> Callable[[int], None]:
        """What a stack of so many members calls with the number of steps that it has done."""
        before = self._before

        def done(step: int) -> None:
            self._before = before + members * step
            now = time.monotonic()
            if now - self._shown > _SHOW_EVERY_S:
                self._shown = now
                detail = f"step {step}, {members} trainings at once"
                self._display.update(self._before / self._total, detail)

        return done
