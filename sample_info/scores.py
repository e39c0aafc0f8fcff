"""`unique_information`: how much each example tells a network that the others do not, for any network, in Python."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import one_hot

from conf.check import check
from conf.groups import preset
from erasure.dataset import LabelledImages
from erasure.inputs import require_same_columns, require_same_rows
from erasure.threads import threads_for
from harness.device_and_precision import pick_device
from models.kernel import KernelModel
from models.tangent.kernel import exact_or
from models.tangent.projection import Projection
from sample_info.leave_one_out_effects import Effects, functional_information, weight_information
from sample_info.linearized.network import LinearizedNetwork
from sample_info.settings import KernelSettings, TrainingSettings
from sample_info.training_problem import TrainingProblem, decisions, initial_weights
from train.examples_in_memory import as_images, class_positions, on_device, predictor, require_seeds
from train.randomness import generator


def unique_information(
    model: Any,
    x: Any,
    y: Any,
    held_out: Any,
    *,
    seeds: int | Sequence[int] = 1,
    sigma: float = 1.0,
    training: TrainingSettings | None = None,
    kernel: KernelSettings | None = None,
    batch_size: int = 64,
    memory_gib: float = 1.0,
    device: str = "auto",
    on_progress: Callable[[float, str], object] = lambda *_: None,
) -> pd.DataFrame:
    """Score how much each example tells a network that the others do not (Harutyunyan et al. 2021).

    The network is linearised at its initial weights, and trained on all examples and without each, in closed form.

    Args:
        model: a name as `python -m sample_info model=` takes it, a dictionary of such options, or a function that makes
            a torch.nn.Module; all draw weights for each seed. Or a module, linearised at the weights that it has. It
            returns one output for two classes, else one per class.
        x: vectors [n, d] or images [n, C, H, W]: a tensor, an array or a frame; standardised per channel or column.
        y: classes [n], integers or strings.
        held_out: inputs like x on which predictions are compared; standardised as x is.
        seeds: number of seeds, or the seeds; each has initial weights of its own.
        sigma: noise that scores are relative to, on outputs (F-SI) and on weights (SI).
        training: gradient descent on the squared loss; by default the 2,000 steps of the paper's Table 1, from a
            random readout. A module of yours keeps the readout that it draws.
        kernel: projection of the tangent kernel; by default exact where that is cheap, else 2,000 numbers per layer.
        batch_size: examples per backward pass; scores do not depend on it.
        memory_gib: for intermediate results, besides the kernel; scores do not depend on it.
        device: "auto", "cpu", "cuda" or "cuda:N".
        on_progress: called with the share done, from 0 to 1, and the current task.

    Returns:
        A row per seed and example: `seed`, `example` (its place, or its index in a frame), `label`; `f_si_nats` and
        `si_nats` (equations 8 and 5), `weight_change` ‖w - w_-i‖² and `prediction_change`, the mean over held-out
        inputs of ‖f(x) - f_-i(x)‖²; `left_out_correct`: whether the network trained without the example finds its
        label.

    Raises:
        ValueError: a value that is refused; says what is allowed.
    """
    require_same_rows(x, y)
    require_same_columns(x, held_out, "held_out")
    if batch_size < 1 or not memory_gib > 0:
        raise ValueError(f"batch_size={batch_size}, memory_gib={memory_gib}: both must be positive")
    if not sigma > 0:
        raise ValueError(f"sigma={sigma}: must be a positive number")
    z, classes = class_positions(y)
    images, outputs = as_images(x, len(z)), len(classes) if len(classes) > 2 else 1
    others = as_images(held_out, len(held_out), "held_out")
    if others.shape[1:] != images.shape[1:]:
        raise ValueError(
            f"held_out has examples {list(others.shape[1:])}, but x has {list(images.shape[1:])}: give equal shapes"
        )
    options = preset("sample_info", "default")
    network = predictor(model, images.shape[1:], tuple(np.shape(x)[1:]), outputs)
    if isinstance(network, KernelModel):
        raise ValueError(f"model={model}: has no weights; take a network, e.g. mlp")
    if training is None:
        own = {} if hasattr(network, "readout") else {"readout_gain": None}
        training = check("training.", options["training"] | own, TrainingSettings)
    kernel = check("kernel.", options["kernel"], KernelSettings) if kernel is None else kernel
    where = pick_device(device)
    parts = {"train": LabelledImages(images, z), "held_out": LabelledImages(others, torch.zeros(len(others)))}
    data = on_device(parts, where, crop_padding=0.0, flip=False)
    network = network.to(where).eval()
    given = getattr(network, "given", None)
    labels = data["train"].labels
    targets = one_hot(labels, outputs) if outputs > 1 else labels[:, None]
    frames, seeds = [], require_seeds(seeds)
    if given is not None and len(seeds) > 1:
        raise ValueError(
            f"seeds={[*seeds]}: a module has one set of weights; pass a function that makes it, or seeds=1"
        )
    for s, seed in enumerate(seeds):
        on_progress(s / len(seeds), f"seed {seed}")
        problem = TrainingProblem(
            model=network,
            weights=initial_weights(network, seed, training.readout_gain)
            if given is None
            else {name: weight.to(where) for name, weight in given.items()},
            x=data["train"].images,
            y=targets.double(),
            held_out=data["held_out"].images,
            descent=training,
            seed=seed,
            batch_size=batch_size,
            memory_bytes=memory_gib * 2**30,
        )
        with threads_for((len(z) * outputs) ** 3):
            scored = _scored(problem, kernel, sigma)
        frames.append(scored.assign(seed=seed, label=list(classes[z.numpy()])))
        frames[-1].insert(0, "example", x.index if hasattr(x, "iloc") else range(len(z)))
    frame = pd.concat(frames, ignore_index=True)
    first = ["seed", "example", "label"]
    return frame[first + [name for name in frame if name not in first]]


def _scored(problem: TrainingProblem, kernel: KernelSettings, sigma: float) -> pd.DataFrame:
    """Return the scores of one seed's examples."""
    linearized = LinearizedNetwork(problem, problem.kernels(projection_of(kernel, problem)))
    blocks = linearized.dynamics.blocks(problem.memory_bytes, len(problem.held_out))
    effects, without = zip(*map(linearized.left_out, blocks), strict=True)
    changes = Effects.joined(effects).changes
    return pd.DataFrame(
        {
            "f_si_nats": functional_information(changes, sigma),
            "si_nats": weight_information(changes, sigma),
            "weight_change": changes.weight,
            "prediction_change": changes.prediction,
            "left_out_correct": decisions(torch.cat(without)).cpu() == decisions(problem.y).cpu(),
        }
    )


def projection_of(settings: KernelSettings, problem: TrainingProblem) -> Projection:
    """Return the projection of the tangent kernel that the settings ask for."""
    kind = "coordinates" if settings.projection == "auto" else settings.projection
    projection = Projection(kind, settings.size, functools.partial(generator, problem.seed, "projection", kind))
    if settings.projection == "auto":
        return exact_or(projection, problem.model, problem.weights, problem.x, mean_of_outputs=False)
    return projection
