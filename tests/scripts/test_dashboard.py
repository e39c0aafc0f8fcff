"""The dashboard's JSON: what would be sent to W&B, without W&B."""

import json
from pathlib import Path

import pytest

from scripts.dashboard import main
from tests.made_up_runs import write_run

SETTING = "train=paper, mdl=paper"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two models under control and two erasers; for one, QLEACE backfires."""
    for model in ("mlp", "convnextv2"):
        for eraser in ("control", "leace", "qleace"):
            write_run(tmp_path / "runs", "mdl", "digits", eraser, model)
    return tmp_path / "runs"


def dashboard(runs: Path) -> dict:
    file = runs.parent / "dashboard.json"
    assert main([str(runs), "--dry-run", str(file)]) == 0
    return json.loads(file.read_text())


def test_the_workspace_has_every_panel_that_is_asked_for(runs: Path, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "")
    section = dashboard(runs)["spec"]["section"]
    panels = {one["name"]: one["panels"] for one in section["panelBankConfig"]["sections"]}
    bars = panels["Codelength by eraser and architecture"][0]["config"]
    assert (bars["metrics"], bars["groupBy"]) == (["result/bits_per_sample"], "eraser.value.name")
    curve = panels["Curves"][0]["config"]
    assert (curve["xAxis"], curve["metrics"], curve["xLogScale"]) == ("mdl/n", ["mdl/ce_next_bits"], True)
    assert panels["Erasure"][1]["config"]["mediaKeys"] == ["examples/test"]
    assert list(panels)[2:] == [
        "Backfiring: who ends below its control?",
        "Erasure",
        f"Differences to control, mdl: digits, {SETTING}",
    ]
    (runset,) = section["runSets"]
    assert [key["name"] for key in runset["grouping"]] == ["model.value.name", "eraser.value.name"]


def test_differences_to_control_are_in_the_table(runs: Path) -> None:
    sections = dashboard(runs)["spec"]["section"]["panelBankConfig"]["sections"]
    (table,) = [s["panels"][0]["config"]["value"] for s in sections if s["name"].startswith("Differences to")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert len(rows) == 6
    by_run = {(row[0], row[1]): row for row in rows}
    control, leace = by_run["MLP", "control"], by_run["MLP", "LEACE"]
    assert control[3] == ""
    assert float(leace[3].split()[0]) == pytest.approx(
        float(leace[2].split()[0]) - float(control[2].split()[0]), abs=2e-3
    )
    assert by_run["ConvNeXt V2", "QLEACE"][6].startswith("from n = ")


def test_nothing_to_show_and_nobody_to_show_it_to_are_one_line(tmp_path: Path, capsys) -> None:
    assert main([str(tmp_path), "--dry-run", str(tmp_path / "x.json")]) == 2
    assert "no finished run of python -m mdl" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert "--entity is missing" in capsys.readouterr().err
