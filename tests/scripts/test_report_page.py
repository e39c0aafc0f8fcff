"""The report's page in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.bench_report import write_run, write_runs
from scripts.report.__main__ import eraser_colours
from scripts.report.groups import arrange
from scripts.report.page import write_page
from scripts.report.read import read_runs
from tests.scripts.chromium import (
    CHROMIUM,
    DRIVER,
    REASON,
    column,
    opened,
    press,
    require_nothing_overflows,
    resize,
)

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=REASON)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 runs, two rows of them incomplete, repeated in the page to 2,000 lines."""
    root = tmp_path_factory.mktemp("report")
    write_runs(root / "runs", 60)
    write_runs(root / "runs", 60, verbs=["train"])
    half = write_run(root / "runs", eraser="random", seeds=(0, 1))
    (half.directory / "result.json").unlink()
    reading = read_runs([root / "runs"])
    blocks = arrange(reading)
    repeated = blocks * -(-2000 // sum(len(block.rows) * len(block.erasers) for block in blocks))
    return write_page(repeated, eraser_colours(blocks), reading.problems, [root / "runs"], root / "index.html")


@pytest.fixture
def browser(page: Path) -> Iterator:
    with opened(page) as driver:
        yield driver


def test_the_table_sorts_and_says_so(browser) -> None:
    assert "2,0" in browser.find_element("id", "count").text  # lines, all of them sorted
    press(browser, "MDL (bits per label)")
    up = [float(text.split(" ")[0]) for text in column(browser, "MDL (bits per label)")]
    assert up == sorted(up)
    sorts = (
        "return [...document.querySelectorAll('th')].map(head => head.getAttribute('aria-sort'))"
        ".filter(sort => sort && sort !== 'none')"
    )
    assert browser.execute_script(sorts) == ["ascending"]
    press(browser, "MDL (bits per label)")
    down = [float(text.split(" ")[0]) for text in column(browser, "MDL (bits per label)")]
    assert down == sorted(down, reverse=True)
    assert down[0] > up[-1] > up[0]
    assert browser.execute_script(sorts) == ["descending"]


def test_filters_filter(browser) -> None:
    from selenium.webdriver.support.select import Select

    Select(browser.find_element("id", "filter-eraser")).select_by_value("leace")
    assert set(column(browser, "eraser")) == {"leace"}
    Select(browser.find_element("id", "filter-verb")).select_by_value("train")
    assert set(column(browser, "verb")) == {"train"}
    Select(browser.find_element("id", "filter-eraser")).select_by_value("")
    Select(browser.find_element("id", "filter-verb")).select_by_value("")
    Select(browser.find_element("id", "filter-incomplete")).select_by_value("parts")
    assert {"not run", "unfinished"} >= set(column(browser, "incomplete")) != set()


def test_a_selected_run_shows_curves_certificate_and_configuration(browser) -> None:
    assert not browser.find_element("id", "selection").is_displayed()
    boxes = browser.find_elements("css selector", "#results tbody input")
    boxes[0].send_keys(" ")  # by keyboard
    boxes[1].send_keys(" ")
    for place in ("learning", "losses"):
        lines = browser.find_elements("css selector", f"#{place} polyline")
        assert len(lines) == 2
        assert {line.get_attribute("stroke") for line in lines} == {"#4d4d4d", "#0072B2"}
    cards = browser.find_elements("css selector", "#cards article")
    assert len(cards) == 2
    assert "covariance gap" in cards[0].text
    cards[0].find_element("css selector", "summary").click()
    assert 'name: "control"' in cards[0].text
    boxes[0].send_keys(" ")
    assert len(browser.find_elements("css selector", "#losses polyline")) == 1


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_overflows(browser, width: int) -> None:
    browser.find_element("css selector", "#results tbody input").send_keys(" ")
    resize(browser, width)
    require_nothing_overflows(browser, width)
