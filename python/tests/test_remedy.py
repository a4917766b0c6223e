"""What is said of a run that is not valid: one line with the limit and three remedies."""

from __future__ import annotations

import pytest

from netdyno.cli import console, summary
from netdyno.core.model import Distribution, Reason, WorkerSample
from netdyno.core.result import Estimate, FigureWarning, GroupSummary, Leg, Repetition, Result, Summary
from netdyno.stats.remedy import remedy, targets


def _run(code: str, command: str = "run http://127.0.0.1", what: str = "late") -> Result:
    group = GroupSummary(
        name="http", target="http://127.0.0.1", rates={"messages_sent": Estimate(n=1, mean=1948.0)}
    )
    repetition = Repetition(run="r", workers=[WorkerSample(worker=0, core=1)])
    return Result(
        id="r", name="http", started="", command=["netdyno", *command.split()],
        reasons=[Reason(code=code, what=what)],
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


def test_a_slow_server_is_not_cured_by_more_cores() -> None:
    assert (
        remedy(_run("ND-90-01", what="…; the server is too slow, or stopped answering"), shared=True) is None
    )


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
