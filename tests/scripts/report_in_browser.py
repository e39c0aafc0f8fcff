"""Debian's Chromium without a window, and what tests do with the report's page in it."""

import atexit
import contextlib
import functools
import shutil
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
    prefer(driver, "light")
    driver.get_log("browser")  # which forgets what was read
    driver.get(page.as_uri())
    WebDriverWait(driver, 60).until(_is_drawn)  # on a busy machine `get` returns before the page's code has run
    yield driver
    assert driver.get_log("browser") == []  # no error, no warning, no request that failed


def _is_drawn(driver) -> bool:
    drawn = "return location.protocol === 'file:' && document.readyState === 'complete'"
    return driver.execute_script(drawn)


def column(part, heading: str) -> list[str]:
    """Return the texts of a column of the first table, or of those in a part of the page, where rows are shown."""
    script = """
        const cells = (arguments[0] ?? document.querySelector("section")).querySelectorAll("tr:not([hidden]) > td");
        return [...cells].filter((cell) => cell.dataset.heading === arguments[1]).map((cell) => cell.textContent);
    """
    driver = getattr(part, "parent", part)
    return driver.execute_script(script, None if part is driver else part, heading)


def press(browser, heading: str) -> None:
    """Sort by a column of the first table in the page, or in a part of it."""
    buttons = browser.find_elements("css selector", ".scroll thead button")
    next(button for button in buttons if button.text == heading).click()


def search(browser, words: str) -> None:
    """Show the rows that have these words."""
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
    browser.execute_script(script, browser.find_element("id", "search"), words)


def resize(browser, width: int) -> None:
    """Make the page this wide, in CSS pixels."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def prefer(browser, scheme: str) -> None:
    """Set the reader's colour scheme, "light" or "dark"."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def require_all_is_reachable(browser, width: int) -> None:
    """Require that the page is as wide as the window; on narrow screens alone tables scroll sideways in their boxes."""
    page_width, window = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert window == width
    assert page_width <= width
    beyond = """
        const edge = document.documentElement.clientWidth;
        const cells = [...document.querySelectorAll("td, th, button, figcaption")]
          .filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > edge);
        const wide = [...document.querySelectorAll(".scroll")].filter((e) => e.scrollWidth > e.clientWidth);
        return [...cells, ...wide].map((e) => [e.textContent.slice(0, 80), Boolean(e.closest(".scroll, [popover]"))]);
    """
    overflowing = browser.execute_script(beyond)
    assert [text for text, scrolls in overflowing if not scrolls or width > 700] == []


def faint_texts(browser, least: float = 4.5) -> list[str]:
    """Return the visible texts whose contrast with what is behind them is below the least that WCAG 2.1 asks for."""
    return browser.execute_script(
        """
        const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
        const luminance = (rgb) => [.2126, .7152, .0722].reduce((sum, weight, i) => {
          const v = rgb[i] / 255;
          return sum + weight * (v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
        }, 0);
        const behind = (element) => {
          for (let e = element; e; e = e.parentElement) {
            const colour = numbers(getComputedStyle(e).backgroundColor);
            if (colour.length === 3 || colour[3] > 0) return colour;
          }
          throw new Error("the page has no background of its own");
        };
        const faint = [];
        for (const e of document.querySelectorAll("body, body *")) {
          const own = [...e.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
          if (!own || !e.checkVisibility() || ["SCRIPT", "OPTION"].includes(e.tagName)) continue;
          const style = getComputedStyle(e);
          const shades = [numbers(e.ownerSVGElement ? style.fill : style.color), behind(e)].map(luminance);
          const contrast = (Math.max(...shades) + .05) / (Math.min(...shades) + .05);
          if (contrast < arguments[0]) faint.push(`${contrast.toFixed(1)} ${e.tagName}: ${e.textContent.slice(0, 60)}`);
        }
        return faint;
        """,
        least,
    )
