"""Dataset summaries: how well a network does that has seen the most, or the least, informative examples alone.

Examples are dropped in several orders: Harutyunyan et al. 2021, figures 2(c) and 7(b).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from conf import Options
from conf.check import keyword_only
from conf.target import Target, check_target
from harness.run import Run
from sample_info.examples import Examples
from sample_info.linearized.network import LinearizedNetwork
from sample_info.references.truth import train_on_each
from sample_info.settings import SampleInfoConfig
from sample_info.training_problem import TrainingProblem, initial_weights

Show = Callable[[float, str], None]  # the share that is done, and what is being done


class Curve(NamedTuple):
    """One seed's summaries in one order, or one draw of the random one: an entry for every fraction removed."""

    accuracy: list[float]  # on held-out examples
    classes_left: list[int]  # how many classes a summary has examples of


def summary_model(config: SampleInfoConfig) -> Options:
    """Return the section of the network that is trained on summaries: the model with `summaries.model`'s options.

    Another `_target_` takes those of the run's options that it knows.

    Raises:
        ConfigError: an option that the architecture does not have.
    """
    own = config.sample_info.summaries.model or {}
    base = config.model
    if "_target_" in own:
        accepted = {"name", *keyword_only(Target(own).schema)}
        base = {key: value for key, value in base.items() if key in accepted}
    return check_target("sample_info.summaries.model", {**base, **own}, "model")


def bottom(scores: Tensor) -> Tensor:
    """Positions [n] in the order in which they are dropped, least informative first; ties in order of position."""
    return scores.argsort(stable=True)


def bottom_iterative(
    score: Callable[[Tensor], Tensor], n: int, *, fraction: float = 0.05, until: float = 1.0
) -> Tensor:
    """Least informative first, scores being computed again on what is left after every few examples.

    Information is unique: dropping one of two alike examples makes the other one informative. `score` takes positions
    [m] of the examples that are left to their scores [m] as a training set of their own; `fraction` of the n examples
    is dropped between two computations (the paper: 5 %); those beyond `until` follow by position, never scored again.
    """
    at_once = max(1, round(fraction * n))
    left, dropped = torch.arange(n), []
    while len(left) > n - round(until * n):
        order = bottom(score(left).cpu())
        dropped.append(left[order[:at_once]])
        left = left[order[at_once:].sort().values]
    return torch.cat([*dropped, left])


def kept(order: Tensor, removed: float) -> Tensor:
    """Return which examples are left, [n] bool, when a fraction `removed` of them is dropped in this order."""
    left = torch.ones(len(order), dtype=torch.bool)
    left[order[: round(removed * len(order))]] = False
    return left


def part_of(show: Show, begin: float, end: float, named: str = "") -> Show:
    """Progress of a part of the work, from 0 to 1, as progress of the whole."""
    return lambda done, what: show(begin + (end - begin) * done, named + what)


def require_possible(examples: Examples) -> None:
    """Refuse, by a `ValueError` before anything is computed, summaries that these examples or this network forbid."""
    options = examples.settings.summaries
    options.require_examples(len(examples.x), len(examples.dataset.class_names))
    if options.trained and (model := examples.built(summary_model(examples.job.config))).mixes_examples:
        raise ValueError(
            f"sample_info.summaries.network=trained: {type(model).__name__} mixes examples (batch_norm=batch); "
            "set it to frozen, or summaries.network=linearized"
        )


def try_summaries(
    examples: Examples, linearized: LinearizedNetwork, scores: Tensor, run: Run, show: Show
) -> dict[str, list[Curve]]:
    """Drop examples in every order that is asked for, by F-SI `scores` [n]; measure what a network then knows.

    Curves by order, none where no order is asked for; the run keeps finished parts.

    Raises:
        ValueError: a training that diverges on what is left.
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
        left = torch.stack([kept(order, fraction) for _, order in orders])
        with _named(f"sample_info.summaries.removed={fraction:g}"):
            accuracy.append(_accuracies(examples, trained, linearized, left, run, part))
        classes.append([len(examples.given.cpu()[mask].unique()) for mask in left])
    curves: dict[str, list[Curve]] = {}
    for s, (name, _) in enumerate(orders):
        curves.setdefault(name, []).append(Curve([row[s] for row in accuracy], [row[s] for row in classes]))
    return curves


def _orders(examples: Examples, linearized: LinearizedNetwork, scores: Tensor, run: Run) -> list[tuple[str, Tensor]]:
    """Names and orders [n]; the random one as often as it is drawn."""
    options, n, seed = examples.settings.summaries, len(scores), linearized.problem.seed

    def score(left: Tensor) -> Tensor:
        with _named(f"sample_info.summaries.orders=bottom_iterative, {len(left)} examples left"):
            return linearized.functional_information(left, examples.settings.sigma)

    def iterative() -> list[int]:
        return bottom_iterative(score, n, until=options.removed[-1]).tolist()

    draws = (torch.Generator().manual_seed(seed * options.draws + draw) for draw in range(options.draws))
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
    """Held-out accuracy of a network that has seen each part of the examples [S, n] alone; equal parts are one."""
    parts, which = left.unique(dim=0, return_inverse=True)

    def measure() -> list[float]:
        show(0.0, "")
        if examples.settings.summaries.trained:
            outputs = train_on_each(trained, parts, lambda done: show(done, ""))
        else:
            outputs = torch.stack([linearized.predictions_from(part.nonzero().squeeze(1)) for part in parts])
        return [examples.accuracy(one, examples.held_out_labels) for one in outputs]

    found = run.step(f"summaries-{trained.seed}-{int(left[0].sum())}", measure)
    return [found[i] for i in which.tolist()]


def _trained(examples: Examples, problem: TrainingProblem) -> TrainingProblem:
    """Return the problem of the network that is trained on summaries: the scored one, or another architecture's."""
    if examples.settings.summaries.model is None:
        return problem
    model = examples.built(summary_model(examples.job.config))
    gain = examples.settings.training.readout_gain
    return replace(problem, model=model, weights=initial_weights(model, problem.seed, gain))


@contextmanager
def _named(where: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
