"""Tuning from the dashboard in a real Chromium: a proven setting is looked at, applied and undone."""

from __future__ import annotations

import json
import os
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest
from browser import Page, ask, doors
from lab import Lab, root, sh, until

from netdyno.core.result import Result
from netdyno.store import Store

pytestmark = root
NAME, VALUE = "net.core.somaxconn", 8192


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
