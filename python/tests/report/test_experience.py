"""The page of an experience, of a judgement and of a proposal, in a real Chromium."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli.app import call
from netdyno.report import units
from netdyno.tuning import service
from netdyno.tuning.pages import experience as page
from netdyno.tuning.recommend import Context, Experience, judge, recommend
from tests.report.conftest import Browser
from tests.report.test_browser import language, speaks_both

WHEN = "2026-01-02T03:04:05+00:00"
NAMES = r"iperf3-tcp \d+|bbr|buffers|net\.[\w.]+|throughput|AMD EPYC|experience|recommend|rtt|rate|udp|connects|drops"


def features(i: int) -> dict[str, float]:
    return {"rtt": 0.01 * i, "rate": 1e6 * i, "udp": 0.0, "connects": 1.0, "drops": 0.0}


KNOWN = Experience(
    {"cpu": {"model": "AMD EPYC", "cores": 2}, "kernel": "6.18"},
    {"bbr": {"net.ipv4.tcp_congestion_control": "bbr"}, "buffers": {"net.ipv4.tcp_wmem.max": 1 << 25}},
    tuple(
        Context(
            f"iperf3-tcp {i}",
            features(i),
            "throughput",
            {"bbr": [0.5 + i / 50, 0.52], "buffers": [-0.1, -0.12] if i % 4 else []},
        )
        for i in range(1, 21)
    ),
)


def proposed(of: dict[str, float]) -> dict[str, Any]:
    return {**recommend(KNOWN, of).document(), "features": of, "units": {"rtt": "s", "udp": "ratio"}}


def render(**more: Any) -> str:
    return page.render(asdict(KNOWN), WHEN, **more)


PAGES = {
    "judged": {"judgement": judge(KNOWN).document()},
    "proposed": {"proposal": proposed(features(9))},
    "unlike": {"proposal": proposed(features(9) | {"udp": 1.0, "drops": 1e6})},
}


@pytest.mark.parametrize(("name", "drawn"), [("judged", 0), ("proposed", 2), ("unlike", 0)])
def test_opens_without_complaint_and_draws_what_there_is(
    browser: Browser, tmp_path: Path, name: str, drawn: int
) -> None:
    (tmp_path / "page.html").write_text(render(**PAGES[name]), encoding="utf-8")
    address = (tmp_path / "page.html").as_uri() + "?lang=en"
    browser.open(address)
    browser.wait("document.querySelectorAll('.chart canvas').length === 1")
    spoken = browser.js("return document.querySelector('.chart .plot').getAttribute('aria-label')")
    assert re.search(r"bbr\W+from", spoken) and re.search(r"buffers\W+from", spoken)
    bullets = browser.js("return [...document.querySelectorAll('svg.bullet')].map((s) => s.classList[1])")
    assert bullets == ["good", "bad"][:drawn]
    assert browser.complaints() == []
    assert [u for u in browser.requests() if not u.startswith(("data:", "blob:"))] == [address]


@pytest.mark.parametrize("name", PAGES)
def test_every_text_changes_with_the_language_and_fits(browser: Browser, tmp_path: Path, name: str) -> None:
    (tmp_path / "page.html").write_text(render(**PAGES[name]), encoding="utf-8")
    metrics = {"width": 360, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.open((tmp_path / "page.html").as_uri() + "?lang=en")
        browser.wait("document.querySelector('.chart canvas')")
        speaks_both(browser, NAMES)
        language(browser, "ko")
        wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.js(wider) == 0
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def build(**more: Any) -> page.ExperiencePage:
    return page.build(asdict(KNOWN), WHEN, **more)


def test_it_says_what_is_known() -> None:
    assert [build(**PAGES[name]).verdict.id for name in PAGES] == [
        "Not shown to be better than the best single setting", "Proposed", "Nothing is proposed"
    ]  # fmt: skip
    beaten = json.loads(json.dumps(PAGES["judged"]["judgement"])) | {"beats": True}
    assert build(judgement=beaten).verdict.id == "Better than any single setting"
    worse = beaten | {"beats": False, "worse": True}
    assert build(judgement=worse).verdict.id == "Worse than the best single setting"
    unknown = proposed({k: v for k, v in features(9).items() if k != "rtt"})
    assert build(proposal=unknown).lead.id.startswith("The round-trip time or the rate is unknown")
    found = build(**PAGES["proposed"])
    assert found.expected and found.nearest
    (bbr, buffers), (_, down) = found.expected.rows, found.intervals
    assert str(bbr[1].text).startswith("+")
    assert down is not None and down.high < 50
    assert str(buffers[1].text).startswith("-")
    # as far as the service has them, beside the three that it is like
    assert [len(row) for row in found.nearest.rows] == [5] * 5
    shown = [row[1].text for row in found.nearest.rows[:3]]
    assert shown == [units.duration(9e7), units.count(9e6), units.percent(0)]
    # the values of what is proposed, to copy; where nothing is, there are none
    setting = PAGES["proposed"]["proposal"]["setting"]
    (one,) = found.winning
    values = service.find_setting(setting).values
    assert [row[0].sort for row in one.table.rows] == list(values)
    assert found.copies["winner-0-command"]["en"] == f"sudo netdyno tune apply {setting}\n"
    assert build(**PAGES["unlike"]).winning == []
    doubtful = json.loads(json.dumps(PAGES["proposed"]["proposal"]))
    doubtful["expected"][0]["interval"] = [-0.1, 1.0]
    assert build(proposal=doubtful).verdict.id == "Proposed, with doubt"
    doubtful["expected"][0]["interval"] = None
    (unsure, *_) = build(proposal=doubtful).intervals
    assert unsure is not None and unsure.mark == "doubt"
    none = doubtful | {"setting": "", "why": "no"}
    assert build(proposal=none).lead.id.startswith("No setting is expected")
    known = build().known
    assert known and [cell.mark for cell in known.rows[0]][2:] == ["good", "bad"]
    assert [cell.sort for cell in known.rows[3]][3] is None, "what was not measured is not zero"
    gains = next(d for d in build().downloads if d.name == "gains.csv").text.splitlines()
    assert len(gains) == 1 + 20 * 2 + 15 * 2


def test_hostile_names_do_nothing(browser: Browser, tmp_path: Path) -> None:
    evil = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>"
    changed = json.loads(json.dumps(asdict(KNOWN)).replace("iperf3-tcp 1", json.dumps(evil)[1:-1]))
    (tmp_path / "evil.html").write_text(page.render(changed, WHEN), encoding="utf-8")
    browser.open((tmp_path / "evil.html").as_uri())
    assert browser.js("return window.pwned") is None
    assert browser.js("return document.querySelectorAll('img').length") == 0
    assert browser.complaints() == []


def test_the_verb_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    KNOWN.write(tmp_path / "known.json")
    to = tmp_path / "judged.html"
    words = ["tune", "recommend", "--judge", "--experience", str(tmp_path / "known.json"), "--html", str(to)]
    assert call(words) == 0
    assert "Not shown to be better than the best single setting" in to.read_text(encoding="utf-8")
    assert f"page: {to}" in capsys.readouterr().err.replace("\n", "")
