"""What a configuration of a NAT may say, and how it is refused: with the key, the fault and what to do."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import netdyno
from netdyno import config, paths
from netdyno.errors import Error
from netdyno.nat.config import checked, load
from netdyno.nat.cores import CoreLocation
from netdyno.nat.file import File, words
from netdyno.nat.sizing import sizing
from netdyno.nat.verbs import init as nat_init

from .shared import CGN, nat

TOP = Path(__file__).resolve().parents[3]
SET = {"rx": "s0c0", "validity": "s0c1", "nat": "s0c2", "conntrack": "s0c3", "tx": "s1c1"}


def test_what_it_leaves_out_is_left_to_the_daemon() -> None:
    made = nat()
    assert (made.name, made.addresses, made.workers, made.execution) == ("cgn", 16, 1, "run-to-completion")
    assert made.subscribers is made.sessions is made.leases is made.memory is None
    assert made.conntrack == {}
    assert made.inside.settings == CGN["inside"]
    assert made.outside.settings == {"device": "0000:83:00.1", "ip": "203.0.113.2/24"}
    assert str(made.gateway) == "203.0.113.1"


def test_all_that_it_can_say() -> None:
    made = checked(config.parse_text(nat_init.commented(), "init"), "init")
    assert made.ports_per_block == 512
    assert made.blocks_per_subscriber == 4
    assert (made.sessions, made.most_subscribers, made.sessions_per_subscriber) == (1 << 20, 1 << 14, 8192)
    assert made.conntrack == {"udp_filtering": "endpoint_independent"}
    assert (made.memory, made.huge_pages) == ("1GiB", True)
    tagged = nat(inside__vlan=100, outside__vlan=[200, 100], inside__mac="02:00:00:00:00:01")
    assert tagged.inside.settings["vlan"] == [100]
    assert tagged.outside.settings["vlan"] == [200, 100]


PAIR = {"socket": "/run/netdyno/cgn.pair"}
SITES: dict[str, Any] = {"most": 4, "by": "vlan"}
ROUTE = {"to": "100.64.0.0/16", "via": "10.0.0.1"}
FORWARD = {"protocol": "tcp", "outside": "203.0.113.16:443", "inside": "10.0.0.7:8443"}


@pytest.mark.parametrize(
    ("changes", "at", "told"),
    [
        # the two sides
        ({"outside__device": "0000:83:00.0"}, "outside.device", "inside and outside are the same port"),
        ({"inside__ip": "203.0.113.254/24"}, "outside.ip", "overlap"),
        ({"inside__ip": "10.0.0.254"}, "inside.ip", "prefix length of its network"),
        ({"inside__ip": "10.0.0.254/33"}, "inside.ip", "33"),
        ({"inside__ip": "fd00::1/64"}, "inside.ip", "NAT64 is not there"),
        ({"outside__gateway": "198.51.100.1"}, "outside.gateway", "not in 203.0.113.0/24"),
        ({"outside__gateway": "203.0.113.2"}, "outside.gateway", "the box's own address"),
        ({"outside__gateway": None}, "outside.gateway", "the key 'gateway' is missing"),
        ({"inside__gateway": "10.0.0.1"}, "inside.gateway", "unknown key 'gateway'"),
        ({"inside__vlan": 4095}, "inside.vlan", "1 to 4094"),
        ({"inside__vlan": [1, 2, 3]}, "inside.vlan", "two of them"),
        ({"inside__queues": 17}, "inside.queues", "less than or equal to 16"),
        ({"inside__mac": "02-00"}, "inside.mac", "pattern"),
        # what would leak
        ({"pool": ["10.9.0.0/28"]}, "pool[0]", "overlaps the subscribers' 10.0.0.0/8"),
        ({"subscribers": ["203.0.113.0/28"], "pool": ["203.0.113.8/29"]}, "pool[0]", "the subscribers'"),
        ({"pool": ["203.0.113.16/28", "203.0.113.24/29"]}, "pool[1]", "overlap"),
        ({"pool": ["203.0.113.0/28"]}, "pool[0]", "which is outside.ip"),
        ({"subscribers": ["100.64.0.0/10"], "pool": ["10.0.0.0/28"]}, "pool[0]", "the network of inside.ip"),
        ({"exempt": ["192.0.2.0/24", "203.0.113.20"]}, "exempt[1]", "overlaps the pool's 203.0.113.16/28"),
        ({"exempt": ["0.0.0.0/0"]}, "exempt[0]", "nothing is translated"),
        (
            {"forwards": [FORWARD | {"inside": "8.8.8.8:80"}]},
            "forwards[0].inside",
            "8.8.8.8 is no subscriber",
        ),
        # the pool
        ({"pool": []}, "pool", "needs at least 1"),
        ({"pool": ["203.0.113.17/28"]}, "pool", "the prefix begins at 203.0.113.16/28"),
        ({"pool": ["2001:db8::/64"]}, "pool", "NAT64 is not there"),
        ({"pool": ["11.0.0.0/15"]}, "pool", "131,072 addresses are more"),
        ({"pool": ["224.0.1.0/28"]}, "pool[0]", "no address that a host can have"),
        # a pool, or sites
        ({"pool": None}, "pool", "neither a pool nor a site"),
        ({"sites": SITES}, "sites", "Use one of both"),
        ({"pool": None, "sites": {"most": 4}}, "sites.by", "is missing"),
        ({"pool": None, "sites": SITES | {"most": 0}}, "sites.most", "greater than or equal to 1"),
        ({"pool": None, "sites": SITES | {"most": 65_535}}, "sites.most", "less than or equal to 65534"),
        ({"pool": None, "sites": SITES | {"by": "prefix"}}, "sites.prefix", "length is not said"),
        ({"pool": None, "sites": SITES | {"prefix": 28}}, "sites.prefix", "sites are no prefixes"),
        ({"pool": None, "sites": SITES | {"known": "x.json"}}, "sites.known", "no path from the root on"),
        ({"pool": None, "sites": SITES, "forwards": [FORWARD]}, "forwards", "addresses that stay"),
        ({"pool": None, "sites": SITES, "steering": "rss"}, "steering", "not by addresses"),
        (
            {"pool": None, "sites": SITES, "deterministic": "10.0.0.0/24"},
            "deterministic",
            "addresses that stay",
        ),
        # one of a pair
        ({"pair": {"socket": "cgn.pair"}}, "pair.socket", "no path from the root on"),
        ({"pair": {"socket": "/" + 96 * "x"}}, "pair.socket", "at most 96 characters"),
        ({"pair": PAIR, "state": "/var/lib/cgn.state"}, "pair", "the other NAT of a pair has the sessions"),
        ({"pair": PAIR, "pool": None, "sites": SITES}, "pair", "one NAT's DHCP clients"),
        ({"pair": PAIR, "outside__host": "nat-out"}, "pair", "the kernel would answer"),
        # numbers, each at the first value that does not pass
        ({"ports": {"per_block": 500}}, "ports.per_block", "no power of two"),
        ({"ports": {"per_block": 32}}, "ports.per_block", "Use 64 to 16,384"),
        ({"ports": {"per_block": 32_768}}, "ports.per_block", "Use 64 to 16,384"),
        ({"ports": {"blocks_per_subscriber": 9}}, "ports.blocks_per_subscriber", "less than or equal to 8"),
        ({"limits": {"sessions": 0}}, "limits.sessions", "greater than or equal to 1"),
        ({"limits": {"sessions": True}}, "limits.sessions", "valid integer"),
        ({"limits": {"subscribers": "16k"}}, "limits.subscribers", "valid integer"),
        ({"mss": 535}, "mss", "greater than or equal to 536"),
        ({"workers": 33}, "workers", "less than or equal to 32"),
        ({"workers": 0}, "workers", "greater than or equal to 1"),
        # units
        ({"memory": "1Gib"}, "memory", "not a number of bytes: units are B, kB, KiB"),
        ({"memory": "1000000000"}, "memory", "no unit"),
        ({"memory": 1_000_000}, "memory", "valid string"),
        ({"memory": "5s"}, "memory", "not a number of bytes"),
        ({"huge_pages": "yes"}, "huge_pages", "valid boolean"),
        ({"timeouts": {"icmp": "30x"}}, "timeouts.icmp", "'30x' is not a length of time: units are ns"),
        ({"timeouts": {"udp": "300"}}, "timeouts.udp", "no unit"),
        ({"timeouts": {"udp": 300}}, "timeouts.udp", "valid string"),
        ({"pair": PAIR | {"silence": "soon"}}, "pair.silence", "not a length of time"),
        ({"pool": None, "sites": SITES | {"release_after": "5"}}, "sites.release_after", "no unit"),
        # words
        ({"format": "netdyno-nat/2"}, "format", "netdyno-nat/1"),
        ({"format": None}, "format", "is missing"),
        ({"name": "../x"}, "name", "pattern"),
        ({"name": "x" * 33}, "name", "pattern"),
        ({"filtering": {"udp": "strict"}}, "filtering.udp", "endpoint_independent"),
        ({"filtering": {"icmp": "endpoint_independent"}}, "filtering.icmp", "unknown key 'icmp'"),
        ({"forwards": [FORWARD | {"outside": "203.0.113.16"}]}, "forwards[0].outside", "address and a port"),
        ({"forwards": [FORWARD | {"protocol": "sctp"}]}, "forwards[0].protocol", "'tcp' or 'udp'"),
        ({"forwards": [FORWARD | {"vlan": 0}]}, "forwards[0].vlan", "1 to 4094"),
        ({"exempt": ["192.0.2.0/33"]}, "exempt", "192.0.2.0/33"),
        ({"deterministic": "10.0.0.1/24"}, "deterministic", "the prefix begins at 10.0.0.0/24"),
        ({"deterministic": "10.0.0.0/20"}, "deterministic", "4,096 subscribers need as many port blocks"),
        ({"deterministic": "10.0.0.0/24", "workers": 2}, "deterministic", "2 workers cannot divide"),
        # what is dropped, and where subscribers are
        ({"inside__mtu": 575}, "inside.mtu", "greater than or equal to 576"),
        ({"outside__mtu": 9_601}, "outside.mtu", "less than or equal to 9600"),
        ({"inside__routes": [ROUTE | {"via": "10.0.1.1"}]}, "inside.routes[0].via", "not in 10.0.0.0/24"),
        ({"inside__routes": [ROUTE | {"via": "10.0.0.254"}]}, "inside.routes[0].via", "the box's own"),
        ({"inside__routes": [ROUTE | {"via": "10.0.0.255"}]}, "inside.routes[0].via", "broadcast address"),
        ({"inside__routes": [ROUTE | {"to": "10.0.0.0/16"}]}, "inside.routes[0].to", "on the link"),
        ({"inside__routes": [ROUTE | {"to": "192.0.2.0/24"}]}, "inside.routes[0].to", "no subscriber in"),
        ({"inside__routes": [ROUTE, ROUTE]}, "inside.routes[1].to", "there twice"),
        (
            {"inside__routes": [ROUTE], "leases": {"file": "/x", "server": "kea"}},
            "inside.routes",
            "a lease names the subscriber's own MAC address",
        ),
        ({"outside_prefixes": ["10.0.0.0/8"]}, "outside_prefixes[0]", "overlaps 10.0.0.0/24"),
        ({"outside_prefixes": ["192.0.2.0/24"]}, "outside_prefixes[0]", "it is outside anyway"),
        ({"reverse_path": "feasible"}, "reverse_path", "'loose' or 'strict'"),
        ({"ip_options": "all"}, "ip_options", "'none' or 'any'"),
        ({"acl": [{"action": "drop"}]}, "acl[0].action", "'permit' or 'deny'"),
        ({"acl": [{"action": "deny", "ports": "9-8"}]}, "acl[0].ports", "a range like 6881-6889"),
        ({"acl": [{"action": "deny", "ports": 25, "protocol": "icmp"}]}, "acl[0].ports", "no ports"),
        ({"acl": [{"action": "deny", "source": "10.0.0.1/24"}]}, "acl[0].source", "begins at 10.0.0.0/24"),
        # addresses that nobody can have
        (
            {"inside": CGN["inside"] | {"ip": "10.0.0.0/24"}},
            "inside.ip",
            "10.0.0.0 is the network address of 10.0.0.0/24",
        ),
        (
            {"outside": CGN["outside"] | {"gateway": "203.0.113.255"}},
            "outside.gateway",
            "the broadcast address",
        ),
        ({"pool": ["203.0.113.128/25"]}, "pool[0]", "203.0.113.255 is the broadcast address"),
        ({"pool": ["203.0.113.0"]}, "pool[0]", "203.0.113.0 is the network address"),
        ({"leases": {"file": "kea.csv", "server": "kea"}}, "leases.file", "no path from the root on"),
        ({"leases": {"file": "/x", "server": "dnsmasq"}}, "leases.server", "'kea' or 'isc'"),
        ({"timeouts": {"tcp": "5min"}}, "timeouts.tcp", "unknown key 'tcp'"),
        (
            {"timeouts": {"tcp_established": "125min"}},
            "timeouts.tcp_established",
            "without a lease for 124min",
        ),
        ({"timeouts": {"udp": "24h"}}, "timeouts.udp", "a session may live for 24h"),
        ({"pcp": {"mappings_per_subscriber": 4097}}, "pcp.mappings_per_subscriber", "less than or equal"),
        ({"pcp": {"mappings_per_subscriber": 0}}, "pcp.mappings_per_subscriber", "greater than or equal"),
        ({"pcp": {"lifetime": {"most": "125min"}}}, "pcp.lifetime.most", "without a lease for 124min"),
        ({"pcp": {"lifetime": {"most": "2 hours"}}}, "pcp.lifetime.most", "not a length of time"),
        ({"log": {"sessions": "yes"}}, "log.sessions", "valid boolean"),
        ({"poool": []}, "poool", "unknown key 'poool'"),
        # where it runs
        ({"execution": "pipelin"}, "execution", "did you mean 'pipeline'"),
        ({"execution": "core-set-4"}, "execution", "did you mean 'core-set-"),
        ({"execution": 3}, "execution", "no execution model"),
        ({"execution": SET | {"tx": "c1"}}, "execution.tx", "s0c1 (socket 0, core 1)"),
        ({"execution": SET | {"txx": "s0c1"}}, "execution.txx", "unknown key 'txx'"),
        ({"execution": {"rx": "s0c0"}}, "execution.validity", "is missing"),
        (
            {"execution": SET | {"rx": ["s0c0", "s0c1"]}},
            "execution.rx",
            "rx has 2 cores, and there is 1 of it",
        ),
        ({"execution": SET, "workers": 2}, "execution.nat", "nat has 1 core, and there are 2 workers"),
        ({"execution": "core-set-1", "workers": 2}, "workers", "is for 1 worker"),
    ],
)
def test_what_is_wrong_has_a_place_and_words(changes: dict[str, Any], at: str, told: str) -> None:
    with pytest.raises(Error) as wrong:
        nat(**changes)
    found = wrong.value.all or [wrong.value.as_dict()]
    one = next((one for one in found if one["at"] == f"cgn.yaml: {at}"), None)
    assert one is not None, found
    assert told in one["what"] + one["fix"], one
    assert wrong.value.exit_code == 104


@pytest.mark.parametrize(
    "changes",
    [
        {"ports": {"per_block": 64, "blocks_per_subscriber": 8}},
        {"ports": {"per_block": 16_384}},
        {"limits": {"sessions": 1}},
        {"mss": 536},
        {"inside__mtu": 576, "outside__mtu": 9_600},
        {"inside__routes": [ROUTE, {"to": "10.1.0.0/16", "via": "10.0.0.253"}], "reverse_path": "strict"},
        {"outside_prefixes": ["192.168.0.0/16"], "acl": [{"action": "deny", "ports": "0-65535"}]},
        {"workers": 32},
        {"name": "x" * 32},
        {"pool": ["11.0.0.0/16"]},
        {"pool": ["203.0.113.16", "203.0.113.17"]},
        {"pool": None, "sites": SITES | {"most": 65_534}},
        {"pool": None, "sites": SITES, "workers": 4},
        {"pool": None, "sites": {"most": 1, "by": "prefix", "prefix": 32}},
        {"memory": "1_024 MiB"},
        {"inside__device": "null", "outside__device": "null"},
        {"pcp": {"mappings_per_subscriber": 4096, "lifetime": {"most": "124min"}}},
        {"pcp": {"lifetime": {"most": "24h"}}, "leases": {"file": "/x", "server": "kea"}},
        {"execution": SET | {"nat": ["s0c2", "s0c3"], "conntrack": ["s0c4", "s0c5"]}, "workers": 2},
    ],
)
def test_each_limit_just_passes(changes: dict[str, Any]) -> None:
    nat(**changes)


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(Error) as wrong:
        nat(outside__device="0000:83:00.0", outside__gateway="198.51.100.1", pool=["10.0.0.0/28"])
    places = [one["at"] for one in wrong.value.all]
    assert places == [f"cgn.yaml: {at}" for at in ("outside.device", "outside.gateway", "pool[0]")]
    with pytest.raises(Error) as wrong:
        checked([1], "cgn.yaml")
    assert "no configuration of a NAT" in wrong.value.what


def test_a_core_set_has_places() -> None:
    made = nat(execution=SET | {"tx": "s0c0h"}).execution
    assert isinstance(made, dict)
    assert made["tx"] == (CoreLocation(0, 0, second=True),)
    assert made["nat"] == (CoreLocation(0, 2),)
    assert nat(execution="core-set-1").execution == nat(execution=SET).execution


def test_the_example_is_what_init_prints() -> None:
    path = TOP / "examples" / "nat" / "cgn.yaml"
    first, _, rest = path.read_text().partition("\n")
    assert first == "# yaml-language-server: $schema=../../schema/nat.json"
    assert rest == nat_init.commented()
    assert load(path).name == "cgn"


def test_init_explains_every_key() -> None:
    text = nat_init.commented()
    for model in (File, File.model_fields["outside"].annotation, File.model_fields["limits"].annotation):
        assert model is not None
        for key in model.model_fields:  # type: ignore[attr-defined]
            if key != "schema_":
                assert f"{key}:" in text, key
    assert max(map(len, text.splitlines())) <= 112
    # any reader of YAML reads it alike
    assert yaml.safe_load(text) == nat_init.EXAMPLE


def test_the_schema_names_every_key_and_word() -> None:
    schema = json.loads((paths.data("schema") / "nat.json").read_text())
    keys = {field.alias or key for key, field in File.model_fields.items()}
    assert set(schema["properties"]) == keys
    assert schema["additionalProperties"] is False
    word, places = schema["properties"]["execution"]["anyOf"]
    assert word["enum"] == words()
    assert set(schema["$defs"][places["$ref"].rsplit("/", 1)[-1]]["required"]) == set(SET)
    assert all("description" in one for one in schema["properties"].values())


def test_what_there_is_room_for() -> None:
    size = sizing(nat())
    assert (size.addresses, size.blocks_per_address, size.ports_per_subscriber) == (16, 126, 2048)
    # 126 blocks are 31 times 4, and 2 that nobody can have with two others of the same address
    assert (size.guaranteed, size.at_most) == (16 * 31, 16 * 126)
    assert size.session_bytes == 112 << 20
    one = sizing(nat(limits={"subscribers": 100, "sessions": 1000}, ports={"per_block": 64}))
    assert (one.guaranteed, one.at_most, one.session_bytes) == (100, 100, 112_000)
    assert one.blocks_per_address == 1008
    # no address has more blocks than it has
    few = sizing(nat(ports={"per_block": 16_384}))
    assert (few.ports_per_subscriber, few.guaranteed, few.at_most) == (3 * 16_384, 16, 48)


def test_what_else_is_said_of_sessions_reaches_them() -> None:
    said: dict[str, Any] = {
        "timeouts": {"udp": "3min"},
        "forwards": [FORWARD],
        "exempt": ["192.0.2.0/24"],
        "log": {"ipfix": "192.0.2.9:4739"},
        "mss": 1400,
        "pcp": {"mappings_per_subscriber": 8, "lifetime": {"most": "1h"}},
    }
    leases = {"file": "/var/lib/kea/kea-leases4.csv", "server": "kea"}
    made = nat(**said, filtering={"tcp": "endpoint_independent"}, leases=leases)
    assert made.conntrack == said | {"tcp_filtering": "endpoint_independent"}
    assert made.leases == leases


def test_sites_are_as_many_addresses() -> None:
    made = nat(pool=None, sites=SITES | {"least_lease": "10s"})
    assert (made.pool, made.sites) == ((), SITES | {"least_lease": "10s"})
    assert (made.addresses, sizing(made).guaranteed) == (4, 4 * 31)
    each = sizing(nat(pool=None, sites={"most": 4, "by": "subscriber"}))
    assert (each.guaranteed, each.at_most) == (4, 4)


@pytest.mark.parametrize("key", ["pcp", "log", "state", "pair", "leases", "sites", "forwards", "limits"])
def test_a_key_that_is_left_empty_is_told(key: str) -> None:
    with pytest.raises(Error, match=r"it is empty: .*leave the key out") as caught:
        checked({**CGN, key: None}, "cgn.yaml")
    assert caught.value.at == f"cgn.yaml: {key}"


@pytest.mark.parametrize(
    ("other", "verb"), [({"ports": {}, "edges": []}, "netdyno graph run"), ({"groups": []}, "netdyno run")]
)
def test_another_kind_of_document_is_told_once(other: dict[str, Any], verb: str) -> None:
    with pytest.raises(Error, match="no configuration of a NAT") as caught:
        checked(other, "x.yaml")
    assert (verb in caught.value.fix, len(caught.value.all)) == (True, 0)


@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        ({"timeouts": {"udp": 300}}, '"300s"'),
        ({"subscribers": "10.0.0.0/8"}, "like [a, b]"),
        ({"huge_pages": "yes"}, "true or false"),
        ({"limits": {"sessions": 0}}, "Use 1 to 1,073,741,824"),
        ({"leases": {"file": "x", "server": "kea"}}, "begins with /"),
        ({"name": "../x"}, "^[A-Za-z0-9]"),
        ({"pool": []}, "at least 1"),
        ({"filtering": {"udp": "strict"}}, "'address_and_port_dependent'"),
    ],
)
def test_it_is_said_what_to_write(changes: dict[str, Any], fix: str) -> None:
    with pytest.raises(Error) as caught:
        nat(**changes)
    assert fix in caught.value.fix


def test_a_log_without_a_collector_is_not_dropped() -> None:
    assert nat(log={}).conntrack == {"log": {}}


@pytest.mark.daemon
def test_files_of_nats_and_of_their_tables_are_checked(tmp_path: Path) -> None:
    for good in ("examples/graphs/nat.yaml", "experiments/nat/lab.yaml", "experiments/nat/figure-9.yaml"):
        found = netdyno.validate(TOP / good)
        assert (found.experiment, found.profiles, found.advice) == (None, {}, [])
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("format: netdyno-nat/1\nname: x\npol: []\n")
    with pytest.raises(netdyno.Error, match="pol") as refused:
        netdyno.validate(str(wrong))
    assert refused.value.code.startswith("ND-104-")
