import json
from pathlib import Path
from typing import Any

import pytest

from netdyno import paths
from netdyno.cli import summary
from netdyno.core import defaults, models, totals
from netdyno.core.daemon import Daemon
from netdyno.core.result import Repetition
from netdyno.core.wire import Counts, GroupResult, Index, PhaseLengths, TrialResult
from netdyno.export.prometheus import Exporter
from netdyno.report import model_table
from netdyno.stats.metric import GroupMetric
from netdyno.stats.summary import summarise


@pytest.fixture(autouse=True)
def _forget() -> Any:
    yield
    models._learned.clear()


@pytest.mark.daemon
def test_the_shipped_description_is_the_cores_own(tmp_path: Path) -> None:
    with Daemon(tmp_path / "nd-models.sock", tmp_path / "log") as daemon, daemon.connect() as client:
        about = client.call("core.describe")
    shipped = json.loads((paths.data("schema") / "models.json").read_text())
    assert {key: about[key] for key in shipped} == shipped


def test_another_cores_models_are_learnt_and_strangers_have_no_properties() -> None:
    models.learn({"version": "0"})
    assert models.find("http").counters
    quick = {"messages": "ms", "device": "d", "count": "n", "interval": "i", "size": {"key": "s"}}
    models.learn({"models": [{"name": "new", "schemes": [{"name": "new", "port": 9}], "quick": quick}]})
    assert list(models.quick()) == ["new"]
    stranger = models.find("http")
    assert (stranger.name, stranger.schemes, stranger.quick, stranger.is_counted) == ("http", [], None, True)


def test_an_index_follows_from_counters() -> None:
    index = Index(name="ser", over=["ok"], under=["asked"], less=["redirected"])
    assert index.of(Counts(ok=80, asked=110, redirected=10)) == 0.8  # type: ignore[call-arg]
    assert index.of(Counts()) is None


def trial() -> TrialResult:
    measured = Counts.model_validate({"messages_sent": 4, "responses_2xx": 3, "responses_5xx": 1})
    group = GroupResult(name="web", protocol="http", measured=measured, indices={"server_errors": 0.25})
    return TrialResult(run="r", groups=[group], phases=PhaseLengths(measure=2.0))


@pytest.mark.parametrize(
    ("metric", "value", "unit", "smaller"),
    [("web.counts.responses_5xx", 1, "count", True), ("web.counts.responses_2xx.rate", 1.5, "/s", False),
     ("web.counts.connections", None, "count", None), ("web.index.server_errors", 0.25, "ratio", True),
     ("web.index.nothing", None, "ratio", None), ("web.messages_delivered", 0, "count", False)],
)  # fmt: skip
def test_metrics_of_a_model_are_found_in_results(
    metric: str, value: float | None, unit: str, smaller: bool | None
) -> None:
    found = GroupMetric.parse(metric)
    assert (found.of(trial()), found.unit, found.smaller_is_better) == (value, unit, smaller)
    assert str(found) == metric


def test_counts_of_all_kinds_are_added_up() -> None:
    total = totals.counts([Counts.model_validate({"a": 2}), Counts.model_validate({"a": 3, "b": 1})])
    assert total.own == {"a": 5, "b": 1}
    assert totals.counts([Counts(failures={"reset": 1}), Counts(failures={"reset": 2})]).failures == {
        "reset": 3
    }


def test_prometheus_has_a_models_own_counters_with_help_and_unit() -> None:
    exporter = Exporter()
    exporter.start({"leg": "", "groups": [{"name": "web", "protocol": "http"}]})
    counts = {"messages_sent": 4, "responses_2xx": 3, "responses_5xx": 1}
    exporter.sample({"groups": {"web": {"counts": counts}}})
    exporter.sample({"groups": {"web": {"counts": counts}}})
    text = exporter.text()
    assert 'netdyno_http_responses_5xx_total{group="web",leg=""} 2.0' in text
    assert 'netdyno_http_server_errors_ratio{group="web",leg=""} 0.25' in text
    assert "# HELP netdyno_http_responses_5xx_total Whole responses with a status from 500 on" in text
    assert "Unit: messages" in text


def test_report_and_summary_show_what_a_model_counts_of_its_own() -> None:
    repetition = Repetition.model_validate(trial().model_dump())
    rows = model_table.own(repetition).rows
    assert [row[1].sort for row in rows] == ["responses_2xx", "responses_5xx", "server_errors"]
    assert [row[2].sort for row in rows] == [3, 1, 0.25]
    assert "status from 500 on" in str(rows[1][-1].text)
    (group,) = summarise([repetition, repetition]).groups
    assert (group.measured.own["responses_5xx"], group.indices) == (2, {"server_errors": 0.25})
    assert summary.own(group) == "web: responses_5xx 2, server_errors 25%"


def test_results_of_before_have_none_of_it_and_are_read() -> None:
    group = GroupResult.model_validate({"name": "a", "protocol": "http", "measured": {"messages_sent": 4}})
    old = Repetition(run="r", groups=[group])
    assert (group.measured.own, group.indices, model_table.own(old).rows) == ({}, {}, [])
    (summed,) = summarise([old]).groups
    assert summary.own(summed) == ""
    assert GroupMetric.parse("a.counts.responses_5xx").of(old) is None


def test_phases_and_limits_that_a_profile_does_not_say_are_the_cores() -> None:
    phases = defaults.filled({"phases": {"measure": "4s"}}, "phases")
    assert phases == {"warmup": "2s", "measure": "4s", "drain": "3s", "sample": "1s"}
    assert defaults.filled({"phases": None}, "validity")["offered"] == 0.99
