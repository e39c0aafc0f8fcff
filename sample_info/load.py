"""From a job to the examples that are scored: erased, chosen, mislabelled or attacked if asked for, on the device."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from conf.schema import Target
from erasure.eraser import Eraser
from erasure.pipeline import positions, whole_images
from erasure.source import LabelledImages, stratified_split
from erasure.store.cache import Cache
from harness.job import CONTROL, Job, erased
from sample_info.eraser_fit import Refitting, resolved
from sample_info.kinds import Groups, adversaries, capped, flip_labels, groups_of
from sample_info.problem import Examples
from sample_info.settings import SampleInfoSettings
from sample_info.trained_weights import TrainedWeights
from train.data import to_device

log = logging.getLogger(__name__)


def load(job: Job) -> Examples:
    """Erase (or fetch) the dataset, choose its examples, bring them to the device."""
    settings = job.settings(SampleInfoSettings)
    trained = None if settings.initial_weights is None else TrainedWeights.read(settings.initial_weights)
    numbered, groups, d = _origin(job)
    index = numbered["train"].images
    chosen = _choose(numbered["train"].labels, groups, settings)
    if len(chosen) < settings.examples:
        log.info(
            "sample_info.examples=%d, but there are %d to choose from: all are scored", settings.examples, len(chosen)
        )
    held_out = _sample(numbered["test"].labels, settings.held_out, settings.subset_seed)
    target = Target(job.config["eraser"])
    eraser = target.resolve(Eraser)
    fit = resolved(
        settings.eraser_fit, eraser, numbered["train"].labels, chosen, d, refits=not settings.needs_one_kernel
    )
    dataset = erased(job, apart=chosen if fit == "disjoint" else None)
    data = to_device(dataset, crop_padding=0.0, flip=False, device=job.device)
    scored, rows = (data["apart"], slice(None)) if fit == "disjoint" else (data["train"], chosen.to(job.device))
    test, labels = data["test"], scored.labels[rows]
    given, wrong = flip_labels(labels, len(dataset.class_names), settings.label_noise, settings.subset_seed)
    marks = [] if groups is None else [groups[chosen].present()]
    if settings.label_noise:
        marks.append(Groups.marked(wrong, "wrong label", "right label"))
    examples = Examples(
        job=job,
        settings=settings,
        dataset=dataset,
        index=index[chosen],
        labels=labels,
        given=given,
        groups=Groups.crossed(marks),
        x=scored.images[rows],
        held_out=test.images[held_out.to(job.device)],
        held_out_labels=test.labels[held_out.to(job.device)],
        trained=trained,
        eraser_fit=fit,
        refitting=_refitting(job, eraser, target.options, chosen, held_out) if fit == "refit" else None,
    )
    if trained is not None:
        trained.require(examples.model, job.model_identity, job.config["seeds"], readout=settings.readout_gain is None)
    if not settings.adversarial:
        return examples
    x, attacked = _attacked(examples)
    marks.append(Groups.marked(attacked, "adversarial", "original"))
    return replace(examples, x=x, groups=Groups.crossed(marks))


def _origin(job: Job) -> tuple[Mapping[str, LabelledImages], Groups | None, int]:
    """Where each split's images stand in the whole dataset, what kinds there are of training images, and their size."""
    whole = whole_images(job.source, Cache(job.config["cache_dir"]))
    numbered = positions(job.source, whole)
    return numbered, groups_of(job.source, whole, numbered["train"].images), whole.train.images[0].numel()


def _refitting(
    job: Job, eraser: type[Eraser], options: Mapping[str, Any], scored: Tensor, held_out: Tensor
) -> Refitting:
    control = replace(job, config={**job.config, "eraser": CONTROL})
    plain = erased(control).splits
    return Refitting(eraser, options, plain["train"], scored, plain["test"][held_out])


def _choose(labels: Tensor, groups: Groups | None, settings: SampleInfoSettings) -> Tensor:
    """Positions of the examples that are scored, ascending: groups capped, then every class and group in proportion."""
    kept = capped(groups, settings.caps, settings.subset_seed)
    strata = labels if groups is None else groups.of * (int(labels.max()) + 1) + labels
    if kept is None:
        return _sample(strata, settings.examples, settings.subset_seed)
    return kept[_sample(strata[kept], settings.examples, settings.subset_seed)]


def _sample(strata: Tensor, most: int, seed: int) -> Tensor:
    """Positions of a stratified sample, ascending; all if there are no more."""
    if len(strata) <= most:
        return torch.arange(len(strata))
    return stratified_split(strata, most, seed)[1]


def _attacked(examples: Examples) -> tuple[Tensor, Tensor]:
    """Inputs of which some are adversarial, and which."""
    settings, problem = examples.settings, examples.problem(examples.described["seeds"][0], "adversary")
    training, stored = problem.training, examples.stored(examples.x)
    x, attacked = adversaries(
        lambda weights, x: training.network(weights, examples.standardised(x)),
        training.trained(),
        stored,
        problem.y.to(stored.dtype),
        count=round(settings.adversarial * len(stored)),
        epsilon=settings.epsilon,
        seed=settings.subset_seed,
        batch_size=problem.batch_size,
    )
    # originals as they were, not rounded twice
    return torch.where(attacked[:, None, None, None], examples.standardised(x), examples.x), attacked
