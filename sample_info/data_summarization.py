"""Dataset summaries: accuracy after training on only the most or the least informative examples.

Examples are dropped in several orders, as in Harutyunyan et al. 2021, figures 2(c) and 7(b).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from conf import Options
from conf.target_class import check_target
from erasure.progress import Show, part_of
from harness.run_directory import Run
from sample_info.linearized.network import LinearizedNetwork
from sample_info.retraining import train_on_each
from sample_info.scored_examples import Examples
from sample_info.settings import SampleInfoConfig
from sample_info.training_problem import TrainingProblem, accuracy, initial_weights

_DRAWS = 5  # number of random orders for each seed


class Curve(NamedTuple):
    """One seed's summaries in one order, which may be random, with one entry per fraction removed."""

    accuracy: list[float]  # on held-out examples
    classes_left: list[int]  # classes with at least one example


def summary_model(config: SampleInfoConfig) -> Options:
    """Return the configuration of the network trained on summaries: the model's, with `summaries.model`'s options.

    Raises:
        ConfigError: an option that the architecture does not have.
    """
    options = config.model | (config.sample_info.summaries.model or {})
    return check_target("sample_info.summaries.model", options, "model")


def bottom(scores: Tensor) -> Tensor:
    """Return positions [n] from least to most informative; ties in order of position."""
    return scores.argsort(stable=True)


def bottom_iterative(
    score: Callable[[Tensor], Tensor], n: int, *, fraction: float = 0.05, until: float = 1.0
) -> Tensor:
    """Return positions from least to most informative, recomputing scores as examples are dropped.

    Scores change because dropping one of two equal examples makes the other informative. `score` maps the positions
    [m] of a training set to its scores [m]. Between two computations, `fraction` of the n examples is dropped (the
    paper: 5 %). After the fraction `until` has been dropped, the other examples follow by position.
    """
    at_once = max(1, round(fraction * n))
    left, dropped = torch.arange(n), []
    while len(left) > n - round(until * n):
        order = bottom(score(left).cpu())
        dropped.append(left[order[:at_once]])
        left = left[order[at_once:].sort().values]
    return torch.cat([*dropped, left])


def remaining(order: Tensor, removed: float) -> Tensor:
    """Return the mask [n] of the examples that remain after a fraction `removed` is dropped in this order."""
    left = torch.ones(len(order), dtype=torch.bool)
    left[order[: round(removed * len(order))]] = False
    return left


def try_summaries(
    examples: Examples, linearized: LinearizedNetwork, scores: Tensor, run: Run, show: Show
) -> dict[str, list[Curve]]:
    """Drop examples in every requested order of F-SI `scores` [n]; return accuracies after training on the rest.

    Every fraction is a step of the run.

    Raises:
        ValueError: a training on the remaining examples diverges.
    """
    if not examples.settings.summaries.orders:
        return {}
    fractions = examples.settings.summaries.removed
    show(0.0, "orders in which examples are dropped")
    orders = _orders(examples, linearized, scores, run)
    trained = _trained(examples, linearized.problem)
    accuracy, classes = [], []
    for j, fraction in enumerate(fractions):
        part = part_of(show, j / len(fractions), (j + 1) / len(fractions), f"summaries, {fraction:.0%} removed")
        left = torch.stack([remaining(order, fraction) for _, order in orders])
        with _named(f"sample_info.summaries.removed={fraction:g}"):
            accuracy.append(_accuracies(examples, trained, linearized, left, run, part))
        classes.append([len(examples.train_labels.cpu()[mask].unique()) for mask in left])
    curves: dict[str, list[Curve]] = {}
    for s, (name, _) in enumerate(orders):
        curves.setdefault(name, []).append(Curve([row[s] for row in accuracy], [row[s] for row in classes]))
    return curves


def _orders(examples: Examples, linearized: LinearizedNetwork, scores: Tensor, run: Run) -> list[tuple[str, Tensor]]:
    """Return pairs of name and order [n], with a pair for each draw of the random order."""
    options, n, seed = examples.settings.summaries, len(scores), linearized.problem.seed

    def score(left: Tensor) -> Tensor:
        with _named(f"sample_info.summaries.orders=bottom_iterative, {len(left)} examples left"):
            return linearized.functional_information(left, examples.settings.sigma)

    def iterative() -> list[int]:
        return bottom_iterative(score, n, until=options.removed[-1]).tolist()

    draws = (torch.Generator().manual_seed(seed * _DRAWS + draw) for draw in range(_DRAWS))
    make: dict[str, Callable[[], list[Tensor]]] = {
        "bottom": lambda: [bottom(scores)],
        "bottom_iterative": lambda: [torch.tensor(run.step(f"order-{seed}", iterative))],
        "top": lambda: [bottom(-scores)],
        "random": lambda: [torch.randperm(n, generator=draw) for draw in draws],
    }
    return [(name, order) for name in options.orders for order in make[name]()]


def _accuracies(
    examples: Examples, trained: TrainingProblem, linearized: LinearizedNetwork, left: Tensor, run: Run, show: Show
) -> list[float]:
    """Return held-out accuracies after training on the examples of each mask `left` [S, n]; equal masks train once."""
    parts, which = left.unique(dim=0, return_inverse=True)

    def measure() -> list[float]:
        show(0.0, "")
        if examples.settings.summaries.trained:
            outputs = train_on_each(trained, parts, lambda done: show(done, ""))
        else:
            outputs = torch.stack([linearized.predictions_from(part.nonzero().squeeze(1)) for part in parts])
        return [accuracy(one, examples.held_out_labels) for one in outputs]

    accuracies = run.step(f"summaries-{trained.seed}-{int(left[0].sum())}", measure)
    return [accuracies[i] for i in which.tolist()]


def _trained(examples: Examples, problem: TrainingProblem) -> TrainingProblem:
    """Return the problem of the network trained on summaries: the scored one, or another architecture's."""
    if examples.settings.summaries.model is None:
        return problem
    model = examples.built(summary_model(examples.experiment.config))
    gain = examples.settings.training.readout_gain
    return replace(problem, model=model, weights=initial_weights(model, problem.seed, gain))


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Prefix the message of a `ValueError` with the place where it was raised."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
