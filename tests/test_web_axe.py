"""Every page of the dashboard under axe-core, which looks for what keeps people from using it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import Page, dashboard
from lab import Lab

AXE = (Path(__file__).parent / "vendor" / "axe-core-4.14.1.min.js").read_text()
PAGES = {
    "/": "h1",
    "/new": "#url",
    "/build": ".state.good",
    "/experiment": "#network-0 svg",
    "/sip": "#sip-server",
    "/sip-load": "#load-server",
    "/nat": ".none",
    "/tuning": "#in-force",
    "/tuning?view=watches": "#in-force",
    "/tuning?view=params": "#params",
    "/graphs?preset=stream-64b": "#elements-0",
    "/chains": "h1",
    "/fleets": ".none",
}
"""Address, and what is there once the page is."""


def findings(page: Page) -> Any:
    page.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE})
    return page.driver.execute_async_script(
        "const done = arguments[0]; axe.run().then((found) => done(found.violations.map("
        "(one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))])))"
    )


@pytest.mark.browser
@pytest.mark.limit(240)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(lab: Lab, page: Page, scheme: str) -> None:
    address, token = dashboard(lab)
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    page.driver.get(address)
    page.wait("!!document.querySelector('#token')")
    found = {"log-in": findings(page)}
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('a[href=\"#/new\"]')")
    for at, ready in PAGES.items():
        page.js(f"void (location.hash = '#{at}')")
        page.wait(f"!!document.querySelector('main {ready}')", at)
        found[at] = findings(page)
    found |= of_runs(lab, page, address)
    assert {at: one for at, one in found.items() if one} == {}
    # it would find something: a field without a name
    page.js("void document.querySelector('main').append(document.createElement('input'))")
    assert [name for name, _ in findings(page)] == ["label"]


def of_runs(lab: Lab, page: Page, address: str) -> dict[str, Any]:
    """What axe finds on pages of a run under way and of one that is over, and on their comparison."""
    words = ("ping://127.0.0.1", "--rate", "20", "--quiet", "--threshold", "loss <= 50%")
    assert lab.run("run", *words, "--duration", "1s").result.legs
    child = lab.start("run", *words, "--duration", "200s")
    live = lab.sampled().name
    (done,) = [one.name for one in lab.runs.iterdir() if one.name != live]
    found = {}
    pages = {
        f"#/run/{live}": "#live .chart",
        f"#/run/{done}": "#charts .chart",
        f"#/trend/{done}": "#charts .chart",
    }
    for at, ready in pages.items():
        page.js(f"void (location.hash = '{at}')")
        page.wait(f"!!document.querySelector('main {ready}')", at)
        found[at.rpartition("/")[0]] = findings(page)
    child.terminate()
    lab.wait(child)
    page.driver.get(f"{address}compare?a={done}&b={live}&lang=en")
    page.wait("!!document.querySelector('h1')", "compare")
    found["/compare"] = findings(page)
    page.driver.get(address)
    page.wait("!!document.querySelector('main h1')")
    return found
