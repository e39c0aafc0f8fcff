"""The report of a small sweep of the experiment digits_all, its page in a browser."""

import csv
from pathlib import Path

import pytest

from mdl.__main__ import COMMAND as MDL
from scripts.report import build
from tests.scripts.report_in_browser import (
    CHROMIUM,
    DRIVER,
    REASON,
    column,
    faint_texts,
    opened,
    prefer,
    press,
    require_all_is_reachable,
    resize,
    search,
)

MINIATURE = ["seeds=[0]", "train.stack=one", "train.max_epochs=1", "train.min_epoch_steps=1", "mdl.num_chunks=2"]


@pytest.fixture
def report(command, tmp_path: Path) -> Path:
    chosen = ["eraser=control,qleace", "model=mlp,swinv2", "logger.mode=disabled"]
    swept = command(MDL, "-m", "+experiment=digits_all", *chosen, *MINIATURE)
    assert swept.code == 0, swept.err
    assert "4 of 4 runs finished" in swept.out
    assert build([Path("runs")], tmp_path / "report") == 0
    return tmp_path / "report"


@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=REASON)
def test_the_experiment_s_report_opens_in_a_browser(report: Path) -> None:
    with opened(report / "index.html") as browser:
        press(browser, "bits per label")
        bits = [float(text.split(" ")[0]) for text in column(browser, "bits per label")]
        assert len(bits) == 4
        assert bits == sorted(bits)
        search(browser, "swin qleace")
        assert column(browser, "eraser") == ["QLEACE"]
        search(browser, "")
        browser.find_element("css selector", "tbody button").click()
        assert browser.find_element("css selector", "[popover]").is_displayed()
        browser.find_element("css selector", "[popover] button").click()
        for width in (1280, 390):
            resize(browser, width)
            require_all_is_reachable(browser, width)
            for scheme in ("light", "dark"):
                prefer(browser, scheme)
                assert faint_texts(browser) == []
    with next((report / "tables").glob("*.csv")).open() as file:
        assert {"control", "qleace"} <= {row["eraser"] for row in csv.DictReader(file)}
    assert {path.suffix for path in (report / "figures").iterdir()} == {".svg", ".pdf"}
