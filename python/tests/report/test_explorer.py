"""The page of a tuning in a real Chromium: made from studies on the simulated bench."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from netdyno.report.studies import render
from netdyno.report.text import Data
from netdyno.tuning.pages import explorer, proposed_setting
from tests.report.conftest import METRICS, Browser
from tests.report.test_browser import speaks_both


@pytest.mark.parametrize("name", ["screen", "one", "two"])
def test_opens_without_complaint_and_draws_its_charts(browser: Browser, folder: Path, name: str) -> None:
    address = (folder / f"{name}.html").as_uri()
    browser.open(address + "?lang=en")
    browser.wait(
        "document.querySelectorAll('.chart canvas').length === document.querySelectorAll('.chart').length"
    )
    colours = browser.js("""
      return [...document.querySelectorAll('.chart canvas')].map((canvas) => {
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        const found = new Set();
        for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] > 200) found.add(pixels.slice(i, i + 3).join());
        return found.size;
      });""")
    assert len(colours) == {"screen": 6, "one": 7, "two": 7}[name]
    assert all(n > 10 for n in colours)
    assert browser.complaints() == []
    assert [u for u in browser.requests() if not u.startswith(("data:", "blob:"))] == [address + "?lang=en"]


def test_every_text_changes_with_the_language(browser: Browser, folder: Path) -> None:
    browser.open((folder / "two.html").as_uri() + "?lang=en")
    browser.js("document.querySelectorAll('details').forEach((d) => d.open = true)")
    # the title of such a chart is the metric's own name
    speaks_both(browser, "|".join(METRICS))


def test_points_are_walked_by_keyboard_and_spoken(browser: Browser, folder: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open((folder / "two.html").as_uri() + "?lang=en")
    browser.wait("document.querySelector('[data-chart=tried] canvas')")
    browser.js("document.querySelector('[data-chart=tried] .plot').focus()")
    said = "return document.querySelector('[data-chart=tried] [aria-live]').textContent"
    heard = []
    browser.press(Keys.HOME)
    for _ in range(8):
        heard.append(browser.js(said))
        browser.press(Keys.ARROW_RIGHT)
    # each step leads to another place, also past those that share one
    assert len(set(heard)) == 8
    assert all(re.match(r"[\d.]+\s*ms, ", one) for one in heard)
    assert "Pareto set: from" in browser.js(
        "return document.querySelector('[data-chart=tried] .plot').getAttribute('aria-label')"
    )
    # a choice among the parameters that are words
    browser.js(
        """const s = document.querySelector('#parameters [data-chart=parameter-throughput] select');
        s.value = [...s.options].findIndex((o) => o.textContent.endsWith('congestion_control'));
        s.dispatchEvent(new Event('change'));"""
    )
    browser.js("document.querySelector('[data-chart=parameter-throughput] .plot').focus()")
    browser.press(Keys.END)
    assert re.match(
        "(bbr|reno), Screening",
        browser.js(
            "return document.querySelector('[data-chart=parameter-throughput] [aria-live]').textContent"
        ),
    )


def test_what_was_tried_sorts_by_keyboard(browser: Browser, folder: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open((folder / "one.html").as_uri() + "?lang=en")
    column = (
        "return [...document.querySelectorAll('#tried tbody tr')].map((r) => Number(r.cells[1].dataset.s))"
    )
    before = browser.js(column)
    browser.js("document.querySelectorAll('#tried thead button')[1].focus()")
    browser.press(Keys.ENTER)
    assert [x for x in browser.js(column) if x is not None] == sorted(x for x in before if x is not None)


@pytest.mark.parametrize("width", [360, 1600])
def test_no_sideways_scrolling(browser: Browser, folder: Path, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.open((folder / "two.html").as_uri() + "?lang=ko")
        browser.wait("document.querySelector('[data-chart=tried] canvas')")
        wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.js(wider) == 0
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_hostile_names_do_nothing(browser: Browser, tmp_path: Path, studies: list[dict[str, Any]]) -> None:
    evil = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>"
    changed = json.loads(json.dumps(studies[:2]).replace("net.core.somaxconn", json.dumps(evil)[1:-1]))
    (tmp_path / "evil.html").write_text(render(changed), encoding="utf-8")
    browser.open((tmp_path / "evil.html").as_uri())
    assert browser.js("return window.pwned") is None
    assert browser.js("return document.querySelectorAll('img').length") == 0
    assert browser.complaints() == []


def test_winning_values_are_shown_and_copied(
    browser: Browser, folder: Path, studies: list[dict[str, Any]]
) -> None:
    setting = studies[1]["result"]["proofs"][0]["setting"]
    browser.open((folder / "one.html").as_uri() + "?lang=en")
    rows = browser.js(
        "return [...document.querySelectorAll('#winner-0 tbody tr')].map((r) => [...r.cells].map((c) => c.textContent.trim()))"
    )
    assert {name: value for name, _, value in rows} == {name: str(v) for name, v in setting.items()}
    browser.driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    copied = []
    for name in ("sysctl", "command"):
        browser.js("document.querySelector(`[data-copy='winner-0-${arguments[0]}']`).click()", name)
        browser.wait(f"document.querySelector('[data-copy=winner-0-{name}] ~ .said').textContent")
        copied.append(
            browser.driver.execute_async_script(
                "const done = arguments[0]; navigator.clipboard.readText().then(done, (e) => done(String(e)))"
            )
        )
    conf, command = copied
    assert f"net.ipv4.tcp_congestion_control = {setting['net.ipv4.tcp_congestion_control']}\n" in conf
    # a simulation proves nothing of a machine
    assert command == f"sudo netdyno tune apply {studies[1]['name']} --unproven\n"
    assert "on a simulation" in browser.js("return document.querySelector('#winner-0 .under').textContent")


def test_lines_of_sysctl_conf() -> None:
    setting = {
        "net.core.somaxconn": 8192,
        "net.ipv4.tcp_wmem.max": 67108864,
        "net.ipv4.tcp_rmem.default": 262144,
        "net.ipv4.ip_local_port_range.low": 1024,
        "dev.eth0.gro_flush_timeout": 20000,
    }
    text = proposed_setting.sysctl_conf("x", setting, {"net.ipv4.ip_local_port_range.high": 61000})
    assert text.splitlines() == [
        "# netdyno: x",
        "net.core.somaxconn = 8192",
        "# dev.eth0.gro_flush_timeout = 20000 belongs to a device: netdyno tune apply sets it",
        "net.ipv4.tcp_wmem = 4096 16384 67108864",
        # how large the third is by itself depends on the memory
        "# net.ipv4.tcp_rmem.default = 262144: the other numbers of net.ipv4.tcp_rmem differ from machine to machine",
        "net.ipv4.ip_local_port_range = 1024 61000",
    ]


def test_a_null_result_is_grey(studies: list[dict[str, Any]]) -> None:
    null = json.loads(json.dumps(studies[1]))
    null["result"]["proven"] = False
    for proof in null["result"]["proofs"]:
        proof |= {"proven": False, "verdict": "no effect"}
        for counter in proof["comparison"]["counters"]:
            counter["a"] = 0.0
    page = explorer.build([null])
    assert page.state == "same"
    assert "\u2068throughput\u2069: the baseline never hit this limit." in [one.plain() for one in page.said]
    null["result"]["proofs"][0]["comparison"]["counters"][0]["a"] = 3.0
    assert not any("never hit" in one.plain() for one in explorer.build([null]).said)
    null["result"]["proofs"][0]["verdict"] = "worse"
    assert explorer.build([null]).state == "fail"


def test_it_says_what_is_proven_and_what_is_not(studies: list[dict[str, Any]]) -> None:
    screened, one, _ = studies
    page = explorer.build([screened, one])
    assert page.verdict.id == "Proven better"
    assert page.trade is not None
    assert [row[0].text for row in page.trade.rows] == [Data(name) for name in one["result"]["metrics"]]
    assert all(
        row[1].sort == one["result"]["baseline"]["values"][str(row[0].sort)] for row in page.trade.rows
    )
    luck = json.loads(json.dumps(one))
    luck["result"]["proven"] = luck["result"]["proofs"][0]["proven"] = False
    luck["result"]["proofs"][0]["verdict"] = "invalid"
    page = explorer.build([luck])
    assert page.verdict.id == "Unequal discards"
    assert "invalid: unequal discards" in page.said[1].plain()
    few = json.loads(json.dumps(one))
    few["result"]["proven"] = few["result"]["proofs"][0]["proven"] = False
    few["result"]["proofs"][0]["verdict"] = "too few pairs"
    few["result"]["proofs"][0]["comparison"]["lost"] = {"steal": 4}
    few["result"]["tried"][1] |= {"lost": True, "gains": {}, "feasible": False}
    page = explorer.build([few])
    assert page.verdict.id == "Too few pairs"
    assert "1 were disturbed" in page.said[0].plain()
    assert "lost to \u2068steal\u2069" in page.said[2].plain()
    assert page.tried is not None
    assert page.tried.rows[1][-2].sort is None
    luck["result"]["proofs"] = []
    assert explorer.build([luck]).verdict.id == "Nothing better"
    assert explorer.build([screened]).lead.plain().startswith(str(len(screened["result"]["survivors"])))
