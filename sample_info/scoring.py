"""The verb's own part: kernel, leave-one-out changes and scores of every seed, resumable; files and summaries."""

import logging
import time

import torch
from torch import Tensor

from erasure.progress import Display
from erasure.store.storage import DamagedFileError, load_tensors, save_tensors
from harness.logger import Logger
from harness.result import Information
from harness.run import Run
from models.classifier import count_parameters
from sample_info.changes import Changes, functional_information, weight_information
from sample_info.examples import Examples
from sample_info.kernel.jacobian import Projection
from sample_info.kernel.ntk import Kernels, fully_connected, ntk
from sample_info.kinds import decisions
from sample_info.linearized.dynamics import LinearizedNetwork
from sample_info.linearized.sgd import at_minimum, sgd_information
from sample_info.problem import Problem
from sample_info.references.registry import REFERENCES
from sample_info.report.records import Scored, save_scores, share_of
from sample_info.settings import SampleInfoSettings
from sample_info.summaries.accuracy import Show, part_of, require_possible, try_summaries

log = logging.getLogger(__name__)

_FEW_PARAMETERS = 200_000  # below which exact Jacobians are cheap
_PARTS = ("weight", "prediction", "without")  # of `LinearizedNetwork.left_out`
_REFITTED = 16  # examples that the eraser is refitted without before what was found is stored
_WORTH_KEEPING_S = 10.0  # a kernel that took longer is stored while the run is unfinished


def score(examples: Examples, run: Run, logger: Logger) -> Information:
    """Score every example for every seed; the verb's share of result.json.

    Writes scores.safetensors, scores.csv and scores.png into the run's directory.

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
    share = share_of(examples, scored)
    save_scores(run.directory, logger, examples, scored, share)
    return share


def _score_seed(examples: Examples, problem: Problem, run: Run, show: Show) -> Scored:
    settings = examples.settings
    scoring = 0.1 if settings.summaries.trained else 0.9  # of the time
    everything, show = show, part_of(show, 0, scoring)
    show(0.0, "kernel")
    network = LinearizedNetwork(problem, _kernels(examples, problem, run))
    show(0.5, "leaving out")
    changes, without = _changes(examples, network, run, show)
    predicted = network.dynamics.predictions(network.initial_held_out, network.kernels.held_out)
    scores = {
        "f_si_nats": functional_information(changes, settings.sigma),
        "si_nats": weight_information(changes, settings.sigma),
    }
    how = network.how
    if settings.sgd_batch_size is not None:
        show(0.9, "steady state of SGD")
        minimum = at_minimum(network.dynamics)
        sgd, floored = sgd_information(minimum, settings.sgd_batch_size, memory_bytes=problem.memory_bytes)
        scores["si_sgd_nats"] = sgd.cpu()
        how["sgd_directions_floored"] = floored
    return Scored(
        seed=problem.seed,
        changes=changes,
        scores=scores,
        references={k: v for name in settings.references.methods for k, v in REFERENCES[name](problem, run).items()},
        how=how,
        left_out_correct=decisions(without) == examples.given.cpu(),
        train_accuracy=examples.accuracy(network.trained, examples.given),
        test_accuracy=examples.accuracy(predicted, examples.held_out_labels),
        summaries=try_summaries(examples, network, scores["f_si_nats"], run, part_of(everything, scoring, 1)),
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


def _changes(examples: Examples, network: LinearizedNetwork, run: Run, show: Show) -> tuple[Changes, Tensor]:
    """Leave-one-out changes, and f_-i(x_i) [n, k], by blocks; those of an interrupted run are read back."""
    problem = network.problem

    def refitted(i: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        without = examples.without(problem, int(i))
        return LinearizedNetwork(without, _ntk(examples.settings, without)).left_out(i)

    def left_out(block: Tensor) -> list[Tensor]:
        if examples.refitting is None:
            return [*network.left_out(block)]
        return [torch.cat(found) for found in zip(*map(refitted, block.split(1)), strict=True)]

    everything = torch.arange(len(problem.x))
    blocks = everything.split(_REFITTED) if examples.refitting else network.dynamics.blocks(problem.memory_bytes)
    found: list[list[Tensor]] = []
    for j, block in enumerate(blocks):
        show(0.5 + 0.4 * j / len(blocks), f"leaving out, block {j + 1} of {len(blocks)}")
        name = f"left-out-{problem.seed}-{int(block[0])}-{int(block[-1])}"
        kept = run.part(name)
        if kept is None:
            kept = dict(zip(_PARTS, (values.tolist() for values in left_out(block)), strict=True))
            if len(blocks) > 1:
                run.save_part(name, kept)
        found.append([torch.tensor(kept[key], dtype=torch.float64) for key in _PARTS])
    weight, prediction, without = map(torch.cat, zip(*found, strict=True))
    return Changes(weight, prediction), without
