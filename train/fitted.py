"""`fit`: train a network from several seeds on examples in memory, as `python -m train` does on a dataset."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from erasure.dataset import LabelledImages
from erasure.pipeline import channel_statistics
from erasure.progress import Show, hidden
from erasure.threads import threads_for
from erasure.torch_modes import default_modes
from harness.device_and_precision import pick_device
from harness.loss_curves import endings
from harness.statistics import Spread, seeds_text
from models.classifier import Classifier
from train.device_images import DeviceImages, standardised
from train.ensemble import Ensemble
from train.epoch_trainer import EpochReport, Fit, fit_members
from train.examples_in_memory import (
    Examples,
    as_images,
    name_of,
    predictor,
    require_alike,
    require_seeds,
    splits_of,
    train_settings,
    unlabelled_examples,
)
from train.progress_estimate import TrainingProgress
from train.randomness import permutations
from train.settings import TrainSettings, num_held_out
from train.stacking_rule import choose, step_multiply_adds


@dataclass(frozen=True, eq=False)
class Fitted:
    """Trained networks, one member per seed, with the weights of lowest validation loss.

    Attributes:
        model: name of the network.
        seeds: one per member.
        classes: the labels, in the order of the outputs, [k].
        weights: parameters by name, [S, ...]; the networks take standardised inputs.
        losses: one row per seed, with `train_loss_bits`, `validation_loss_bits`, `epochs`, `best_epoch`, `ended`
            ("patience" or "max_epochs") and `untrained`, which is true if the initial weights had the lowest validation
            loss. Test examples add `test_loss_bits` and `test_accuracy`.
        curve: one row per seed and evaluation, with `seed`, `epoch`, `train_loss_bits` and `validation_loss_bits`.
    """

    model: str
    seeds: Sequence[int]
    classes: pd.Index
    weights: dict[str, Tensor]
    losses: pd.DataFrame
    curve: pd.DataFrame
    _fit: Fit
    _standardised: Callable[[LabelledImages], DeviceImages]
    _example: Any  # the first example of x in its original form

    @default_modes()
    def predict_proba(self, x: Any) -> NDArray[np.float64]:
        """Return every member's probabilities of the classes, [S, n, k].

        Args:
            x: examples like those of `fit`, [n, d] or [n, C, H, W].

        Raises:
            ValueError: the examples have another shape, or values that are not finite in float32.
        """
        require_alike(self._example, x, "x", "the training examples")
        part = unlabelled_examples(x, as_images(self._example, 1), "x")
        with torch.no_grad():
            logits = self._fit.logits(self._standardised(part))
        return logits.double().softmax(-1).cpu().numpy()

    def predict(self, x: Any) -> NDArray:
        """Return every member's most probable class of each example, [S, n]; raises the errors of `predict_proba`."""
        return np.asarray(self.classes)[self.predict_proba(x).argmax(-1)]

    def __str__(self) -> str:
        split = "test" if "test_loss_bits" in self.losses else "validation"
        text = f"{split} {Spread.of(self.losses[f'{split}_loss_bits'].tolist()):.4f} bits per label"
        if split == "test":
            text += f", accuracy {Spread.of((100 * self.losses['test_accuracy']).tolist()):.1f} %"
        if untrained := int(self.losses["untrained"].sum()):
            text += f"; in {untrained} of {len(self.seeds)} trainings the validation loss never improved"
        return f"{text}, {seeds_text(len(self.seeds))}"


@default_modes()
def fit(
    x: Any,
    y: Any,
    model: Any = "mlp",
    *,
    validation: Examples | None = None,
    test: Examples | None = None,
    seeds: int | Sequence[int] = 5,
    settings: TrainSettings | str = "default",
    flip: bool = False,
    device: str | torch.device = "auto",
    on_progress: Show = hidden,
) -> Fitted:
    """Train a network from several seeds, each until its validation loss stops improving.

    Given the same splits, losses equal those of `python -m train`.

    Args:
        x: vectors [n, d] or images [n, C, H, W]: a tensor, an array or a frame; standardised per channel or column.
        y: classes [n], integers or strings.
        model: a name ("linear", "mlp", "lenet", ...), a dictionary of options, a torch.nn.Module, or a
            function that makes one, as for `mdl.codelength`.
        validation: examples (x, y) that stop trainings. By default, training stops on the last tenth of each seed's
            order of the examples, which is not trained on.
        test: examples (x, y) on which the networks are also scored.
        seeds: number of seeds, or the seeds.
        settings: a choice of `train=`, such as "quick", or `TrainSettings`.
        flip: whether images may be mirrored in training.
        device: "auto", "cpu", "cuda", "cuda:N", or a torch.device.
        on_progress: called with the share done, from 0 to 1, and the current task.

    Raises:
        ValueError: an invalid value; the message says what is allowed.
        NonFiniteLossError: a training diverged.
    """
    splits, classes = splits_of(x, y, validation, test)
    trained, seeds, where = train_settings(settings, device), require_seeds(seeds), pick_device(device)
    images = splits["train"].images
    built = predictor(model, x, images.shape[1:], len(classes))
    if not isinstance(built, Classifier):
        raise ValueError(f"model={model}: has no weights, and there is nothing to train; mdl.codelength takes it")
    name, (mean, std) = name_of(model, built), channel_statistics(images)
    data = standardised(splits, mean, std, crop_padding=trained.crop_padding, flip=flip, device=where)
    ensemble = Ensemble(built.to(where), getattr(torch, trained.precision), eval_batch_size=trained.eval_batch_size)
    n, orders = len(images), permutations(seeds, len(images)).to(where)
    subsets, held_out = orders.tensor_split([n - (num_held_out(n) if validation is None else 0)], dim=1)
    stack, progress = choose(ensemble, len(seeds), data["train"], trained).stack, TrainingProgress([n])

    def show(report: EpochReport) -> None:
        on_progress(progress.share(0, *report.mean_epochs), str(report))

    with threads_for(step_multiply_adds(ensemble, stack, data["train"], trained)):
        fitted = fit_members(
            ensemble,
            data,
            seeds,
            subsets,
            trained,
            show,
            held_out=held_out if validation is None else None,
            stack=stack,
        )
        losses = _losses(fitted, data, subsets if validation is None else None, seeds)
    rows = [row for curve in fitted.curves for row in curve.rows(n)]
    result = Fitted(
        name,
        [*seeds],
        classes,
        fitted.best,
        losses,
        pd.DataFrame(rows).drop(columns="n"),
        fitted,
        functools.partial(DeviceImages, mean=mean, std=std, padding=0, flip=False, device=where),
        x[:1],
    )
    on_progress(1.0, str(result))
    return result


def _losses(fitted: Fit, data: dict[str, DeviceImages], subsets: Tensor | None, seeds: Sequence[int]) -> pd.DataFrame:
    """Return final losses and endings of the trainings, one row per seed; `subsets` None stands for all examples."""
    columns: dict[str, Any] = {
        "seed": [*seeds],
        "train_loss_bits": fitted.score(data["train"], subsets).bits.tolist(),
        "validation_loss_bits": [curve.best_validation_bits for curve in fitted.curves],
    }
    if len(data["test"]):
        test = fitted.score(data["test"])
        columns |= {"test_loss_bits": test.bits.tolist(), "test_accuracy": test.accuracy.tolist()}
    ended = endings(fitted.curves)
    return pd.DataFrame(columns | {key: ended[key] for key in ("epochs", "best_epoch", "ended", "untrained")})
