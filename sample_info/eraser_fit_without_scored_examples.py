"""Erasers fitted without the scored examples, as an eraser fitted on an example leaks it to a training without it.

QLEACE makes the class moments of its fitting data exactly equal. If an example is then left out, the moments of its
class shift away from it, and a network trained on the rest assigns it to another class.
"""

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from conf.target_class import Target
from erasure import IdentityEraser
from erasure.dataset import LabelledImages
from erasure.eraser import Eraser
from harness.experiment import Experiment, erased

EraserFit = Literal["disjoint", "refit", "scored"]

_REFITS = 1e9  # largest n d³ for which n refits in dimension d take only minutes


@dataclass(frozen=True)
class Refitting:
    """Refits of the eraser, each without one of the training examples at positions `scored` [n]."""

    experiment: Experiment
    scored: Tensor
    held_out: Tensor  # positions in the test split

    @cached_property
    def _plain(self) -> tuple[LabelledImages, LabelledImages]:
        """The training split and the held-out examples before erasure."""
        splits = erased(self.experiment.control()).splits
        return splits["train"], splits["test"][self.held_out]

    def without(self, i: int) -> tuple[Tensor, Tensor]:
        """Return scored and held-out examples, erased by an eraser fitted without scored example number i."""
        (train, held_out), target = self._plain, Target(self.experiment.config.eraser, Eraser)
        scored, fitted_on = train[self.scored], train[torch.arange(len(train)) != self.scored[i]]
        log = logging.getLogger("erasure")
        level = log.level
        log.setLevel(logging.ERROR)  # the fit on all examples has logged its warnings
        try:
            k = int(train.labels.max()) + 1
            eraser = target.resolve().fit(fitted_on.images, fitted_on.labels, num_classes=k, **target.options)
        finally:
            log.setLevel(level)
        return eraser(scored.images, scored.labels), eraser(held_out.images, held_out.labels)


def resolved(
    wanted: Literal["auto"] | EraserFit, eraser: type[Eraser], labels: Tensor, scored: Tensor, d: int, *, refits: bool
) -> EraserFit | None:
    """Return the data on which the eraser is fitted; None for the control.

    "auto" is "disjoint" (fitted on unscored training examples) if each class has at least as many unscored as scored
    examples. Otherwise it is "refit" (fitted without each example) if that takes only minutes, and else "scored"
    (fitted on all). `labels` [N] are the labels of the training split, `scored` [n] positions in it, and d the
    dimension of an example. `refits`: whether every other computation can use one kernel per example.

    Raises:
        ValueError: there are too few examples to fit on, or the eraser cannot be refitted.
    """
    if issubclass(eraser, IdentityEraser):
        return None
    counts = labels.bincount()
    scored_counts = labels[scored].bincount(minlength=len(counts))
    refits = refits and not eraser.transductive
    if wanted == "auto":
        if bool((counts - scored_counts >= scored_counts.clamp(min=2)).all()):
            return "disjoint"
        return "refit" if refits and len(scored) * d**3 <= _REFITS else "scored"
    if wanted == "disjoint" and bool((counts - scored_counts < 2).any()):
        raise ValueError(
            f"sample_info.data.eraser_fit=disjoint: scoring {len(scored)} of {len(labels)} training examples leaves a "
            "class with fewer than two to fit the eraser on; lower sample_info.examples, or choose refit or scored"
        )
    if wanted == "refit" and not refits:
        raise ValueError(
            f"sample_info.data.eraser_fit=refit: {eraser.__name__} erases examples together, or references, summaries, "
            "adversarial or sgd_batch_size need one kernel for all; choose disjoint or scored"
        )
    return wanted
