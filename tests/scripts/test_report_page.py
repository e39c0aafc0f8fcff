"""The report's page in a real browser."""

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from harness.results.arrange import by_dataset
from harness.results.read import read_runs
from harness.results.table import Column, Table, spread
from harness.style import STYLE, save
from scripts.report.__main__ import colours_of
from scripts.report.information import bring_figures, read_information, sheets
from scripts.report.page import Page
from tests.runs import ERASERS, write_information_run, write_run
from tests.scripts.chromium import (
    CHROMIUM,
    DRIVER,
    REASON,
    column,
    faint_texts,
    menu,
    opened,
    prefer,
    press,
    require_nothing_overflows,
    resize,
)

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=REASON)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 runs, two rows of them incomplete, repeated in the page to 2,000 lines; 120 of sample_info."""
    root = tmp_path_factory.mktemp("report")
    for command, width, depth, eraser in itertools.product(("mdl", "train"), (32, 64, 128), (1, 2, 4, 8), ERASERS):
        write_run(root / "runs", command, eraser=eraser, options={"width": width, "depth": depth}, lr=5e-3)
    for subset_seed, width, eraser in itertools.product(range(8), (256, 512, 1024), ERASERS):
        write_information_run(root / "runs", eraser, width=width, subset_seed=subset_seed)
    half = write_run(root / "runs", eraser="random", seeds=(0, 1), lr=5e-3)
    (half.directory / "result.json").unlink()
    reading = read_runs([root / "runs"])
    blocks, information = by_dataset(reading), read_information(reading)
    repeated = blocks * -(-2000 // sum(len(block.rows) * len(block.erasers) for block in blocks))
    colours, figures = colours_of(blocks), bring_figures(information, root, print)
    with mpl.rc_context(STYLE):
        figure = Figure()
        figure.add_subplot(title="a figure").plot([0, 1], color="#0072B2")
        drawn = [save(figure, root / "figure.svg"), *figures.values()][:2]
    page = Page(
        comparisons=repeated, colours=colours, problems=reading.problems, roots=[root / "runs"],
        sheets=sheets(information), figures=figures, drawn=drawn,
    )  # fmt: skip
    return page.write(root / "index.html")


@pytest.fixture
def browser(page: Path) -> Iterator:
    with opened(page) as driver:
        yield driver


def test_the_table_sorts_and_says_so(browser) -> None:
    assert "1,152 of 2,112" in browser.find_element("css selector", "#trained .count").text  # one setting's, all sorted
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


@dataclasses.dataclass
class Line:
    """A row of a table to sort: numbers of two seeds, if it has any."""

    values: tuple[float, ...]
    epochs: str


def test_columns_sort_by_their_numbers_and_what_has_none_comes_last(tmp_path: Path) -> None:
    lines = [
        Line((950.0, 950.0), "9"), Line((-3.0, -1.0), "100"), Line((), ""), Line((1233.0, 1235.0), "10"),
        Line((-0.5, -0.5), "12–40"), Line((2e-7, 4e-7), "8"),
    ]  # fmt: skip
    columns: list[Column[Line]] = [
        spread("change", "change_mean", ",.1f", lambda line: line.values),
        Column[Line]("epochs", lambda line: line.epochs),
    ]
    table = Table.of("lines", columns, lines)
    page = Page(roots=[tmp_path], sheets=[dataclasses.replace(table, title="Lines")]).write(tmp_path / "index.html")
    with opened(page) as browser:
        sheet = browser.find_element("css selector", "#sheets > section")
        up = ["-2.0 ± 1.4", "-0.5 ± 0.0", "0.0 ± 0.0", "950.0 ± 0.0", "1,234.0 ± 1.4"]
        press(sheet, "change")
        assert column(sheet, "change") == [*up, ""]
        press(sheet, "change")
        assert column(sheet, "change") == [*up[::-1], ""]
        press(sheet, "epochs")
        assert column(sheet, "epochs") == ["8", "9", "10", "12–40", "100", ""]


def test_filters_filter(browser) -> None:
    menu(browser, "eraser").select_by_value("LEACE")
    assert set(column(browser, "eraser")) == {"LEACE"}
    settings = menu(browser, "setting")
    assert [option.text for option in settings.options] == [  # never two of them in one column
        "train=paper, train.lr=0.005, mdl=paper", "train=paper, train.lr=0.005",
    ]  # fmt: skip
    assert set(column(browser, "command")) == {"mdl"}
    settings.select_by_index(1)
    menu(browser, "command").select_by_value("train")
    assert set(column(browser, "command")) == {"train"}
    assert column(browser, "bits per label") == []  # which no such run has
    heads = browser.find_elements("css selector", "#trained thead button")
    assert "bits per label" not in {head.text for head in heads if head.is_displayed()}
    menu(browser, "eraser").select_by_value("")
    menu(browser, "command").select_by_value("")
    settings.select_by_index(0)
    menu(browser, "completeness").select_by_value("incomplete")
    assert {"not run", "unfinished"} >= set(column(browser, "incomplete")) != set()


def test_search_finds_rows_that_have_every_word(browser) -> None:
    browser.find_element("css selector", "#trained input[type=search]").send_keys("WIDTH=128 DEPTH=4 qleace")
    found = set(zip(column(browser, "model"), column(browser, "eraser"), strict=True))
    assert {model for model, _ in found} == {"MLP (width=128, depth=4)"}
    assert "QLEACE" in {eraser for _, eraser in found} <= {"QLEACE", "ALF-QLEACE"}


def test_a_selected_run_shows_curves_certificate_and_configuration(browser) -> None:
    browser.find_element("id", "clear").click()
    assert not browser.find_element("id", "selection").is_displayed()
    boxes = browser.find_elements("css selector", "#trained tbody input")
    boxes[0].send_keys(" ")  # by keyboard
    boxes[1].send_keys(" ")
    for place in ("learning", "losses"):
        lines = browser.find_elements("css selector", f"#{place} polyline")
        assert len(lines) == 2
        assert {line.value_of_css_property("stroke") for line in lines} == {"rgb(77, 77, 77)", "rgb(0, 114, 178)"}
    cards = browser.find_elements("css selector", "#cards article")
    assert len(cards) == 2
    assert "of a device, seeds 0, 1" in cards[0].text
    assert "covariance gap" not in cards[0].text
    for summary in cards[0].find_elements("css selector", "summary"):
        summary.click()
    assert "covariance gap" in cards[0].text
    assert '"name": "control"' in cards[0].text
    boxes[0].send_keys(" ")
    assert len(browser.find_elements("css selector", "#losses polyline")) == 1


def test_it_opens_with_the_curves_of_a_row(browser) -> None:
    legend = browser.find_element("id", "legend").text
    assert "MLP" in legend
    assert {"control", "LEACE", "QLEACE"} <= {line.strip() for line in legend.splitlines()}


def test_figures_stand_on_the_page_and_follow_the_reader_s_mode(browser, tmp_path: Path) -> None:
    figure, image = browser.find_elements("css selector", "#gallery img")
    browser.execute_script("for (const image of document.images) image.loading = 'eager'")
    assert browser.execute_script("return arguments[0].decode().then(() => arguments[0].naturalWidth)", image) == 440
    browser.execute_script("return arguments[0].decode()", figure)
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


def test_sample_information_sorts_filters_and_leads_to_each_runs_figure(browser) -> None:
    sheets = browser.find_elements("css selector", "#sheets > section")
    assert [sheet.find_element("css selector", "h3").text for sheet in sheets] == [
        "Runs", "How scores move between erasers", "Subgroups of examples", "Agreement between networks", "Summaries",
    ]  # fmt: skip
    runs = sheets[0]
    assert runs.find_element("css selector", ".count").text == "120 of 120"
    assert len(column(runs, "eraser")) == 100  # the rest on demand
    runs.find_element("css selector", "button.more").click()
    assert len(column(runs, "eraser")) == 120
    press(runs, "F-SI, mean")
    up = [float(text.split(" ")[0]) for text in column(runs, "F-SI, mean")]
    assert up == sorted(up)  # 9e-06 before 1e-05: numbers, not words
    press(runs, "F-SI, mean")
    assert [float(text.split(" ")[0]) for text in column(runs, "F-SI, mean")] == sorted(up, reverse=True)
    menu(runs, "eraser").select_by_value("LEACE")
    assert set(column(runs, "eraser")) == {"LEACE"}
    assert runs.find_element("css selector", ".count").text == "24 of 120"
    link = runs.find_element("css selector", "tbody a")
    natural = "const i = new Image(); i.src = arguments[0]; return i.decode().then(() => i.naturalWidth)"
    assert browser.execute_script(natural, link.get_attribute("href")) == 440
    square = runs.find_element("css selector", "tbody .swatch")
    assert square.value_of_css_property("background-color") == "rgba(0, 114, 178, 1)"


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_or_faint(browser, width: int, scheme: str) -> None:
    prefer(browser, scheme)
    resize(browser, width)
    for summary in browser.find_elements("css selector", "#cards summary"):
        summary.click()
    require_nothing_overflows(browser, width)
    assert faint_texts(browser) == []
