"""The graph that a configuration becomes, where its elements run, and how its faults find back to keys."""

from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.nat import graph
from netdyno.nat.cores import Topology

from .shared import machine, nat

EDGES = [
    "inside.rx -> in-validity",
    "in-validity.out -> nat -> conntrack",
    "outside.rx -> out-validity",
    "out-validity.out -> conntrack",
    "conntrack.outside -> outside.tx",
    "conntrack.inside -> inside.tx",
    "in-validity.local -> in-host -> inside.tx",
    "out-validity.local -> out-host -> outside.tx",
]
ALL = [
    "inside.rx",
    "in-validity",
    "outside.rx",
    "out-validity",
    "nat",
    "conntrack",
    "in-host",
    "out-host",
    "inside.tx",
    "outside.tx",
]


PRIVATE = ["10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"]
NETWORKS = ["10.0.0.0", "10.0.0.255", "203.0.113.0", "203.0.113.255"]


def test_the_box_takes_packets_from_whom_it_forwards_them() -> None:
    """Inside: subscribers, the link, and what routers there lead to. Outside: nobody of the inside, but for what is outside all the same."""
    found = made(
        machine(1, 2),
        subscribers=["100.64.0.0/10"],
        inside__routes=[{"to": "100.64.0.0/16", "via": "10.0.0.1"}],
        outside_prefixes=["100.70.0.0/16"],
        exempt=["100.71.0.0/24"],
    )["elements"]
    assert found["in-host"]["sources"]["only"] == ["100.64.0.0/10", "10.0.0.0/24", "100.64.0.0/16"]
    assert found["out-host"]["sources"] == {
        "non_host_addresses": NETWORKS,
        "other_side": ["100.64.0.0/10", "10.0.0.254"],
        "except": ["100.70.0.0/16", "100.71.0.0/24"],
    }
    strict = made(machine(1, 2), reverse_path="strict")["elements"]
    assert strict["in-host"]["sources"]["only"] == ["10.0.0.0/24"]


def test_what_goes_to_the_other_address_is_the_kernels_only_if_both_are() -> None:
    both = made(machine(1, 2), inside__host="nat-in", outside__host="nat-out")["elements"]
    assert (both["in-host"]["also"], both["in-host"]["also_host"]) == (["203.0.113.2"], True)
    for one in ({"inside__host": "nat-in"}, {"outside__host": "nat-out"}):
        assert "also_host" not in made(machine(1, 2), **one)["elements"]["in-host"]


def made(there: Topology, **changes: Any) -> dict[str, Any]:
    settings = nat(**changes)
    return graph.document(settings, graph.layout(settings, there))


def placement(there: Topology, **changes: Any) -> dict[int, list[str]]:
    listed = made(there, **changes)["placement"]
    found = {one["core"]: one["elements"] for one in listed}
    assert len(found) == len(listed), "two workers on one core"
    return found


def test_what_is_left_out_is_left_out() -> None:
    assert made(machine(1, 2)) == {
        "description": "Carrier-grade NAT cgn",
        "ports": {
            "inside": {"device": "0000:83:00.0", "ip": "10.0.0.254/24"},
            "outside": {"device": "0000:83:00.1", "ip": "203.0.113.2/24"},
        },
        "elements": {
            "in-validity": {
                "kind": "validity",
                "port": "inside",
                "verify": True,
                "own_mac": True,
                "also": ["203.0.113.2"],
            },
            "out-validity": {"kind": "validity", "port": "outside", "verify": True, "own_mac": True},
            "nat": {
                "kind": "subscriber-table",
                "non_host_addresses": ["10.0.0.254", "10.0.0.0", "10.0.0.255"],
            },
            "conntrack": {
                "kind": "nat44",
                "inside": "inside",
                "outside": "outside",
                "pool": ["203.0.113.16/28"],
                "non_host_addresses": ["10.0.0.0", "10.0.0.255", "203.0.113.0", "203.0.113.255"],
            },
            "in-host": {
                "kind": "nat-host",
                "port": "inside",
                "on_link": ["10.0.0.0/24"],
                "also": ["203.0.113.2"],
                "sources": {"non_host_addresses": NETWORKS, "only": [*PRIVATE, "10.0.0.0/24"]},
            },
            "out-host": {
                "kind": "nat-host",
                "port": "outside",
                "answers_for": ["203.0.113.16/28"],
                "gateway": "203.0.113.1",
                "sources": {"non_host_addresses": NETWORKS, "other_side": [*PRIVATE, "10.0.0.254"]},
            },
        },
        "edges": EDGES,
        "placement": [{"core": 1, "elements": ALL}],
    }


def test_what_is_said_is_said() -> None:
    subscribers = ["10.0.0.0/8", "100.64.0.0/10"]
    found = made(
        machine(1, 2),
        subscribers=subscribers,
        ports={"per_block": 256, "blocks_per_subscriber": 2},
        limits={"sessions": 1000, "subscribers": 10, "sessions_per_subscriber": 100},
        filtering={"udp": "address_and_port_dependent"},
        mss=1400,
        memory="1GiB",
        huge_pages=True,
        inside__vlan=[200, 100],
    )
    assert (found["memory"], found["huge_pages"]) == ("1GiB", True)
    assert found["ports"]["inside"]["vlan"] == [200, 100]
    who = {"subscribers": subscribers, "most_subscribers": 10}
    no_hosts = ["10.0.0.0", "10.0.0.255"]
    assert (
        found["elements"]["nat"]
        == {"kind": "subscriber-table", "non_host_addresses": ["10.0.0.254", *no_hosts]} | who
    )
    assert found["elements"]["conntrack"] == who | {
        "kind": "nat44",
        "inside": "inside",
        "outside": "outside",
        "pool": ["203.0.113.16/28"],
        "non_host_addresses": [*no_hosts, "203.0.113.0", "203.0.113.255"],
        "sessions": 1000,
        "ports_per_block": 256,
        "blocks_per_subscriber": 2,
        "sessions_per_subscriber": 100,
        "udp_filtering": "address_and_port_dependent",
        "mss": 1400,
    }


def test_routes_and_filters_are_the_elements_own() -> None:
    route = {"to": "100.64.0.0/16", "via": "10.0.0.1"}
    rule = {"action": "deny", "from": "inside", "protocol": "tcp", "ports": 25}
    found = made(
        machine(1, 2),
        inside__routes=[route],
        inside__mtu=9000,
        outside__ip="192.168.1.2/24",
        outside__gateway="192.168.1.1",
        outside_prefixes=["172.16.0.0/12"],
        reverse_path="strict",
        ip_options="none",
        acl=[rule],
    )
    elements = found["elements"]
    assert found["ports"]["inside"]["mtu"] == 9000 and "mtu" not in found["ports"]["outside"]
    assert elements["in-host"]["routes"] == [route]
    assert elements["nat"]["reverse_path"] == ["10.0.0.0/24", "100.64.0.0/16"]
    # the outside port's own network is outside, also where it is in the subscribers' space
    conntrack = elements["conntrack"]
    assert conntrack["outside_prefixes"] == ["192.168.1.0/24", "172.16.0.0/12"]
    assert (conntrack["ip_options"], conntrack["acl"]) == ("none", [rule | {"ports": "25"}])
    # what the daemon finds wrong is told by the key of the file
    assert graph.config_path("elements.in-host.routes[0].via") == "inside.routes[0].via"
    assert graph.config_path("elements.conntrack.acl[2].ports") == "acl[2].ports"
    assert graph.config_path("ports.outside.mtu") == "outside.mtu"


def test_requests_for_mappings_go_to_what_keeps_sessions() -> None:
    there = machine(1, 2)
    elements = made(there, pcp={})["elements"]
    assert elements["conntrack"]["pcp"] == {}
    assert [name for name, one in elements.items() if name.endswith("validity") and "pcp" in one] == [
        "in-validity"
    ]
    assert elements["in-validity"]["pcp"] is True
    assert not any("pcp" in one for one in made(there)["elements"].values())


def test_sites_have_their_dhcp_clients_before_the_box_itself() -> None:
    own = {"macs": "02:00:5e:00:00:00", "known": "/var/lib/netdyno/sites.json"}
    sites = {"most": 4, "by": "prefix", "prefix": 29}
    found = made(machine(1, 2), pool=None, sites=sites | own, subscribers=["10.0.0.0/8"])
    elements = found["elements"]
    assert elements["sites"] == own | {
        "kind": "nat-sites", "port": "outside", "sites": sites, "subscribers": ["10.0.0.0/8"],
        "never": ["10.0.0.0/24"], "gateway": elements["out-host"]["gateway"],
    }  # fmt: skip
    assert elements["conntrack"]["sites"] == sites
    assert "pool" not in elements["conntrack"]
    assert elements["out-validity"]["dhcp"] is True
    assert elements["out-validity"]["macs"] == {"first": own["macs"], "count": 4}
    assert "answers_for" not in elements["out-host"]
    assert found["edges"] == [
        *EDGES[:-1],
        "out-validity.local -> sites",
        "sites.out -> out-host -> outside.tx",
        "sites.tx -> outside.tx",
    ]
    for execution in ("run-to-completion", "pipeline", "core-set-1"):
        parts = placement(machine(1, 4), pool=None, sites=sites, execution=execution)
        assert sorted(name for part in parts.values() for name in part) == sorted([*ALL, "sites"])
    # of workers there may be several: who has the clients is one
    for execution in ("run-to-completion", "pipeline"):
        parts = placement(machine(1, 4), pool=None, sites=sites, execution=execution, workers=2)
        names = [name for part in parts.values() for name in part]
        assert names.count("sites") == 1 and {"conntrack#0", "conntrack#1"} <= {*names}


def test_workers_that_run_to_completion_have_their_queues_with_them() -> None:
    found = made(machine(1, 4), workers=2)
    assert found["replicas"] == {
        "in-validity": {"count": 2, "affinity": "upstream"},
        "out-validity": {"count": 2, "affinity": "upstream"},
        "nat": {"count": 2, "affinity": "owner"},
        "conntrack": {"count": 2, "affinity": "owner"},
    }
    assert found["ports"]["inside"]["queues"] == found["ports"]["outside"]["queues"] == 2
    first, second = found["placement"]
    assert first == {
        "core": 1,
        "elements": [
            "inside.rx0", "in-validity#0", "outside.rx0", "out-validity#0", "nat#0", "conntrack#0", "in-host", "out-host",
            "inside.tx0", "outside.tx0",
        ],
    }  # fmt: skip
    assert second == {
        "core": 2,
        "elements": [
            "inside.rx1", "in-validity#1", "outside.rx1", "out-validity#1", "nat#1", "conntrack#1", "inside.tx1", "outside.tx1",
        ],
    }  # fmt: skip


def test_workers_divide_subscribers_as_rss_steers_packets() -> None:
    def steering(**said: Any) -> tuple[str | None, ...]:
        found = made(machine(1, 4), **said)
        ports = found["ports"]
        return (
            found["elements"]["conntrack"].get("steering"),
            *(ports[side].get("rss") for side in ("inside", "outside")),
        )

    assert steering(workers=2) == ("rss", "source", "destination")
    assert steering(workers=2, outside__queues=1) == ("rss", "source", None)
    assert steering(workers=2, steering="hash") == (None, None, None)
    # who does not spread is told nothing; and one worker divides nothing
    no_nics = {"inside__device": "af_packet:in0", "outside__device": "af_packet:out0"}
    assert steering(workers=2, **no_nics) == steering() == (None, None, None)
    assert steering(workers=2, **no_nics, steering="rss") == ("rss", None, None)
    sites = {"most": 9, "by": "subscriber"}
    assert steering(workers=2, pool=None, sites=sites) == (None, None, None)


def test_a_port_that_spreads_no_flows_has_one_queue() -> None:
    sides = {"inside__device": "af_packet:in0", "outside__device": "af_packet:out0"}
    found = made(machine(1, 4), workers=2, **sides)
    assert set(found["replicas"]) == {"nat", "conntrack"}
    assert "queues" not in found["ports"]["inside"]
    first, second = found["placement"]
    assert "inside.rx" in first["elements"]
    assert second["elements"] == ["nat#1", "conntrack#1"]
    # unless it is said; and a NIC may be told to have fewer
    found = made(machine(1, 4), workers=2, **sides, inside__queues=3)
    assert found["replicas"]["in-validity"]["count"] == 3
    assert "inside.rx2" in found["placement"][0]["elements"]
    assert "out-validity" not in found["replicas"]
    assert "in-validity" not in made(machine(1, 4), workers=2, inside__queues=1)["replicas"]


def test_more_workers_than_cores_fold() -> None:
    where = graph.layout(nat(workers=3), machine(1, 2))
    assert [work.core for work in where.workers] == [1, 0]
    assert {"conntrack#0", "conntrack#2"} <= set(where.workers[0].elements)
    assert where.notes == ("this machine has 2 cores on 1 socket: 3 workers fold onto 2 cores",)


def test_a_pipeline_uses_the_cores_that_there_are() -> None:
    five = placement(machine(1, 8), execution="pipeline")
    assert five == {
        1: ["inside.rx", "outside.rx"],
        2: ["in-validity", "out-validity"],
        3: ["nat"],
        4: ["conntrack"],
        5: ["in-host", "out-host", "inside.tx", "outside.tx"],
    }
    two = graph.layout(nat(execution="pipeline"), machine(1, 2))
    assert [work.elements[-1] for work in two.workers] == ["nat", "outside.tx"]
    assert two.notes == ("this machine has 2 cores on 1 socket: 5 stages fold onto 2 cores",)
    found = placement(machine(1, 8), execution="pipeline", workers=2)
    assert [elements for elements in found.values() if elements[0].startswith(("nat", "conntrack"))] == [
        ["nat#0"], ["conntrack#0"], ["nat#1"], ["conntrack#1"],
    ]  # fmt: skip


def test_a_core_set_is_a_placement() -> None:
    assert placement(machine(2, 4, 2), execution="core-set-2") == {
        0: ["inside.rx", "outside.rx"],
        1: ["in-validity", "out-validity"],
        2: ["nat"],
        3: ["conntrack"],
        8: ["in-host", "out-host", "inside.tx", "outside.tx"],
    }
    # stages of one core are one worker
    assert placement(machine(2, 4, 2), execution="val+nat")[1] == ["in-validity", "out-validity", "nat"]
    two = placement(machine(1, 2), execution="core-set-1")
    assert two[0] == ["inside.rx", "outside.rx", "nat"]
    own = {
        "rx": "s0c0",
        "validity": "s0c0",
        "nat": ["s0c1", "s0c2"],
        "conntrack": ["s0c1", "s0c2"],
        "tx": "s0c0",
    }
    found = placement(machine(1, 4), execution=own, workers=2)
    assert (found[1], found[2]) == (["nat#0", "conntrack#0"], ["nat#1", "conntrack#1"])


@pytest.mark.parametrize("execution", ["run-to-completion", "pipeline", "core-set-1", "core-set-3", "rx+tx"])
@pytest.mark.parametrize("there", [machine(1, 1), machine(1, 2), machine(2, 4, 2)], ids=str)
def test_every_element_runs_somewhere_once(execution: str, there: Topology) -> None:
    found = placement(there, execution=execution)
    assert sorted(name for elements in found.values() for name in elements) == sorted(ALL)
    assert set(found) <= there.allowed


@pytest.mark.parametrize(
    ("at", "key"),
    [
        ("elements.conntrack.pool", "pool"),
        ("elements.conntrack.pool[3]", "pool[3]"),
        ("elements.out-host.answers_for[0]", "pool[0]"),
        ("elements.out-host.gateway", "outside.gateway"),
        ("elements.conntrack.sites.most", "sites.most"),
        ("elements.sites.sites.prefix", "sites.prefix"),
        ("elements.sites.macs", "sites.macs"),
        ("elements.sites.known", "sites.known"),
        ("elements.sites.subscribers[0]", "subscribers[0]"),
        ("elements.nat.subscribers[1]", "subscribers[1]"),
        ("elements.nat.most_subscribers", "limits.subscribers"),
        ("elements.conntrack.sessions", "limits.sessions"),
        ("elements.conntrack.sessions_per_subscriber", "limits.sessions_per_subscriber"),
        ("elements.conntrack.ports_per_block", "ports.per_block"),
        ("elements.conntrack.blocks_per_subscriber", "ports.blocks_per_subscriber"),
        ("elements.conntrack.udp_filtering", "filtering.udp"),
        ("elements.conntrack.mss", "mss"),
        ("elements.conntrack.pcp.lifetime.most", "pcp.lifetime.most"),
        ("elements.in-validity.pcp", "pcp"),
        ("elements.conntrack.outside", "outside"),
        ("elements.in-validity.port", "inside"),
        ("elements.out-validity.port", "outside"),
        ("elements.out-host.port", "outside"),
        ("ports.inside.device", "inside.device"),
        ("ports.outside.queues", "outside.queues"),
        ("placement[2]", "execution"),
        ("replicas.nat.count", "workers"),
        ("memory", "memory"),
        ("huge_pages", "huge_pages"),
        # of which there is no key
        ("ports", "ports"),
        ("elements.nat.kind", "elements.nat.kind"),
        ("edges[0]", "edges[0]"),
    ],
)
def test_a_fault_of_the_graph_is_told_by_its_key(at: str, key: str) -> None:
    assert graph.config_path(at) == key


def test_all_faults_of_the_graph_are_told() -> None:
    found = [
        {"code": "ND-104-05", "at": "elements.conntrack.sessions", "what": "too many", "fix": "fewer"},
        {"code": "ND-104-04", "at": "ports.inside.device", "what": "none", "fix": "name one"},
    ]
    told = graph.explained(Error.of(found[0] | {"all": found}), "cgn.yaml")
    assert told.at == "cgn.yaml: limits.sessions"
    assert [one["at"] for one in told.all] == ["cgn.yaml: limits.sessions", "cgn.yaml: inside.device"]
    # what is not about the graph stays as it is
    lost = Error("ND-91-21", "lost", at="/run/x.sock")
    assert graph.explained(lost, "cgn.yaml").as_dict() == lost.as_dict()
