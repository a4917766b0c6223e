"""The page of two runs, made by the command and looked at in a real Chromium."""

from __future__ import annotations

import copy
import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.core.result import Result
from netdyno.report import runs
from netdyno.stats import unpaired
from netdyno.stats.metric import GroupMetric
from netdyno.stats.runs import pair
from netdyno.store.store import find_result
from tests.report.conftest import Browser
from tests.report.test_browser import language, speaks_both

P99, RATE = "web.delay.request.p99", "web.messages_delivered.rate"


def drawn(
    result: dict[str, Any], name: str, median: float, *, rate: float = 1200, n: int = 5
) -> dict[str, Any]:
    """One leg, repeated, whose delay and throughput vary by 2 % around what is asked for."""
    draw = random.Random(name)
    made = copy.deepcopy(result) | {"id": name, "thresholds": [], "verdict": "none"}
    leg = made["legs"][0]
    first = leg["repetitions"][0] | {"series": []}
    leg["repetitions"] = [copy.deepcopy(first) for _ in range(n)]
    for i, rep in enumerate(leg["repetitions"], 1):
        rep["index"] = i
        web = next(g for g in rep["groups"] if g["name"] == "web")
        web["delays"] = {
            "request": web["delays"]["request"] | {"p99": round(median * draw.lognormvariate(0, 0.02))}
        }
        web["rates"]["messages_delivered"] = rate * draw.lognormvariate(0, 0.001)
    made["legs"] = [leg]
    return made


def built(a: dict[str, Any], b: dict[str, Any]) -> runs.Runs:
    first, second = Result.model_validate(a), Result.model_validate(b)
    legs = []
    for x, y in pair(first, second):
        values = [
            {m: [GroupMetric.parse(m).of(r) or 0.0 for r in leg.repetitions] for m in (P99, RATE)}
            for leg in (x, y)
        ]
        legs.append(
            (x, y, unpaired.compare_all(*values, {P99: True, RATE: False}, 0.05, {P99: "ns", RATE: "/s"}))
        )
    return runs.build(first, second, legs, [], [], 0.05)


def test_each_outcome_has_its_words_and_colour(result: dict[str, Any]) -> None:
    a = drawn(result, "a", 5e6)
    for b, state, word in (
        (drawn(result, "b", 4e6), "pass", "Better"),
        (drawn(result, "b", 6e6), "fail", "Worse"),
        (drawn(result, "b", 4e6, rate=900), "invalid", "A trade-off"),
        (drawn(result, "b", 5e6), "same", "No difference shown"),
        (drawn(result, "b", 5e6, n=1), "invalid", "No claim"),
        (drawn(result, "b", 4e6) | {"valid": False}, "invalid", "Not valid"),
    ):
        page = built(a, b)
        assert (page.state, page.verdict.id) == (state, word)
    same = built(a, a)
    assert [note.plain() for note in same.notices] == ["Both are the same run."]


def test_what_differs_stands_first_with_its_numbers(result: dict[str, Any]) -> None:
    page = built(drawn(result, "a", 5e6), drawn(result, "b", 4e6))
    (side,) = page.sides
    (row,) = side.differing.table.rows
    assert row[0].sort == P99
    assert row[3].sort == pytest.approx(-0.2, abs=0.03)
    (interval,) = side.differing.intervals
    assert interval is not None
    assert interval.mark == "good"
    assert interval.low < interval.at < interval.high < 50
    assert [r[0].sort for r in side.others.table.rows] == [RATE]
    assert page.said[0].plain().endswith("% (better)")
    values = next(d for d in page.downloads if d.name == "repetitions.csv")
    assert len(list(csv.DictReader(io.StringIO(values.text)))) == 2 * 2 * 5
    document = json.loads(next(d for d in page.downloads if d.name == "comparison.json").text)
    assert document["legs"]["iot mixed"][0]["metric"] == P99


def test_the_command_writes_a_page_that_opens(
    browser: Browser, result: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, median in (("a", 5e6), ("b", 6.5e6)):
        (tmp_path / f"{name}.json").write_text(json.dumps(drawn(result, name, median)), encoding="utf-8")
    page = tmp_path / "comparison.html"
    both = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    assert app.call(["compare", *both, "--html", str(page)]) == 0
    assert find_result(both[0]).id == "a"
    browser.open(page.as_uri() + "?lang=en")
    browser.wait("document.querySelector('.chart canvas')")
    assert browser.js("return document.querySelector('#verdict-word').textContent") == "Worse"
    assert browser.js("return document.querySelectorAll('details.folded[open]').length") == 0
    assert browser.complaints() == []
    assert [u for u in browser.requests() if not u.startswith(("data:", "blob:"))] == [
        page.as_uri() + "?lang=en"
    ]
    browser.js("document.querySelectorAll('details').forEach((d) => d.open = true)")
    speaks_both(browser, r"\b(?:iot|mixed|web|request|probe|sensors|Welch|Holm)\b")
    metrics = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        language(browser, "ko")
        wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.js(wider) == 0
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_hostile_names_do_nothing(browser: Browser, result: dict[str, Any], tmp_path: Path) -> None:
    evil = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>"
    for name, median in (("a", 5e6), ("b", 6.5e6)):
        made = drawn(result, name, median) | {"name": evil}
        made["legs"][0]["name"] = evil
        (tmp_path / f"{name}.json").write_text(json.dumps(made), encoding="utf-8")
    page = tmp_path / "comparison.html"
    both = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    assert app.call(["compare", *both, "--html", str(page)]) == 0
    browser.open(page.as_uri())
    assert browser.js("return window.pwned") is None
    assert browser.js("return document.querySelectorAll('img').length") == 0
    assert browser.complaints() == []
