"""Studies of a NAT's speed: what comes to be of them on machines by description."""

from __future__ import annotations

from ipaddress import IPv4Address
from math import gcd, prod
from pathlib import Path
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.experiment import spec
from netdyno.nat import lab, study
from netdyno.nat.access import kernel_nat
from netdyno.nat.cores import Topology
from netdyno.nat.lab import Flows
from netdyno.nat.study import Machine

from .shared import CGN, machine, nat

MACHINES = {"one": machine(1, 1), "two": machine(1, 2), "paper": machine(2, 4, 2), "big": machine(2, 16, 2)}


def made(name: str, there: Topology = MACHINES["two"], **changes: Any) -> tuple[spec.Experiment, list[str]]:
    read = study.read(name)
    plain, notes = study.experiment(read.model_copy(update=changes), study.nat(None), Machine(there))
    return spec.load(plain, name), notes


def profile(leg: spec.LegSpec) -> dict[str, Any]:
    assert isinstance(leg.profile, dict)
    return leg.profile


def dpdk(leg: spec.LegSpec) -> dict[str, Any]:
    found: dict[str, Any] = profile(leg)["transport"]["dpdk"]
    return found


@pytest.mark.parametrize("name", sorted(study.names()))
@pytest.mark.parametrize("there", MACHINES.values(), ids=MACHINES)
def test_every_study_is_an_experiment_on_every_machine(name: str, there: Topology) -> None:
    experiment, _ = made(name, there)
    assert [leg.name for leg in experiment.legs] == [leg.name for leg in study.read(name).legs]
    for leg in experiment.legs:
        placement = dpdk(leg)["placement"]
        cores = [one["core"] for one in placement]
        names = [name for one in placement for name in one["elements"]]
        assert len(set(cores)) == len(cores) and {*cores} <= there.allowed
        ports = [port["name"] for port in dpdk(leg)["ports"]]
        wanted = {*dpdk(leg)["elements"], *(f"{port}.{way}" for port in ports for way in ("rx", "tx"))}
        assert len(set(names)) == len(names) and {*names} == wanted


def test_the_ends_have_a_core_of_their_own_where_there_are_three() -> None:
    for there, alone in ((machine(1, 2), False), (machine(1, 3), True), (machine(2, 8, 2), True)):
        experiment, notes = made("figure-7", there)
        for leg in (one for one in experiment.legs if one.name in ("run-to-completion", "pipeline")):
            (ends,) = [one for one in dpdk(leg)["placement"] if "generator" in one["elements"]]
            shares = {"nat", "conntrack", "inside.rx", "inside.tx"} & {*ends["elements"]}
            assert bool(shares) == (leg.name == "pipeline" and not alone)
        assert any("shares cores with the ends" in note for note in notes) == (not alone)


@pytest.mark.parametrize("there", [machine(1, 8, 2), machine(2, 16, 2), machine(1, 8)])
@pytest.mark.parametrize("name", ["figure-7", "figure-9", "figure-10"])
def test_the_ends_have_a_physical_core_of_their_own_where_one_is_free(name: str, there: Topology) -> None:
    experiment, notes = made(name, there)
    for leg in experiment.legs:
        if leg.duts:
            continue
        (ends,) = [one["core"] for one in dpdk(leg)["placement"] if "generator" in one["elements"]]
        beside = {one["core"] for one in dpdk(leg)["placement"]} - {ends}
        if len({lab.siblings(there, core) for core in beside}) < sum(map(len, there.nodes.values())):
            assert beside.isdisjoint(lab.siblings(there, ends)), leg.name
        else:
            assert any(leg.name in note and "the ends" in note for note in notes), (leg.name, notes)


def test_ends_that_share_a_core_are_told() -> None:
    _, notes = made("figure-10", machine(1, 4))
    assert any("the ends that send and receive run on s0c" in note for note in notes), notes


@pytest.mark.parametrize(("cores", "apart"), [(2, False), (3, True), (6, False), (7, True)])
def test_each_end_has_a_core_where_two_are_left(cores: int, apart: bool) -> None:
    # run to completion takes one, a core set of table 3 five
    name, leg = ("figure-7", "run-to-completion") if cores < 6 else ("figure-9", "core-set-1")
    for direction in ("up", "down"):
        experiment, _ = made(name, machine(1, cores), direction=direction)
        placement = dpdk(next(one for one in experiment.legs if one.name == leg))["placement"]
        of = {element: one["core"] for one in placement for element in one["elements"]}
        ends = {
            "access": {"access-host", "access.rx", "access.tx"},
            "world": {"world-host", "world.rx", "world.tx"},
        }
        ends["access" if direction == "up" else "world"].add("generator")
        ends["world" if direction == "up" else "access"].add("receiver")
        used = [{of[element] for element in elements} for elements in ends.values()]
        assert all(len(one) == 1 for one in used)
        assert (used[0] != used[1]) == apart


def test_shares_of_line_rate_are_of_the_link_that_is_said() -> None:
    experiment, _ = made("figure-9", line="25Gbit/s")
    for leg in experiment.legs:
        assert {port["speed"] for port in dpdk(leg)["ports"] if "speed" in port} == {"25Gbit/s"}


def test_the_kernel_stands_where_the_nat_does_with_the_same_frames() -> None:
    for name in ("figure-7", "figure-8"):
        experiment, notes = made(name)
        legs = {leg.name: leg for leg in experiment.legs}
        kernel, ours = legs["kernel"], legs["run-to-completion-af_packet"]
        assert kernel.profile == ours.profile
        assert kernel.topology and ours.topology
        assert [link.mtu for link in kernel.topology.links] == [link.mtu for link in ours.topology.links]
        assert kernel.duts["nat"].cores == [ours.duts["nat"].options["graph"]["placement"][0]["core"]]
        # the same in memory, but for the ports, the highest load, and how fast sessions are opened
        groups = [profile(leg)["groups"] for leg in (ours, legs["run-to-completion"])]
        for group in (group for each in groups for group in each):
            for part, key in (("frame", "rate"), ("frame", "after"), ("model", "stream")):
                group[part].pop(key, None)
        assert groups[0] == groups[1]
        assert any("AF_PACKET" in note for note in notes)


def test_the_kernel_has_as_many_addresses_as_our_nat_where_nothing_comes_back() -> None:
    pool = "198.18.0.0/22"
    for name, public in (
        ("figure-7", pool), ("rfc9693-teardown", pool), ("figure-8", "198.18.0.0"), ("rfc9693-capacity", "198.18.0.0"),
    ):  # fmt: skip
        legs = [leg for leg in made(name)[0].legs if leg.duts and leg.duts["nat"].driver == "kernel-nat"]
        assert legs and {leg.duts["nat"].options["public"] for leg in legs} == {public}, name
    assert 'oifname "out0" snat to 198.18.0.0-198.18.3.255\n' in kernel_nat.rules("out0", pool)
    assert 'oifname "out0" snat to 198.18.0.0\n' in kernel_nat.rules("out0", "198.18.0.0/32")
    assert 'oifname "out0" masquerade\n' in kernel_nat.rules("out0")


def test_what_comes_down_goes_where_a_forward_leads_and_a_session_was_opened() -> None:
    experiment, _ = made("figure-8")
    for leg in experiment.legs:
        opening, down = profile(leg)["groups"]
        (inside, ports) = (one["change"]["increment"] for one in opening["frame"]["vary"])
        (outside,) = (one["change"]["increment"] for one in down["frame"]["vary"])
        assert opening["model"]["stream"]["count"] == inside["count"] == ports["count"] == outside["count"]
        # the kernel keeps the source port where it is free, which it is when each has its own
        assert ports["from"] == outside["from"]
        rate = float(opening["model"]["stream"]["rate"].removesuffix("/s"))
        # over AF_PACKET so slowly that none is lost
        assert rate == (50_000 if leg.duts else 250_000)
        opened = opening["model"]["stream"]["count"] / rate
        assert float(down["frame"]["after"].removesuffix("ms")) / 1000 > opened
        if "conntrack" in (elements := dpdk(leg)["elements"]):
            forwards = elements["conntrack"]["forwards"]
            assert len(forwards) == inside["count"]
            for number in (0, len(forwards) - 1):
                port = outside["from"] + number
                assert forwards[number] == {
                    "protocol": "udp",
                    "inside": f"{IPv4Address(inside['from']) + number}:{port}",
                    "outside": f"198.18.0.0:{port}",
                }


@pytest.mark.parametrize("count", [1, 2, 1000, 1001, 64_000, 1_000_000, 10_000_000])
def test_flows_come_round_in_as_many_frames_as_there_are(count: int) -> None:
    shape = Flows(count).shape
    assert gcd(*shape) == 1
    assert prod(shape) == pytest.approx(count, rel=0.07)


@pytest.mark.parametrize("count", [5_000, 1021 * 1021 * 2, 4_000_000])
def test_new_flows_are_all_different(count: int) -> None:
    subscribers, ports = Flows(count, new=True).shape
    assert gcd(subscribers, ports) == 1
    wanted = lab.LoadSpec(flows=Flows(count, new=True), seed=3)
    who, port, to = lab.varied(wanted)
    listed = port["change"]["list"]
    assert who["change"]["increment"]["count"] == subscribers
    # pseudorandom (RFC 4814), and none twice
    assert len(set(listed)) == len(listed) == ports and min(listed) >= 1024 and listed != sorted(listed)
    assert to["change"] == {"random": {"from": 1, "to": 65_535}}
    seen = {(i % subscribers, listed[i % ports]) for i in range(min(subscribers * ports, 50_000))}
    assert len(seen) == min(subscribers * ports, 50_000)


@pytest.mark.parametrize("seconds", [0.5, 10.0, 60.0])
def test_new_flows_last_for_a_trial(seconds: float) -> None:
    read = study.read("rfc9693-rate")
    plain, _ = study.experiment(read, study.nat(None), Machine(MACHINES["two"]), seconds=seconds)
    for leg in spec.load(plain, "p").legs:
        (up,) = profile(leg)["groups"]
        rate = float(up["frame"]["rate"]["frames"].removesuffix("/s"))
        assert rate <= 2e6
        phases = {
            name: float(text.removesuffix("ms")) / 1000
            for name, text in profile(leg)["phases"].items()
            if name == "warmup"
        }
        offered = rate * (phases["warmup"] - float(up["frame"]["after"].removesuffix("ms")) / 1000 + seconds)
        assert offered <= prod(Flows(4_000_000, new=True).shape)


def test_the_labs_subscribers_need_no_route() -> None:
    own = nat(inside__routes=[{"to": "100.64.0.0/16", "via": "10.0.0.1"}], reverse_path="strict")
    simulated = lab.with_room(own, 1000, 1)
    assert (simulated.routes, simulated.reverse_path) == ((), "loose")


def test_tables_have_room_for_all_flows() -> None:
    for name in ("rfc9693-flows", "rfc9693-rate"):
        for leg in made(name)[0].legs:
            conntrack = dpdk(leg)["elements"]["conntrack"]
            (vary,) = [g["frame"]["vary"] for g in profile(leg)["groups"] if g["name"] == "up"]
            subscribers = vary[0]["change"]["increment"]["count"]
            ports = len(vary[1]["change"].get("list", [0]))
            assert conntrack["sessions"] >= subscribers * ports
            assert conntrack["most_subscribers"] >= subscribers
            assert ports == 1 or conntrack["ports_per_block"] >= ports


def test_what_makes_no_study_is_refused(tmp_path: Path) -> None:
    head = "format: netdyno-nat-study/1\nname: s\n"
    for text, what in (
        ("legs: [{name: a, dut: kernel}]", "no ports in memory"),
        ("legs: [{name: a, dut: nothing}]", "none of l2fwd"),
        ("legs: [{name: a, dut: l2fwd}, {name: a, dut: l2fwd}]", "same name"),
        ("legs: [{name: a, dut: l2fwd}]\nbeside: [{leg: a, to: b}]", "'b' is no leg"),
        ("direction: down\nlegs: [{name: a, dut: pipeline, new_flows: true}]", "new flows begin inside"),
        ("direction: down\nlegs: [{name: a, dut: pipeline, flows: 1001}]", "at most 1,000 flows"),
        (
            "direction: down\nlegs: [{name: a, dut: run-to-completion, ports: af_packet, workers: 2}]",
            "one worker's: workers: 1",
        ),
        ("latency_at: [0.5, 0.5]\nlegs: [{name: a, dut: l2fwd}]", "a share twice"),
        ("line: 40\nlegs: [{name: a, dut: l2fwd}]", "valid string"),
        ("line: 0Gbit/s\nlegs: [{name: a, dut: l2fwd}]", "too slow"),
        ("line: fast\nlegs: [{name: a, dut: l2fwd}]", "'fast' is not a rate in bits"),
        ("latency_at: [0]\nlegs: [{name: a, dut: l2fwd}]", "greater than 0"),
        ("latency_at: [90]\nlegs: [{name: a, dut: l2fwd}]", "less than or equal to 1"),
        ("legs: [{name: a, dut: stages}]", "core for each stage"),
        ("legs: [{name: a, dut: kernel, ports: af_packet, workers: 4}]", "kernel is for one worker"),
        ("legs: [{name: a, dut: core-set-1, workers: 2}]", "core-set-1 is for one worker"),
        (
            "legs: [{name: a, dut: stages, workers: 2, execution: "
            "{rx: s0c0, validity: s0c0, nat: s0c1, conntrack: [s0c1, s0c2], tx: s0c0}}]",
            "execution.nat has 1 cores, and there are 2",
        ),
    ):
        file = tmp_path / "s.yaml"
        file.write_text(head + text)
        with pytest.raises(Error, match=what):
            study.read(str(file))
    with pytest.raises(Error, match="no study 'figure-11'"):
        study.read("figure-11")
    with pytest.raises(Error, match="no leg 'x'"):
        study.read("figure-7").only(["x"])


def test_what_comes_down_may_be_as_many_flows_as_there_are_forwards(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    leg = "{name: a, dut: pipeline, flows: 1000}"
    file.write_text(f"format: netdyno-nat-study/1\nname: s\ndirection: down\nlegs: [{leg}]")
    plain, _ = study.experiment(study.read(str(file)), study.nat(None), Machine(MACHINES["two"]))
    (made,) = spec.load(plain, "s").legs
    assert len(dpdk(made)["elements"]["conntrack"]["forwards"]) == 1000


def test_a_lab_leaves_alone_what_a_nat_in_service_keeps_and_tells() -> None:
    real = nat(
        state="/var/lib/netdyno/cgn.state", pcp={}, mss=1400,
        log={"ipfix": "203.0.113.1:4739"},
    )  # fmt: skip
    assert {"state", "log", "pcp", "mss"} <= {*real.conntrack}
    for ports in ("memory", "af_packet"):
        assert lab.placed(real, ports).conntrack == {"mss": 1400}


def test_sites_have_addresses_that_stay_where_nobody_gives_any() -> None:
    placed = lab.placed(nat(pool=None, sites={"most": 2, "by": "vlan"}), "memory")
    assert (placed.sites, placed.pool) == (None, ("203.0.113.3", "203.0.113.4"))
    assert lab.public(placed) == IPv4Address("203.0.113.3")


def test_a_configuration_that_the_lab_has_no_room_for_is_refused() -> None:
    flows = Flows(1_000_000)
    with pytest.raises(
        Error, match="15,625 subscribers need as many blocks of 512 ports; the pool has 2,016"
    ):
        lab.roomy(nat(ports={"per_block": 512}), flows, "up")
    assert lab.roomy(nat(pool=["198.18.0.0/22"]), flows, "up").most_subscribers == 15_625 + 64
    for limit, there in ((None, None), (500, 8192), (20_000, 20_000)):
        limits = {"sessions_per_subscriber": limit} if limit else {}
        made = lab.roomy(nat(limits=limits), Flows(1000), "up")
        assert made.sessions_per_subscriber == there
    with pytest.raises(Error, match="no address left for the router"):
        lab.router(nat(inside=CGN["inside"] | {"ip": "10.0.0.254/32"}))
    sites = nat(
        pool=None,
        sites={"most": 4, "by": "subscriber"},
        outside=CGN["outside"] | {"ip": "203.0.113.2/30", "gateway": "203.0.113.1"},
    )
    with pytest.raises(Error, match="no address left to stand for those of sites"):
        lab.placed(sites, "memory")
