"""The demo of the NAT without a NAT: what it needs, what it makes of counters and trials, how it is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.core.wire import TrialResult
from netdyno.errors import Error
from netdyno.nat import demo as nat_demo
from netdyno.nat import demo_page as page
from netdyno.nat.access import nat_box, network, plan
from netdyno.nat.verbs import demo as demo_nat
from netdyno.stats.observation import Observation

MEBIT = 1e6


def test_what_is_missing_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(program: str, package: str) -> str:
        if program in ("kea-dhcp4", "udhcpc"):
            raise Error("ND-92-23", f"the program {program} is missing", fix=f"Install it: apt {package}")
        return program

    monkeypatch.setattr(network, "need_root", lambda: None)
    monkeypatch.setattr(network, "find", find)
    with pytest.raises(Error) as caught:
        network.check()
    assert caught.value.code == "ND-92-23"
    assert [one["what"] for one in caught.value.all] == [
        "the program kea-dhcp4 is missing",
        "the program udhcpc is missing",
    ]


def test_it_needs_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("netdyno.lab.topology.os.geteuid", lambda: 1000)
    assert app.call(["demo", "nat"]) == 92
    assert "ND-92-22" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"), [(["demo", "cgn"], "ND-104-04"), (["demo", "nat", "--json-stream"], "ND-104-07")]
)
def test_other_words_are_refused(words: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(words) == 104
    assert code in capsys.readouterr().err


def test_subscribers_and_nats_meet_in_two_segments() -> None:
    made = plan.topology()
    at = [(link.a.host, link.b.host, link.b.name) for link in made.links]
    assert at == [
        ("access", "sub1", "eth0"), ("access", "sub2", "eth0"), ("access", "box", "in0"), ("access", "kernel", "in0"),
        ("world", "box", "out0"), ("world", "kernel", "out0"),
    ]  # fmt: skip
    # the kernel of the box has no address there: what comes is the ports'
    assert not [
        end.addresses for link in made.links for end in (link.a, link.b) if end.host == "box" if end.addresses
    ]


@pytest.mark.parametrize(
    ("usable", "nat", "loads"), [([0], 0, [0, 0]), ([0, 1], 1, [0, 0]), ([2, 3, 4, 5], 5, [2, 3])]
)
def test_the_nat_has_the_last_core(usable: list[int], nat: int, loads: list[int]) -> None:
    assert nat_demo.Cores.of(usable) == nat_demo.Cores(nat, loads)


def test_five_elements_are_told_of_the_graphs() -> None:
    names = {
        "inside.rx": "rx", "outside.rx0": "rx", "in-validity": "validity", "out-validity": "validity",
        "nat": "subscriber-table", "conntrack": "nat44", "in-host": "nat-host", "inside.tx": "tx", "outside.tx": "tx",
    }  # fmt: skip
    shape = {"elements": [{"name": name, "kind": kind} for name, kind in names.items()]}

    def counts(packets: int, cycles: float) -> dict[str, Mapping[str, Any]]:
        one = {"packets_in": packets, "packets_out": 0, "cycles_per_packet": cycles, "drops": {}}
        return dict.fromkeys(names, one)

    # 100 packets of 90 cycles, then 300 more that bring the mean down to 30
    found = nat_demo.stages(shape, counts(100, 90.0), counts(400, 30.0))
    assert [(one["element"], len(one["names"])) for one in found] == [
        ("RX", 2), ("validity", 2), ("NAT", 1), ("ConnTrack", 1), ("TX", 2),
    ]  # fmt: skip
    assert {one["cycles_per_packet"] for one in found} == {10.0}
    assert found[0]["packets"] == 600
    assert nat_demo.stages(shape, {}, counts(0, 0.0))[0]["cycles_per_packet"] is None


def test_its_nat_is_one_that_a_configuration_may_say(tmp_path: Path) -> None:
    made = nat_box.graph(tmp_path / "leases.csv", 3)
    elements = made["elements"]
    assert elements["nat"]["leases"] == {"file": str(tmp_path / "leases.csv"), "server": "kea"}
    assert elements["sites"]["sites"] == elements["conntrack"]["sites"] == {"most": 16, "by": "subscriber"}
    (worker,) = made["placement"]
    assert worker["core"] == 3 and {*elements} < {*worker["elements"]}


def test_a_site_is_told_with_what_is_left_of_its_lease() -> None:
    told = {
        "site": "10.0.0.100", "vlans": [], "mac": "02:4e:44:00:00:00", "address": "203.0.113.100", "state": "bound",
        "lease_s": 3599.98, "server": "203.0.113.1", "subscribers": 1,
    }  # fmt: skip
    assert nat_demo.site("sub1", told) == {
        "subscriber": "sub1", "site": "10.0.0.100", "mac": "02:4e:44:00:00:00", "address": "203.0.113.100",
        "server": "203.0.113.1", "state": "bound", "left_s": 3600,
    }  # fmt: skip


def test_both_subscribers_are_added_up_and_the_slower_one_is_told() -> None:
    def trial(bytes_received: int, p99: float, errors: int = 0) -> TrialResult:
        delay = {"count": 10, "p99": p99}
        failed = [{"kind": "refused", "count": errors}] if errors else []
        measured = {"bytes_received": bytes_received}
        group = {"name": "web", "measured": measured, "delays": {"response": delay}, "errors": failed}
        return TrialResult.model_validate({"run": "r", "phases": {"measure": 2.0}, "groups": [group]})

    metrics, why = nat_demo.subscriber_totals([trial(1_000_000, 3e6), trial(2_000_000, 5e6)])
    assert metrics == {"throughput": 12e6, "response_p99": 5.0}
    assert why == ""
    assert (
        nat_demo.subscriber_totals([trial(1, 1e6), trial(1, 1e6, errors=3)])[1]
        == "3 requests failed (refused)"
    )
    assert nat_demo.subscriber_totals([trial(1, 1e6)]) == ({}, "nothing was delivered")


def document(ours: float) -> dict[str, Any]:
    """As a run leaves it, with pairs in which our NAT has so much of the kernel's throughput."""

    def one(path: str, rate: float, packets: int) -> Observation:
        metrics = {"throughput": rate * MEBIT, "response_p99": 3.0}
        return Observation({"path": path}, metrics, {nat_demo.FORWARDED: packets}, seconds=1.5)

    pairs = [
        (
            one(nat_demo.KERNEL, 1000 + 10 * i, 0),
            one(nat_demo.OURS, ours * (1000 + 10 * ((3 * i) % 8)), 9000 + i),
        )
        for i in range(8)
    ]
    return {
        "name": "20260101-120000-demo-nat-3f2a",
        "started": "2026-01-01T12:00:00+00:00",
        "finished": "2026-01-01T12:00:45+00:00",
        "command": "netdyno demo nat",
        "dhcp": [
            {"subscriber": name, "mac": f"02:00:00:00:00:0{n}", "address": f"10.0.0.10{n}", "took_s": 0.2,
             "router": "10.0.0.254", "server": "10.0.0.1", "seconds": 3600}
            for n, name in enumerate(plan.SUBSCRIBERS)
        ],
        "sites": [
            {"subscriber": name, "site": f"10.0.0.10{n}", "mac": f"02:4e:44:00:00:0{n}", "address": f"203.0.113.10{n}",
             "server": "203.0.113.1", "state": "bound", "left_s": 3600}
            for n, name in enumerate(plan.SUBSCRIBERS)
        ],
        "unleased": {"subscriber": "sub2", "address": "10.0.0.50", "reached": False, "dropped": 2},
        "mappings": {
            "rows": [{"subscriber": "sub1", "inside": "10.0.0.100:40000", "outside": "203.0.113.100:1536"}],
            "sessions": None,
        },
        "elements": [
            {"element": "NAT", "names": ["nat"], "packets": 123_456, "cycles_per_packet": 21.4},
            {"element": "TX", "names": ["inside.tx"], "packets": 0, "cycles_per_packet": None},
        ],
        "drops": [{"element": "nat", "reason": "not_bound", "packets": 2}],
        "comparison": nat_demo.compared(pairs, {}),
        "load": {"page_bytes": 65536, "connections": 8, "subscribers": 2},
        "cores": {"usable": 2, "nat": 1, "generators": [0, 0]},
        "environment": {"kernel": "6.1"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "finding", "verdict"),
    [
        (0.5, "netdyno NAT worse", "worse"),
        (2.0, "netdyno NAT better", "better"),
        (1.0, "no difference", "not shown"),
    ],
)
def test_it_says_what_is_shown_and_no_more(
    ours: float, finding: str, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = document(ours)
    throughput = made["comparison"]["metrics"][0]
    assert throughput["verdict"] in (verdict, "no effect" if ours == 1.0 else verdict)
    demo_nat.show(made)
    shown = capsys.readouterr().out
    assert finding in next(line for line in shown.splitlines() if line.startswith("throughput"))
    assert "10.0.0.100:40000" in shown and "203.0.113.100:1536" in shown
    assert "02:4e:44:00:00:01  203.0.113.101" in shown
    assert "drops: nat not_bound 2" in shown
    assert "no figures of a NIC" in shown


def test_the_page_holds_it_all() -> None:
    made = document(0.5)
    text = page.render(json.loads(json.dumps(made)))
    for told in (
        "10.0.0.100:40000",
        "203.0.113.100:1536",
        "02:4e:44:00:00:01",
        "123,456",
        "not_bound",
        "AF_PACKET",
    ):
        assert told in text, told
    built = page.build(made)
    assert built.state == "pass"
    assert [row[0].sort for row in built.elements.rows] == ["NAT", "TX"]
