"""A running service chain, watched from the dashboard in a real Chromium and from a terminal."""

from __future__ import annotations

import signal

import pytest
from browser import Page, ask, doors
from lab import Lab, root, until

pytestmark = root
CHAIN = {
    "format": "netdyno-chain/1",
    "switch": "ovs-netdev",
    "vnfs": {"first": {"kind": "bridge"}, "second": {"kind": "bridge", "replicas": 2}},
    "chain": ["first", "second"],
}


@pytest.mark.browser
@pytest.mark.limit(240)
def test_a_running_chain_is_drawn_with_its_packets(lab: Lab, page: Page) -> None:
    child = lab.start("chain", "run", lab.write("chain.json", CHAIN), "--set", "seconds=60", "--repeat", "1")
    address, token, viewer = doors(lab)
    until(lambda: ask(f"{address}api/switch/chains", viewer)["chains"], 60, "the chain is not found")
    one = ask(f"{address}api/switch/chains", viewer)["chains"][-1]
    assert one["name"] == "ovs-netdev: first, second"
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('a[href=\"#/chains\"]')")
    page.tab_to('a[href="#/chains"]')
    page.press("\ue007")
    page.wait("document.querySelectorAll('#drawing rect').length === 4", "the hops are not drawn")
    page.wait("document.querySelector('#drawing').innerText.includes('×2')", "replicas are not told")

    # packets grow on the page without a touch, on the way into the last function too
    edge = "parseInt(document.querySelector('[data-edge=\"first second\"]')?.textContent.replaceAll(',', '') ?? 0)"
    page.wait(f"{edge} > 100", "nothing is counted on the way")
    before = page.js(edge)
    page.wait(f"{edge} > {before}", "the counters stand still")

    # the terminal shows the same chain, until it ends
    watched = lab.start("chain", "watch", "--interval", "500ms")
    assert watched.stdout
    assert "client → first → second → server" in watched.stdout.readline()
    page.wait(f"{edge} > {page.js(edge)}", "watching stops it")
    child.send_signal(signal.SIGINT)
    assert lab.wait(child).code == 105
    seen = lab.wait(watched)
    assert seen.code == 0, seen.text
    assert "the chain has ended" in seen.err
    page.wait("document.querySelector('.failure')?.innerText.includes('ND-104-28')", "its end is not told")
    assert ask(f"{address}api/switch/chains", viewer)["chains"] == []
