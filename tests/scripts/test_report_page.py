"""The report's page in a real browser."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from harness.results.columns import Column, spread
from harness.results.table import Table
from scripts.report import main, write_page
from tests.made_up_runs import ERASERS, write_information_run, write_run
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

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=REASON)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, quick_harness: dict[str, Callable]) -> Path:
    """40 runs of mdl and train, two rows of them incomplete, and 20 of sample_info."""
    root = tmp_path_factory.mktemp("report")
    for command, width, depth, eraser in itertools.product(("mdl", "train"), (32, 128), (1, 4), ERASERS):
        write_run(root / "runs", command, eraser=eraser, options={"width": width, "depth": depth}, lr=5e-3)
    for subset_seed, width, eraser in itertools.product(range(2), (256, 1024), ERASERS):
        write_information_run(root / "runs", eraser, width=width, subset_seed=subset_seed)
    half = write_run(root / "runs", eraser="random", seeds=(0, 1), lr=5e-3)
    (half.directory / "result.json").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scripts.report.MAX_FIGURES", 2)
        for name, method in quick_harness.items():  # real figures
            patch.setattr(Figure, name, method)
        assert main([str(root / "runs"), "--out", str(root / "report")]) == 0
    return root / "report" / "index.html"


@pytest.fixture
def browser(page: Path) -> Iterator:
    with opened(page) as driver:
        yield driver


def test_the_table_sorts_and_says_so(browser) -> None:
    press(browser, "bits per label")
    texts = column(browser, "bits per label")
    up = [float(text.split(" ")[0]) for text in texts if text]
    assert up == sorted(up)
    assert len(up) == 20
    assert {*texts[20:]} == {""}  # what has no number comes last
    sorts = (
        "return [...document.querySelectorAll('th')].map(head => head.getAttribute('aria-sort'))"
        ".filter(sort => sort && sort !== 'none')"
    )
    assert browser.execute_script(sorts) == ["ascending"]
    press(browser, "bits per label")
    down = [float(text.split(" ")[0]) for text in column(browser, "bits per label")[:20]]
    assert down == sorted(down, reverse=True)
    assert browser.execute_script(sorts) == ["descending"]


def test_columns_sort_by_their_numbers_and_what_has_none_comes_last(tmp_path: Path) -> None:
    values = {
        "9": (950.0, 950.0), "100": (-3.0, -1.0), "": (), "10": (1233.0, 1235.0), "12–40": (-0.5, -0.5),
        "8": (2e-7, 4e-7),
    }  # fmt: skip
    lines = [{"epochs": epochs, "change": [*seeds]} for epochs, seeds in values.items()]
    columns = [spread("change", "change", ",.1f"), Column("epochs", "epochs")]
    table = Table.of("lines", columns, lines, title="Lines")
    page = write_page([table], {}, tmp_path, [tmp_path], [])
    with opened(page) as browser:
        sheet = browser.find_element("css selector", "section")
        up = ["-2.0 ± 1.4", "-0.5 ± 0.0", "0.0 ± 0.0", "950.0 ± 0.0", "1,234.0 ± 1.4"]
        press(sheet, "change")
        assert column(sheet, "change") == [*up, ""]
        press(sheet, "change")
        assert column(sheet, "change") == [*up[::-1], ""]
        press(sheet, "epochs")
        assert column(sheet, "epochs") == ["8", "9", "10", "12–40", "100", ""]


def test_search_shows_rows_and_sections_in_which_every_word_begins_one(browser) -> None:
    search(browser, "WIDTH=128 depth=4 qleace")
    assert column(browser, "model") == ["MLP (width=128, depth=4)"]
    assert column(browser, "eraser") == ["QLEACE"]  # not ALF-QLEACE

    def shown() -> set[str]:
        headings = browser.find_elements("css selector", "section h2")
        texts = {heading.text for heading in headings if heading.is_displayed()}
        commands = ("mdl:", "train:", "sample_info")
        return {command for command in commands if any(command in text for text in texts)}

    assert shown() == {"mdl:", "train:"}  # sample_info has no depth
    search(browser, "random")  # has not finished
    assert {*column(browser, "eraser")} == {"random"}
    search(browser, "sample_info summaries leace")
    assert shown() == {"sample_info"}
    search(browser, "")
    assert shown() == {"mdl:", "train:", "sample_info"}


def test_a_row_shows_certificate_and_configuration_on_demand(browser) -> None:
    run = browser.find_element("css selector", "tbody tr:nth-child(2) [popover]")
    assert not run.is_displayed()
    browser.find_element("css selector", "tbody tr:nth-child(2) button").send_keys(" ")  # by keyboard
    assert run.is_displayed()
    assert '"seconds": 100.0' in run.text
    assert '"covariance_gap": 0.7' in run.text
    assert '"name": "leace"' in run.text
    run.find_element("css selector", "button").click()
    assert not run.is_displayed()


def test_figures_stand_on_the_page_and_follow_the_reader_s_mode(browser, tmp_path: Path) -> None:
    figure = browser.find_element("css selector", "img")
    browser.execute_script("arguments[0].scrollIntoView(); return arguments[0].decode()", figure)
    grey = {}
    for scheme in ("light", "dark"):
        prefer(browser, scheme)
        assert faint_texts(browser) == []
        figure.screenshot(str(tmp_path / f"{scheme}.png"))
        grey[scheme] = np.asarray(Image.open(tmp_path / f"{scheme}.png").convert("L"))
    assert np.median(grey["light"]) == 255  # the page's background, no box
    assert np.median(grey["dark"]) == 0x16
    assert grey["light"].min() < 50  # text and axes on it
    assert grey["dark"].max() > 200
    assert grey["dark"].min() > 0x16 - 4  # nothing is dark on dark, but for rounding


def test_sample_information_sorts_by_its_numbers(browser) -> None:
    (runs,) = [
        one for one in browser.find_elements("css selector", "section") if one.text.startswith("sample_info: Runs")
    ]
    press(runs, "F-SI, mean")
    up = [float(text.split(" ")[0]) for text in column(runs, "F-SI, mean")]
    assert len(up) == 20
    assert up == sorted(up)  # 9e-06 before 1e-05: numbers, not words


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_or_faint(browser, width: int, scheme: str) -> None:
    prefer(browser, scheme)
    resize(browser, width)
    require_all_is_reachable(browser, width)
    assert faint_texts(browser) == []
    browser.execute_script("document.querySelector('[popover]').showPopover()")
    require_all_is_reachable(browser, width)
    assert faint_texts(browser) == []
