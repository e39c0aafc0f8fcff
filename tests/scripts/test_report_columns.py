"""The report's columns, chosen by name, and two codes of the same labels in its tables, and which models it knows."""

import csv
import re
from pathlib import Path
from statistics import mean

import pytest

from harness.results.arrange import by_dataset
from harness.results.figures import scaling_panels
from harness.results.read import read_runs
from scripts.report.__main__ import main
from tests.made_up_runs import write_run


def test_columns_can_be_chosen(tmp_path: Path, capsys, no_figures) -> None:
    runs = tmp_path / "runs"
    for eraser in ("control", "leace"):
        write_run(runs, dataset="digits", eraser=eraser, seeds=range(3))
    out = tmp_path / "out"

    def shown() -> tuple[str, list[str]]:
        assert main([str(runs), "--out", str(out), *asked]) == 0
        headings = re.findall(r"<th [^>]*><button[^>]*>(.*?)</button>", (out / "index.html").read_text())
        return (out / "tables.md").read_text(), headings

    asked = ["--columns", "excess_bits,calibrated,bits"]
    markdown, page = shown()
    assert "| model | eraser | excess (bits) | calibrated | bits per label | seeds |" in markdown
    assert page == ["model", "eraser", "excess (bits)", "bits per label", "seeds"]  # and no column that is empty
    full = next(csv.DictReader((out / "tables" / "mdl-digits.csv").open()))
    assert float(full["bits_per_label_std"]) > 0
    asked = ["--columns", "all"]
    markdown, page = shown()
    assert {"excess (bits)", "Table 16&#39;s unit", "parameters"} <= set(page)
    with pytest.raises(SystemExit) as stopped:
        main([str(runs), "--columns", "bits,exces_bits"])
    assert stopped.value.code == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "unknown column exces_bits: did you mean excess_bits? choose from accuracy, all, area_bits, below" in line


def test_two_codes_of_the_same_labels_share_a_block_each_beside_its_own_control(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for code in ("blocks", "replay"):
        for eraser in ("control", "leace"):
            for width in (64, 128):
                write_run(runs, dataset="digits", eraser=eraser, coding=code, options={"width": width}, seeds=range(3))
    write_run(runs, dataset="digits", eraser="control", preset="quick")
    block, quick = by_dataset(read_runs([runs]))
    labels = [
        "mlp (width=64)",
        "mlp (width=64, mdl.code=replay)",
        "mlp (width=128)",
        "mlp (width=128, mdl.code=replay)",
    ]
    assert [*map(str, block.rows)] == labels
    assert (block.setting, quick.setting) == ("train=paper, mdl=paper", "train=quick, mdl=quick")
    replayed = {entry["eraser"].name: entry for entry in block.entries if str(entry["model"]) == labels[1]}
    expected = mean(replayed["leace"]["bits_per_label"]) - mean(replayed["control"]["bits_per_label"])
    assert f"{replayed['leace']['code_difference']}".startswith(f"{expected:+.3f} ±")
    panels = scaling_panels(block.run, "width")  # a line never mixes codes
    shown = [[*dict.fromkeys(str(entry["model"]) for entry in entries)] for _, entries in panels]
    assert shown == [labels[::2], labels[1::2]]
    assert [title for title, _ in panels] == ["MLP", "MLP (mdl.code=replay)"]
    alone = tmp_path / "alone"
    write_run(alone, dataset="digits", coding="replay")
    (only,) = by_dataset(read_runs([alone]))
    assert only.setting == "train=paper, mdl=paper, mdl.code=replay"
