"""Scores of runs, between erasers, networks and seeds, with made-up scores."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.example_bits import ExampleTensors
from harness.results.arrange import arrange
from sample_info.report.between_runs import between_erasers, between_networks, movement
from tests.made_up_runs import made_up, stored

F_SI = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])

_NUMBERS = ("mean_nats", "mean_bits", "median_nats", "largest_nats", "share_of_top_tenth")


def finished(
    depth: int, scores: Tensor, index: list[int], eraser: str = "control", first_seed: int = 0, dtype: str = "float32"
) -> Any:
    """A run's result and its scores."""
    parts = {
        "dataset": {"name": "d"},
        "eraser": {"name": eraser},
        "model": {"name": "m", "depth": depth},
        "sample_info": {},
        "dtype": dtype,
        "runs_dir": "nowhere",
    }
    seeds = [first_seed + i for i in range(len(scores))]
    given = torch.zeros(len(index), dtype=torch.int64)
    stored = ExampleTensors({"index": torch.tensor(index), "given_label": given, "f_si_nats": scores}, seeds)
    per_seed = [1.0 for _ in seeds]
    summary = {
        **dict.fromkeys(_NUMBERS, 1.0),
        "mean_nats_by_class": [],
        "most_informative": [],
        "least_informative": [],
    }
    return made_up(
        f"run-{depth}-{eraser}-{first_seed}",
        command="sample_info",
        seeds=seeds,
        config=parts,
        held_out_size=3,
        information={"f_si_nats": [summary for _ in seeds]},
        network=dict.fromkeys(("train_accuracy", "test_accuracy", "left_out_accuracy"), per_seed),
        references={},
        how=[{} for _ in seeds],
        between_seeds=None,
        groups={},
        summaries=None,
    ), stored


def agreement_of(
    *results: Any, note: Callable[[str], object] = pytest.fail, max_runs: int = 30
) -> dict[str, dict[tuple[str, str], float]]:
    """Return correlations by eraser and by pairs of runs."""
    scores_by_run = {result.run_id: scores for result, scores in results}
    by_eraser = {}
    comparisons = arrange(stored(result for result, _ in results))
    for row in between_networks(comparisons, scores_by_run, note, max_runs=max_runs):
        of_eraser = by_eraser.setdefault(str(row["eraser"]), {})
        of_eraser[str(row["run"]), str(row["another_run"])] = row["pearson"]
    return by_eraser


NAMES = [f"m (depth={depth})" for depth in range(3)]


def test_runs_are_compared_seed_by_seed_and_with_themselves_between_seeds() -> None:
    others = [(F_SI * 2 + 1, [0, 1, 2]), (F_SI.flip(0), [0, 1, 2]), (F_SI, [0, 1, 3])]  # the last has other examples
    found = agreement_of(*(finished(depth, *run) for depth, run in enumerate([(F_SI, [0, 1, 2]), *others])))
    expected = {(0, 0): -1, (0, 1): 1, (0, 2): -1, (1, 1): -1, (1, 2): -1, (2, 2): -1}
    assert found == {"control": {(NAMES[i], NAMES[j]): pytest.approx(r) for (i, j), r in expected.items()}}


def test_only_seeds_that_both_have_are_compared() -> None:
    found = agreement_of(finished(0, F_SI, [0, 1, 2]), finished(1, F_SI, [0, 1, 2], first_seed=1))
    assert found["control"][NAMES[0], NAMES[1]] == pytest.approx(-1)  # of seed 1: the second row with its first
    found = agreement_of(finished(0, F_SI, [0, 1, 2]), finished(1, F_SI, [0, 1, 2], first_seed=2))
    assert (NAMES[0], NAMES[1]) not in found["control"]
    parted = [finished(depth, F_SI[s : s + 1], [0, 1, 2], first_seed=s) for depth in (0, 1) for s in (0, 1)]
    assert agreement_of(*parted) == agreement_of(*(finished(depth, F_SI, [0, 1, 2]) for depth in (0, 1)))


def test_models_of_two_tables_are_two_though_their_labels_are_equal() -> None:
    results = [finished(0, F_SI, [0, 1, 2]), finished(1, F_SI.flip(0), [0, 1, 2], dtype="float64")]
    rows = between_networks(arrange(stored(one for one, _ in results)), {r.run_id: s for r, s in results}, pytest.fail)
    assert [(str(row["run"]), str(row["another_run"])) for row in rows] == [("m", "m")] * 3
    assert [row["pearson"] for row in rows] == pytest.approx([-1, -1, -1])  # between seeds, between runs, between seeds


def test_scores_that_do_not_vary_have_no_correlation() -> None:
    assert agreement_of(finished(0, F_SI[:1], [0, 1, 2]), finished(1, torch.ones(1, 3), [0, 1, 2])) == {}


def test_one_model_is_compared_with_nothing_and_each_eraser_has_its_own() -> None:
    assert agreement_of(finished(0, torch.rand(2, 3), [0, 1, 2])) == {}
    runs = [finished(depth, F_SI, [0, 1, 2], eraser) for eraser in ("control", "leace") for depth in (0, 1)]
    assert {eraser: len(pairs) for eraser, pairs in agreement_of(*runs).items()} == {"control": 3, "leace": 3}


def test_too_many_to_be_shown_are_named() -> None:
    few = [finished(depth, F_SI, [0, 1, 2]) for depth in (0, 1)]
    many = [finished(depth, F_SI, [0, 1, 2], "qleace") for depth in range(3)]
    lines: list[str] = []
    assert [*agreement_of(*many, *few, note=lines.append, max_runs=2)] == ["control"]
    assert lines == ["agreement of 3 runs (d, qleace, m (depth=0), …): left out, being more than 2"]


def test_movement_by_hand() -> None:
    """The top tenth of 19 examples is one, the same under both erasers; most scores are halved."""
    first = torch.arange(19.0)
    second = torch.cat([torch.tensor([8.75, 0.0]), first[2:] / 2])
    moved = movement(first, second)
    assert (moved["median_ratio"], moved["top_tenth_overlap"]) == (0.5, 1.0)  # of the two largest one is another


def test_scores_of_other_examples_are_not_compared() -> None:
    runs = [finished(0, F_SI, index, eraser) for eraser, index in (("control", [0, 1, 2]), ("leace", [0, 1, 3]))]
    scores_by_run = {one.run_id: scores for one, scores in runs}
    assert between_erasers(arrange(stored(one for one, _ in runs)), scores_by_run) == []


def test_erasers_are_compared_over_the_seeds_of_both_whichever_runs_have_them() -> None:
    torch.manual_seed(0)
    control, leace = torch.rand(3, 5), torch.rand(2, 5)
    runs = [finished(0, control[seed : seed + 1], [*range(5)], first_seed=seed) for seed in range(3)]
    runs.append(finished(0, leace, [*range(5)], "leace", first_seed=1))  # seeds 1 and 2
    (moved,) = between_erasers(arrange(stored(one for one, _ in runs)), {one.run_id: scores for one, scores in runs})
    torch.testing.assert_close(moved["first"], control[1:].mean(0))
    torch.testing.assert_close(moved["second"], leace.mean(0))
    lacking = [runs[0], runs[-1]]  # no seed is in both
    assert between_erasers(arrange(stored(one for one, _ in lacking)), {one.run_id: s for one, s in lacking}) == []
