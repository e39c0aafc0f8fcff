"""Score the examples for every seed, resumably: kernel, leave-one-out changes, references, summaries, files."""

import functools
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from erasure.progress import Display, on_progress
from harness.logger import Logger
from harness.run_directory import Run, Tensors
from harness.sample_info_fields import Information
from models.tangent.kernel import Kernels
from sample_info.attribution_quality import attributions
from sample_info.data_summarization import Show, part_of, require_possible, try_summaries
from sample_info.error_estimates import TRAINED_PATH
from sample_info.leave_one_out_effects import Changes, functional_information, loss_effects, weight_information
from sample_info.linearized.network import LinearizedNetwork
from sample_info.linearized.sgd_steady_state import sgd_information
from sample_info.linearized.trained_path import along_trained_path
from sample_info.pairwise_files import keep_only, save_block
from sample_info.references.registry import SUBSETS, references_of
from sample_info.report.save_scores import Scored, save_scores
from sample_info.report.score_summaries import information_of
from sample_info.scored_examples import Examples
from sample_info.scores import projection_of
from sample_info.settings import SampleInfoSettings
from sample_info.training_problem import TrainingProblem, decisions

log = logging.getLogger(__name__)

_REFITTED = 16  # examples per stored block where the eraser is refitted without each
_KERNEL = 0.5  # of the time for one output; leaving out costs the cube of the outputs, the kernel their square
_WORTH_SAVING_S = 10.0  # a kernel that takes longer is saved while the run is unfinished


def score(examples: Examples, run: Run, logger: Logger) -> Information:
    """Score every example for every seed; return the section `information` of result.json.

    Writes scores.safetensors, scores.csv and scores.png into the run's directory, and pairwise-*.safetensors on
    request.

    Raises:
        ValueError: summaries that these examples do not allow, or a training that diverges.
    """
    require_possible(examples)
    seeds = examples.described["seeds"]
    with Display(run.id) as display:
        scored = []
        for s, seed in enumerate(seeds):
            show = part_of(display.update, s / len(seeds), (s + 1) / len(seeds), f"seed {seed}: ")
            scored.append(_score_seed(examples, examples.problem(seed), run, show))
    information = information_of(examples, scored)
    save_scores(run.directory, logger, examples, scored, information)
    return information


def _score_seed(examples: Examples, problem: TrainingProblem, run: Run, show: Show) -> Scored:
    settings = examples.settings
    scoring = 0.1 if settings.summaries.trained else 0.9 if settings.summaries.orders else 1.0  # of the time
    everything, show = show, part_of(show, 0, scoring)
    show(0.0, "kernel")
    network = LinearizedNetwork(problem, _kernels(examples, problem, run))
    changes, without = _changes(examples, network, run, part_of(show, _KERNEL / problem.y.shape[1], 0.9))
    dynamics = network.dynamics
    scores = {
        "f_si_nats": functional_information(changes, settings.sigma),
        "si_nats": weight_information(changes, settings.sigma),
    }
    how = {"kernel": network.kernels.how, "training": dynamics.how, "error_bound": dynamics.error_bound}
    if settings.sgd_batch_size is not None:
        show(0.9, "steady state of SGD")
        sgd, floored = sgd_information(dynamics.at_minimum, settings.sgd_batch_size, memory_bytes=problem.memory_bytes)
        scores["si_sgd_nats"] = sgd.cpu()
        how["sgd_directions_floored"] = floored
    methods = references_of(problem, settings.references, run)
    references = {name: one.changes for name, one in methods.items() if not bool(one.weight.isnan().all())}
    if settings.error_estimate:
        references = {TRAINED_PATH: _along_path(settings, network, run, part_of(show, 0.9, 1)), **references}
    attribution = {}
    if SUBSETS in settings.references.methods:
        attribution = attributions(network, methods, examples.wrong, settings.references, run)
    return Scored(
        seed=problem.seed,
        changes=changes,
        scores=scores,
        references=references,
        attribution=attribution,
        how=how,
        left_out_correct=decisions(without) == examples.train_labels.cpu(),
        left_out_label=decisions(without),
        train_accuracy=examples.accuracy(network.trained, examples.train_labels),
        test_accuracy=examples.accuracy(network.trained_held_out, examples.held_out_labels),
        summaries=try_summaries(examples, network, scores["f_si_nats"], run, part_of(everything, scoring, 1)),
    )


def _kernels(examples: Examples, problem: TrainingProblem, run: Run) -> Kernels:
    """Return the seed's kernels, as a step of the run if they take long."""

    def computed() -> Tensors:
        kernels = _ntk(examples.settings, problem)
        return Tensors({"train": kernels.train, "held_out": kernels.held_out}, {"how": kernels.how})

    stored = run.step(f"kernel-{problem.seed}", computed, worth_s=_WORTH_SAVING_S)
    train, held_out = (stored.tensors[part].to(problem.x.device) for part in ("train", "held_out"))
    return Kernels(train, held_out, stored.values["how"])


def _ntk(settings: SampleInfoSettings, problem: TrainingProblem) -> Kernels:
    return problem.kernels(projection_of(settings.kernel, problem))


def _along_path(settings: SampleInfoSettings, network: LinearizedNetwork, run: Run, show: Show) -> Changes:
    """Return changes of the linearisation along the trained path, as a step of the run."""

    def compute() -> list[list[float]]:
        kernels_of = functools.partial(_ntk, settings)
        changes = along_trained_path(network, kernels_of, lambda done: show(done, "trained path"))
        return [changes.weight.tolist(), changes.prediction.tolist()]

    stored = run.step(f"trained-path-{network.problem.seed}", compute)
    return Changes(*torch.tensor(stored, dtype=torch.float64))


def _changes(examples: Examples, network: LinearizedNetwork, run: Run, show: Show) -> tuple[Changes, Tensor]:
    """Compute leave-one-out changes, and f_-i(x_i) [n, k]; every block of examples is a step of the run."""
    problem, pairwise = network.problem, examples.settings.pairwise

    def effects_of(network: LinearizedNetwork, block: Tensor) -> Sequence[Tensor]:
        effects, without = network.left_out(block)
        scored = (effects.weight, effects.prediction, without)
        if not pairwise:
            return scored
        return *scored, effects.outputs, loss_effects(effects.outputs, network.trained_held_out, y)

    def refitted(i: Tensor) -> Sequence[Tensor]:
        without = examples.without(problem, int(i))
        return effects_of(LinearizedNetwork(without, _ntk(examples.settings, without)), i)

    def left_out(block: Tensor) -> list[Any]:
        stored = map(refitted, block.split(1)) if examples.refitting else [effects_of(network, block)]
        weight, prediction, without, *signed = (torch.cat(parts) for parts in zip(*stored, strict=True))
        if pairwise:
            save_block(run.directory, problem.seed, block, *signed)
        return [weight.tolist(), prediction.tolist(), without.tolist()]

    show(0.0, "leaving out: preparation")
    y, everything, m = examples.targets(examples.held_out_labels), torch.arange(len(problem.x)), len(problem.held_out)
    blocks = everything.split(_REFITTED) if examples.refitting else network.dynamics.blocks(problem.memory_bytes, m)
    show = part_of(show, 0.0 if examples.refitting else network.dynamics.preparation, 1)
    stored = []
    for j, block in enumerate(blocks):
        inside = part_of(show, j / len(blocks), (j + 1) / len(blocks), f"leaving out, block {j + 1} of {len(blocks)}")
        inside(0.0, "")
        name = f"without-{problem.seed}-{int(block[0])}-{int(block[-1])}"
        shown = on_progress(lambda _, done, detail, inside=inside: inside(done, f", {detail}"))
        with nullcontext() if examples.refitting else shown:
            stored.append(run.step(name, functools.partial(left_out, block)))
    if pairwise:
        keep_only(run.directory, problem.seed, blocks)
    weight, prediction, without = (
        torch.tensor([value for part in parts for value in part], dtype=torch.float64)
        for parts in zip(*stored, strict=True)
    )
    return Changes(weight, prediction), without
