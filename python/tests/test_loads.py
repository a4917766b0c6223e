"""Runs are ranked only where their intended loads are the same, and a URL can be searched."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.core.result import Leg, Repetition, Result
from netdyno.core.search import SearchReport
from netdyno.core.wire import Counts, Distribution, GroupResult, PhaseLengths, Validity
from netdyno.experiment import quick
from netdyno.experiment.spec import LegSpec
from netdyno.report import factor_charts, factors
from netdyno.report import runs as page
from netdyno.report.verdict import verdict
from netdyno.search.load import axis
from netdyno.stats import runs
from netdyno.stats.summary import summarise
from netdyno.units import seconds


def _run(name: str, rate: float, delay: float, interval: str = "100ms", devices: int = 10) -> Result:
    def one(index: int) -> Repetition:
        spread = delay * (1 + index / 100)
        group = GroupResult(
            name="web", protocol="http", devices=devices,
            measured=Counts(messages_intended=int(rate), messages_delivered=int(rate)),
            rates={"messages_intended": rate, "messages_delivered": rate}, loss=0.0,
            delays={"response": Distribution(count=100, mean=spread, p50=spread, p99=spread, p999=spread)},
        )  # fmt: skip
        profile = {"groups": [{"name": "web", "model": {"http": {"interval": interval}}}]}
        return Repetition(
            run="r", index=index, groups=[group], profile=profile, phases=PhaseLengths(measure=1.0),
            validity=Validity(valid=True),
        )  # fmt: skip

    repetitions = [one(index) for index in range(6)]
    leg = Leg(name="sockets", repetitions=repetitions, summary=summarise(repetitions))
    return Result(id=name, name="web", started="2026-01-01T00:00:00Z", valid=True, legs=[leg])


@pytest.mark.parametrize(
    ("other", "apart"),
    [
        ({"rate": 100.0}, False),
        ({"rate": 103.0}, False),
        ({"rate": 200.0}, True),
        ({"rate": 100.0, "devices": 20}, True),
        # a closed loop has no intended rate: what came of it is what is compared
        ({"rate": 200.0, "interval": "0s"}, False),
    ],
)
def test_runs_of_different_intended_load_are_not_ranked(other: dict[str, Any], apart: bool) -> None:
    interval = other.get("interval", "100ms")
    found = runs.compare(_run("a", 100.0, 1e6, interval), _run("b", delay=2e6, **other))
    delays = [one for one in found.legs["sockets"] if one.metric == "web.delay.response.p99"]
    assert bool(found.loads) is apart
    assert found.worse is not apart
    assert [one.better for one in delays] == ([None] if apart else [False])
    made = page.build(
        found.a, found.b, [(x, y, list(found.legs[x.name])) for x, y in found.paired], [], [], 0.05
    )
    assert (made.verdict.id == "Not comparable") is apart


def test_the_load_of_a_url_is_searched_in_messages_per_second() -> None:
    made = quick.profile(["http://192.0.2.1"], quick.UrlOptions(rate="1000/s"))
    whole = axis(LegSpec(name="leg", profile=made), messages=True)
    assert (whole.unit, whole.most) == ("messages/s", pytest.approx(1000))
    half = whole.at(500, 2.0).profile
    assert isinstance(half, dict)
    (group,) = half["groups"]
    every = group["model"]["http"]["interval"]
    # as many devices, each half as often, and begun evenly over that time
    assert group["devices"] / seconds(every) == pytest.approx(500)
    assert group["load"]["closed"]["ramp"] == every
    assert axis(LegSpec(name="leg", profile=made)).unit == "devices"


@pytest.mark.parametrize(
    ("limit", "lead"),
    [
        ("dut", "The highest load at which every threshold passes."),
        ("offered", "Every threshold passes up to the highest load offered; the limit may be higher."),
        (
            "connections",
            "Every threshold passes up to the load that the connections carry. With more of them the limit may "
            "be higher.",
        ),
    ],
)
def test_the_report_of_a_search_opens_with_what_was_found(limit: str, lead: str) -> None:
    finding = {
        "goal": "thresholds", "words": "all thresholds hold", "load": 1500.0, "limit": limit,
        "stop": "resolution", "trials": 9,
    }  # fmt: skip
    part = {"name": "sockets", "most": 4000.0, "unit": "messages/s", "findings": [finding], "trials": []}
    search = SearchReport.model_validate(
        {
            "kind": "rate", "strategy": "binary", "unit": "messages/s", "valid": True, "parts": [part],
            "resolution": 0.02, "confidence": 0.95, "planned": 6, "seconds": 1.0, "repeat": 2, "notes": [],
        }
    )  # fmt: skip
    said = verdict(Result(id="r", name="n", started="", valid=True, search=search))
    assert "Found: " in said.headline.plain()
    assert "1,500" in said.headline.plain()
    assert said.lead.plain() == lead


def test_plots_over_factors_begin_with_delays_and_are_labelled_in_words() -> None:
    assert factor_charts.words("http.keep_alive") == "http keep alive"
    a, b = _run("a", 100.0, 1e6), _run("b", 100.0, 2e6)
    b.legs[0].name = "other"
    for leg, level in zip((*a.legs, *b.legs), (1, 2), strict=True):
        leg.levels = {"groups.web.max_wait": level}
    both = a.model_copy(update={"legs": [*a.legs, *b.legs]})
    found = factors.factors(both)
    assert found is not None
    assert [metric.kind for metric in found.metrics] == ["delay", "delay", "counter", "loss"]
    (plot,) = factor_charts.factor_charts(found, both)
    assert plot["views"][0]["xlabel"] == {"d": "max wait"}
