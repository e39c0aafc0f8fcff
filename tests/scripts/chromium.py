"""Debian's Chromium without a window, and what tests do with the report's page in it."""

import atexit
import contextlib
import functools
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
REASON = "needs Debian's chromium and chromium-driver"


@functools.cache
def browser():
    """One for all tests of a process: to start it takes longer than most of them."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    atexit.register(driver.quit)
    return driver


@contextlib.contextmanager
def opened(page: Path) -> Iterator:
    """A browser that shows the page anew; fails at its end if the page's console said anything."""
    from selenium.webdriver.support.wait import WebDriverWait

    driver = browser()
    driver.get("about:blank")
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.get_log("browser")  # which forgets what was read
    driver.get(page.as_uri())
    WebDriverWait(driver, 60).until(_is_drawn)  # on a busy machine `get` returns before the page's code has run
    yield driver
    assert driver.get_log("browser") == []  # no error, no warning, no request that failed


def _is_drawn(driver) -> bool:
    drawn = "return location.protocol === 'file:' && document.readyState === 'complete'"
    return driver.execute_script(drawn)


def column(browser, heading: str) -> list[str]:
    """Texts of a column of the table, by its heading."""
    return browser.execute_script(
        "const heads = [...document.querySelectorAll('#results thead tr > *')].map(h => h.textContent);"
        "const i = heads.indexOf(arguments[0]);"
        "return [...document.querySelectorAll('#results tbody tr')].map(r => r.cells[i].textContent)",
        heading,
    )


def press(browser, heading: str) -> None:
    """Sort by a column of the first table in the page, or in a part of it."""
    buttons = browser.find_elements("css selector", ".sorts thead button")
    next(button for button in buttons if button.text == heading).click()


def resize(browser, width: int) -> None:
    """Make the page this wide, in CSS pixels."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    time.sleep(0.2)  # the curves are drawn again


def require_nothing_overflows(browser, width: int) -> None:
    """The page, and every drawing on it, is as wide as the window."""
    page_width, window = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert window == width
    assert page_width <= width
    wide = (
        "return [...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().right > innerWidth).length"
    )
    assert browser.execute_script(wide) == 0
