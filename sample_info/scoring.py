"""The verb's own part: kernel, leave-one-out changes and scores of every seed, resumable; files and summaries."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from erasure.progress import Display
from erasure.store.storage import DamagedFileError, load_tensors, save_tensors
from harness.logger import Logger
from harness.run import Run
from models.classifier import count_parameters
from sample_info.changes import Changes, agreements_of, functional_information, weight_information
from sample_info.examples import Examples
from sample_info.kernel.jacobian import Projection, network_outputs
from sample_info.kernel.ntk import Kernels, fully_connected, ntk
from sample_info.kinds import decisions
from sample_info.linearized.dynamics import LinearizedDynamics
from sample_info.linearized.sgd import at_minimum, sgd_information
from sample_info.problem import Problem
from sample_info.references.registry import REFERENCES
from sample_info.report.records import Scored, log_scores, save_scores, scores_result
from sample_info.settings import SampleInfoSettings
from sample_info.summaries.accuracy import Subsets, part_of, require_possible, try_summaries

log = logging.getLogger(__name__)

_FEW_PARAMETERS = 200_000  # below which exact Jacobians are cheap
_PARTS = ("weight", "prediction", "without")  # of `_Linearized.left_out`
_REFITTED = 16  # examples that the eraser is refitted without before what was found is stored
_WORTH_KEEPING_S = 10.0  # a kernel that took longer is stored while the run is unfinished


def score(examples: Examples, run: Run, logger: Logger) -> dict[str, Any]:
    """Score every example for every seed; the verb's share of result.json.

    Writes scores.safetensors, scores.csv and scores.png into the run's directory.

    Returns:
        "information": summaries per seed, see `scores_result`; "network": accuracy of the linearised network per
        seed, on training and test examples and on those that are left out; "how": what was computed, per seed;
        "references": agreement with each, per seed; "summaries": see `summary_records.summaries_result`.

    Raises:
        ValueError: summaries that these examples do not allow, or a training that diverges.
    """
    require_possible(examples)
    seeds = examples.described["seeds"]
    with Display(run.id) as display:
        scored = []
        for s, seed in enumerate(seeds):

            def show(done: float, what: str, s: int = s, seed: int = seed) -> None:
                display.update((s + done) / len(seeds), f"seed {seed}: {what}")

            scored.append(_score_seed(examples, examples.problem(seed), run, show))
    save_scores(run.directory, examples, scored)
    log_scores(run.directory, logger, examples, scored)
    return scores_result(examples, scored)


def _score_seed(examples: Examples, problem: Problem, run: Run, show: Callable[[float, str], None]) -> Scored:
    settings = examples.settings
    scoring = 0.1 if settings.summaries.trained else 0.9  # of the time
    everything, show = show, part_of(show, 0, scoring)
    show(0.0, "kernel")
    network = _Linearized.of(problem, _kernels(examples, problem, run))
    kernels, initial, dynamics = network.kernels, network.initial, network.dynamics
    show(0.5, "leaving out")
    changes, without = _changes(examples, problem, network, run, show)
    trained = dynamics.predictions(initial, kernels.train)
    initial_held_out = network_outputs(problem.model, problem.weights, problem.held_out, batch_size=problem.batch_size)
    predicted = dynamics.predictions(initial_held_out, kernels.held_out)
    scores = {
        "f_si_nats": functional_information(changes, settings.sigma),
        "si_nats": weight_information(changes, settings.sigma),
    }
    how = {"kernel": kernels.how, "training": dynamics.how, "error_bound": dynamics.error_bound}
    if settings.sgd_batch_size is not None:
        show(0.9, "steady state of SGD")
        sgd, floored = sgd_information(at_minimum(dynamics), settings.sgd_batch_size, memory_bytes=problem.memory_bytes)
        scores["si_sgd_nats"] = sgd.cpu()
        how["sgd_directions_floored"] = floored
    references = {
        name: found for key in settings.references.methods for name, found in REFERENCES[key](problem, run).items()
    }
    subsets = Subsets(kernels, initial - problem.y, initial_held_out, problem.descent)
    summaries = try_summaries(examples, problem, subsets, scores["f_si_nats"], run, part_of(everything, scoring, 1))
    return Scored(
        seed=problem.seed,
        changes=changes,
        scores=scores,
        references=references,
        agreement=agreements_of(changes, references),
        how=how,
        left_out_correct=decisions(without) == examples.given.cpu(),
        train_accuracy=examples.accuracy(trained, examples.given),
        test_accuracy=examples.accuracy(predicted, examples.held_out_labels),
        summaries=summaries,
    )


def _kernels(examples: Examples, problem: Problem, run: Run) -> Kernels:
    """The seed's kernels; one that took long is kept until the run is finished."""
    path = run.directory / f"checkpoint-kernel-{problem.seed}.safetensors"
    if path.exists():
        try:
            tensors, metadata = load_tensors(path)
            device = problem.x.device
            return Kernels(tensors["train"].to(device), tensors["held_out"].to(device), metadata["how"])
        except DamagedFileError as error:
            log.warning("%s; computed again", error)
    started = time.monotonic()
    kernels = _ntk(examples.settings, problem)
    if time.monotonic() - started > _WORTH_KEEPING_S:
        save_tensors(path, {"train": kernels.train, "held_out": kernels.held_out}, {"how": kernels.how})
    return kernels


def _ntk(settings: SampleInfoSettings, problem: Problem) -> Kernels:
    network, kind = (problem.model, problem.weights, problem.x), settings.kernel.projection
    if kind == "auto":
        cheap = fully_connected(*network) is not None or count_parameters(problem.model) <= _FEW_PARAMETERS
        kind = "exact" if cheap else "coordinates"
    projection = Projection(kind, settings.kernel.size, problem.seed)
    sizes = {"batch_size": problem.batch_size, "memory_bytes": problem.memory_bytes}
    return ntk(*network, problem.held_out, projection=projection, **sizes)


@dataclass(frozen=True)
class _Linearized:
    """The linearised network's training on one version of the data.

    Attributes:
        kernels: of the examples and the held-out inputs.
        initial: f_0 of the examples, [n, k].
        dynamics: of the training.
    """

    kernels: Kernels
    initial: Tensor
    dynamics: LinearizedDynamics

    @classmethod
    def of(cls, problem: Problem, kernels: Kernels) -> Self:
        initial = network_outputs(problem.model, problem.weights, problem.x, batch_size=problem.batch_size)
        return cls(kernels, initial, LinearizedDynamics(kernels.train, initial - problem.y, problem.descent))

    def left_out(self, block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """‖w - w_-i‖², the mean of ‖f(x) - f_-i(x)‖² and f_-i(x_i) [b, k], of a block of examples [b]."""
        weight, prediction, own = self.dynamics.changes(block, self.kernels.held_out)
        return weight, prediction, self.dynamics.predictions(self.initial, self.kernels.train)[block] - own


def _changes(
    examples: Examples, problem: Problem, network: _Linearized, run: Run, show: Callable[[float, str], None]
) -> tuple[Changes, Tensor]:
    """Leave-one-out changes, and f_-i(x_i) [n, k], by blocks; those of an interrupted run are read back."""

    def refitted(i: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        without = examples.without(problem, int(i))
        return _Linearized.of(without, _ntk(examples.settings, without)).left_out(i)

    def left_out(block: Tensor) -> list[Tensor]:
        if examples.refitting is None:
            return [*network.left_out(block)]
        return [torch.cat(found) for found in zip(*map(refitted, block.split(1)), strict=True)]

    everything = torch.arange(len(problem.x))
    blocks = everything.split(_REFITTED) if examples.refitting else network.dynamics.blocks(problem.memory_bytes)
    parts: list[Mapping[str, Any]] = []
    for j, block in enumerate(blocks):
        show(0.5 + 0.4 * j / len(blocks), f"leaving out, block {j + 1} of {len(blocks)}")
        name = f"left-out-{problem.seed}-{int(block[0])}-{int(block[-1])}"
        part = run.part(name)
        if part is None:
            part = {key: values.tolist() for key, values in zip(_PARTS, left_out(block), strict=True)}
            if len(blocks) > 1:
                run.save_part(name, part)
        parts.append(part)
    weight, prediction, without = (
        torch.tensor([value for part in parts for value in part[key]], dtype=torch.float64) for key in _PARTS
    )
    return Changes(weight, prediction), without
