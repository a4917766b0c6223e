"""Searches of applications (RFC 9411): the shape of their loads, their criteria, and what they find."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.cli import app
from netdyno.core.result import Repetition
from netdyno.core.search import figure_unit
from netdyno.core.wire import Counts, GroupPoint, GroupResult, PhaseLengths, SeriesPoint, TargetAddress
from netdyno.errors import Error
from netdyno.experiment.spec import LegSpec
from netdyno.search import objects, rfc9411, words
from netdyno.search.axes import every
from netdyno.search.criteria import TransactionCounts, counted
from netdyno.search.finding import finding
from netdyno.search.kind import KINDS
from netdyno.search.kind.application import FIRST, delays, measured
from netdyno.search.load import Axis
from netdyno.search.observe import observed
from netdyno.search.request import SearchRequest
from netdyno.search.simulated import SimulatedDut
from netdyno.search.trial import LoadTrial, TrialRequest, rfc9411_goal, run


def leg(name: str = "web", path: str = "/1024", **group: Any) -> LegSpec:
    """HTTP clients, 1,000 connections a second."""
    one: dict[str, Any] = {
        "name": "web",
        "target": "http://192.0.2.1",
        "devices": 50,
        "model": {"http": {"path": path, "expect": ["200"]}},
        "load": {"open": {"rate": "1000/s", "arrival": "poisson"}},
    }
    profile = {"name": "p", "phases": {"warmup": "5s", "measure": "10s"}, "groups": [one | group]}
    return LegSpec.model_validate({"name": name, "profile": profile})


def axes(request: SearchRequest, *legs: LegSpec) -> dict[str, Axis]:
    """The parts of a search."""
    found = KINDS[request.kind].parts(list(legs) or [leg()], request, every)
    return {name: axis for name, _, axis in found}


def offered(request: SearchRequest, load: float, *legs: LegSpec, part: str = "") -> dict[str, Any]:
    """The group of the profile that offers a load."""
    parts = axes(request, *legs)
    axis = parts[part or next(iter(parts))]
    made = KINDS[request.kind].leg(axis, TrialRequest(load, 10.0), request)
    assert isinstance(made.profile, dict) and made.trial.measure == "10000000us"
    assert made.trial.load is None
    group: dict[str, Any] = made.profile["groups"][0]
    return group


def test_connections_rise_to_their_rate_and_carry_one_transaction() -> None:
    request = rfc9411.connections()
    group = offered(request, 200.0)
    assert group["model"]["http"] == {"path": "/1024", "expect": ["200"], "requests": 1, "interval": "0s"}
    # four of the five seconds of warm-up rise from a tenth
    stages = [{"over": "4000000us", "rate": "200.000000/s"}]
    assert group["load"] == {"open": {"arrival": "poisson", "rate": "20.000000/s", "stages": stages}}
    (axis,) = axes(request).values()
    assert (axis.unit, axis.most, axis.step) == ("connections/s", 1000.0, 1.0)


def test_transactions_share_connections() -> None:
    request = rfc9411.transactions()
    parts = axes(request)
    assert {name: axis.step for name, axis in parts.items()} == {"x1": 1.0, "x10": 10.0}
    group = offered(request, 200.0, part="x10")
    assert group["model"]["http"]["requests"] == 10
    assert group["load"]["open"]["stages"][0]["rate"] == "20.000000/s"
    assert list(axes(rfc9411.transactions(per_connection="5"))) == ["web"]


def test_connections_that_are_kept_ask_twice() -> None:
    request = rfc9411.concurrent()
    group = offered(request, 40.0)
    assert (group["devices"], group["load"]) == (40, {"closed": {"ramp": "4000000us"}})
    assert (group["model"]["http"]["requests"], group["model"]["http"]["interval"]) == (0, "5000ms")
    slow = leg(model={"http": {"interval": "3s"}})
    assert offered(request, 40.0, slow)["model"]["http"]["interval"] == "3s"
    (axis,) = axes(request).values()
    assert (axis.unit, axis.most) == ("connections", 50.0)


def test_objects_take_the_place_of_the_number_in_a_path() -> None:
    request = rfc9411.object_throughput()
    parts = axes(request)
    assert list(parts) == ["1KiB", "16KiB", "64KiB", "256KiB", "mixed"]
    assert offered(request, 100.0, part="64KiB")["model"]["http"]["path"] == "/65536"
    mixed = offered(request, 100.0, part="mixed")["model"]["http"]
    asked = [mixed["path"], *(step["path"] for step in mixed["then"])]
    assert asked == [
        "/205",
        "/6144",
        "/8192",
        "/9216",
        "/10240",
        "/25600",
        "/26624",
        "/35840",
        "/60416",
        "/355328",
    ]
    assert mixed["requests"] == 10
    placed = offered(request, 100.0, leg(path="/files/{object}.bin"))
    assert placed["model"]["http"]["path"] == "/files/1024.bin"
    # without sizes, a place that is marked stands for the smallest
    connections = rfc9411.connections()
    assert offered(connections, 10.0, leg(path="/{object}"))["model"]["http"]["path"] == "/1024"
    with pytest.raises(Error) as wrong:
        offered(request, 100.0, leg(path="/index.html"))
    assert (wrong.value.code, wrong.value.at) == ("ND-104-07", "groups.web")


def test_legs_at_one_object_stand_together() -> None:
    parts = axes(rfc9411.object_throughput("1KiB,2KiB"), leg("bare"), leg("nat"))
    assert list(parts) == ["bare,1KiB", "nat,1KiB", "bare,2KiB", "nat,2KiB"]


@pytest.mark.parametrize("word", ["", "0B", "65MiB", "many", "1KiB,,2KiB"])
def test_what_is_no_object(word: str) -> None:
    with pytest.raises(Error) as wrong:
        rfc9411.connections(objects=word)
    assert wrong.value.at == "--objects" and wrong.value.fix
    assert [one.sizes for one in objects.read("1B,64MiB")] == [(1,), (64 << 20,)]


@pytest.mark.parametrize("said", ["0", "1000001", "x", "1,", 1.5])
def test_what_is_no_number_of_transactions(said: Any) -> None:
    with pytest.raises(Error) as wrong:
        rfc9411.transactions(per_connection=said)
    assert (wrong.value.code, wrong.value.at) == ("ND-104-04", "--per-connection")
    assert rfc9411.transactions(per_connection="1,1000000").per_connection == (1, 1_000_000)


def test_a_mix_is_asked_for_whole() -> None:
    assert list(axes(rfc9411.object_throughput("mixed", per_connection=20)))
    with pytest.raises(Error) as wrong:
        axes(rfc9411.object_throughput("mixed", per_connection=15))
    assert wrong.value.at == "--per-connection"


def test_what_has_no_connections_or_no_rate_is_refused() -> None:
    for wrong, at in (
        (leg(model={"stream": {}}, target="udp://192.0.2.1:7"), "groups.web"),
        (leg(load={"closed": {}}), "groups[].load"),
    ):
        with pytest.raises(Error) as refused:
            axes(rfc9411.connections(), wrong)
        assert (refused.value.code, refused.value.at) == ("ND-104-07", at)
    with pytest.raises(Error) as unknown:
        rfc9411.connections(sizes="64")
    assert "objects" in (unknown.value.fix or "")


# ---- criteria


def counts(**changes: Any) -> TransactionCounts:
    base: dict[str, Any] = {
        "attempted": 200_000, "failed": 0, "connections": 200_000, "reset": 0, "opened": 100_000, "last": 100_000,
        "concurrent": (100_000, 100_000), "wanted": 100_000, "deviation": 0.0, "transactions": 1.0,
        "closed": 1.0, "bits": 1.0,
    }  # fmt: skip
    return TransactionCounts(**base | changes)


def trial(load: float = 1.0, **changes: Any) -> LoadTrial:
    return LoadTrial(load=load, seconds=1.0, sent=1, lost=0, counts=counts(**changes))


@pytest.mark.parametrize(
    ("kept", "broken"),
    [
        # less than 0.001 %
        ({"failed": 1}, {"failed": 2}),
        ({"reset": 1}, {"reset": 2}),
        ({}, {"attempted": 0}),
    ],
)
def test_each_criterion_just_holds(kept: dict[str, Any], broken: dict[str, Any]) -> None:
    goal = rfc9411_goal()
    assert goal.met(trial(**kept)) and goal.why(trial(**kept)) == ()
    assert not goal.met(trial(**broken)) and goal.why(trial(**broken))


@pytest.mark.parametrize(
    ("kept", "broken"),
    [
        ({"wanted": 300_000, "opened": 300_002, "last": 300_000}, {"opened": 300_003}),
        ({"wanted": 300_000, "opened": 299_998, "last": 300_000}, {"opened": 299_997}),
        ({"wanted": 300_000, "opened": 300_000, "last": 299_998}, {"last": 299_997}),
        # as the generator was late, some were not there from the beginning
        ({"wanted": 10, "opened": 10, "last": 10, "concurrent": (7, 10)}, {"last": 9}),
    ],
)
def test_kept_connections_are_kept(kept: dict[str, Any], broken: dict[str, Any]) -> None:
    held, used = rfc9411_goal(held=True), rfc9411_goal()
    assert held.met(trial(**kept)) and not held.met(trial(**kept | broken))
    assert used.met(trial(**kept | broken))


def repetition(**changes: Any) -> Repetition:
    """Two seconds of 1,000 requests each, on 50 connections."""
    given: dict[str, Any] = {
        "flows_started": 200, "flows_completed": 200, "messages_intended": 2000, "messages_sent": 2000,
        "messages_delivered": 2000, "bytes_received": 1_000_000,
    }  # fmt: skip
    made = Counts(**given | {k: v for k, v in changes.items() if k not in ("rates", "active", "opened")})
    rates, active = changes.get("rates", (1000, 1000)), changes.get("active", (50, 49))
    series = [
        SeriesPoint(
            t=float(place), dt=1.0, phase="measure",
            groups={"web": GroupPoint(counts=Counts(messages_delivered=rate), devices_active=busy)},
        )
        for place, (rate, busy) in enumerate(zip(rates, active, strict=True))
    ]  # fmt: skip
    address = TargetAddress(address="192.0.2.1:80", opened=changes.get("opened", 50))
    group = GroupResult(
        name="web", protocol="http", devices=50, measured=made, total=made, loss=0.0, confirmed=True,
        addresses=[address],
    )  # fmt: skip
    phases = PhaseLengths(measure=2.0)
    return Repetition(run="r", groups=[group], phases=phases, series=series, steal=0.0)


def test_what_a_trial_comes_to() -> None:
    found = counted(repetition(), {"web"})
    assert (found.attempted, found.failed, found.connections, found.concurrent) == (2000, 0, 200, (49, 50))
    assert (found.transactions, found.closed, found.bits) == (1000.0, 100.0, 4_000_000.0)
    assert (found.deviation, found.last, found.gone) == (0.0, 49, 1)
    assert counted(repetition(rates=(900, 1100)), {"web"}).deviation == pytest.approx(0.1)
    assert counted(repetition(opened=53), {"web"}).gone == 3
    # what came back wrong, what never came, and connections that failed before anything was sent
    refused = counted(repetition(messages_delivered=1990, failures={"rejected": 4, "reset": 6}), {"web"})
    assert (refused.failed, refused.reset) == (10, 6)
    assert counted(repetition(failures={"refused": 7, "local": 3}), {"web"}).failed == 7
    # flows that only connect are transactions themselves
    connected = counted(
        repetition(messages_intended=0, messages_sent=0, messages_delivered=0, flows_completed=198), {"web"}
    )
    assert (connected.attempted, connected.failed, connected.transactions) == (200, 2, 99.0)


def test_flows_that_only_connect_are_not_lost() -> None:
    profile = {
        "name": "p",
        "groups": [{"name": "web", "target": "tcp://192.0.2.1:1", "model": {"script": {}}}],
    }
    only = {"messages_intended": 0, "messages_sent": 0, "messages_delivered": 0}
    for completed, lost in ((200, 0), (190, 10)):
        one = repetition(**only, flows_completed=completed)
        seen = observed(TrialRequest(100.0, 2.0), one, profile, 1)
        assert (seen.sent, seen.lost) == (200, lost)


# ---- what is found


@pytest.mark.parametrize("capacity", [0.004, 0.03, 0.13, 0.6, 0.97])
@pytest.mark.parametrize("kind", ["connections", "concurrent"])
def test_a_capacity_is_found_and_not_overrun(kind: str, capacity: float) -> None:
    most = 50_000.0
    request = rfc9411.request(kind)
    one = Axis(leg(), "connections/s", most, step=1.0)
    space, _ = KINDS[kind].space(one, request)
    dut = SimulatedDut(most * capacity, noise=0.001)
    trials, stop = run(KINDS[kind].strategy(one, space, request, {}), dut)
    (goal,) = request.goals
    found = finding(goal, trials, space, stop, lambda load: words.load(load, "connections/s"))
    assert found.load == pytest.approx(most * capacity, rel=0.03), [one.load for one in trials]
    assert found.limit == "dut"
    assert max(one.load for one in trials) <= max(2.05 * most * capacity, FIRST * most)


def test_half_of_the_load_is_held() -> None:
    request = rfc9411.transaction_latency()
    one = Axis(leg(), "transactions/s", 10_000.0, step=1.0)
    kind = KINDS["transaction-latency"]
    space, _ = kind.space(one, request)
    trials, _ = run(kind.strategy(one, space, request, {}), SimulatedDut(4_000.0))
    held = [trial for trial in trials if trial.shape == "at-0.5"]
    assert len(held) == 3 and all(trial.load == pytest.approx(2_000.0, rel=0.03) for trial in held)
    fixed, _ = run(kind.strategy(one, space, rfc9411.transaction_latency(at=0.2), {}), SimulatedDut(4_000.0))
    assert [trial.load for trial in fixed] == [2_000.0] * 3


def test_figures_have_their_units() -> None:
    figures = measured([counts(failed=1), counts()])
    assert figures["failed_share"] == pytest.approx(1 / 200_000)
    seen = [
        LoadTrial(
            1.0,
            1.0,
            1,
            0,
            figures={"web.response.min": low, "web.response.mean": 5.0, "web.response.p99": 1.0},
        )
        for low in (2.0, 3.0)
    ]
    assert delays(seen) == {"web.response.min": 2.0, "web.response.mean": 5.0}
    assert {name: figure_unit(name) for name in figures} == {
        "connections_rate": "/s", "transactions_rate": "/s", "received_bits": "bit/s", "concurrent_min": "count",
        "concurrent_max": "count", "failed_share": "ratio", "reset_share": "ratio", "rate_deviation": "ratio",
    }  # fmt: skip
    assert (figure_unit("web.response.p99"), figure_unit("recovery_time.max")) == ("ns", "s")


@pytest.mark.parametrize(
    "arguments",
    [
        ["connections", "http://127.0.0.1:1"],
        ["concurrent", "http://127.0.0.1:1"],
        ["concurrent", "http://127.0.0.1:1", "--devices", "10", "--rate", "5/s"],
        ["transactions", "http://127.0.0.1:1/1", "--rate", "5/s", "--per-connection", "0"],
        ["object-throughput", "http://127.0.0.1:1/", "--rate", "5/s", "--dry-run"],
    ],
)
def test_a_url_says_how_far_to_go(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(["bench", *arguments]) == 104
    assert "\n  do " in capsys.readouterr().err
