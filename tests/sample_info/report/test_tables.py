"""Tables of `python -m sample_info`, of scores that are made up."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.results.arrange import arrange
from harness.results.read import read_runs
from sample_info.__main__ import headline
from sample_info.report.tables import accuracy_of, tables_of, trials
from sample_info.result import InformationResult, SummaryCurves
from tests.made_up_runs import stored, write_information_run


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
        table = tables_of(arrange(stored([one])))[0]
        row = dict(zip(table.headings, table.rows[0], strict=True))
        assert [row["top tenth"], row.get("largest / median", "")] == shown


def test_captions_say_of_how_many_seeds_a_deviation_is(tmp_path: Path) -> None:
    runs, *_ = tables_of(arrange(stored([result(tmp_path / "two", (0, 1))])))
    assert "±: standard deviation over 2 seeds." in runs.caption()
    assert dict(zip(runs.headings, runs.rows[0], strict=True))["largest / median"] == "18"
    *single, _ = tables_of(
        arrange(stored([result(tmp_path / "one", (0,))]))
    )  # the last, summaries, are over draws, too
    assert not any("±" in table.caption() or "±" in table.markdown() for table in single)


def shown(root: Path, kind: str, **changes: Any) -> dict[str, str]:
    """The first row of a table of a run of two seeds."""
    scored = write_information_run(root, **changes).result
    assert isinstance(scored, InformationResult)
    (table,) = [table for table in tables_of(arrange(stored([scored]))) if table.name == f"sample-info-{kind}"]
    return dict(zip(table.headings, table.rows[0], strict=True))


def test_ratios_are_the_mean_median_over_seeds_the_least_and_the_largest(tmp_path: Path) -> None:
    seeds = []
    for median, least, largest in ((1.0, 0.2, 30.0), (3.0, 0.1, 20.0)):
        ratio = {"median": median, "least": least, "largest": largest}
        both = {"pearson": 0.9, "spearman": 0.8, "ratio": ratio}
        seeds.append({"examples": 30, "weight": both, "prediction": both})
    assert shown(tmp_path, "references", references={"retraining": seeds})["ratio, weights"] == "2 (0.1 to 30)"


def test_there_are_tables_only_of_what_runs_have(tmp_path: Path) -> None:
    """Runs are listed, also one that has not finished, and subgroups, which one has; references and others, no run."""
    unfinished = write_information_run(tmp_path, "leace")
    (unfinished.directory / "result.json").unlink()
    write_information_run(tmp_path, summaries=None)
    tables = {table.name.removeprefix("sample-info-"): table for table in tables_of(arrange(read_runs([tmp_path])))}
    assert [*tables] == ["runs", "groups"]
    rows = [dict(zip(tables["runs"].headings, row, strict=True)) for row in tables["runs"].rows]
    assert {row["eraser"]: (row["notes"], bool(row["F-SI, mean"])) for row in rows} == {
        "control": ("between seeds: r = 0.40", True),
        "LEACE": ("", False),
    }
    assert tables["runs"].caption().endswith(", LEACE (unfinished).")
    assert len(tables["groups"].rows) == 2


def test_the_random_order_has_a_curve_for_each_seed_and_draw() -> None:
    draws = [[[0.9, 0.8], [0.9, 0.7]], [[0.6, 0.5], [0.6, 0.4]]]
    accuracy = {"top": [[0.9, 0.1], [0.6, 0.1]], "random": [[0.9, 0.75], [0.6, 0.45]]}
    left = {"top": [[10, 2], [10, 2]], "random": [[10, 9], [10, 9]]}
    curves = SummaryCurves(network="trained", removed=[0.0, 0.5], accuracy=accuracy, classes_left=left)
    assert trials(curves) == accuracy
    assert trials(replace(curves, random_draws=draws)) == {"top": accuracy["top"], "random": draws[0] + draws[1]}


@pytest.mark.parametrize(("classes", "shown_as"), [("all", "all 10"), ([3, 5], "3, 5"), ([[0, 1], 7], "0+1, 7")])
def test_runs_say_which_classes_they_score(classes: Any, shown_as: str, tmp_path: Path) -> None:
    assert shown(tmp_path, "runs", classes=classes)["classes"] == shown_as


@pytest.mark.parametrize(
    ("model", "described"),
    [(None, ""), ("same", ""), ({"name": "mlp", "width": 16}, " (name=mlp, width=16)")],
)
def test_summaries_say_which_network_was_trained_again(model: Any, described: str) -> None:
    curves = SummaryCurves(network="trained", removed=[0.0], accuracy={"top": [[0.9]]}, classes_left={"top": [[10]]})
    config = {"sample_info": {"summaries": {"model": model}}}
    assert accuracy_of(curves, config, None) == f"of the network trained again{described}"
    assert accuracy_of(replace(curves, network="linearized"), config, None) == "of the linearised network"


def test_one_summary_without_a_class_is_marked(tmp_path: Path) -> None:
    curves = {"network": "linearized", "removed": [0.0], "accuracy": {"top": [[0.9], [0.9]]}}
    for least, mark in ((10, ""), (9, " *")):
        row = shown(tmp_path / mark, "summaries", summaries={**curves, "classes_left": {"top": [[10], [least]]}})
        assert row["top"] == f"90.0 ± 0.0{mark}"
