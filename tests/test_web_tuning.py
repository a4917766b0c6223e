"""Tuning from the dashboard in a real Chromium: proven settings and findings of a watch are applied and undone."""

from __future__ import annotations

import json
import os
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Page, ask, doors
from lab import Lab, root, sh, until
from test_web_axe import findings

from netdyno.core.result import Result
from netdyno.store import Store

pytestmark = root
NAME, VALUE = "net.core.somaxconn", 8192
SERVICE = str(Path(__file__).parent / "bottleneck_service.py")


@pytest.fixture
def space() -> Iterator[str]:
    name = f"ndt{os.getpid()}-tune"
    sh("ip", "netns", "add", name)
    try:
        yield name
    finally:
        sh("ip", "netns", "del", name, check=False)


def there(space: str) -> int:
    return int(sh("ip", "netns", "exec", space, "sysctl", "-n", NAME))


def enter(lab: Lab, name: str, verdict: str) -> str:
    """A search in the store, with the outcome that a test needs."""
    proof = {
        "objective": "rate", "setting": {NAME: VALUE}, "verdict": verdict, "proven": verdict == "better",
        "broken": [], "failed": [0, 0], "shortage": "", "comparison": {"pairs": 8, "counters": []},
    }  # fmt: skip
    study: dict[str, Any] = {
        "format": 1, "kind": "search", "name": name, "bench": "connects", "finished": "", "plan": {},
        "tunables": [], "trials": [], "result": {"proofs": [proof]},
    }  # fmt: skip
    folder = lab.runs / f"20261129-{name}"
    folder.mkdir(parents=True)
    (folder / "study.json").write_text(json.dumps(study))
    made = Result(
        id=folder.name, kind="search", name=name, started="2026-11-29T10:00:00Z",
        finished="2026-11-29T11:00:00Z", finding="<b>better</b>",
    )  # fmt: skip
    lab.state.mkdir(exist_ok=True)
    with Store(lab.state / "runs.sqlite") as store:
        store.put(made, folder)
    return folder.name


@pytest.mark.browser
@pytest.mark.limit(240)
def test_a_proven_setting_is_looked_at_applied_and_undone(lab: Lab, page: Page, space: str) -> None:
    run, other = enter(lab, "proven", "better"), enter(lab, "unproven", "not shown")
    before = there(space)
    address, token, viewer = doors(lab)
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('a[href=\"#/tuning\"]')")
    page.tab_to('a[href="#/tuning"]')
    page.press("\ue007")
    page.wait("document.querySelectorAll('#studies tbody tr').length === 2", "the studies are not there")
    assert "<b>better</b>" in page.text()
    # what was not proven is refused, and says why
    show = "document.querySelector(`a[href='#/run/${arguments[0]}']`).closest('tr').querySelector('button')"
    page.js(f"{show}.focus()", other)
    page.press("\ue007")
    page.wait("document.querySelector('.failure')?.innerText.includes('no difference was shown')")
    page.js(f"{show}.focus()", run)
    page.press("\ue007")
    page.wait("!!document.querySelector('#where')", "the setting is not shown")
    page.tab_to("#where")
    page.press(space, "\ue004")
    page.wait(f"document.querySelector('#changes')?.innerText.includes('{VALUE}')", "no change is shown")
    assert there(space) == before
    page.tab_to("#apply")
    page.press("\ue007")
    page.wait("!!document.querySelector('#in-force tbody tr button')", "it is not in force")
    until(lambda: there(space) == VALUE, 30, "it is not applied")
    # a viewer sees it, and undoes nothing
    (held,) = ask(f"{address}api/tuning/studies", viewer)["in_force"]
    assert held["applied"] and NAME in held["parameter"]
    for what in ("undo", "apply", "preview", "restore"):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            ask(f"{address}api/tuning/{what}", viewer, {"process": held["process"]})
    page.tab_to("#in-force tbody tr button")
    page.press("\ue007")
    page.wait("!!document.querySelector('p#in-force')", "it is not undone")
    assert there(space) == before
    # parameters: by name, with the value that is here
    page.js("void (location.hash = '#/tuning?view=params')")
    page.wait("document.querySelectorAll('#params tbody tr').length > 50")
    page.tab_to("#find")
    page.press("somaxconn", "\ue007")
    page.wait("document.querySelectorAll('#params tbody tr').length === 1")
    assert sh("sysctl", "-n", NAME).strip() in page.js("document.querySelector('#params tbody tr').innerText")
    page.driver.set_window_size(390, 800)
    page.js("document.querySelector('[data-language=ko]').click()")
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    assert [one for one in page.complaints() if "/api/about" not in one and "/preview" not in one] == []


@pytest.mark.browser
@pytest.mark.limit(240)
def test_what_a_watch_finds_is_shown_applied_and_undone(lab: Lab, page: Page, space: str) -> None:
    sh("ip", "-n", space, "link", "set", "lo", "up")
    sh("ip", "netns", "exec", space, "sysctl", "-qw", f"{NAME}=16")
    inside = ("ip", "netns", "exec", space, sys.executable, SERVICE)
    lab.spawn(*inside, "serve-accept")
    until(lambda: ":7100" in sh("ss", "-Hltn", "-N", space), 30, "nothing listens")
    watch = lab.start("tune", "watch", "--where", space, "--dry-run")
    lab.spawn("sh", "-c", f"while sleep 0.2; do {' '.join(inside)} burst 127.0.0.1 200; done")
    address, token, viewer = doors(lab)
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('a[href=\"#/tuning\"]')")
    page.js("void (location.hash = '#/tuning')")
    page.wait("!!document.querySelector('.views')")
    page.tab_to('.views a[href$="watches"]')
    page.press("\ue007")
    section = (
        f"[...document.querySelectorAll('section.watch')].find((one) => one.innerText.includes('{space}'))"
    )
    page.wait(f"!!{section}", "the watch is not shown")
    # it looks on: what it finds comes by itself, with the command that sets it
    offers = (
        f"[...{section}.querySelectorAll('tbody tr')].filter((one) => one.innerText.includes('{NAME}=32'))"
    )
    page.wait(f"{offers}.length > 0", "nothing is found")
    assert f"netdyno tune apply --set {NAME}=32 --where {space}" in page.js(f"{offers}.at(-1).innerText")
    assert there(space) == 16
    assert findings(page) == []
    seen = ask(f"{address}api/tuning/watches", viewer)["watches"]
    (one,) = (one for one in seen if one["where"] == space)
    found = next(found for found in one["findings"] if found["setting"] == {NAME: 32})
    for what in ("preview", "apply", "stop"):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            ask(f"{address}api/tuning/{what}", viewer, {"watch": one["id"], "finding": found["number"]})
    page.js(f"void {offers}.at(-1).querySelector('button').focus()")
    page.press("\ue007")
    page.wait("document.querySelector('#changes')?.innerText.includes('32')", "no change is shown")
    assert space in page.js("document.querySelector('section.now').innerText")
    page.tab_to("#apply")
    page.press("\ue007")
    held = f"[...document.querySelectorAll('#in-force tbody tr')].filter((one) => one.innerText.includes('{NAME}'))"
    page.wait(f"{held}.length > 0", "it is not in force")
    until(lambda: there(space) == 32, 30, "it is not applied")
    page.tab_to("#in-force tbody tr button")
    page.press("\ue007")
    page.wait("!!document.querySelector('p#in-force')", "it is not undone")
    assert there(space) == 16
    page.driver.set_window_size(390, 800)
    page.js("document.querySelector('[data-language=ko]').click()")
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    assert "감시" in page.text() and findings(page) == []
    page.js(f"void {section}.querySelector('button.stop').focus()")
    page.press("\ue007")
    page.wait(f"!{section}", "the watch is not stopped")
    assert watch.wait(60) == 0
    assert [one for one in page.complaints() if "/api/about" not in one] == []
