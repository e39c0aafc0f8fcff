"""Dataset summaries: how well a network does that has seen the most, or the least, informative examples alone.

Harutyunyan et al. 2021, figures 2(c) and 7(b).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from conf.schema import Target
from harness.run import Run
from models.classifier import Classifier
from sample_info.problem import Examples, Problem, initial_weights
from sample_info.summaries.options import summary_model
from sample_info.summaries.orders import bottom, bottom_iterative, kept, random, top
from sample_info.summaries.subsets import Subsets, train_on_each

Show = Callable[[float, str], None]  # the share that is done, and what is being done


@dataclass(frozen=True)
class Summaries:
    """What one seed's summaries are worth: by order, a list for every draw, in it an entry for every fraction removed.

    Attributes:
        accuracy: on held-out examples.
        classes_left: how many classes a summary has examples of.
    """

    accuracy: Mapping[str, Sequence[Sequence[float]]]
    classes_left: Mapping[str, Sequence[Sequence[int]]]


def part_of(show: Show, begin: float, end: float) -> Show:
    """Progress of a part of the work, from 0 to 1, as progress of the whole."""
    return lambda done, what: show(begin + (end - begin) * done, what)


def require_possible(examples: Examples) -> None:
    """Refuse, before anything is computed, summaries that these examples or this network do not allow.

    Raises:
        ValueError: says which option to change.
    """
    settings = examples.settings
    if not settings.summaries:
        return
    settings.summary.require_examples(len(examples.x), len(examples.dataset.class_names))
    if settings.summary_network == "trained" and (model := _architecture(examples)).mixes_examples:
        raise ValueError(
            f"sample_info.summary_network=trained: {type(model).__name__} mixes examples (batch_norm=batch); "
            "set it to frozen, or summary_network=linearized"
        )


def try_summaries(
    examples: Examples, problem: Problem, subsets: Subsets, scores: Tensor, run: Run, show: Show
) -> Summaries:
    """Drop examples in every order that is asked for, if any; measure what a network then knows.

    Args:
        examples: with the options, and labels of held-out examples.
        problem: one seed's training.
        subsets: of its linearisation.
        scores: F-SI of every example, [n].
        run: keeps finished parts.
        show: called with progress.

    Raises:
        ValueError: a training that diverges on what is left.
    """
    if not examples.settings.summaries:
        return Summaries({}, {})
    fractions = examples.settings.removed
    show(0.0, "orders in which examples are dropped")
    orders = _orders(examples, problem, subsets, scores, run)
    network = _network(examples, problem)
    accuracy, classes = [], []
    for j, fraction in enumerate(fractions):

        def progress(done: float, j: int = j, fraction: float = fraction) -> None:
            show((j + done) / len(fractions), f"summaries, {fraction:.0%} removed")

        left = torch.stack([_left(order, fraction) for _, order in orders])
        with _named(f"sample_info.removed={fraction:g}"):
            accuracy.append(_accuracies(examples, network, subsets, left, run, progress))
        classes.append([len(examples.given.cpu()[mask].unique()) for mask in left])
    names = [name for name, _ in orders]
    return Summaries(_by_order(names, accuracy), _by_order(names, classes))


def _orders(
    examples: Examples, problem: Problem, subsets: Subsets, scores: Tensor, run: Run
) -> list[tuple[str, Tensor]]:
    """Names and orders [n]; the random one as often as it is drawn."""
    options, n = examples.settings.summary, len(scores)

    def iterative() -> list[int]:
        def score(left: Tensor) -> Tensor:
            with _named(f"sample_info.summaries=bottom_iterative, {len(left)} examples left"):
                return subsets.functional_information(
                    left, examples.settings.sigma, memory_bytes=examples.settings.memory_bytes
                )

        return bottom_iterative(score, n, until=options.removed[-1]).tolist()

    make: dict[str, Callable[[], list[Tensor]]] = {
        "bottom": lambda: [bottom(scores)],
        "bottom_iterative": lambda: [torch.tensor(_remembered(run, f"order-{problem.seed}", iterative))],
        "top": lambda: [top(scores)],
        "random": lambda: [random(n, problem.seed * options.draws + draw) for draw in range(options.draws)],
    }
    return [(name, order) for name in options.orders for order in make[name]()]


def _left(order: Tensor, removed: float) -> Tensor:
    """Which examples are left, [n] bool."""
    left = torch.zeros(len(order), dtype=torch.bool)
    left[kept(order, removed)] = True
    return left


def _accuracies(
    examples: Examples, network: Problem, subsets: Subsets, left: Tensor, run: Run, progress: Callable[[float], None]
) -> list[float]:
    """Held-out accuracy of a network that has seen each part of the examples [S, n] alone; equal parts are one."""
    parts, which = left.unique(dim=0, return_inverse=True)

    def measure() -> list[float]:
        progress(0.0)
        if examples.settings.summary_network == "trained":
            outputs = train_on_each(network, parts, progress)
        else:
            outputs = torch.stack([subsets.predictions(part.nonzero().squeeze(1)) for part in parts])
        return [examples.accuracy(one, examples.held_out_labels) for one in outputs]

    found = _remembered(run, f"summaries-{network.seed}-{int(left[0].sum())}", measure)
    return [found[i] for i in which.tolist()]


def _network(examples: Examples, problem: Problem) -> Problem:
    """The problem of the network that is trained on summaries: the scored one, or another architecture's."""
    settings = examples.settings
    if settings.summary_model is None:
        return problem
    model = _architecture(examples)
    return replace(problem, model=model, weights=initial_weights(model, problem.seed, settings.readout_gain))


def _architecture(examples: Examples) -> Classifier:
    section = summary_model(examples.job.config)
    model = Target(section).build(Classifier, tuple(examples.x.shape[1:]), examples.num_outputs)
    return model.to(examples.x.device).eval()


def _by_order(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[list[Any]]]:
    """From a row for every fraction, with an entry for every draw of every order."""
    curves: dict[str, list[list[Any]]] = {name: [] for name in names}
    for name, curve in zip(names, zip(*rows, strict=True), strict=True):
        curves[name].append(list(curve))
    return curves


def _remembered(run: Run, name: str, compute: Callable[[], list[Any]]) -> list[Any]:
    """A part of the run, computed unless an interrupted process has done so."""
    found = run.part(name)
    if found is None:
        found = compute()
        run.save_part(name, found)
    return found


@contextmanager
def _named(where: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
