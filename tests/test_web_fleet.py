"""Fleets on the dashboard in a real Chromium: hosts, the load under way, and one that dies."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
from typing import Any

import pytest
from browser import Page, ask, dashboard, doors, fill
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


@pytest.mark.browser
@pytest.mark.limit(240)
def test_a_run_on_a_fleet_is_started_on_its_page_and_run_again(lab: Lab, page: Page) -> None:
    fleet = f"ndw{os.getpid()}"
    address, token = dashboard(lab)
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('a[href=\"#/new\"]')")
    page.js("void (location.hash = '#/new')")
    page.wait("!!document.querySelector('#url')")
    assert page.js("document.querySelector('#fleet')") is None, "no fleet is up"
    done = lab.run("fleet", "up", lab.write("hosts.yaml", FILE.format(name=fleet)))
    assert done.code == 0, done.text
    page.driver.refresh()
    page.wait("!!document.querySelector('#fleet')", "no place is offered")
    assert page.js("document.querySelector('#fleet').selectedOptions[0].innerText") == "this machine"
    fill(page, "#url", "ping://127.0.0.1")
    fill(page, "#option-rate", "20")
    fill(page, "#option-devices", "4")
    fill(page, "#duration", "20s")
    page.tab_to("#fleet")
    page.press("fleet")
    assert page.js("document.querySelector('#fleet').value") == fleet
    page.js("void document.querySelector('form.form .press.main').click()")
    page.wait("location.hash.startsWith('#/run/')", "the run does not start")
    about = "(document.querySelector('.under.about')?.innerText ?? '')"
    page.wait(f"{about}.includes('Hosts: left, right · Fleet: {fleet}')", "the hosts are not shown")
    steer(page)
    page.wait("!!document.querySelector('.verdict h2')", "the run does not end")
    assert "Hosts: left, right" in page.js(about)
    assert hosts(lab, page) == ["left", "right"]
    assert len(trial(lab, page)["paused"]) == 1 and [one["rate"] for one in trial(lab, page)["rates"]] == [12]
    # once more, on the same fleet; a packet capture of each host is in the run's folder
    again = "[...document.querySelectorAll('a.press')].find((one) => one.innerText === 'Run again')"
    page.js(f"void {again}.click()")
    page.wait("(document.querySelector('#yaml')?.value ?? '').includes('groups:')", "there is no profile")
    assert page.js("document.querySelector('#fleet').value") == fleet
    page.js(
        "(() => { const y = document.querySelector('#yaml'); y.value += 'capture: {}\\n'; y.dispatchEvent(new Event('input')); })()"
    )
    page.wait("document.getElementById('at:capture') && !document.querySelector('#start').disabled")
    page.js("void document.querySelector('#start').click()")
    page.wait("location.hash.startsWith('#/run/')", "the run does not start again")
    page.wait("!!document.querySelector('.verdict h2')", "the run does not end")
    assert hosts(lab, page) == ["left", "right"]
    run = lab.runs / page.js("location.hash").removeprefix("#/run/")
    assert {one.name for one in run.glob("*.pcapng")} == {"capture-left.pcapng", "capture-right.pcapng"}
    # one that is down is refused, at its field, and a file is none
    assert lab.run("fleet", "down", fleet).code == 0
    page.js(f"void (location.hash = '#/build?run={run.name}&fleet={fleet}')")
    page.wait("document.querySelector('#start')?.disabled === false")
    page.js("document.querySelector('[data-language=ko]').click()")
    place = page.js("document.querySelector('#fleet').selectedOptions[0].innerText")
    assert place.startswith("플릿 ") and fleet in place
    page.js("void document.querySelector('#start').click()")
    page.wait("document.querySelector('.failure')?.innerText.includes('ND-104-90')", "it is not refused")
    assert [one for one in page.complaints() if "/api/about" not in one and "/api/start" not in one] == []
    lab.clean()


def steer(page: Page) -> None:
    """Pause a run, resume it and change its rate, on its page."""
    state = "document.querySelector('.state')?.innerText"
    button = "[...document.querySelectorAll('main button')].find((one) => one.innerText === '{}')"
    for press, then in (("Pause", "paused"), ("Resume", "running")):
        page.wait(f"{button.format(press)}?.disabled === false", f"there is no {press}")
        page.js(f"void {button.format(press)}.click()")
        page.wait(f"{state} === '{then}'", f"it is not {then}")
    fill(page, "#rate", "12/s")
    page.press("\ue007")
    page.wait("!!document.querySelector('form.bar .hint')", "the rate is not changed")


def hosts(lab: Lab, page: Page) -> list[str]:
    """Hosts that generated the load of the run that is shown."""
    return [one["name"] for one in trial(lab, page)["hosts"] if one["devices"]]


def trial(lab: Lab, page: Page) -> dict[str, Any]:
    """The trial of the run that is shown."""
    run = page.js("location.hash").removeprefix("#/run/")
    (one,) = json.loads((lab.runs / run / "result.json").read_text())["legs"][0]["repetitions"]
    return dict(one)
