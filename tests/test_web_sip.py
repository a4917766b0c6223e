"""A SIP load from the dashboard's form, in Chromium by keyboard: to a finished run with ladders."""

from __future__ import annotations

import json

import pytest
from browser import Page, dashboard
from lab import Lab


@pytest.mark.browser
@pytest.mark.limit(400)
def test_a_load_is_started_watched_and_its_ladders_read(lab: Lab, page: Page) -> None:
    server = lab.start("sip", "serve", "proxy", "--listen", "127.0.0.1:0", "--domain", "example.net")
    assert server.stderr is not None
    at = server.stderr.readline().split()[2].rstrip(",")
    address, token = dashboard(lab)
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('a[href=\"#/sip-load\"]')")
    page.tab_to('a[href="#/sip-load"]')
    page.press("\ue007")
    page.wait("!!document.querySelector('#load-server')")
    page.js("void document.querySelector('[data-language=ko]')?.click()")
    page.wait("document.querySelector('main h1').innerText === 'SIP 부하'", "it does not speak Korean")
    assert page.js("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.tab_to("#load-kind")
    page.press("호")
    page.wait("!!document.querySelector('#load-media')", "calls have no audio to choose")
    for field, typed in (
        ("server", f"sip:{at}"),
        ("rate", "5"),
        ("duration", "2s"),
        ("domain", "example.net"),
    ):
        page.tab_to(f"#load-{field}")
        page.press(typed)
    page.press("\ue007")
    page.wait("location.hash.startsWith('#/run/')", "no run began")
    run = page.js("location.hash").removeprefix("#/run/")
    page.wait("!!document.querySelector('#verdict-word')", "the run is not over")
    result = json.loads((lab.runs / run / "result.json").read_text())
    groups = {one["name"]: one for one in result["legs"][0]["summary"]["groups"]}
    assert groups["callers"]["measured"]["flows_completed"] > 0
    assert (lab.runs / run / "ladder.json").is_file()
    page.wait("!!document.querySelector('a[href$=\"#ladder\"]')", "nothing leads to the ladders")
    report = (lab.runs / run / "report.html").read_text()
    assert '<section id="ladder"' in report and "INVITE sip:callee" in report


def test_what_cannot_be_loaded_is_told(lab: Lab, page: Page) -> None:
    address, token = dashboard(lab)
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('a[href=\"#/sip-load\"]')")
    page.js("void (location.hash = '#/sip-load')")
    page.wait("!!document.querySelector('#load-server')")
    page.tab_to("#load-server")
    page.press("http://127.0.0.1\ue007")
    page.wait("document.querySelector('.failure')?.innerText.includes('ND-104-22')")
    assert page.js("location.hash") == "#/sip-load"
