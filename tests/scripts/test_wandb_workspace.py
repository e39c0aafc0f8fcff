"""The workspace that a report saves: what would be sent to W&B, without W&B."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import wandb_workspaces.workspaces as ws

import scripts.wandb_workspace
from scripts.report import main
from tests.made_up_runs import write_run


@pytest.fixture
def sent(tmp_path: Path, no_figures, monkeypatch, capsys) -> dict:
    """The workspace of two models under control and two erasers; for one, QLEACE backfires."""
    for model in ("mlp", "convnextv2"):
        for eraser in ("control", "leace", "qleace"):
            write_run(tmp_path / "runs", "mdl", "digits", eraser, model)
    saved: list[ws.Workspace] = []
    monkeypatch.setattr(ws.Workspace, "save", lambda one: saved.append(one) or SimpleNamespace(url="https://there"))
    monkeypatch.setenv("WANDB_PROJECT", "mine")  # where the runs went
    shown = ["--columns", "bits_per_label", "bits_per_label_difference", "crossing"]
    assert main([str(tmp_path / "runs"), "--out", str(tmp_path / "report"), "--wandb", "me", *shown]) == 0
    assert "W&B:     https://there" in capsys.readouterr().out
    (workspace,) = saved
    assert (workspace.entity, workspace.project) == ("me", "mine")
    assert scripts.wandb_workspace.workspace([], "me/other").project == "other"
    return json.loads(workspace._to_model().model_dump_json(by_alias=True))["spec"]["section"]


def test_the_workspace_has_every_panel_that_is_asked_for(sent: dict) -> None:
    panels = {one["name"]: one["panels"] for one in sent["panelBankConfig"]["sections"]}
    bars = panels["Codelength by eraser and architecture"][0]["config"]
    assert (bars["metrics"], bars["groupBy"]) == (["result/bits_per_sample"], "eraser.value.name")
    curve = panels["Curves"][0]["config"]
    assert (curve["xAxis"], curve["metrics"], curve["xLogScale"]) == ("mdl/n", ["mdl/ce_next_bits"], True)
    assert panels["Erasure"][1]["config"]["mediaKeys"] == ["examples/test"]
    table = "mdl: digits, train=paper, mdl=paper"
    assert list(panels)[2:] == ["Backfiring: who ends below its control?", "Erasure", table]
    (runset,) = sent["runSets"]
    assert [key["name"] for key in runset["grouping"]] == ["model.value.name", "eraser.value.name"]


def test_differences_to_control_are_in_the_table(sent: dict) -> None:
    text = sent["panelBankConfig"]["sections"][-1]["panels"][0]["config"]["value"]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    assert len(rows) == 6
    by_run = {(row[0], row[1]): row for row in rows}
    control, leace = by_run["MLP", "control"], by_run["MLP", "LEACE"]
    assert control[3] == ""
    assert float(leace[3].split()[0]) == pytest.approx(
        float(leace[2].split()[0]) - float(control[2].split()[0]), abs=2e-3
    )
    assert by_run["ConvNeXt V2", "QLEACE"][4].startswith("from n = ")


@pytest.mark.parametrize(
    ("key", "message"),
    [("", "not logged in; run wandb login, or set WANDB_API_KEY"), ("short", "WANDB_API_KEY invalid")],
)
def test_without_a_login_the_report_is_whole_and_one_line_says_what_to_do(
    tmp_path: Path, no_figures, monkeypatch: pytest.MonkeyPatch, capsys, key: str, message: str
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", key)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    write_run(tmp_path / "runs", "mdl", "digits", "control", "mlp")
    assert main([str(tmp_path / "runs"), "--out", str(tmp_path / "report"), "--wandb", "me"]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if "W&B" in line]
    assert len(lines) == 1
    assert message in lines[0]
    assert (tmp_path / "report/index.html").exists()
