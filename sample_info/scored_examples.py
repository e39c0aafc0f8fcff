"""The scored examples: sampled, erased, moved to the device, and on request mislabelled or made adversarial."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from conf import Options
from conf.target_class import Target
from erasure.datasets.class_subset import positions
from erasure.eraser import Eraser
from erasure.image_cache import whole_images
from erasure.splits import stratified_split
from erasure.store.cache import Cache
from harness.experiment import Experiment, Prepared, erased, network
from models.classifier import Classifier, count_parameters
from sample_info.adversarial_examples import adversaries
from sample_info.eraser_fit_without_scored_examples import EraserFit, Refitting, resolved
from sample_info.settings import SampleInfoConfig, SampleInfoSettings
from sample_info.subgroups import Subgroups, subgroups_of
from sample_info.trained_weights import TrainedWeights
from sample_info.training_problem import TrainingProblem, initial_weights, outputs_for, targets
from train.device_images import to_device

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Examples(Prepared[SampleInfoConfig]):
    """The erased examples of an experiment, on the device."""

    index: Tensor  # position of each training example in the dataset, [n]
    names: list[str]  # names of the examples' files or rows, n
    labels: Tensor  # true labels in 0..k-1, [n]
    train_labels: Tensor  # labels after label noise, [n]
    groups: Subgroups
    x: Tensor  # inputs [n, C, H, W], standardised
    held_out: Tensor  # test inputs [m, C, H, W]
    held_out_labels: Tensor  # [m]
    trained: TrainedWeights | None = None  # initial weights; None for random ones
    eraser_fit: EraserFit | None = None  # None for the control
    refitting: Refitting | None = None  # only for eraser_fit=refit

    @property
    def settings(self) -> SampleInfoSettings:
        return self.experiment.config.sample_info

    @property
    def num_outputs(self) -> int:
        """The number of outputs: one for two classes, else one per class."""
        return outputs_for(self.num_classes)

    @property
    def train_size(self) -> int:
        return len(self.x)

    @property
    def parameters(self) -> int:
        return count_parameters(self.model)

    @property
    def step_multiply_adds(self) -> float:
        """The order of magnitude of the multiply-adds of decomposing the kernel."""
        return (len(self.x) * self.num_outputs) ** 3

    @property
    def wrong(self) -> Tensor | None:
        """Mask of wrong labels, [n]; None if all labels are right."""
        wrong = self.train_labels != self.labels
        return wrong if bool(wrong.any()) else None

    @cached_property
    def model(self) -> Classifier:
        """The architecture, with `num_outputs` outputs."""
        return self.built(self.experiment.config.model)

    def built(self, section: Options) -> Classifier:
        return network(self.experiment, section, self.x.shape[1:], self.num_outputs).eval()

    def standardised(self, x: Tensor) -> Tensor:
        """Standardise stored images [n, C, H, W] for the network."""
        return (x - self._channels(self.dataset.channel_mean)) / self._channels(self.dataset.channel_std)

    def stored(self, x: Tensor) -> Tensor:
        return x * self._channels(self.dataset.channel_std) + self._channels(self.dataset.channel_mean)

    def _channels(self, statistic: Tensor) -> Tensor:
        return statistic.to(self.x)[:, None, None]

    def problem(self, seed: int, purpose: str = "init") -> TrainingProblem:
        """Return the training problem of a seed; each purpose has its own initialisation."""
        settings = self.settings
        return TrainingProblem(
            model=self.model,
            weights=initial_weights(self.model, seed, settings.training.readout_gain, self.trained, purpose),
            x=self.x,
            y=targets(self.train_labels, self.num_outputs),
            held_out=self.held_out,
            descent=settings.training,
            seed=seed,
            memory_bytes=settings.memory_bytes,
            kernel=settings.kernel,
        )

    def without(self, problem: TrainingProblem, i: int) -> TrainingProblem:
        """Return the problem with data from an eraser that was fitted without example i."""
        assert self.refitting is not None
        x, held_out = (self.standardised(part.to(self.x)) for part in self.refitting.without(i))
        return replace(problem, x=x, held_out=held_out)


def prepare(experiment: Experiment[SampleInfoConfig]) -> Examples:
    """Erase the dataset, or read it from the cache; choose examples and move them to the device."""
    settings = experiment.config.sample_info
    seed, start = settings.data.seed, settings.initial_weights
    trained = None if start is None else TrainedWeights.read(start)
    whole = whole_images(experiment.source, Cache(experiment.config.cache_dir))
    numbered = positions(experiment.source, whole)
    (index, labels), (_, test_labels) = numbered["train"], numbered["test"]
    groups = subgroups_of(experiment.source, whole, index)
    available = capped(groups, settings.data.caps, seed)
    strata = groups.of * (int(labels.max()) + 1) + labels  # samples classes and groups in proportion
    chosen = available[_sample(strata[available], settings.examples, seed)]
    if len(chosen) < settings.examples:
        log.info(
            "sample_info.examples=%d: there are %d training examples, and all are scored; %d validation and %d test "
            "examples are not (fewer with dataset.validation_size=1, and with a folder test/ or a smaller "
            "dataset.test_fraction; none with unique_information in Python)",
            settings.examples, len(chosen), len(numbered["validation"][1]), len(test_labels),
        )  # fmt: skip
    held_out = _sample(test_labels, settings.held_out, seed)
    eraser, d = Target(experiment.config.eraser, Eraser).resolve(), whole.train.images[0].numel()
    fit = resolved(settings.data.eraser_fit, eraser, labels, chosen, d, refits=not settings.needs_one_kernel)
    dataset = erased(experiment, left_out=chosen if fit == "disjoint" else None)
    data = to_device(dataset, crop_padding=0.0, flip=False, device=experiment.device)
    scored, rows = (data["apart"], slice(None)) if fit == "disjoint" else (data["train"], chosen.to(experiment.device))
    test, labels = data["test"], scored.labels[rows]
    train_labels, wrong = flip_labels(labels, len(dataset.class_names), settings.data.label_noise, seed)
    groups = Subgroups(groups.names, groups.of[chosen]).present()
    if settings.data.label_noise:
        groups = groups.crossed(Subgroups.marked(wrong, "wrong label", "right label"))
    examples = Examples(
        experiment=experiment,
        dataset=dataset,
        index=index[chosen],
        names=experiment.source.example_names(index[chosen]),
        labels=labels,
        train_labels=train_labels,
        groups=groups,
        x=scored.images[rows],
        held_out=test.images[held_out.to(experiment.device)],
        held_out_labels=test.labels[held_out.to(experiment.device)],
        trained=trained,
        eraser_fit=fit,
        refitting=Refitting(experiment, chosen, held_out) if fit == "refit" else None,
    )
    if trained is not None:
        readout = settings.training.readout_gain is None
        trained.require(examples.model, experiment.model_identity, experiment.config.seeds, readout=readout)
    if not settings.data.adversarial:
        return examples
    x, attacked = _attacked(examples)
    return replace(examples, x=x, groups=groups.crossed(Subgroups.marked(attacked, "adversarial", "original")))


def _sample(strata: Tensor, most: int, seed: int) -> Tensor:
    """Return ascending positions of a stratified sample of at most `most` examples."""
    return torch.arange(len(strata)) if len(strata) <= most else stratified_split(strata, most, seed)[1]


def _attacked(examples: Examples) -> tuple[Tensor, Tensor]:
    """Replace some inputs by adversarial ones; return all inputs and the mask of replaced ones."""
    data, problem = examples.settings.data, examples.problem(examples.experiment.config.seeds[0], "adversary")
    training, stored = problem.training, examples.stored(examples.x)
    weights = training.trained()
    x, attacked = adversaries(
        lambda x: training.network(weights, examples.standardised(x)),
        stored,
        problem.y.to(stored.dtype),
        data,
    )
    # the unchanged inputs are not rounded a second time
    return torch.where(attacked[:, None, None, None], examples.standardised(x), examples.x), attacked


def flip_labels(z: Tensor, num_classes: int, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Flip a fraction of the labels; return labels [n] and the mask of wrong labels [n].

    Exactly round(fraction · n) random examples get one of the other classes, drawn uniformly.
    """
    assert 0 <= fraction <= 1 < num_classes, "settings refuse it"
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(z), generator=generator)[: round(fraction * len(z))].to(z.device)
    shift = torch.randint(1, num_classes, (len(chosen),), generator=generator).to(z)
    noisy, flipped = z.clone(), torch.zeros(len(z), dtype=torch.bool, device=z.device)
    noisy[chosen] = (z[chosen] + shift) % num_classes
    flipped[chosen] = True
    return noisy, flipped


def capped(groups: Subgroups, most: Mapping[str, int], seed: int) -> Tensor:
    """Return ascending positions of a seeded random sample with at most `most` examples of each named group.

    Raises:
        ValueError: an unknown group.
    """
    masks = groups.masks()
    if unknown := [name for name in most if name not in masks]:
        known = ", ".join(masks) or "none: merge classes, as in sample_info.classes=[[3,5],4], or mix datasets"
        raise ValueError(f"sample_info.data.at_most: there is no group {unknown[0]}; there are {known}")
    generator, selected = torch.Generator().manual_seed(seed), torch.ones(len(groups.of), dtype=torch.bool)
    for name, mask in masks.items():
        members = mask.nonzero().squeeze(1)
        dropped = members[torch.randperm(len(members), generator=generator)[most.get(name, len(members)) :]]
        selected[dropped] = False
    return selected.nonzero().squeeze(1)
