"""A real Chromium, and a dashboard for it."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, until

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--lang=en",
)


class Page:
    """A browser, and what it complains about."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(f"return {script}", *arguments)

    def wait(self, condition: str, what: str = "") -> None:
        until(lambda: bool(self.js(condition)), 60, what or condition)

    def text(self) -> str:
        return str(self.js("document.body.innerText"))

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def tab_to(self, selector: str) -> None:
        """Press Tab until what is looked for has the focus."""
        for _ in range(60):
            if self.js("document.activeElement.matches(arguments[0])", selector):
                return
            self.press("\ue004")
        raise AssertionError(f"no Tab leads to {selector}")

    def complaints(self) -> list[str]:
        return [one["message"] for one in self.driver.get_log("browser") if one["level"] == "SEVERE"]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not chromedriver:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'chromium'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    yield Page(driver)
    driver.quit()


def fill(page: Page, selector: str, text: str) -> None:
    """Put a text in place of what a field has, as somebody who types it does."""
    page.js("document.querySelector(arguments[0]).focus()", selector)
    page.js("document.activeElement.select()")
    page.press(text)


def dashboard(lab: Lab) -> tuple[str, str]:
    """A dashboard of this lab: its address, and the operator's token."""
    return doors(lab)[:2]


def doors(lab: Lab) -> tuple[str, str, str]:
    """A dashboard of this lab: its address, and the tokens of an operator and of a viewer."""
    child = lab.start("web", "--listen", "127.0.0.1:0")
    assert child.stdout is not None
    address, _, token = child.stdout.readline().split()[1].partition("#token=")
    return address, token, child.stdout.readline().split()[1].partition("#token=")[2]


def ask(where: str, token: str, body: Any = None) -> Any:
    """What a dashboard answers a program."""
    head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(where, data, head, method="GET" if body is None else "POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)
