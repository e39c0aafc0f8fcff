"""The dashboard's JSON: what would be sent to W&B, without W&B."""

import json
from pathlib import Path

import pytest

from erasure.store.storage import read_json, write_json
from scripts.dashboard import main
from tests.runs import write_run

SETTING = "train=paper, mdl=paper"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two models under control and two erasers; for one, QLEACE backfires."""
    for model in ("mlp", "convnextv2"):
        for eraser in ("control", "leace", "qleace"):
            write_run(tmp_path / "runs", "mdl", "digits", eraser, model)
    return tmp_path / "runs"


def dashboard(runs: Path, *arguments: str) -> dict:
    file = runs.parent / "dashboard.json"
    assert main([str(runs), "--dry-run", str(file), *arguments]) == 0
    return json.loads(file.read_text())


def test_workspace_and_report_have_every_panel_that_is_asked_for(runs: Path, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "")
    written = dashboard(runs, "--group", "mdl-table16-12345678")
    sections = written["workspace"]["spec"]["section"]["panelBankConfig"]["sections"]
    panels = {section["name"]: section["panels"] for section in sections}
    bars = panels["Codelength by eraser and architecture"][0]["config"]
    assert bars["metrics"] == ["result/bits_per_sample"]
    assert bars["groupBy"] == "eraser.value.name"
    curve = panels["Curves"][0]["config"]
    assert (curve["xAxis"], curve["metrics"], curve["xLogScale"]) == ("mdl/n", ["mdl/ce_next_bits"], True)
    spread, cost = panels["Codelength by eraser and architecture"][1], panels["Cost"]
    assert spread["config"]["metrics"] == ["result/bits_per_sample_std"]
    assert [panel["config"]["metrics"] for panel in cost] == [["result/seconds"], ["result/parameters"]]
    assert "What is left of each order, test split" not in panels  # these runs have not measured it
    assert "Backfiring: who ends below its control?" in panels
    assert panels["Erasure"][0]["config"]["mediaKeys"] == ["examples/test"]
    (runset,) = written["workspace"]["spec"]["section"]["runSets"]
    assert [key["name"] for key in runset["grouping"]] == ["model.value.name", "eraser.value.name"]
    assert runset["filters"]["filters"][0]["value"] == "mdl-table16-12345678"
    headings = [
        block["children"][0]["text"] for block in written["report"]["spec"]["blocks"] if block["type"] == "heading"
    ]
    assert headings == ["ConvNeXt V2", "MLP", f"Differences to control, {SETTING}", f"Backfiring, {SETTING}"]


def test_any_name_of_a_model_is_filtered_by_as_it_is(tmp_path: Path) -> None:
    """Filters are written as Python: a quote was a SyntaxError, or another filter."""
    names = ["it's mine", "x' or Metric('State') == 'finished", 'a<b=c>d"', "数字"]
    for name in names:
        run = write_run(tmp_path / "runs", "mdl", "digits", "control")
        path = run.directory / "result.json"
        result = read_json(path)
        result["config"]["model"]["name"] = name
        renamed = run.directory.with_name(f"mdl-digits-control-mlp-{len(name):010}")
        run.directory.rename(renamed)
        write_json(renamed / "result.json", result | {"run_id": renamed.name})
    blocks = dashboard(tmp_path / "runs", "--group", "o'clock")["report"]["spec"]["blocks"]
    filters = [one["filters"]["filters"] for block in blocks for one in block.get("metadata", {}).get("runSets", [])]
    assert sorted(own[1]["value"] for own in filters) == sorted(names)
    assert {own[0]["value"] for own in filters} == {"o'clock"}


def test_differences_to_control_are_in_the_tables(runs: Path) -> None:
    written = dashboard(runs)
    sections = written["workspace"]["spec"]["section"]["panelBankConfig"]["sections"]
    (table,) = [s["panels"][0]["config"]["value"] for s in sections if s["name"].startswith("Differences to")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert len(rows) == 6
    by_run = {(row[0], row[1]): row for row in rows}
    control, leace = by_run["digits · MLP", "control"], by_run["digits · MLP", "LEACE"]
    assert control[3] == ""
    assert float(leace[3].split()[0]) == pytest.approx(
        float(leace[2].split()[0]) - float(control[2].split()[0]), abs=2e-3
    )


def test_nothing_to_show_and_nobody_to_show_it_to_are_one_line(tmp_path: Path, capsys) -> None:
    assert main([str(tmp_path), "--dry-run", str(tmp_path / "x.json")]) == 2
    assert "no finished run of python -m mdl" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert "--entity is missing" in capsys.readouterr().err
