"""Scores of single examples: the information that each gives a network beyond the others (Harutyunyan et al. 2021).

`unique_information` scores the examples of any network in Python. It and `python -m sample_info`
(`sample_info.scores_run`) both call `score_examples`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from conf.check import check
from conf.groups import preset
from erasure.dataset import LabelledImages
from erasure.inputs import require_same_rows
from erasure.pipeline import channel_statistics
from erasure.progress import Show, hidden, part_of
from erasure.progress import on_progress as reporting
from erasure.threads import threads_for
from erasure.torch_modes import default_modes
from harness.device_and_precision import pick_device
from harness.run_directory import Tensors
from harness.steps import Steps, computed
from models.kernel import KernelModel
from models.tangent.kernel import Kernels
from sample_info.leave_one_out_effects import Changes, functional_information, loss_effects, weight_information
from sample_info.linearized.network import LinearizedNetwork
from sample_info.linearized.sgd_steady_state import sgd_information
from sample_info.settings import KernelSettings, SampleInfoSettings, TrainingSettings
from sample_info.training_problem import TrainingProblem, decisions, initial_weights, outputs_for, targets
from train.device_images import standardised
from train.examples_in_memory import (
    class_positions,
    other_examples,
    predictor,
    require_alike,
    require_seeds,
    training_images,
    unlabelled_examples,
)

_WORTH_SAVING_S = 10.0  # kernels whose computation takes longer are stored
_KERNEL = 0.5  # share of the time for one output; it falls as 1 / outputs

_REFITTED = 16  # examples per stored block if the eraser is refitted without each example
_SIGNED = ("output_effects", "loss_effects")


@default_modes()
def unique_information(
    model: Any,
    x: Any,
    y: Any,
    held_out: Any,
    *,
    held_out_y: Any = None,
    seeds: int | Sequence[int] = 1,
    sigma: float = 1.0,
    sgd_batch_size: int | None = None,
    pairwise: bool = False,
    training: TrainingSettings | None = None,
    kernel: KernelSettings | None = None,
    memory_gib: float = 1.0,
    device: str | torch.device = "auto",
    on_progress: Show = hidden,
) -> pd.DataFrame:
    """Score the information that each example gives a network beyond the others (Harutyunyan et al. 2021).

    The network is linearised at its initial weights. It is trained in closed form on all examples and without each.

    Args:
        model: a name that `python -m sample_info model=` accepts, a dictionary of such options, or a function that
            makes a torch.nn.Module, all of which draw weights for each seed; or a module, which is linearised at its
            weights. Modules are in evaluation mode. The network returns one output for two classes, else one per class.
        x: vectors [n, d] or images [n, C, H, W]: a tensor, an array or a frame; standardised per channel or column.
        y: classes [n], integers or strings.
        held_out: inputs like x, [m, ...], on which predictions are compared; standardised with the statistics of x.
        held_out_y: classes [m] of the held-out inputs, for signed effects on their losses.
        seeds: number of seeds, or the seeds; each has its own initial weights.
        sigma: noise on outputs (F-SI) and on weights (SI), relative to which scores are measured.
        sgd_batch_size: also score with the noise of SGD of this batch size; needs weight decay.
        pairwise: whether to return the signed effect of each example on each held-out input.
        training: gradient descent on the squared loss; by default the 2,000 steps of the paper's Table 1, from a
            random readout. A user's module keeps its own readout.
        kernel: projection of the tangent kernel; by default exact if that is cheap, else 2,000 numbers per layer.
        memory_gib: memory for intermediate results, besides the kernel; does not affect scores.
        device: "auto", "cpu", "cuda" or "cuda:N", or a torch.device.
        on_progress: called with the share done, from 0 to 1, and the current task.

    Returns:
        One row per seed and example, with `seed`, `example` (its position, or its index in a frame), `label`, and the
        columns of scores.csv. The scores are `f_si_nats` and `si_nats` (equations 8 and 5). Their numerators are
        `prediction_change`, the mean of ‖f(x) - f_-i(x)‖² over held-out inputs, and `weight_change`, ‖w - w_-i‖².
        `left_out_label` is the prediction for the example after training without it; `left_out_correct` is whether this
        equals its label.

        `sgd_batch_size` adds `si_sgd_nats` (equation 13). `pairwise` adds `output_effects`, an array [m, k] of
        f(x) - f_-i(x) in each row. With `held_out_y` it also adds `loss_effects`, [m], which are negative if the
        example helps. These arrays take the memory of n m k numbers per seed.

    Raises:
        ValueError: an invalid value; the message says what is allowed.
    """
    require_same_rows(x, y, "y")
    require_alike(x, held_out, "held_out")
    z, classes = class_positions(y)
    images, outputs = training_images(x, len(z)), outputs_for(len(classes))
    if held_out_y is None:
        others = unlabelled_examples(held_out, images, "held_out")
    elif pairwise:
        others = other_examples((held_out, held_out_y), images, classes, "held_out")
    else:
        raise ValueError("held_out_y has no effect with pairwise=False: pass pairwise=True, or leave it out")
    network = predictor(model, x, images.shape[1:], outputs, training=False)
    if isinstance(network, KernelModel):
        raise ValueError(f"model={model}: has no weights; take a network, e.g. mlp")
    for option, passed, kind in (("training", training, TrainingSettings), ("kernel", kernel, KernelSettings)):
        if not isinstance(passed, kind | None):
            raise ValueError(f"{option}={passed!r}: pass sample_info.settings.{kind.__name__}, or leave it out")
    options = preset("sample_info", "default")
    descent = {} if hasattr(network, "readout") else {"readout_gain": None}
    groups = {
        "training": options["training"] | descent if training is None else asdict(training),
        "kernel": options["kernel"] if kernel is None else asdict(kernel),
    }
    single = {"sigma": sigma, "sgd_batch_size": sgd_batch_size, "memory_gib": memory_gib, "classes": "all"}
    settings = check("", options | groups | single, SampleInfoSettings)
    where = pick_device(device)
    parts = {"train": LabelledImages(images, z), "held_out": others}
    data = standardised(parts, *channel_statistics(images), crop_padding=0.0, flip=False, device=where)
    network = network.to(where).eval()
    given = getattr(network, "given", None)
    frames, seeds = [], require_seeds(seeds)
    if given is not None and len(seeds) > 1:
        raise ValueError(
            f"seeds={[*seeds]}: a module has one set of weights; pass a function that makes it, or seeds=1"
        )
    for s, seed in enumerate(seeds):
        problem = TrainingProblem(
            model=network,
            weights=initial_weights(network, seed, settings.training.readout_gain)
            if given is None
            else {name: weight.to(where) for name, weight in given.items()},
            x=data["train"].images,
            y=targets(data["train"].labels, outputs),
            held_out=data["held_out"].images,
            descent=settings.training,
            seed=seed,
            memory_bytes=settings.memory_bytes,
            kernel=settings.kernel,
            held_out_y=None if held_out_y is None else targets(data["held_out"].labels, outputs),
        )
        show = part_of(on_progress, s / len(seeds), (s + 1) / len(seeds), f"seed {seed}: ")
        with threads_for((len(z) * outputs) ** 3):
            _, scores = score_examples(problem, settings, on_progress=show, pairwise=pairwise)
        places, labels = x.index if hasattr(x, "iloc") else range(len(z)), list(classes[z.numpy()])
        columns: dict[str, Any] = {name: values.numpy() for name, values in scores.columns().items()}
        columns["left_out_label"] = list(classes[columns["left_out_label"]])
        columns |= {name: [*values.numpy()] for name, values in scores.signed.items()}
        frames.append(pd.DataFrame({"seed": seed, "example": places, "label": labels, **columns}))
    on_progress(1.0, f"{len(z):,} examples scored")
    return pd.concat(frames, ignore_index=True)


@dataclass(frozen=True, kw_only=True)
class Scores:
    """One seed's scores, [n] each, on the CPU."""

    changes: Changes
    nats: Mapping[str, Tensor]  # scores by name: "f_si_nats", "si_nats", "si_sgd_nats"
    left_out_label: Tensor  # predicted label of each example after training without it
    left_out_correct: Tensor  # whether this equals the example's given label
    signed: Mapping[str, Tensor]  # on request "output_effects" [n, m, k], and "loss_effects" [n, m] if labels are known
    how: dict[str, str | float]  # the method, in words and numbers
    references: Mapping[str, Changes] = field(default_factory=dict)  # changes by other methods, by name

    def columns(self) -> dict[str, Tensor]:
        """Return the numbers per example by name, [n] each; units in the names."""
        named = {"weight_change": self.changes.weight, "prediction_change": self.changes.prediction, **self.nats}
        named |= {"left_out_correct": self.left_out_correct, "left_out_label": self.left_out_label}
        for name, changes in self.references.items():
            prefix = name.replace(" ", "_")
            named |= {f"{prefix}_weight_change": changes.weight, f"{prefix}_prediction_change": changes.prediction}
        return named


def score_examples(
    problem: TrainingProblem,
    settings: SampleInfoSettings,
    *,
    steps: Steps = computed,
    on_progress: Show = hidden,
    refitted: Callable[[int], TrainingProblem] | None = None,
    pairwise: bool = False,
) -> tuple[LinearizedNetwork, Scores]:
    """Linearise the network at its weights, leave out each example, and score it.

    Args:
        problem: the training problem.
        settings: options of the scores, including their noise.
        steps: stores the kernel, and the effects of each block of examples.
        on_progress: called with the share done, from 0 to 1, and the current task.
        refitted: function that returns the problem for an eraser fitted without an example; by default all examples
            share one problem.
        pairwise: whether to compute the signed effect of each example on each held-out input.

    Raises:
        ValueError: training diverges.
    """
    on_progress(0.0, "kernel")
    network = _linearized(problem, steps)
    show = part_of(on_progress, _KERNEL / problem.y.shape[1], 1)
    effects = _left_out(network, pairwise, steps, show, refitted)
    changes, dynamics = Changes(effects["weight"], effects["prediction"]), network.dynamics
    nats = {
        "f_si_nats": functional_information(changes, settings.sigma),
        "si_nats": weight_information(changes, settings.sigma),
    }
    how = {"kernel": network.kernels.how, "training": dynamics.how, "error_bound": dynamics.error_bound}
    if settings.sgd_batch_size is not None:
        on_progress(1.0, "steady state of SGD")
        sgd, floored = sgd_information(dynamics.at_minimum, settings.sgd_batch_size, memory_bytes=problem.memory_bytes)
        nats["si_sgd_nats"] = sgd.cpu()
        how["sgd_directions_floored"] = floored
    predicted, given = decisions(effects["without"]), decisions(problem.y).cpu()
    return network, Scores(
        changes=changes,
        nats=nats,
        left_out_label=predicted,
        left_out_correct=predicted == given,
        signed={name: effects[name] for name in _SIGNED if name in effects},
        how=how,
    )


def _linearized(problem: TrainingProblem, steps: Steps = computed) -> LinearizedNetwork:
    """Linearise the network; store the kernel if its computation takes long."""

    def compute() -> Tensors:
        kernels = problem.kernels()
        return Tensors({"train": kernels.train, "held_out": kernels.held_out}, {"how": kernels.how})

    stored = steps(f"kernel-{problem.seed}", compute, worth_s=_WORTH_SAVING_S)
    train, held_out = (stored.tensors[part].to(problem.x.device) for part in ("train", "held_out"))
    return LinearizedNetwork(problem, Kernels(train, held_out, stored.values["how"]))


def _left_out(
    network: LinearizedNetwork,
    pairwise: bool,
    steps: Steps,
    show: Show,
    refitted: Callable[[int], TrainingProblem] | None,
) -> dict[str, Tensor]:
    """Compute the effects of leaving out each example, block by block: see `_without`."""
    show(0.0, "leaving out")
    seed, n = network.problem.seed, len(network.problem.x)
    blocks = network.blocks() if refitted is None else torch.arange(n).split(_REFITTED)
    stored = []
    for j, block in enumerate(blocks):

        def compute(block: Tensor = block) -> Tensors:
            if refitted is None:
                parts = [_without(network, block, pairwise)]
            else:
                parts = [_without(_linearized(refitted(int(i))), i, pairwise) for i in block.split(1)]
            return Tensors({name: torch.cat([part[name] for part in parts]).cpu() for name in parts[0]})

        named = f"leaving out, block {j + 1} of {len(blocks)}"
        inside = part_of(show, j / len(blocks), (j + 1) / len(blocks), named)
        inside(0.0, "")
        with reporting(lambda _, done, detail, inside=inside: inside(done, f", {detail}")):
            stored.append(steps(f"left-out-{seed}-{int(block[0])}-{int(block[-1])}", compute).tensors)
    return {name: torch.cat([part[name] for part in stored]) for name in stored[0]}


def _without(network: LinearizedNetwork, examples: Tensor, pairwise: bool) -> dict[str, Tensor]:
    """Return the changes by leaving out each of some examples [b], and f_-i(x_i) [b, k] as "without", by name.

    `pairwise` adds signed effects on held-out outputs [b, m, k] and, if labels are known, on losses [b, m].
    """
    effects, without = network.left_out(examples)
    named = {"weight": effects.weight, "prediction": effects.prediction, "without": without}
    if pairwise:
        named["output_effects"] = effects.outputs
        if network.problem.held_out_y is not None:
            y = network.problem.held_out_y
            named["loss_effects"] = loss_effects(effects.outputs, network.trained_held_out, y)
    return named
