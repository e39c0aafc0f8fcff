"""Losses on counterparts of the test images during training, which show when a network learns each order.

A counterpart shares only some statistics of each class with the test images (`erasure.matched_samples`). While the loss
on it falls like the loss on the images, the network uses the shared statistics. Once it stops falling, or rises, the
network uses others (Belrose et al. 2024, "Neural Networks Learn Statistics of Increasing Complexity").
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from erasure.dataset import LabelledImages
from erasure.matched_samples import counterpart
from erasure.order_spectra import order_spectrum
from erasure.pipeline import ErasedDataset
from erasure.store.cache import Cache
from erasure.store.checked_files import digest, fingerprint
from harness.experiment import Experiment
from train.device_images import DeviceImages, as_trained_on
from train.ensemble import Ensemble, Weights
from train.result import CounterpartResult
from train.settings import TrainConfig

DATA = "data"  # name of the test images among their counterparts
VERSION = 1  # of the code that draws counterparts

_MOST = 2000  # largest number of test images; more are subsampled with a fixed seed
_GROWTH = 1.1  # factor between the epochs of successive evaluations after the tenth: about twenty per decade
_ORDERS, _DIRECTIONS = 4, 30  # number of orders and of directions in the spectrum

Counterparts = Mapping[str, DeviceImages]


class CounterpartRow(NamedTuple):
    """Scores of one seed's network on one sample after `step` optimiser steps.

    `agreement` is 1 minus the total variation distance between the mean predictions for the images and for the
    counterparts of a class, averaged over classes.
    """

    seed: int
    step: int
    sample: str
    loss_bits: float
    accuracy: float
    agreement: float


class CounterpartCurves:
    """Losses of a stack of members on samples, recorded at some optimiser steps.

    These are steps 0, 1, 2, 4, ... within the first epoch, the ends of the first ten epochs, and then of epochs whose
    numbers grow by a tenth each time. Nothing random is drawn, and no state of the training is touched.

    Attributes:
        samples: by name, `DATA` first; nothing is noted without any.
        rows: noted so far.
    """

    def __init__(self, ensemble: Ensemble, samples: Counterparts, epoch_steps: int) -> None:
        self.samples, self.rows = samples, list[CounterpartRow]()
        self._ensemble, self._epoch_steps = ensemble, epoch_steps

    def due(self, step: int, *, always: bool = False) -> bool:
        """Return whether losses are to be recorded at step number `step`, counted from the start of the training.

        `always` records them at any step, once.
        """
        if not self.samples or (self.rows and self.rows[-1].step == step):
            return False
        if always or (step <= self._epoch_steps and step & (step - 1) == 0):
            return True
        epoch, within = divmod(step, self._epoch_steps)
        return within == 0 and epoch in _epochs(epoch)

    @torch.no_grad()
    def note(self, step: int, seeds: Sequence[int], weights: Weights) -> None:
        """Note the losses of the members of these seeds, whose weights are `weights`."""
        reference: Tensor | None = None
        for name, images in self.samples.items():
            loss, hits, by_class = self._predictions(weights, images)
            reference = by_class if reference is None else reference
            present = images.labels.unique()
            distance = (by_class - reference)[:, present].abs().sum(-1).mean(-1) / 2
            columns = zip(seeds, loss.tolist(), hits.tolist(), (1 - distance).tolist(), strict=True)
            self.rows += [
                CounterpartRow(seed, step, name, round(bits, 5), round(right, 5), round(alike, 5))
                for seed, bits, right, alike in columns
            ]

    def _predictions(self, weights: Weights, images: DeviceImages) -> tuple[Tensor, Tensor, Tensor]:
        """Return each member's mean loss in bits [S], accuracy [S], and mean prediction for each class [S, k, k]."""
        logits, labels = (torch.cat(parts, 1) for parts in zip(*self._ensemble.outputs(weights, images), strict=True))
        log_probabilities = logits.double().log_softmax(-1)
        loss = -log_probabilities.gather(-1, labels[..., None]).squeeze(-1).mean(1) / math.log(2)
        hot = F.one_hot(images.labels, logits.shape[-1]).double()
        shares = hot / hot.sum(0).clamp(min=1)
        return loss, (logits.argmax(-1) == labels).double().mean(1), shares.T @ log_probabilities.exp()


def _epochs(last: int) -> set[int]:
    """Return the numbers of the epochs, up to `last`, after which losses are recorded."""
    chosen, epoch = set[int](), 1
    while epoch <= last:
        chosen.add(epoch)
        epoch = max(epoch + 1, math.ceil(epoch * _GROWTH) if epoch >= 10 else 0)
    return chosen


def draw_counterparts(
    experiment: Experiment[TrainConfig], dataset: ErasedDataset
) -> tuple[Counterparts, dict[str, dict[str, float]]]:
    """Draw the requested counterparts of the test images, and compute the order spectrum of each sample.

    Counterparts are drawn once, and stored in the cache.

    Returns:
        Samples on the experiment's device by name, with the test images as `DATA` first; and z-scores of the class
        information in each order, by the same names.

    Raises:
        ValueError: a class has too few test images.
    """
    names = experiment.config.counterparts
    if not names:
        return {}, {}
    test = dataset.splits["test"]
    chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))[:_MOST].sort().values
    data = LabelledImages(test.images[chosen].float(), test.labels[chosen])
    samples, spectra, cache = {DATA: data}, dict[str, dict[str, float]](), Cache(experiment.config.cache_dir)
    about = {"images": digest(data.images), "labels": digest(data.labels), "version": VERSION}
    for name in names:

        def build(name: str = name) -> tuple[dict[str, Tensor], dict[str, str]]:
            drawn = counterpart(name, data.images.to(experiment.device), data.labels)
            return {"images": drawn.x.cpu(), "labels": drawn.z.cpu()}, {"counterpart": name}

        tensors, _ = cache.fetch(f"counterpart-{name}-{fingerprint({**about, 'counterpart': name})}", build)
        samples[name] = LabelledImages(tensors["images"], tensors["labels"])
    for name, part in samples.items():
        (spectrum,) = order_spectrum(
            part.images, part.labels, reference=data.images, directions=[_DIRECTIONS], orders=_ORDERS
        )
        spectra[name] = {f"order {p}": z for p, z in enumerate(spectrum.z_scores.tolist(), 1) if math.isfinite(z)}
    return {name: as_trained_on(dataset, part, experiment.device) for name, part in samples.items()}, spectra


def results_of(
    rows: Sequence[CounterpartRow], spectra: Mapping[str, Mapping[str, float]], seeds: Sequence[int]
) -> dict[str, CounterpartResult] | None:
    """Return the content of result.json for these rows, by sample; None if there are no samples."""
    results = dict[str, CounterpartResult]()
    for name, z_scores in spectra.items():
        of_seeds = [sorted(row for row in rows if row.sample == name and row.seed == seed) for seed in seeds]
        results[name] = CounterpartResult(
            z_scores=dict(z_scores),
            step=[[row.step for row in one] for one in of_seeds],
            loss_bits=[[row.loss_bits for row in one] for one in of_seeds],
            accuracy=[[row.accuracy for row in one] for one in of_seeds],
            agreement=[[row.agreement for row in one] for one in of_seeds],
        )
    return results or None
