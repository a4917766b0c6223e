"""A NAT between real hosts, watched and steered from the dashboard in a real Chromium."""

from __future__ import annotations

import json
import os
import urllib.error

import pytest
from browser import Page, ask, doors
from lab import Lab, root, until
from nat_hosts import SERVER, Hosts, configuration

pytestmark = root


@pytest.mark.browser
@pytest.mark.limit(240)
def test_a_nat_is_watched_its_sessions_found_and_ended(lab: Lab, hosts: Hosts, page: Page) -> None:
    name = f"t{os.getpid()}-web"
    lasting = {"icmp": "1800s"}
    file = lab.write("nat.json", configuration(name, timeouts=lasting))
    child = lab.start("nat", "run", file, "--for", "240s", "-q", prefix=("ip", "netns", "exec", hosts.box))
    ping = ("ping", "-c1", "-W5", "-I", "10.0.0.1", SERVER)
    until(lambda: "1 received" in hosts.from_inside(*ping, check=False), 60, "no way out")
    address, token, viewer = doors(lab)
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('a[href=\"#/nat\"]')")
    page.tab_to('a[href="#/nat"]')
    page.press("\ue007")
    page.wait(f"document.querySelector('main .under')?.innerText === '{name}'", "the NAT is not found")

    # counters grow on the page without a touch
    page.wait("!!document.querySelector('.figures dd')", "there are no counters")
    up = "Number(document.querySelectorAll('.figures dd')[3].innerText.replaceAll(',', ''))"
    before = page.js(up)
    for _ in range(3):
        assert "1 received" in hosts.from_inside(*ping)
    page.wait(f"{up} >= {before + 3}", "the counters stand still")
    told = json.loads(lab.good("nat", "counters", name, "--json").out)
    page.wait(f"{up} === {told['forwarded_up']}", "the page and `netdyno nat counters` differ")

    # sessions: those of a filter, by keyboard
    page.tab_to(f'a[href="#/nat/{name}?view=sessions"]')
    page.press("\ue007")
    rows = "document.querySelectorAll('table#list tbody tr').length"
    listed = len(json.loads(lab.good("nat", "sessions", name, "--json").out)["sessions"])
    page.wait(f"{rows} === {listed}", "there are no sessions")
    page.tab_to("#nat-subscriber")
    page.press("10.0.0.2", "\ue007")
    page.wait("!!document.querySelector('p#list')", "the filter finds what is not its")
    page.press("x", "\ue007")
    page.wait("document.querySelector('.failure')?.innerText.includes('ND-104-04')", "an error is not told")
    page.js("document.activeElement.select()")
    page.press("10.0.0.1", "\ue007")
    page.wait(f"{rows} === {listed}")

    # a viewer reads the same, and ends nothing
    found = ask(f"{address}api/nat/sessions?name={name}&subscriber=10.0.0.1", viewer)
    assert len(found["sessions"]) == listed
    with pytest.raises(urllib.error.HTTPError, match="403"):
        ask(f"{address}api/nat/clear", viewer, {"name": name, "all": True})

    # an operator ends them, after a question
    page.tab_to("#clear")
    page.press("\ue007")
    page.driver.switch_to.alert.accept()
    page.wait("!!document.querySelector('p#list')", "the sessions are still there")
    assert json.loads(lab.good("nat", "sessions", name, "--json").out)["sessions"] == []

    # the pool has what the verb says; then the way of packets
    page.js(f"void (location.hash = '#/nat/{name}?view=pools')")
    page.wait("document.querySelectorAll('table#list tbody tr').length === 16")
    page.js(f"void (location.hash = '#/nat/{name}?view=trace')")
    page.wait("!!document.querySelector('#nat-subscriber')")
    # what was looked for is there again
    assert page.js("document.querySelector('#nat-subscriber').value") == "10.0.0.1"
    page.tab_to("#nat-subscriber")
    page.press("\ue007")
    page.wait("!!document.querySelector('form button[disabled]')")
    for _ in range(6):
        hosts.from_inside(*ping)
    page.wait("!!document.querySelector('#traced')", "the trace does not end")
    assert "conntrack" in page.text() and f"10.0.0.1 > {SERVER}" in page.text()

    page.driver.set_window_size(390, 800)
    page.js("document.querySelector('[data-language=ko]').click()")
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    child.terminate()
    lab.wait(child)
    page.js(f"void (location.hash = '#/nat/{name}')")
    page.wait("document.querySelector('.failure')?.innerText.includes('ND-104-35')", "its end is not told")
    assert [one for one in page.complaints() if "/api/about" not in one and "/api/nat/" not in one] == []
