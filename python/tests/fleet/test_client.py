"""Several agents as one core, over stand-ins: versions, clocks, hosts that are away, fail or are lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from netdyno.core.client import Event, Subscription
from netdyno.core.wire import Counts, SeriesPoint, Status, TrialResult
from netdyno.errors import Error
from netdyno.fleet import client as module
from netdyno.fleet import link
from netdyno.fleet.agents import Agent, Fleet, Offset
from netdyno.fleet.client import FleetClient
from netdyno.fleet.hosts import HostSpec
from netdyno.fleet.steer import Methods, SteeringSocket
from tests.fleet.test_merge import trial

PROFILE = {
    "name": "p",
    "groups": [{"name": "web", "model": {"http": {}}, "target": "http://10.0.0.1", "devices": 6}],
}


class Agents:
    """What the agents are like, and what they were asked."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self.offsets: dict[str, float] = {}
        self.late: dict[str, float] = {}
        """Seconds after the time that it was told at which a run begins."""
        self.away: set[str] = set()
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.events: dict[str, Subscription] = {}
        self.stopped: dict[str, str] = {}
        self.stop = threading.Event()
        self.lies: dict[tuple[str, str], Any] = {}
        """By host and method, what is answered in place of an answer."""
        self.refused: set[tuple[str, str]] = set()
        self.devices: dict[str, int] = {}
        """As each has loaded them."""
        self.changed: dict[str, Callable[[TrialResult], object]] = {}
        """What is done to the result of one before it is told."""
        self.mute: set[str] = set()
        """Those that tell no summaries of devices."""

    def connect(self, agent: Agent, token: str, notes: Any) -> Any:
        name = agent.host.name
        if name in self.away:
            raise Error("ND-92-90", "no route to host")
        offset = Offset(self.offsets.get(name, 0.0), 0.001)
        return SimpleNamespace(address=Path(name), offset=lambda _: offset, close=lambda: None)

    def client(self, socket: Path, silence: float | None = None) -> Any:
        name = str(socket)

        def call(method: str, *, timeout: float | None = None, **params: Any) -> Any:
            self.asked.append((name, method, params))
            if (name, method) in self.refused:
                raise Error("ND-104-11", "the run is not running")
            if (name, method) in self.lies:
                return self.lies[name, method]
            if method == "core.describe":
                version = self.versions.get(name, "1.0")
                return {"version": version, "cores": [0], "interfaces": []}
            if method == "run.load":
                (group,) = params["profile"]["groups"]
                self.devices[name] = group["devices"]
                told = {"name": "web", "devices": group["devices"], "token": f"of {name}"}
                return {"run": name, "groups": [told]}
            if method == "run.rate":
                return {"rates": [{"t": 2.0, "group": "web", "of": "group", "rate": 20.0, "before": 10.0}]}
            if method == "run.stop":
                self.stop.set()
            return {}

        def subscribe() -> Subscription:
            return self.events.setdefault(name, Subscription())

        def result() -> TrialResult:
            found = trial([1000, 2000], 2, stopped=self.stopped.get(name))
            found.groups[0].devices = self.devices[name]
            if name in (at := self.started()):
                began = datetime.fromtimestamp(at[name] + self.late.get(name, 0.0), UTC)
                found.started = began.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            self.changed.get(name, lambda _: None)(found)
            return found

        def flows() -> Iterator[list[Any]]:
            yield [name, 0]
            if name in self.mute:
                raise Error("ND-91-21", "the connection was lost")
            yield [name, 1]

        return SimpleNamespace(
            call=call, subscribe=subscribe, result=result, flows=flows, close=lambda: None,
            acquire=lambda: None,
        )  # fmt: skip

    def tell(self, name: str, state: str, **more: Any) -> None:
        """An agent tells the state of its run."""
        self.events[name].put(Event(status=Status(run=name, state=state, **more)))

    def started(self) -> dict[str, float]:
        return {name: params["at"] for name, method, params in self.asked if method == "run.start"}


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Agents]:
    made, opened = Agents(), []

    def kept(path: Path, methods: Methods) -> SteeringSocket:
        opened.append(SteeringSocket(tmp_path / path.name, methods))
        return opened[-1]

    monkeypatch.setattr(link, "launcher", lambda host: made)
    monkeypatch.setattr(link, "Client", made.client)
    monkeypatch.setattr(module, "SteeringSocket", kept)
    yield made
    for one in opened:
        one.close()


def fleet() -> Fleet:
    return Fleet("lab", tuple(Agent(HostSpec(name=name), "") for name in "abc"))


def running(agents: Agents, tolerate: int = 0) -> tuple[FleetClient, Subscription]:
    """A run that is under way."""
    one = FleetClient(fleet(), tolerate)
    one.call("run.load", profile=PROFILE)
    events = one.subscribe()
    one.call("run.start")
    for name in agents.events:
        agents.tell(name, "running", phase="measure")
    return one, events


def ended(events: Subscription) -> Status:
    """The status in which a run ends."""
    while True:
        event = events.next(30.0)
        assert event is not None, "the run does not end"
        if event.status and event.status.ended:
            return event.status


def test_devices_are_shared_and_told_as_one_group(agents: Agents) -> None:
    loaded = FleetClient(fleet()).call("run.load", profile=PROFILE)
    assert [(group["name"], group["devices"]) for group in loaded["groups"]] == [("web", 6)]
    shares = [
        params["profile"]["groups"][0]["devices"]
        for _, method, params in agents.asked
        if method == "run.load"
    ]
    assert shares == [2, 2, 2]


def test_all_begin_at_one_time_by_their_own_clocks(agents: Agents) -> None:
    agents.offsets = {"b": 5.0, "c": -0.25}
    running(agents)
    at = agents.started()
    assert at["b"] - at["a"] == pytest.approx(5.0, abs=1e-6)
    assert at["c"] - at["a"] == pytest.approx(-0.25, abs=1e-6)


def test_how_late_each_host_began_is_in_the_result(agents: Agents) -> None:
    agents.offsets = {"b": 5.0, "c": -0.25}
    agents.late = {"c": 0.042}
    one, _ = running(agents)
    hosts = {host["name"]: host["start_delay"] for host in (one.result().model_extra or {})["hosts"]}
    # their clocks differ, and are allowed for
    assert hosts["a"] == pytest.approx(0, abs=0.0011)
    assert hosts["b"] == pytest.approx(0, abs=0.0011)
    assert hosts["c"] == pytest.approx(0.042, abs=0.0011)


def test_an_agent_of_another_version_is_refused(agents: Agents) -> None:
    agents.versions["c"] = "0.9"
    with pytest.raises(Error) as e:
        FleetClient(fleet())
    assert (e.value.code, e.value.at) == ("ND-92-91", "c")


def test_a_host_that_is_away_is_done_without_if_that_is_tolerated(agents: Agents) -> None:
    agents.away = {"b"}
    with pytest.raises(Error, match="the host b was lost before the run: no route to host"):
        FleetClient(fleet())
    one, events = running(agents, tolerate=1)
    for name in "ac":
        agents.tell(name, "done")
    assert ended(events).state == "done"
    hosts = (one.result().model_extra or {})["hosts"]
    assert [(host["name"], bool(host["lost"])) for host in hosts] == [("a", False), ("c", False), ("b", True)]
    agents.away = {"b", "c"}
    with pytest.raises(Error, match="the host b was lost"):
        FleetClient(fleet(), tolerate=1)


def test_a_lost_host_ends_the_run_and_the_others_keep_theirs(agents: Agents) -> None:
    one, events = running(agents)
    agents.events["b"].put(Error("ND-91-21", "the connection to the daemon was lost"))
    assert agents.stop.wait(30)
    for name in "ac":
        agents.tell(name, "done")
    status = ended(events)
    assert status.state == "failed"
    assert (status.error["code"], status.error["at"]) == ("ND-91-50", "b")
    assert one.result().groups[0].measured.messages_delivered == 4


def test_what_fails_on_a_host_fails_the_run_by_its_name(agents: Agents) -> None:
    _, events = running(agents)
    agents.tell("c", "failed", error={"code": "ND-92-01", "what": "too few open files"})
    assert agents.stop.wait(30)
    for name in "ab":
        agents.tell(name, "done")
    error = ended(events).error
    assert (error["code"], error["what"]) == ("ND-92-01", "host c: too few open files")


def test_a_host_whose_lease_ended_is_named(agents: Agents) -> None:
    agents.stopped["a"] = "lease"
    one, events = running(agents)
    for name in "abc":
        agents.tell(name, "done")
    ended(events)
    result = one.result()
    assert result.error is not None
    assert (result.error["code"], result.error["at"]) == ("ND-91-50", "a")


def test_the_fleet_is_as_far_as_the_host_that_is_least_so(agents: Agents) -> None:
    _, events = running(agents)
    agents.tell("a", "draining", phase="drain")
    agents.tell("a", "done")
    for name in "bc":
        agents.tell(name, "draining", phase="drain")
        agents.tell(name, "done")
    told: list[str] = []
    while not told or told[-1] != "done":
        event = events.next(30.0)
        assert event is not None
        if event.status:
            told.append(event.status.state)
    assert [one for i, one in enumerate(told) if one not in told[:i]] == told


def test_a_run_that_is_over_is_not_told_to_stop(agents: Agents) -> None:
    one, _ = running(agents)
    agents.tell("a", "done")
    while not next(link for link in one._links.links if link.name == "a").status.ended:
        threading.Event().wait(0.01)
    one.call("run.stop")
    assert sorted(name for name, method, _ in agents.asked if method == "run.stop") == ["b", "c"]


def test_a_rate_is_asked_of_each_host_by_its_devices(agents: Agents) -> None:
    one, _ = running(agents)
    told = one.call("run.rate", groups={"web": {"rate": "60/s"}})
    asked = [params["groups"]["web"]["rate"] for _, method, params in agents.asked if method == "run.rate"]
    assert [float(rate.removesuffix("/s")) for rate in asked] == [20, 20, 20]
    assert [(rate["t"], rate["before"], rate["rate"]) for rate in told["rates"]] == [(2.0, 30.0, 60.0)]
    one.close()


def test_a_host_that_is_silent_after_its_result_loses_no_result(agents: Agents) -> None:
    agents.mute.add("b")
    said: list[str] = []
    one = FleetClient(fleet(), log=said.append)
    one.call("run.load", profile=PROFILE)
    events = one.subscribe()
    one.call("run.start")
    for name in "abc":
        agents.tell(name, "done")
    assert ended(events).state == "done"
    assert one.result().groups[0].measured.messages_sent == 6
    assert list(one.flows()) == [["a", 0], ["a", 1], ["b", 0], ["c", 0], ["c", 1]]
    assert [line for line in said if "summaries of devices of b are not complete" in line]
    one.close()


def _negative(found: TrialResult) -> None:
    found.groups[0].measured.messages_sent = -5


def _own_negative(found: TrialResult) -> None:
    found.groups[0].total = Counts(responses_4xx=-5)


def _renamed(found: TrialResult) -> None:
    found.groups[0].name = "other"


def _fewer(found: TrialResult) -> None:
    found.groups[0].devices = 1


def _unreadable(found: TrialResult) -> None:
    found.groups[0].delays["response"].hdr = "AAAA"


def _backwards(found: TrialResult) -> None:
    found.phases.warmup = -5


LIES: dict[str, tuple[Callable[[TrialResult], object], str]] = {
    "none": (lambda found: found.groups.clear(), "devices none, and was given 2 of 'web'"),
    "renamed": (_renamed, "2 of 'other', and was given 2 of 'web'"),
    "twice": (lambda found: found.groups.append(found.groups[0]), "2 of 'web', 2 of 'web', and was given"),
    "fewer": (_fewer, "1 of 'web', and was given 2 of 'web'"),
    "negative": (_negative, "the count 'messages_sent' is negative"),
    "own": (_own_negative, "the count 'responses_4xx' is negative"),
    "histogram": (_unreadable, "a histogram"),
    "phases": (_backwards, "their lengths are not possible"),
    "started": (lambda found: setattr(found, "started", "yesterday"), "'yesterday' is no time"),
    "series": (lambda found: found.series.append(SeriesPoint(t=-1.0)), "times that are not possible"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_result_that_is_not_a_hosts_part_loses_that_host_alone(agents: Agents, lie: str) -> None:
    agents.changed["b"], said = LIES[lie]
    one, events = running(agents)
    for name in "abc":
        agents.tell(name, "done")
    assert ended(events).state == "done"
    found = one.result()
    assert found.error is not None
    assert (found.error["code"], found.error["at"]) == ("ND-91-50", "b")
    assert said in found.error["what"]
    assert [bool(host["lost"]) for host in (found.model_extra or {})["hosts"]] == [False, True, False]
    assert (found.groups[0].devices, found.groups[0].measured.messages_sent) == (4, 4)


SAMPLES: dict[str, dict[str, Any]] = {
    "text": {"t": "x"},
    "nothing": {"t": 1.0, "dt": 0.0},
    "group": {"t": 1.0, "groups": {"other": {}}},
    "negative": {"t": 1.0, "groups": {"web": {"counts": {"messages_sent": -1}}}},
}


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_that_is_none_loses_its_host_and_the_run_ends(agents: Agents, sample: str) -> None:
    one, events = running(agents)
    agents.events["b"].put(Event(sample=SAMPLES[sample]))
    assert agents.stop.wait(30)
    for name in "ac":
        agents.tell(name, "done")
    error = ended(events).error
    assert (error["code"], error["at"]) == ("ND-91-50", "b")
    assert "its answer to stats.sample is not valid" in error["what"]
    assert one.result().groups[0].measured.messages_sent == 4


def test_a_run_that_never_ends_on_a_host_loses_it(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "OVERDUE", 0.5)
    one = FleetClient(fleet(), log=lambda _: None)
    one.call("run.load", profile=PROFILE, trial={"warmup": "0s", "measure": "100ms", "drain": "0s"})
    events = one.subscribe()
    one.call("run.start")
    for name in "ac":
        agents.tell(name, "done")
    # it goes on to say that it runs
    agents.tell("b", "running", phase="measure")
    error = ended(events).error
    assert (error["code"], error["at"]) == ("ND-91-50", "b")
    assert "its run is not over 0.5 s after the end of its phases" in error["what"]
    assert one.result().groups[0].measured.messages_sent == 4
    one.close()


def test_a_run_that_is_paused_is_not_overdue(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "OVERDUE", 0.0)
    one = FleetClient(fleet())
    one.call("run.load", profile=PROFILE, trial={"warmup": "0s", "measure": "100ms", "drain": "0s"})
    events = one.subscribe()
    one.call("run.start")
    one.call("run.pause")
    # longer than its phases, the lead and two looks
    assert events.next(2.5) is None
    one.call("run.resume")
    # from then on it is
    assert ended(events).error["code"] == "ND-91-50"
    one.close()


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("core.describe", {}),
        ("core.describe", [1, 2]),
        ("core.describe", {"version": "1.0\x1b[2J", "cores": [0]}),
        ("core.describe", {"version": "1.0", "cores": list(range(5000))}),
        ("core.describe", {"version": "1.0", "cores": [0], "interfaces": [{"addresses": ["here"]}]}),
        ("run.load", None),
        ("run.load", {}),
        ("run.load", {"run": "r", "groups": [{"name": "web", "devices": 1}]}),
    ],
)
def test_an_answer_that_is_none_names_its_host(agents: Agents, method: str, answer: Any) -> None:
    agents.lies["b", method] = answer
    with pytest.raises(Error) as e:
        FleetClient(fleet()).call("run.load", profile=PROFILE)
    assert (e.value.code, e.value.at) == ("ND-91-50", "b")
    assert f"its answer to {method} is not valid" in e.value.what
    # and may be done without
    assert FleetClient(fleet(), tolerate=1).call("run.load", profile=PROFILE)["groups"][0]["devices"] >= 4


def test_hosts_whose_load_is_over_are_not_paused(agents: Agents) -> None:
    """At the end of the load, some may drain before others."""
    one, events = running(agents)
    agents.tell("a", "draining", phase="drain")
    while not any(link.status.state == "draining" for link in one._links.links):
        assert events.next(30.0) is not None
    one.call("run.pause")
    assert [name for name, method, _ in agents.asked if method == "run.pause"] == ["b", "c"]
    for name in "bc":
        agents.tell(name, "draining", phase="drain")
    while not all(link.status.state == "draining" for link in one._links.links):
        assert events.next(30.0) is not None
    with pytest.raises(Error, match="the load of every host is over") as e:
        one.call("run.pause")
    assert e.value.code == "ND-104-11"
    one.close()


def test_a_pause_that_one_host_refuses_holds_for_the_others(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "OVERDUE", 0.0)
    one = FleetClient(fleet())
    one.call("run.load", profile=PROFILE, trial={"warmup": "0s", "measure": "100ms", "drain": "0s"})
    events = one.subscribe()
    one.call("run.start")
    agents.refused.add(("a", "run.pause"))
    with pytest.raises(Error, match="not running"):
        one.call("run.pause")
    # those that have paused are not overdue
    assert events.next(2.5) is None
    one.close()


def test_each_host_tells_what_its_sessions_are_known_by(agents: Agents) -> None:
    one = FleetClient(fleet())
    (group,) = one.call("run.load", profile=PROFILE)["groups"]
    assert sorted(group["tokens"]) == ["of a", "of b", "of c"]
    one.close()
