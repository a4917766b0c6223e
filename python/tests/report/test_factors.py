"""An experiment's metrics over its factors: the data, and the plots in a real Chromium."""

from __future__ import annotations

import copy
import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.core.result import Result
from netdyno.report.factor_charts import factor_charts, notes, places, short
from netdyno.report.factors import document, factors, rows_csv
from netdyno.report.render import render
from netdyno.stats.estimate import positive_interval
from netdyno.stats.metric import GroupMetric
from tests.report.conftest import Browser
from tests.report.test_browser import speaks_both

DEVICES, PATH = "profile.groups.web.devices", "profile.groups.web.model.http.path"
P99 = "web.delay.request.p99"


@pytest.fixture(scope="module")
def varied(result: dict[str, Any]) -> dict[str, Any]:
    """Two factors; the delay doubles with each level of the first, and the large path takes thrice as long."""
    made = copy.deepcopy(result)
    first = made["legs"][0]
    made["legs"] = []
    for i, devices in enumerate((10, 40, 160)):
        for path in ("/small", "/large"):
            leg = copy.deepcopy(first)
            leg |= {
                "name": f"http@devices={devices},path={path}",
                "levels": {DEVICES: devices, PATH: path},
            }
            for n, rep in enumerate(leg["repetitions"]):
                rep["series"] = rep["series"][:3]
                web = next(g for g in rep["groups"] if g["name"] == "web")
                web["delays"]["request"]["p99"] = round(
                    1e6 * 2**i * (3 if path == "/large" else 1) * (1 + 0.1 * n)
                )
            made["legs"].append(leg)
    at = {"bound": 5e6, "kind": "max", "value": 1e7, "n": 2, "passed": False}
    made["thresholds"] = [{"leg": leg["name"], "metric": P99, **at} for leg in made["legs"]]
    return made


def test_data_over_the_factors(varied: dict[str, Any]) -> None:
    found = factors(Result.model_validate(varied))
    assert found is not None
    assert found.levels == {DEVICES: [10, 40, 160], PATH: ["/small", "/large"]}
    assert str(found.metrics[0]) == P99
    rows = list(csv.DictReader(io.StringIO(rows_csv(found))))
    assert len(rows) == 6 * 2
    assert (rows[2]["leg"], rows[2][DEVICES], rows[2][PATH], rows[2]["repetition"]) == (
        "http",
        "10",
        "/large",
        "1",
    )
    assert float(rows[2][P99]) == 3e6
    made = json.loads(json.dumps(document(found)))
    cell = next(v for v in made["variants"] if v["levels"] == {DEVICES: 40, PATH: "/small"})["metrics"][P99]
    assert cell["values"] == [2e6, 2.2e6]
    mean, interval = positive_interval([2e6, 2.2e6])
    assert (cell["mean"], cell["interval"]) == (mean, list(interval or ()))


def test_repetitions_that_are_not_valid_do_not_count(varied: dict[str, Any]) -> None:
    changed = copy.deepcopy(varied)
    changed["legs"][0]["repetitions"][1]["validity"]["valid"] = False
    found = factors(Result.model_validate(changed))
    assert found is not None
    cell = found.variants[0].cells[P99]
    assert [v for _, v in cell.values] == [1e6]
    assert cell.interval is None
    said = [note.plain() for note in notes(found) if note]
    assert said == ["1 of 12 repetitions are not valid and left out."]


def test_one_plot_for_each_factor_with_the_others_as_lines(varied: dict[str, Any]) -> None:
    result = Result.model_validate(varied)
    found = factors(result)
    assert found is not None
    devices, path = factor_charts(found, result)
    view = devices["views"][0]
    assert view["x"] == [10, 40, 160]
    assert view["ticks"] == ["10", "40", "160"]
    assert (view["xlog"], view["even"], view["unit"]) == (True, False, "ns")
    assert [one["label"]["d"] for one in view["lines"]] == ["path /small", "path /large"]
    assert view["lines"][1]["values"] == pytest.approx([3e6 * 2**i * math.sqrt(1.1) for i in range(3)])
    assert view["lines"][0]["dots"][0] == [1e6, 1.1e6]
    assert view["limit"]["value"] == 5e6
    assert path["views"][0]["even"]
    assert len(path["views"][0]["lines"]) == 3


def test_no_plot_without_a_factor(result: dict[str, Any], varied: dict[str, Any]) -> None:
    assert factors(Result.model_validate(result)) is None
    assert factors(Result.model_validate(varied | {"legs": varied["legs"][:1]})) is None


def test_places_of_levels() -> None:
    assert places(["10ms", "1s", "100ms"]).at == [10e6, 1e9, 100e6]
    assert places(["10ms", "1s", "100ms"]).log
    assert not places([10, 20, 30]).log
    assert places([True, False]).even
    assert places([{"delay": "10ms", "loss": "1%"}, None]).ticks == ["delay 10ms, loss 1%", "None"]
    assert places(["1s", "1000ms"]).even  # written twice: they cannot share a place
    among = ["duts.a.workers", "duts.b.workers", "trial.load"]
    assert [short(p, among) for p in among] == ["a.workers", "b.workers", "load"]
    assert GroupMetric.parse(P99).unit == "ns"


def test_the_plots_are_drawn_chosen_and_spoken(
    browser: Browser, tmp_path: Path, varied: dict[str, Any]
) -> None:
    from selenium.webdriver.common.keys import Keys

    (tmp_path / "report.html").write_text(render(varied), encoding="utf-8")
    metrics = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.open((tmp_path / "report.html").as_uri() + "?lang=en")
        browser.wait("document.querySelectorAll('#factors canvas').length === 2")
        wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.js(wider) == 0
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    speaks_both(browser)
    browser.js("document.querySelector('[data-chart=factor-0] .plot').focus()")
    browser.press(Keys.END)
    said = browser.js("return document.querySelector('[data-chart=factor-0] [aria-live]').textContent")
    assert said.startswith("160, path /small 4.20\u202fms")
    browser.js("document.querySelector('[data-chart=factor-0] details').open = true")
    browser.wait("document.querySelector('[data-chart=factor-0] td')")
    row = browser.js(
        "return [...document.querySelectorAll('[data-chart=factor-0] tbody tr')].map((r) => r.cells[1].textContent)"
    )
    assert row[0].startswith("1.05\u202fms (")
    before = browser.js("return document.querySelector('[data-chart=factor-0] canvas').toDataURL()")
    browser.js(
        """const s = document.querySelector('[data-chart=factor-0] select');
        s.value = 1; s.dispatchEvent(new Event('change'));"""
    )
    assert browser.js("return document.querySelector('[data-chart=factor-0] canvas').toDataURL()") != before
    assert browser.complaints() == []


def test_the_command_writes_both(
    varied: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(varied), encoding="utf-8")
    for name in ("by.csv", "by.json"):
        assert app.call(["report", str(path), "--factors", str(tmp_path / name)]) == 0
    assert (tmp_path / "by.csv").read_text().startswith(f"leg,{DEVICES},{PATH},repetition,{P99}")
    assert len(json.loads((tmp_path / "by.json").read_text())["variants"]) == 6
    assert app.call(["report", str(path), "--factors", str(tmp_path / "by.txt")]) == 104
    path.write_text(json.dumps(varied | {"legs": varied["legs"][:1]}), encoding="utf-8")
    assert app.call(["report", str(path), "--factors", str(tmp_path / "no.csv")]) == 104
    assert "no factor with two levels" in capsys.readouterr().err
