"""Sample information in the report: its tables, its figures, and what is not there or not whole."""

import base64
import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from erasure.store.checked_files import read_json, write_json
from sample_info.__main__ import COMMAND
from scripts.report import main
from tests.made_up_runs import write_information_run, write_run

OTHERS = {"groups": {}, "summaries": None}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def report(runs: Path) -> tuple[Path, list[str]]:
    """The report's folder, and its remarks."""
    out = runs.parent / "report"
    assert main([str(runs), "--out", str(out)]) == 0
    return out, re.findall("<li>(?!<a)(.*?)</li>", (out / "index.html").read_text())


def sections(out: Path) -> dict[str, list[dict[str, str]]]:
    """The cells of the page's rows by heading, under the heading of their section."""
    parts = (out / "index.html").read_text().split("<section ")[1:]
    cell = re.compile(r'<td data-heading="(.*?)"[^>]*>(.*?)</td>')
    return {
        re.findall("<h2>(.*?)</h2>", part)[0]: [
            {heading: re.sub("<img.*?>", "", text).strip() for heading, text in cells}
            for row in part.split("<tr>")
            if (cells := cell.findall(row))
        ]
        for part in parts
    }


def records(out: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "tables" / f"sample-info-{name}.csv").open()))


def test_real_runs_of_the_command_are_shown_as_the_command_shows_them(command, tmp_path: Path) -> None:
    options = ["model.width=32", "sample_info.examples=60", "sample_info.training.steps=200", "logger.mode=disabled"]
    outcome = command(COMMAND, "-m", "eraser=control,leace", *options)
    assert outcome.code == 0, outcome.err
    out, problems = report(tmp_path / "runs")
    assert problems == []
    (sweep,) = Path("runs/sweeps").glob("*/table.md")
    lines = sweep.read_text().splitlines()
    shown = (out / "tables.md").read_text()
    rows = [line for line in lines if line.startswith("| digits | MLP")]
    assert len(rows) == 3  # two runs, one movement
    assert all(line in shown for line in rows)
    runs, movement, suspicious, _ = sections(out).values()
    assert [row["eraser"] for row in runs] == ["control", "LEACE"]
    assert [row["rank"] for row in suspicious] == [str(rank) for rank in range(1, 21)]
    printed = next(line for line in lines if line.startswith("| 1 | row"))
    assert all(suspicious[0][name] in printed for name in ("name", "label", "predicted", "SI (nats)"))
    assert (movement[0]["from"], movement[0]["to"]) == ("control", "LEACE")
    page = (out / "index.html").read_text()
    assert "&#34;examples&#34;: 60" in page  # the configuration of each run
    assert "http" not in page
    images = re.findall(r'<img class="thumbnail" src="data:image/png;base64,(.*?)"', page)
    assert len(images) == 40
    assert Image.open(io.BytesIO(base64.b64decode(images[0]))).size == (8, 8)
    figures = [path.read_bytes() for path in (out / "figures").glob("suspicious-*.png")]
    assert sorted(figures) == sorted(path.read_bytes() for path in (tmp_path / "runs").glob("*/scores.png"))


def test_runs_of_all_commands_stand_in_one_report_each_in_its_tables(runs, no_figures) -> None:
    write_run(runs, dataset="digits", eraser="control", seeds=(0, 1))
    control, leace = (write_information_run(runs, eraser) for eraser in ("control", "leace"))
    out, problems = report(runs)
    assert problems == []
    assert [*sections(out)] == [
        "mdl: digits, train=paper, mdl=paper", "sample_info: Runs", "sample_info: How scores move between erasers",
        "sample_info: Subgroups of examples", "sample_info: Summaries",
        "sample_info: The 20 most suspicious examples: digits, MLP, control",
        "sample_info: The 20 most suspicious examples: digits, MLP, LEACE",
    ]  # fmt: skip
    assert [row["runs"] for row in records(out, "runs")] == [control.id, leace.id]
    assert [row["eraser"] for row in records(out, "runs")] == ["control", "leace"]
    assert float(records(out, "runs")[1]["f_si_nats_mean"]) == pytest.approx(5e-6, rel=0.1)
    (moved,) = records(out, "movement")
    assert 0.3 < float(moved["median_ratio"]) < 0.8  # the made-up scores are halved


def test_groups_and_summaries_are_shown_where_there_are_any(runs, real_figures) -> None:
    write_information_run(runs, "control")
    write_information_run(runs, "leace", **OTHERS)
    out, problems = report(runs)
    assert problems == []
    groups = records(out, "groups")
    assert [(row["eraser"], row["group"], row["examples"]) for row in groups] == [
        ("control", "first half", "500"),
        ("control", "second half", "500"),
    ]
    assert [float(row["f_si_nats_mean"]) for row in groups] == pytest.approx([2e-5, 5e-6])
    summaries = records(out, "summaries")
    assert [float(row["top_mean"]) for row in summaries] == pytest.approx([0.95, 0.85, 0.75, 0.65])
    assert {"bottom_mean", "random_mean"} < {*summaries[0]}
    rows = sections(out)["sample_info: Summaries"]
    assert [row["removed"] for row in rows] == ["0%", "25%", "50%", "75%"]
    assert rows[0]["accuracy"] == "of the linearised network"
    assert [rows[1][order] for order in ("bottom", "random", "top")] == [
        "93.8 ± 0.0 *", "91.2 ± 0.0 *", "85.0 ± 0.0 *"
    ]  # fmt: skip
    assert "rank correlation" in (out / "figures" / "sample-info-movement-figure.svg").read_text()
    assert "training examples removed (%)" in (out / "figures" / "sample-info-summaries-figure.svg").read_text()


def test_agreement_with_references_is_a_table_of_its_own(runs, no_figures) -> None:
    both = {"pearson": 0.9, "spearman": 0.8}
    seeds = [{"examples": 30, "weight": both, "prediction": {"pearson": 0.7, "spearman": None}} for _ in range(2)]
    write_information_run(runs, "control", references={"retraining": seeds})
    out, problems = report(runs)
    assert problems == []
    (row,) = records(out, "references")
    assert (row["compared"], row["examples"]) == ("retraining", "30")
    assert float(row["weight_pearson_mean"]) == pytest.approx(0.9)
    assert float(row["prediction_pearson_mean"]) == pytest.approx(0.7)
    assert row["prediction_spearman_mean"] == ""
    assert "sample_info: Scores and references" in sections(out)


def test_networks_that_scored_the_same_examples_are_compared(runs, real_figures) -> None:
    for width in (256, 512):
        write_information_run(runs, "control", width=width)
    out, problems = report(runs)
    assert problems == []
    pairs = records(out, "agreement")
    assert [row["run"] == row["another_run"] for row in pairs] == [True, False, True]
    within, between, _ = (float(row["pearson"]) for row in pairs)
    assert 0 < within < 1
    assert between == pytest.approx(1)  # made-up scores depend on the eraser alone
    assert sections(out)["sample_info: Agreement between networks"][1]["correlation"] == "1.00"
    assert "diagonal: between seeds" in (out / "figures" / "sample-info-agreement-figure.svg").read_text()


def test_a_group_of_all_examples_has_no_auroc(runs, no_figures) -> None:
    group = {"examples": 1000, "mean_nats": [1e-5, 2e-5], "auroc": [None, None], "auroc_si": [None, None]}
    write_information_run(runs, "control", groups={"all": group}, summaries=None)
    out, _ = report(runs)
    (row,) = records(out, "groups")
    assert row["auroc_mean"] == ""


def test_what_cannot_be_used_is_named_and_the_rest_is_built(runs, no_figures) -> None:
    good = write_information_run(runs, "control")
    cut = write_information_run(runs, "leace")
    path = cut.directory / "scores.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    short = write_information_run(runs, "qleace", network={"train_accuracy": [1.0], "test_accuracy": [1.0]})
    infinite = write_information_run(runs, "gradient")
    result = json.loads((infinite.directory / "result.json").read_text())
    result["information"]["f_si_nats"][1]["mean_nats"] = float("inf")
    (infinite.directory / "result.json").write_text(json.dumps(result))
    started = write_information_run(runs, "alf_qleace")
    (started.directory / "result.json").unlink()
    out, problems = report(runs)
    for run, said in (
        (cut, "left out of how scores move"),
        (short, "network.train_accuracy has 1 numbers for 2 seeds"),
        (infinite, "is damaged ("),
        (started, "no result.json: unfinished, shown as incomplete"),
    ):
        assert [line for line in problems if run.id in line and said in line], (said, problems)
    assert [row["runs"] for row in records(out, "runs")] == [good.id, cut.id, ""]
    assert ", ALF-QLEACE (unfinished)." in (out / "tables.md").read_text()


def test_where_data_lies_makes_no_other_row_and_a_twin_under_another_id_is_left_out(runs, no_figures) -> None:
    write_information_run(runs, "control")
    leace = write_information_run(runs, "leace")
    twin = runs / "sample_info-digits-leace-mlp-0000000000"
    shutil.copytree(leace.directory, twin)
    result = read_json(twin / "result.json") | {"run_id": twin.name, "timing": {"seconds": 1, "started": 1.9e9}}
    result["config"]["dataset"]["root"] = "/elsewhere"
    result["config"]["sample_info"]["memory_gib"] = 4.0
    write_json(twin / "result.json", result)
    out, problems = report(runs)
    assert [row["eraser"] for row in sections(out)["sample_info: Runs"]] == ["control", "LEACE"]
    (problem,) = problems
    assert problem.startswith(f"{leace.directory}: left out: {twin.name} has the same configuration and seeds")
