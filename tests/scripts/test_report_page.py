"""The report's page in a real browser."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.results.read import read_runs
from scripts.report.__main__ import eraser_colours
from scripts.report.groups import arrange
from scripts.report.information import bring_figures, read_information, sheets
from scripts.report.page import write_page
from tests.runs import ERASERS, write_information_run, write_run
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
    """120 runs, two rows of them incomplete, repeated in the page to 2,000 lines; 120 of sample_info."""
    root = tmp_path_factory.mktemp("report")
    for verb, width, depth, eraser in itertools.product(("mdl", "train"), (32, 64, 128), (1, 2, 4, 8), ERASERS):
        write_run(root / "runs", verb, eraser=eraser, options={"width": width, "depth": depth}, lr=5e-3)
    for subset_seed, width, eraser in itertools.product(range(8), (256, 512, 1024), ERASERS):
        write_information_run(root / "runs", eraser, width=width, subset_seed=subset_seed)
    half = write_run(root / "runs", eraser="random", seeds=(0, 1), lr=5e-3)
    (half.directory / "result.json").unlink()
    reading = read_runs([root / "runs"])
    blocks, information = arrange(reading), read_information(reading)
    repeated = blocks * -(-2000 // sum(len(block.rows) * len(block.erasers) for block in blocks))
    colours, figures = eraser_colours(blocks), bring_figures(information, root, print)
    page, drawn = root / "index.html", [*figures.values()][:1]
    return write_page(repeated, colours, reading.problems, [root / "runs"], page, sheets(information), figures, drawn)


@pytest.fixture
def browser(page: Path) -> Iterator:
    with opened(page) as driver:
        yield driver


def test_the_table_sorts_and_says_so(browser) -> None:
    assert "1,152 of 2,112 results" in browser.find_element("id", "count").text  # one setting's lines, all sorted
    press(browser, "bits per label")
    up = [float(text.split(" ")[0]) for text in column(browser, "bits per label")]
    assert up == sorted(up)
    sorts = (
        "return [...document.querySelectorAll('th')].map(head => head.getAttribute('aria-sort'))"
        ".filter(sort => sort && sort !== 'none')"
    )
    assert browser.execute_script(sorts) == ["ascending"]
    press(browser, "bits per label")
    down = [float(text.split(" ")[0]) for text in column(browser, "bits per label")]
    assert down == sorted(down, reverse=True)
    assert down[0] > up[-1] > up[0]
    assert browser.execute_script(sorts) == ["descending"]


def test_filters_filter(browser) -> None:
    from selenium.webdriver.support.select import Select

    Select(browser.find_element("id", "filter-eraser")).select_by_value("LEACE")
    assert set(column(browser, "eraser")) == {"LEACE"}
    settings = Select(browser.find_element("id", "filter-setting"))
    assert [option.text for option in settings.options] == [  # never two of them in one column
        "train=paper, train.lr=0.005, mdl=paper", "train=paper, train.lr=0.005",
    ]  # fmt: skip
    assert set(column(browser, "verb")) == {"mdl"}
    settings.select_by_index(1)
    Select(browser.find_element("id", "filter-verb")).select_by_value("train")
    assert set(column(browser, "verb")) == {"train"}
    Select(browser.find_element("id", "filter-eraser")).select_by_value("")
    Select(browser.find_element("id", "filter-verb")).select_by_value("")
    settings.select_by_index(0)
    Select(browser.find_element("id", "filter-completeness")).select_by_value("incomplete")
    assert {"not run", "unfinished"} >= set(column(browser, "incomplete")) != set()


def test_a_selected_run_shows_curves_certificate_and_configuration(browser) -> None:
    browser.find_element("id", "clear").click()
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
    assert "of a device, seeds 0, 1" in cards[0].text
    cards[0].find_element("css selector", "summary").click()
    assert 'name: "control"' in cards[0].text
    boxes[0].send_keys(" ")
    assert len(browser.find_elements("css selector", "#losses polyline")) == 1


def test_it_opens_with_the_first_rows_curves_and_its_address_keeps_what_is_chosen(browser, page: Path) -> None:
    from selenium.webdriver.support.select import Select

    legend = browser.find_element("id", "legend").text
    assert "control · MLP" in legend
    assert "QLEACE · MLP" in legend
    Select(browser.find_element("id", "filter-eraser")).select_by_value("LEACE")
    browser.find_element("css selector", "#trained input[type=search]").send_keys("WIDTH=128 DEPTH=4")
    press(browser, "bits per label")
    press(browser, "bits per label")
    browser.find_element("id", "clear").click()
    browser.find_element("css selector", "#results tbody input").send_keys(" ")

    def shown() -> tuple[list[str], ...]:
        legend = browser.find_element("id", "legend").text
        return *(column(browser, heading) for heading in ("model", "eraser", "bits per label")), [legend]

    before = shown()
    assert {(model, eraser) for model, eraser in zip(*before[:2], strict=True)} == {
        ("MLP (width=128, depth=4)", "LEACE")
    }
    assert len(before[3]) == 1
    address = browser.current_url
    browser.get("about:blank")
    browser.get(address)
    assert shown() == before


def test_figures_stand_on_the_page(browser) -> None:
    (image,) = browser.find_elements("css selector", "#gallery img")
    browser.execute_script("arguments[0].loading = 'eager'", image)
    assert browser.execute_script("return arguments[0].decode().then(() => arguments[0].naturalWidth)", image) == 440


def test_sample_information_sorts_filters_and_leads_to_each_runs_figure(browser) -> None:
    from selenium.webdriver.support.select import Select

    sheets = browser.find_elements("css selector", "#sheets > section")
    assert [sheet.find_element("css selector", "h3").text for sheet in sheets] == [
        "Runs", "How scores move between erasers", "Groups of examples", "Agreement between networks", "Summaries",
    ]  # fmt: skip
    runs = sheets[0]

    def cells(place: int) -> list[str]:
        return [cell.text for cell in runs.find_elements("css selector", f"tbody tr > :nth-child({place})")]

    assert runs.find_element("css selector", ".count").text == "120 of 120"
    assert len(cells(1)) == 100  # the rest on demand
    runs.find_element("css selector", "button.more").click()
    assert len(cells(1)) == 120
    press(runs, "F-SI, mean")
    up = [float(text.split(" ")[0]) for text in cells(6)]
    assert up == sorted(up)  # 9e-06 before 1e-05: numbers, not words
    press(runs, "F-SI, mean")
    assert [float(text.split(" ")[0]) for text in cells(6)] == sorted(up, reverse=True)
    Select(runs.find_elements("css selector", "select")[1]).select_by_value("LEACE")
    assert set(cells(2)) == {"LEACE"}
    assert runs.find_element("css selector", ".count").text == "24 of 120"
    link = runs.find_element("css selector", "tbody a")
    natural = "const i = new Image(); i.src = arguments[0]; return i.decode().then(() => i.naturalWidth)"
    assert browser.execute_script(natural, link.get_attribute("href")) == 440
    square = runs.find_element("css selector", "tbody .swatch")
    assert square.value_of_css_property("background-color") == "rgba(0, 114, 178, 1)"


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_overflows(browser, width: int) -> None:
    browser.find_element("css selector", "#results tbody input").send_keys(" ")
    resize(browser, width)
    require_nothing_overflows(browser, width)
