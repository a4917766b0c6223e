"""Fleets on the dashboard in a real Chromium: hosts, the load under way, and one that dies."""

from __future__ import annotations

import json
import os
import signal
import urllib.error

import pytest
from browser import Page, ask, doors
from lab import Lab

FILE = """\
format: netdyno-fleet/1
name: {name}
hosts:
- {{name: left, cores: [0]}}
- {{name: right, cores: [0]}}
"""
PROFILE = {
    "name": "ping", "phases": {"warmup": "0s", "measure": "300s", "drain": "1s"},
    "groups": [
        {"name": "pings", "target": "ping://127.0.0.1", "model": {"ping": {}}, "devices": 4,
         "load": {"closed": {"flows": 1}}}
    ],
}  # fmt: skip


@pytest.mark.browser
@pytest.mark.limit(240)
def test_hosts_the_load_under_way_and_a_host_that_dies(lab: Lab, page: Page) -> None:
    fleet = f"ndw{os.getpid()}"
    address, token, viewer = doors(lab)
    page.driver.get(f"{address}#token={viewer}")
    page.wait("!!document.querySelector('a[href=\"#/fleets\"]')")
    page.tab_to('a[href="#/fleets"]')
    page.press("\ue007")
    page.wait("document.querySelector('main .none')?.innerText.includes('No fleet is up')")
    done = lab.run("fleet", "up", lab.write("hosts.yaml", FILE.format(name=fleet)))
    assert done.code == 0, done.text
    state = json.loads((lab.state / "fleet" / f"{fleet}.json").read_text())
    rows = f"[...document.querySelectorAll('#fleet-{fleet} tbody tr')]"
    page.wait(f"{rows}.filter((row) => row.innerText.includes('no load')).length === 2", "no hosts")
    # one machine, one clock
    assert page.js(f"{rows}.every((row) => row.innerText.includes('+0.000 ± 0.000 ms'))")
    child = lab.start("run", lab.write("ping.json", PROFILE), "--fleet", fleet, "-q")
    page.wait(f"{rows}.filter((row) => row.innerText.includes('measuring')).length === 2", "no load is shown")
    known = ask(f"{address}api/fleet/fleets", viewer)["fleets"][0]["hosts"]
    assert [(one["name"], one["state"], one["phase"]) for one in known] == [
        ("left", "running", "measure"),
        ("right", "running", "measure"),
    ]
    # which run it is, and its hosts
    link = "document.querySelector('main a[href^=\"#/run/\"]')"
    page.wait(f"{link}?.innerText === 'ping'", "the run is not named")
    page.js(f"void {link}.click()")
    cpu = "document.querySelector('.cpu')?.innerText ?? ''"
    page.wait(
        f"({cpu}).includes('left core') && ({cpu}).includes('right core')", "hosts cannot be told apart"
    )
    assert fleet in page.js("document.querySelector('.under.about').innerText")
    page.js("void (location.hash = '#/fleets')")
    page.wait(f"{rows}.length === 2")
    with pytest.raises(urllib.error.HTTPError, match=r"400|422"):
        ask(f"{address}api/fleet/fleets?x=1", token)
    os.kill(state["agents"][1]["pid"], signal.SIGKILL)
    page.wait(f"{rows}[1]?.innerText.includes('does not answer')", "it is not told that a host is away")
    assert lab.wait(child).code == 91
    page.wait(f"{rows}[0].innerText.includes('last load is over')")
    page.driver.set_window_size(390, 800)
    page.js("document.querySelector('[data-language=ko]').click()")
    page.wait(f"{rows}[1].innerText.includes('응답 없음')")
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    assert lab.run("fleet", "down", fleet).code == 0
    page.wait("document.querySelector('main .none')?.innerText.includes('netdyno fleet up')")
    assert [one for one in page.complaints() if "/api/about" not in one] == []
    lab.clean()
