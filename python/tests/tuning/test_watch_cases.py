"""Known cases under watch: what counts as fixed, and as left alone."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.stats.observation import Observation, Value
from netdyno.system import sysctl
from netdyno.tuning import watch_cases
from netdyno.tuning.cases import CASES, Case, Check
from netdyno.tuning.registry import registry
from netdyno.tuning.verbs.watch_cases import words
from netdyno.tuning.watch import rules
from netdyno.tuning.watch_cases import ALLOWED, CONGESTION, LIMIT, PLENTY, PROMISED, SHORT, WatchedCase

from ..conftest import root

KNOWN = {case.name: case for case in CASES}


def test_each_case_has_a_rule_that_can_fix_it() -> None:
    ruled = {rule.tunable for rule in rules().values()}
    for case in CASES:
        assert case.control or set(case.after) <= ruled, case.name
    # and no rule is of what is known to do nothing
    assert all(registry().find(name).inert is None for name in ruled)
    assert {*SHORT, *PLENTY} <= KNOWN.keys()


def test_a_case_is_watched_with_what_a_namespace_may_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    lossy, control = KNOWN["lossy-path"], KNOWN["control-fin-timeout"]
    monkeypatch.setattr(sysctl, "read", lambda where, name: {ALLOWED: "reno bbr"}[name])
    made = watch_cases.watched_variant(lossy)
    assert (made.before, made.spec.machine) == ({CONGESTION: "reno"}, {})
    assert (made.spec.options["seconds"], lossy.spec.options["seconds"]) == (2, 3)
    monkeypatch.setattr(sysctl, "read", lambda where, name: {ALLOWED: "reno cubic"}[name])
    made = watch_cases.watched_variant(lossy)
    assert (made.before, made.spec.machine) == (lossy.before, lossy.spec.machine)
    client = watch_cases.watched_variant(control).spec.client
    assert client == control.spec.client | {"net.ipv4.ip_local_port_range": "1024 65535"}
    assert watch_cases.watched_variant(KNOWN["half-open"]) == KNOWN["half-open"]


def seen(**counters: float) -> Observation:
    return Observation({}, {"failed": 0.0}, counters)


def test_it_is_well_when_all_checks_hold_beside_the_trial_before() -> None:
    half = KNOWN["half-open"]
    case = Case("x", "", half.spec, {}, {}, (Check("a", "vanishes"), Check("b", "grows", 2)))
    assert watch_cases.passes(case, seen(a=5, b=1), seen(a=0, b=2))
    assert not watch_cases.passes(case, seen(a=5, b=1), seen(a=1, b=2))
    assert not watch_cases.passes(case, seen(a=5, b=1), seen(a=0, b=1))
    # a load that did not get through shows nothing
    assert not watch_cases.passes(case, seen(a=5, b=1), Observation({}, {}, {"a": 0, "b": 2}, False))


@pytest.mark.parametrize(
    ("name", "touched", "after", "why"),
    [
        ("half-open", {"net.ipv4.tcp_max_syn_backlog": 2048}, 3.0, ""),
        ("half-open", {"net.ipv4.tcp_max_syn_backlog": 2048}, None, f"not fixed after {LIMIT:.0f} s"),
        ("half-open", {"net.core.somaxconn": 9}, 3.0, "something else than net.ipv4.tcp_max_syn_backlog"),
        ("control-backlog", {}, None, ""),
        ("control-backlog", {"net.core.somaxconn": 9}, None, "touched net.core.somaxconn"),
    ],
)
def test_what_is_wrong(name: str, touched: Mapping[str, Value], after: float | None, why: str) -> None:
    found = watch_cases.mismatch(KNOWN[name], touched, after)
    assert why in found and bool(why) == bool(found)


@pytest.mark.parametrize(
    ("code", "status"), [("ND-92-23", "skipped"), ("ND-92-25", "failed"), ("ND-105-20", None)]
)
def test_an_error_ends_a_case_and_not_all(
    code: str, status: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise Error(code, "it is not so")

    monkeypatch.setattr(watch_cases, "start_bench", broken)
    if status is None:
        with pytest.raises(Error, match=code):
            watch_cases.run(KNOWN["half-open"])
    else:
        made = watch_cases.run(KNOWN["half-open"])
        assert (made.status, "it is not so" in made.why) == (status, True)


@root
def test_the_verb_tells_each_and_exits_99_if_one_is_not_mended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = WatchedCase("half-open", "", False, "passed", after=PROMISED + 2, values={"x": 1})
    found = {
        "half-open": good,
        "few-ports": WatchedCase("few-ports", "", False, "failed", "it is not fixed"),
        "control-backlog": WatchedCase("control-backlog", "", True, "passed"),
    }
    monkeypatch.setattr(watch_cases, "run", lambda case, **_: found[case.name])
    assert call(["tune", "cases", *found, "--watch"]) == 99
    out = capsys.readouterr().out
    assert "half-open: fixed after 12.0 s (x = 1), which is more than 10 s" in out
    assert "few-ports: it is not fixed" in out
    assert "control-backlog: left alone" in out and "2 passed, 1 failed" in out
    assert call(["tune", "cases", "half-open", "control-backlog", "--watch", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["passed"], document["failed"], document["promised"]) == (2, 0, PROMISED)
    assert [case["in_time"] for case in document["cases"]] == [False, False]
    assert "more than" not in words(WatchedCase("x", "", False, "passed", after=PROMISED))
