"""One made-up result for all, and a real Chromium that tells what it asked the network for."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdyno.experiment.record import Record
from netdyno.experiment.study import Study
from netdyno.report.render import render
from netdyno.report.studies import render as render_studies
from netdyno.tuning.prove import Limit
from netdyno.tuning.screen import screen
from netdyno.tuning.search import Budget, Goal, search
from netdyno.tuning.simulated import SimulatedBench
from netdyno.tuning.space import space
from tests.report import sample

METRICS = ["throughput", "latency_p99", "failed"]
"""Of studies on the simulated bench."""
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,900",
    "--lang=en",
]


@pytest.fixture(scope="session")
def result() -> dict[str, Any]:
    return sample.result()


@pytest.fixture(scope="session")
def flows_csv() -> str:
    return sample.flows_csv()


@pytest.fixture(scope="session")
def page(result: dict[str, Any], flows_csv: str) -> str:
    return render(result, flows_csv=flows_csv)


class Browser:
    """A thin layer over selenium: open, ask, press, and what the page did behind one's back."""

    def __init__(self, driver: Any, downloads: Path) -> None:
        self.driver, self.downloads = driver, downloads

    def open(self, address: str) -> None:
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(address)
        self.wait("document.documentElement.hasAttribute('data-ready')")

    def js(self, script: str, *args: Any) -> Any:
        return self.driver.execute_script(script, *args)

    def wait(self, condition: str, seconds: float = 60) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, seconds, 0.05).until(lambda _: self.js(f"return Boolean({condition})"))

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def complaints(self) -> list[str]:
        """Everything on the console that is not a plain message."""
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """Every address that was asked for since the page was opened."""
        events = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def pdf(self) -> bytes:
        printed = self.driver.execute_cdp_cmd(
            "Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True}
        )
        return base64.b64decode(printed["data"])


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if not chromium or not chromedriver:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    downloads = tmp_path_factory.mktemp("downloads")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)}
    )
    yield Browser(driver, downloads)
    driver.quit()


@pytest.fixture(scope="session")
def studies(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("studies")
    bench = SimulatedBench()
    axes = space(bench.tunables)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NETDYNO_STATE", str(folder))
        patch.setattr(os, "fsync", lambda _: None)
        with Record(folder / "screen.jsonl", {}) as record:
            screened = screen(bench, axes, METRICS, record, trajectories=4)
            made = [
                Study.of("screen", "sim", {}).finish(
                    "screened", screened.document(), [t.document() for t in record.trials], axes.document()
                )
            ]
        for objectives in (("throughput",), ("throughput", "latency_p99")):
            axes = axes.only(screened.survivors())
            goal = Goal(objectives, (Limit("failed", 0),))
            with Record(folder / f"{len(objectives)}.jsonl", {}) as record:
                found = search(bench, axes, goal, record, budget=Budget(trials=30))
                made.append(
                    Study.of("search", "sim", {}).finish(
                        objectives[-1],
                        found.document(),
                        [t.document() for t in record.trials],
                        axes.document(),
                    )
                )
    return made


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, studies: list[dict[str, Any]]) -> Path:
    folder = tmp_path_factory.mktemp("explorer")
    screened, one, two = studies
    for name, chosen in (("screen", [screened]), ("one", [screened, one]), ("two", [screened, two])):
        (folder / f"{name}.html").write_text(render_studies(chosen), encoding="utf-8")
    return folder
