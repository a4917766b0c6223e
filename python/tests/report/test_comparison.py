"""The page of a comparison and of a paper's tables in a real Chromium, made from trials that are drawn."""

from __future__ import annotations

import json
import random
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from netdyno.experiment.study import Study
from netdyno.report.studies import render
from netdyno.stats.comparison import finite, judge
from netdyno.stats.observation import Metric, Observation
from netdyno.stats.pairs import Pair, both
from netdyno.tuning.calibrate import calibration
from netdyno.tuning.pages import comparison
from tests.report.conftest import Browser
from tests.report.test_browser import language, speaks_both

METRICS = {
    "latency_mean": Metric("latency_mean", "ms", "lower"),
    "throughput": Metric("throughput", "bit/s", "higher"),
    "loss": Metric("loss", "ratio", "lower", zero_is_best=True),
}
NAMES = "baseline|paper-latency|TcpExt\\w+|net\\.[\\w.]+|latency_mean|throughput|loss|wrk|Table|what it does"


def drawn(faster: float, overflows: float, seed: int) -> list[Pair]:
    draw = random.Random(seed)

    def one(factor: float, count: float) -> Observation:
        metrics = {"latency_mean": 5 * draw.lognormvariate(0, 0.02) / factor,
                   "throughput": 1e9 * draw.lognormvariate(0, 0.02), "loss": count / 1e4}  # fmt: skip
        return Observation({}, metrics, {"TcpExtListenOverflows": count})

    return [(one(1, overflows), one(faster, 0)) for _ in range(8)]


def compared() -> dict[str, Any]:
    pairs = drawn(1.5, 120, 1)
    noise = calibration("wrk", drawn(1, 0, 2), METRICS)
    found = judge(pairs, METRICS, ["TcpExtListenOverflows"], noise=noise.noise_by_metric).as_dict()
    for one in found["metrics"]:
        one["pairs"] = both(pairs, one["metric"]["name"])
    sides = {"a": {"name": "baseline", "setting": {}, "left_out": {}},
             "b": {"name": "paper-latency", "setting": {"net.core.somaxconn": 8192}, "left_out": {"net.core.busy_poll": "is missing"}}}  # fmt: skip
    race = [{"name": "paper-latency", "candidate": 0, "blocks": 2, "gain": 0.1, "left": None}]
    result = {"bench": "wrk", **sides, "calibration": noise.as_dict(), **found, "race": race}
    return Study.of("compare", "wrk", {}).finish("run", result, [], [])


def tables() -> dict[str, Any]:
    pairs = drawn(0.7, 0, 3)
    found = judge(pairs, METRICS, ["TcpExtListenOverflows"])
    rows = [
        {"bench": "wrk", "metric": one.metric.name, "paper": "5 → 4 ms", "finding": finite(asdict(one)),
         "pairs": both(pairs, one.metric.name)}
        for one in found.findings
    ]  # fmt: skip
    rows.append({"bench": "wrk", "metric": "jitter", "paper": "", "finding": None, "pairs": []})
    one = {"name": "Table 7", "about": "what it does", "setting": "paper-latency", "rows": rows,
           "counters": {"wrk": found.as_dict()["counters"]}}  # fmt: skip
    result = {"load": 0.08, "length": 0.1, "repeat": 8, "left_out": [], "tables": [one]}
    return Study.of("reproduce", "paper", {}).finish("run", result, [], [])


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path))
    made = {}
    for name, study in (("compare", compared()), ("tables", tables())):
        made[name] = tmp_path / f"{name}.html"
        made[name].write_text(render([study]), encoding="utf-8")
    return made


@pytest.mark.parametrize(("name", "charts"), [("compare", 3), ("tables", 3)])
def test_opens_without_complaint_and_draws_each_pair(
    browser: Browser, pages: dict[str, Path], name: str, charts: int
) -> None:
    address = pages[name].as_uri() + "?lang=en"
    browser.open(address)
    browser.wait(f"document.querySelectorAll('.chart canvas').length === {charts}")
    # of each side a point for each pair
    spoken = browser.js("return document.querySelector('.chart .plot').getAttribute('aria-label')")
    assert re.search(r"baseline\W+from", spoken)
    assert re.search(r"paper-latency\W+from", spoken)
    drawn = browser.js(
        "return [...document.querySelectorAll('svg.bullet')].map((s) => s.getAttribute('class'))"
    )
    assert {one.split()[1] for one in drawn} <= {"good", "bad", "doubt"}
    assert len(drawn) == {"compare": 3, "tables": 2}[name]
    assert browser.complaints() == []
    assert [u for u in browser.requests() if not u.startswith(("data:", "blob:"))] == [address]


@pytest.mark.parametrize("name", ["compare", "tables"])
def test_every_text_changes_with_the_language_and_fits(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    metrics = {"width": 360, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.open(pages[name].as_uri() + "?lang=en")
        browser.wait("document.querySelector('.chart canvas')")
        speaks_both(browser, NAMES)
        language(browser, "ko")
        wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.js(wider) == 0
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_it_says_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path))
    study = compared()
    page = comparison.build(study)
    assert page.verdict.id == "Proven better"
    (block,) = page.blocks
    latency = next(row for row in block.table.rows if row[0].sort == "latency_mean")
    assert [str(cell.sort)[:4] for cell in latency[-2:-1]] == ["bett"]
    drawn = next(one for one, row in zip(block.intervals, block.table.rows, strict=True) if row is latency)
    # half of it gone stands left of the middle, and what could not have been seen around it
    assert drawn is not None and drawn.unseen is not None
    assert drawn.high < drawn.unseen[0] < 50 < drawn.unseen[1]
    assert block.counters.rows[0][-1].sort == 1
    raw = next(d for d in page.downloads if d.name.endswith(".csv"))
    assert len(raw.text.splitlines()) == 1 + 3 * 8
    assert [one.title.plain() for one in page.winning] == ["Best for \u2068latency_mean, loss\u2069"]
    # what the baseline has is not known where it is what the machine has
    assert [str(column.label.id) for column in page.winning[0].table.columns] == ["Parameter", "Value"]
    null = json.loads(json.dumps(study))
    for one in null["result"]["metrics"]:
        one["verdict"] = "no effect"
    grey = comparison.build(null)
    assert (grey.state, grey.verdict.id) == ("same", "No difference shown")
    assert "never hit" not in grey.lead.plain()
    for counter in null["result"]["counters"]:
        counter["a"] = 0.0
    assert comparison.build(null).lead.id.endswith("the baseline never hit this limit.")
    worse = json.loads(json.dumps(study))
    for one in worse["result"]["metrics"]:
        one["verdict"] = "worse" if one["verdict"] == "better" else one["verdict"]
    page_of_worse = comparison.build(worse)
    assert page_of_worse.verdict.id == "Worse"
    assert not page_of_worse.winning and not page_of_worse.copies
    worse["result"]["metrics"][0]["verdict"] = "better"
    assert comparison.build(worse).verdict.id == "A trade-off"
    assert comparison.build(worse).winning
    none = comparison.build(tables())
    table = none.blocks[0].table
    finding = [column.label for column in table.columns].index(comparison.M("Finding"))
    assert table.rows[-1][finding].text == comparison.M("too few pairs")
    assert none.blocks[0].intervals[-1] is None
    assert not any("the means say otherwise" in one.plain() for one in page.said)
    far = json.loads(json.dumps(study))
    effect = next(m for m in far["result"]["metrics"] if m["metric"]["name"] == "latency_mean")["effect"]
    effect["b"] = 2 * effect["a"]
    said = [one.plain() for one in comparison.build(far).said]
    assert "\u2068latency_mean\u2069: the means say otherwise, as a few trials are far off." in said
    few = json.loads(json.dumps(study))
    few["result"] |= {"dropped": 4, "lost": {"steal": 4}, "again": {"steal": 16}}
    for one in few["result"]["metrics"]:
        one["verdict"], one["effect"]["interval"] = "too few pairs", None
    page = comparison.build(few)
    assert page.verdict.id == "Too few pairs"
    said = [one.plain() for one in page.said]
    assert "4 pairs lost to \u2068steal\u2069." in said
    assert "16 trials measured again, lost to \u2068steal\u2069." in said


def test_hostile_names_do_nothing(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    evil = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>"
    changed = json.loads(json.dumps(compared()).replace("paper-latency", json.dumps(evil)[1:-1]))
    (tmp_path / "evil.html").write_text(render([changed]), encoding="utf-8")
    browser.open((tmp_path / "evil.html").as_uri())
    assert browser.js("return window.pwned") is None
    assert browser.js("return document.querySelectorAll('img').length") == 0
    assert browser.complaints() == []
