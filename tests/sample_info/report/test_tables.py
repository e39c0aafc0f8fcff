"""Tables of `python -m sample_info`, and correlations between runs, of scores that are made up."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.example_bits import Stored
from harness.result import InformationResult
from harness.results.arrange import arrange
from sample_info.__main__ import headline
from sample_info.report import tables
from sample_info.report.saved_scores import _summary_of
from sample_info.report.tables import agreements, movement, movements, tables_of
from tests.made_up_runs import made_up, write_information_run

A = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])

_NUMBERS = ("mean_nats", "mean_bits", "median_nats", "largest_nats", "share_of_top_tenth")


def finished(depth: int, scores: Tensor, index: list[int], eraser: str = "control", first_seed: int = 0) -> Any:
    """A run's result and its scores."""
    parts = {
        "dataset": {"name": "d"},
        "eraser": {"name": eraser},
        "model": {"name": "m", "depth": depth},
        "runs_dir": "nowhere",
    }
    seeds = [first_seed + i for i in range(len(scores))]
    given = torch.zeros(len(index), dtype=torch.int64)
    stored = Stored({"index": torch.tensor(index), "given_label": given, "f_si_nats": scores}, seeds)
    per_seed = [1.0 for _ in seeds]
    summary = {
        **dict.fromkeys(_NUMBERS, 1.0),
        "mean_nats_by_class": [],
        "most_informative": [],
        "least_informative": [],
    }
    return made_up(
        f"run-{depth}-{eraser}",
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


def agreement_of(*results: Any, note: Callable[[str], object] = pytest.fail) -> dict[str, dict[tuple[str, str], float]]:
    """Correlations by eraser and by pairs of runs."""
    stored = {result.run_id: scores for result, scores in results}
    by_eraser = {}
    for row in agreements(arrange([result for result, _ in results]), stored, note):
        of_eraser = by_eraser.setdefault(str(row["eraser"]), {})
        of_eraser[str(row["run"]), str(row["another_run"])] = row["pearson"]
    return by_eraser


NAMES = [f"m (depth={depth})" for depth in range(3)]


def test_runs_are_compared_seed_by_seed_and_with_themselves_between_seeds() -> None:
    others = [(A * 2 + 1, [0, 1, 2]), (A.flip(0), [0, 1, 2]), (A, [0, 1, 3])]  # the last has other examples
    found = agreement_of(*(finished(depth, *run) for depth, run in enumerate([(A, [0, 1, 2]), *others])))
    expected = {(0, 0): -1, (0, 1): 1, (0, 2): -1, (1, 1): -1, (1, 2): -1, (2, 2): -1}
    assert found == {"control": {(NAMES[i], NAMES[j]): pytest.approx(r) for (i, j), r in expected.items()}}


def test_only_seeds_that_both_have_are_compared() -> None:
    found = agreement_of(finished(0, A, [0, 1, 2]), finished(1, A, [0, 1, 2], first_seed=1))
    assert found["control"][NAMES[0], NAMES[1]] == pytest.approx(-1)  # of seed 1: A's second row with its first
    found = agreement_of(finished(0, A, [0, 1, 2]), finished(1, A, [0, 1, 2], first_seed=2))
    assert (NAMES[0], NAMES[1]) not in found["control"]


def test_scores_that_do_not_vary_have_no_correlation() -> None:
    assert agreement_of(finished(0, A[:1], [0, 1, 2]), finished(1, torch.ones(1, 3), [0, 1, 2])) == {}


def test_each_eraser_has_its_own() -> None:
    runs = [finished(depth, A, [0, 1, 2], eraser) for eraser in ("control", "leace") for depth in (0, 1)]
    assert {eraser: len(pairs) for eraser, pairs in agreement_of(*runs).items()} == {"control": 3, "leace": 3}


def test_one_model_is_compared_with_nothing() -> None:
    assert agreement_of(finished(0, torch.rand(2, 3), [0, 1, 2])) == {}


def test_too_many_to_be_shown_are_named(monkeypatch) -> None:
    monkeypatch.setattr(tables, "MAX_RUNS", 2)
    few = [finished(depth, A, [0, 1, 2]) for depth in (0, 1)]
    many = [finished(depth, A, [0, 1, 2], "qleace") for depth in range(3)]
    lines: list[str] = []
    assert [*agreement_of(*many, *few, note=lines.append)] == ["control"]
    assert lines == ["agreement of 3 runs (d, qleace, m (depth=0), …): left out, being more than 2"]


def result(root: Path, seeds: tuple[int, ...]) -> InformationResult:
    stored = write_information_run(root, seeds=seeds).result
    assert isinstance(stored, InformationResult)
    return stored


def test_a_score_is_compared_with_the_median_unless_that_is_zero(tmp_path: Path) -> None:
    scored = result(tmp_path, (0,))
    (mean_nats,) = [one.mean_nats for one in scored.information["f_si_nats"]]
    assert headline(scored) == f"{mean_nats:.2e} nats of F-SI per example, one seed"
    silent = [replace(one, median_nats=0.0, share_of_top_tenth=None) for one in scored.information["f_si_nats"]]
    compared = [scored, replace(scored, information={**scored.information, "f_si_nats": silent})]
    for one, shown in zip(compared, (["40%", "18"], ["0%", ""]), strict=True):
        table = tables_of(arrange([one]))[0]
        row = dict(zip(table.headings, table.rows[0], strict=True))
        assert [row["top tenth"], row["largest / median"]] == shown


def test_captions_say_of_how_many_seeds_a_deviation_is(tmp_path: Path) -> None:
    runs, *_ = tables_of(arrange([result(tmp_path / "two", (0, 1))]))
    assert "±: standard deviation over 2 seeds." in runs.caption()
    assert dict(zip(runs.headings, runs.rows[0], strict=True))["largest / median"] == "18"
    *single, _ = tables_of(arrange([result(tmp_path / "one", (0,))]))  # the last, summaries, are over draws, too
    assert not any("±" in table.caption() or "±" in table.markdown() for table in single)


def test_movement_by_hand() -> None:
    """The top tenth of 19 examples is one, the same under both erasers; most scores are halved."""
    first = torch.arange(19.0)
    second = torch.cat([torch.tensor([8.75, 0.0]), first[2:] / 2])
    moved = movement(first, second)
    assert (moved["median_ratio"], moved["top_tenth_overlap"]) == (0.5, 1.0)  # of the two largest one is another


def test_scores_of_other_examples_are_not_compared() -> None:
    runs = [finished(0, A, index, eraser) for eraser, index in (("control", [0, 1, 2]), ("leace", [0, 1, 3]))]
    stored = {one.run_id: scores for one, scores in runs}
    assert movements(arrange([one for one, _ in runs]), stored) == []


def shown(root: Path, kind: str, **changes: Any) -> dict[str, str]:
    """The first row of a table of a run of two seeds."""
    scored = write_information_run(root, **changes).result
    assert isinstance(scored, InformationResult)
    (table,) = [table for table in tables_of(arrange([scored])) if table.name == f"sample-info-{kind}"]
    return dict(zip(table.headings, table.rows[0], strict=True))


def test_ratios_are_the_mean_median_over_seeds_the_least_and_the_largest(tmp_path: Path) -> None:
    seeds = []
    for median, least, largest in ((1.0, 0.2, 30.0), (3.0, 0.1, 20.0)):
        ratio = {"median": median, "least": least, "largest": largest}
        both = {"pearson": 0.9, "spearman": 0.8, "ratio": ratio}
        seeds.append({"examples": 30, "weight": both, "prediction": both})
    assert shown(tmp_path, "references", references={"retraining": seeds})["ratio, weights"] == "2 (0.1 to 30)"


def test_estimates_are_counted_over_seeds(tmp_path: Path) -> None:
    names = ("believable", "retrained", "spearman", "believed", "rightly_believed", "rightly_doubted")
    seeds = [
        dict(zip(names, numbers, strict=True)) for numbers in ((500, 30, 0.8, 20, 18, 7), (600, 40, 0.6, 10, 9, 20))
    ]
    row = shown(tmp_path, "errors", error_estimates={"f_si_nats": seeds})
    assert row["score"] == "F-SI"
    assert row["within a factor of 2, by the estimate"] == "1,100 of 2,000"
    assert row["believed, and truly within"] == "27 of 30"
    assert row["doubted, and truly not"] == "27 of 40"


def test_one_summary_without_a_class_is_marked(tmp_path: Path) -> None:
    curves = {"network": "linearized", "removed": [0.0], "accuracy": {"top": [[0.9], [0.9]]}}
    for least, mark in ((10, ""), (9, " *")):
        row = shown(tmp_path / mark, "summaries", summaries={**curves, "classes_left": {"top": [[10], [least]]}})
        assert row["top"] == f"90.0 ± 0.0{mark}"


def test_the_top_tenth_of_nineteen_is_one() -> None:
    labels, index = torch.zeros(19, dtype=torch.int64), torch.arange(19)
    examples: Any = SimpleNamespace(labels=labels, index=index, dataset=SimpleNamespace(class_names=["a"]))
    summary = _summary_of(torch.cat([torch.ones(18), torch.tensor([2.0])]), examples)
    assert summary.share_of_top_tenth == pytest.approx(2 / 20)
    assert (summary.median_nats, summary.largest_nats, summary.most_informative[0]) == (1.0, 2.0, 18)
