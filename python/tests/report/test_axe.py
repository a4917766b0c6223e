"""Pages of tuning under axe-core, which looks for what keeps people from using them, and on a narrow screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netdyno.report.studies import render
from tests.report.conftest import Browser
from tests.report.test_comparison import compared, tables
from tests.report.test_experience import PAGES as EXPERIENCES
from tests.report.test_experience import render as experience

AXE = Path(__file__).resolve().parents[3] / "tests" / "vendor" / "axe-core-4.14.1.min.js"
PAGES = ["screen", "one", "two", "compare", "tables", *EXPERIENCES]
NARROW = 390
"""Points of a phone's width."""


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[str, str]:
    for name, study in (("compare", compared()), ("tables", tables())):
        (folder / f"{name}.html").write_text(render([study]), encoding="utf-8")
    for name, more in EXPERIENCES.items():
        (folder / f"{name}.html").write_text(experience(**more), encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in PAGES}


@pytest.fixture
def media(browser: Browser) -> Any:
    def prefer(scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    yield prefer
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def findings(browser: Browser) -> list[Any]:
    browser.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE.read_text()})
    found: list[Any] = browser.driver.execute_async_script(
        "const done = arguments[0]; axe.run().then((found) => done(found.violations.map("
        "(one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))])))"
    )
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("scheme", "language"), [("light", "en"), ("dark", "ko")])
def test_axe_finds_nothing(
    browser: Browser,
    pages: dict[str, str],
    media: Callable[[str], None],
    name: str,
    scheme: str,
    language: str,
) -> None:
    media(scheme)
    browser.open(f"{pages[name]}?lang={language}")
    browser.js("document.querySelectorAll('details').forEach((one) => one.open = true)")
    assert findings(browser) == []


@pytest.mark.parametrize("name", ["one", "compare"])
def test_on_a_phone_wide_tables_scroll_and_show_it(
    browser: Browser, pages: dict[str, str], name: str
) -> None:
    """The page itself does not scroll sideways; a table that does has a shadow at the edge it goes on behind."""
    size = {"width": NARROW, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.open(f"{pages[name]}?lang=en")
        assert browser.js("return document.documentElement.scrollWidth") <= NARROW
        wide = browser.js("""
          return [...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth)
            .map((one) => [one.tabIndex, getComputedStyle(one).backgroundAttachment]);""")
        assert wide and all(one == [0, "local, local, scroll, scroll"] for one in wide)
        edge = browser.js("""
          const one = [...document.querySelectorAll('.scroll')].find((one) => one.scrollWidth > one.clientWidth);
          one.scrollIntoView({ block: "center", behavior: "instant" });
          const box = one.getBoundingClientRect();
          return [box.right + scrollX, box.top + scrollY + box.height / 2];""")
        before = pixel(browser, *edge)
        browser.js("""
          const one = [...document.querySelectorAll('.scroll')].find((one) => one.scrollWidth > one.clientWidth);
          one.scrollLeft = one.scrollWidth;""")
        assert pixel(browser, *edge) != before, "at its end there is no shadow"
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def pixel(browser: Browser, x: float, y: float) -> str:
    clip = {"x": x - 2, "y": y - 2, "width": 2, "height": 4, "scale": 1}
    shot = browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip})
    return str(shot["data"])
