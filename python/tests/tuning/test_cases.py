"""What the known cases ask for: each check can hold and can fail, and what cannot run here says why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.lab.workload import WORKLOADS
from netdyno.stats.observation import Observation
from netdyno.tuning import cases
from netdyno.tuning.cases import CONTROL_PAIRS, Case, Check, evaluate

from ..conftest import root


def pairs(a: Sequence[float], b: Sequence[float]) -> list[tuple[Observation, Observation]]:
    sides = [[Observation({}, {"m": v}, {"c": v}) for v in side] for side in (a, b)]
    return list(zip(*sides, strict=True))


@pytest.mark.parametrize(
    ("check", "a", "b", "held"),
    [
        (Check("m", "vanishes"), [5, 1], [0, 0], True),
        (Check("m", "vanishes"), [5, 0], [0, 0], False),
        (Check("m", "vanishes"), [5, 5], [0, 1], False),
        (Check("m", "vanishes", 0.9), [0.98, 0.8], [0, 0], False),
        (Check("m", "grows", 5), [1, 2], [5, 10], True),
        (Check("m", "grows", 5), [1, 2], [5, 9], False),
        (Check("c", "grows"), [0, 0], [1, 2], True),
        (Check("c", "grows"), [0, 0], [1, 0], False),
        (Check("m", "falls", 30), [80, 90], [40, 60], True),
        (Check("m", "falls", 30), [80, 90], [40, 61], False),
        (Check("m", "falls"), [5], [5], False),
        (Check("m", "same"), [188, 188], [188, 190], True),
        (Check("m", "same"), [188, 188], [188, 0], False),
        (Check("c", "same"), [0], [1], False),
        (Check("m", "stays"), [0] * 6, [0] * 6, True),
        (Check("m", "stays"), [100, 101, 99, 100, 98, 100], [104, 103, 104, 103, 104, 104], True),
        (
            Check("m", "stays"),
            [100, 101, 99, 100, 98, 100, 99] * 3,
            [140, 141, 150, 138, 136, 139, 1e3] * 3,
            False,
        ),
        (Check("m", "stays"), [100, 140, 99, 100, 98, 100], [140, 99, 150, 138, 136, 80], True),
        (Check("missing", "stays"), [1] * 6, [2] * 6, True),
    ],
)
def test_each_check_can_hold_and_fail(check: Check, a: list[float], b: list[float], held: bool) -> None:
    assert evaluate(check, pairs(a, b)).held == held


def test_controls_could_fail() -> None:
    worse = evaluate(Check("m", "stays"), pairs([0.0] * CONTROL_PAIRS, [1.0] * CONTROL_PAIRS))
    assert not worse.held


def test_cases_are_well_made() -> None:
    """Names are unique; a metric is one of the workload's; a control says that nothing happens, others do not."""
    assert len({case.name for case in cases.CASES}) == len(cases.CASES) == 13
    for case in cases.CASES:
        load = WORKLOADS[case.spec.workload](case.spec.options)
        assert case.before.keys() == case.after.keys()
        assert case.control == case.name.startswith("control-")
        assert all((check.rule in ("same", "stays")) == case.control for check in case.checks)
        # at least the effect, which the minimum shows on a machine that pauses, and the counter of the mechanism
        effects = {*load.metrics, "flow.completion_min"}
        assert any(check.of in effects for check in case.checks)
        assert case.control or any(check.of not in effects for check in case.checks)


def test_what_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = {case.name: case for case in cases.CASES}
    monkeypatch.setattr(cases, "of_machine", lambda name: name == "net.core.netdev_max_backlog")

    def why(case: Case, allow_global: bool = False) -> str:
        return cases.missing_requirement(case, allow_global)

    assert why(known["stalled-accept"]) == ""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    assert "net.core.netdev_max_backlog of the whole machine" in why(known["slow-path"])
    assert why(known["slow-path"], True) == ""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    assert why(known["slow-path"], True) == "it takes 2 processors"
    for name in (
        "tcp_available_congestion_control",
        "tcp_allowed_congestion_control",
        "tcp_congestion_control",
    ):
        (tmp_path / name).write_text("reno cubic\n")
    monkeypatch.setattr(cases, "file", lambda name: tmp_path / name.rpartition(".")[2])
    monkeypatch.setattr(cases, "TUN", tmp_path)
    assert "no congestion control bbr" in why(known["lossy-path"], True)
    assert why(known["control-low-latency"], True).startswith("this kernel has no net.ipv4.tcp_low_latency")
    monkeypatch.setattr(cases, "TUN", tmp_path / "none")
    assert "/dev/net/tun" in why(known["fast-open"])


def test_names_are_checked() -> None:
    assert [case.name for case in cases.chosen(["few-ports"])] == ["few-ports"]
    assert len(cases.chosen([])) == 13
    with pytest.raises(Error, match="ND-104-31"):
        cases.chosen(["few-port"])
    assert call(["tune", "cases", "--list"]) == 0
    assert call(["tune", "cases", "nothing"]) == 104
    assert call(["tune", "cases", "--pairs", "0"]) == 104


@pytest.mark.parametrize(
    ("code", "status"), [("ND-92-23", "skipped"), ("ND-92-25", "failed"), ("ND-105-20", None)]
)
def test_an_error_ends_a_case_and_not_all(
    code: str, status: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise Error(code, "it is not so")

    monkeypatch.setattr(cases, "measure_pairs", broken)
    case = next(case for case in cases.CASES if case.name == "half-open")
    if status is None:
        with pytest.raises(Error, match=code):
            cases.run(case)
    else:
        made = cases.run(case)
        assert (made.status, "it is not so" in made.why) == (status, True)


@root
def test_a_case_that_does_not_show_what_it_must_exits_99(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The half-open clients fail also where the change is none."""
    case = next(case for case in cases.CASES if case.name == "half-open")
    same = Case(case.name, case.about, case.spec, case.before, case.before, case.checks)
    monkeypatch.setattr(cases, "CASES", (same,))
    assert call(["tune", "cases", "--pairs", "1", "--json"]) == 99
    (made,) = json.loads(capsys.readouterr().out)["cases"]
    assert (made["status"], made["why"]) == ("failed", "not so: TcpExtListenDrops, failed")
