"""What is said of a run that is not valid: one line with the limit and three remedies."""

from __future__ import annotations

import re

import pytest

from netdyno.cli import console, summary
from netdyno.core.result import Estimate, FigureWarning, GroupSummary, Leg, Repetition, Result, Summary
from netdyno.core.wire import (
    CauseCount,
    Counts,
    Distribution,
    FailureCount,
    GroupResult,
    PhaseLengths,
    Reason,
    WorkerUsage,
)
from netdyno.stats.remedy import remedy, targets


def _run(
    code: str,
    command: str = "run http://127.0.0.1",
    cpu: float = 0.95,
    delivered: float = 1948.0,
    late: int = 5000,
    starved: float = 0.0,
    steal: float = 0.0,
) -> Result:
    rates = {"messages_intended": 100.0, "messages_sent": 1948.0, "messages_delivered": delivered}
    group = GroupSummary(
        name="http", target="http://127.0.0.1", devices=10, lateness=Distribution(count=late),
        rates={name: Estimate(n=1, mean=rate) for name, rate in rates.items()},
    )  # fmt: skip
    came = GroupResult(
        name="http", total=Counts(messages_sent=9, messages_delivered=round(delivered)), confirmed=True
    )
    worker = WorkerUsage(worker=0, core=1, cpu=cpu, starved=starved)
    repetition = Repetition(
        run="r", workers=[worker], groups=[came], phases=PhaseLengths(measure=4), steal=steal
    )
    reason = Reason.model_validate({"code": code, "group": "http", "leg": "sockets"})
    return Result(
        id="r", name="http", started="", command=["netdyno", *command.split()], reasons=[reason],
        legs=[Leg(name="sockets", repetitions=[repetition], summary=Summary(n=1, groups=[group]))],
    )  # fmt: skip


def test_a_shared_machine_is_named_with_three_remedies() -> None:
    for code in ("ND-90-01", "ND-90-02", "ND-90-03"):
        found = remedy(_run(code), shared=True)
        assert found is not None
        assert "share this machine's cores" in found.limit
        assert len(found.actions) == 3
        assert "--rate 500/s" in found.actions[0]
        assert "off core 1" in found.actions[2]
        assert "\n" not in str(found)


def test_the_remedy_is_in_words_of_the_command_that_was_given() -> None:
    found = remedy(_run("ND-90-03", "run mine.yaml"), shared=False)
    assert found is not None
    assert "--load 0.25" in str(found)
    assert "server" not in str(found)
    found = remedy(_run("ND-90-03", "sip call sip:127.0.0.1"), shared=False)
    assert "lower --rate" in str(found) and "--load" not in str(found)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("code", ["ND-90-01", "ND-90-02"])
def test_cpu_is_named_only_where_it_was_short(code: str, shared: bool) -> None:
    assert "CPU" in str(remedy(_run(code), shared))
    assert "CPU" in str(remedy(_run(code, cpu=0.05, starved=0.15), shared))
    assert "CPU" in str(remedy(_run(code, cpu=0.05, steal=0.06), shared))
    idle = str(remedy(_run(code, cpu=0.05), shared))
    assert not re.search(r"limit: CPU|more cores|off core", idle), idle


def test_calls_before_a_registration_want_a_longer_warm_up() -> None:
    found = _run("ND-90-04", cpu=0.05)
    assert "descriptors" in str(remedy(found, shared=False))
    causes = [CauseCount(cause="called before its registration", count=7, total=7)]
    found.legs[0].repetitions[0].groups[0].errors = [
        FailureCount(kind="local", count=7, total=7, causes=causes)
    ]
    found.reasons[0].value = 8
    assert "descriptors" in str(remedy(found, shared=False)), "something else was lost, too"
    found.reasons[0].value = 7
    assert str(remedy(found, shared=False)).endswith("use a longer warm-up (--warmup)")


@pytest.mark.parametrize("shared", [True, False])
def test_connections_that_are_all_busy_are_the_limit(shared: bool) -> None:
    # Little's law: 10 connections at 20/s are busy 0.5 s each; 100/s need 50, and a tenth for their spread
    said = str(remedy(_run("ND-90-08", cpu=0.005, delivered=20.0), shared))
    assert said == "limit: the connections: 10 connections × 500 ms = 20/s; use --devices 55 or more"
    said = str(remedy(_run("ND-90-08", "run mine.yaml", cpu=0.005, delivered=20.0), shared))
    assert said.endswith("use devices: 55 or more")
    assert str(remedy(_run("ND-90-08", delivered=19.7), shared)).endswith("--devices 56 or more")


def test_a_closed_loop_is_not_told_to_add_a_rate_to_it() -> None:
    # --closed --rate is refused (ND-104-07)
    said = str(remedy(_run("ND-90-03", "run http://127.0.0.1 --closed"), shared=True))
    assert "replace --closed by --rate 500/s" in said


def test_few_messages_are_cured_by_more_of_them() -> None:
    said = str(remedy(_run("ND-90-02", cpu=0.01, late=60), shared=True))
    assert "60 messages" in said
    assert said.endswith("--duration 30s")
    assert "--rate" not in said


@pytest.mark.parametrize("code", ["ND-90-01", "ND-90-02", "ND-90-03", "ND-90-08"])
def test_nothing_delivered_is_cured_by_no_load(code: str) -> None:
    assert remedy(_run(code, delivered=0), shared=True) is None


def test_the_targets_are_those_of_the_groups() -> None:
    assert targets(_run("ND-90-01")) == ["http://127.0.0.1"]


def test_lateness_is_one_line_however_many_figures_it_blurs() -> None:
    delay = Distribution(count=900, p50=1e6, p90=2e6, p95=3e6, p99=1.42e6)
    groups = [GroupSummary(name=name, delays={"response": delay}) for name in ("a", "b")]
    doubts = {
        metric: FigureWarning(metric=metric, group=name, value=value, limit=late, what="")
        for name in ("a", "b")
        for stat, value, late in (("p50", 1e6, 0.3e6), ("p95", 3e6, 1e6), ("p99", 1.42e6, 3.17e6))
        if (metric := f"{name}.delay.response.{stat}")
    }
    said = summary.lateness(groups, doubts)
    assert "\n" not in said
    assert "6 figures marked !" in said
    # more lateness than delay is said in words, and not as 3.17 ms of 1.42 ms
    assert "all of the a response p99" in said
    assert "3.17 ms of 1.42 ms" not in said
    assert summary.lateness(groups, {}) == ""


@pytest.mark.parametrize("width", [40, 80])
def test_a_table_that_does_not_fit_is_printed_row_by_row(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NETDYNO_WIDTH", str(width))
    heads = ("group", "offered/s", "delivered/s", "loss", "p99", "failures")
    console.table(heads, [["http", "1,948/s", "1,948/s", "0.01%", "12.3 ms", "timeout 12, refused 3"]])
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= width for line in lines)
    if width == 40:
        # each figure whole on its own line, beside its name
        assert lines[0].strip() == "http"
        assert [line.split(None, 1)[1].strip() for line in lines[1:3]] == ["1,948/s", "1,948/s"]
    else:
        assert "offered/s" in lines[0]
