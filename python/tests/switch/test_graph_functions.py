"""Functions that are netdyno's own graphs, and DPDK's test forwarder: proved as any other, faults named."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.lab.dut.base import has
from netdyno.switch.chain import layout
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.verify import verify
from netdyno.switch.driver import DRIVERS
from netdyno.system import namespace, proc
from netdyno.system.journal import journal

from ..conftest import root

DPDK = Path("/var/run/dpdk")


@pytest.fixture
def needs_ovs() -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)


def graph(folder: Path, *there: str, **elements: dict[str, Any]) -> str:
    """A file with a graph of two ports and elements from one to the other; back is a wire."""
    file = folder / "graph.json"
    file.write_text(json.dumps({
        "ports": {"a": {"device": "0000:83:00.0"}, "b": {"device": "0000:83:00.1"}}, "elements": elements,
        "edges": ["b.rx -> a.tx", *there],
    }))  # fmt: skip
    return str(file)


@root
@pytest.mark.daemon
@pytest.mark.drawn
def test_they_are_proved_and_leave_nothing(needs_ovs: None, tmp_path: Path) -> None:
    file = graph(tmp_path, "a.rx -> count -> b.tx", count={"kind": "counter"})
    vnfs: dict[str, Any] = {
        "wire": {"kind": "graph", "options": {"graph": file}},
        "late": {"kind": "impair", "options": {"path": "delay=20ms"}},
        "router": {"kind": "router"},
        "cgnat": {"kind": "cgnat", "options": {"nat44": {"ports_per_block": 64}}},
        "second": {"kind": "cgnat"},
    }
    before = journal().open_entries
    with ChainLab(checked({"vnfs": vnfs, "chain": list(vnfs)}, "x")) as lab:
        found = verify(lab)
        assert found.good, found.first_fault
        assert len(found.directions) == 6
        assert answered(lab) >= 0.04, "20 ms each way"
        program = lab.vnfs["late"].process
        assert program
        lab.vnfs["late"].fail()
        program.wait(30.0)
        assert "the function late (SIGKILL)" in lab.dead()
    assert not list(proc.members(program.pid)) and journal().open_entries == before


def answered(lab: ChainLab) -> float:
    """Seconds until a datagram to the server comes back."""
    address = layout.addresses(lab.chain).server

    def made() -> socket.socket:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.settimeout(10)
        return one

    with (
        namespace.inside(lab.network.namespace("server"), made) as server,
        namespace.inside(lab.network.namespace("client"), made) as client,
    ):
        server.bind(("", 5000))
        began = time.monotonic()
        client.sendto(b"x", (address, 5000))
        server.sendto(b"x", server.recvfrom(10)[1])
        client.recv(10)
        return time.monotonic() - began


@root
@pytest.mark.daemon
@pytest.mark.drawn
def test_one_that_drops_is_named(needs_ovs: None, tmp_path: Path) -> None:
    rules = [{"match": "udp", "to": "none"}, {"match": "any", "to": "rest"}]
    file = graph(
        tmp_path, "a.rx -> parse -> acl", "acl.rest -> b.tx", "acl.none -> drop",
        parse={"kind": "parser", "port": "a"}, acl={"kind": "classifier", "rules": rules}, drop={"kind": "discard"},
    )  # fmt: skip
    vnfs = {"acl": {"kind": "graph", "options": {"graph": file}}}
    with ChainLab(checked({"vnfs": vnfs, "chain": ["acl"]}, "x")) as lab:
        found = verify(lab)
    bad = [one for one in found.directions if not one.good]
    assert {one.protocol for one in bad} == {"udp"}
    assert bad[0].fault and bad[0].fault.host == "acl" and "never sends" in bad[0].fault.what


@root
@pytest.mark.drawn
def test_testpmd_forwards_and_leaves_nothing(needs_ovs: None) -> None:
    if not has("dpdk-testpmd"):
        pytest.skip("dpdk-testpmd is not installed")
    swap = {"kind": "testpmd", "options": {"mode": "macswap"}}
    vnfs = {"io": {"kind": "testpmd"}, "there": swap, "back": swap}
    with ChainLab(checked({"vnfs": vnfs, "chain": list(vnfs)}, "x")) as lab:
        found = verify(lab)
        assert found.good, found.first_fault
        spaces = [lab.network.namespace(name) for name in vnfs]
        programs = [one.process for one in lab.vnfs.values() if one.process]
    assert len(programs) == 3 and not any(list(proc.members(one.pid)) for one in programs)
    assert not [space for space in spaces if (DPDK / f"netdyno-{space}").exists()]


@root
@pytest.mark.drawn
def test_testpmd_that_does_not_start_is_told(needs_ovs: None) -> None:
    if not has("dpdk-testpmd"):
        pytest.skip("dpdk-testpmd is not installed")
    # 16,384 buffers of 2 KiB do not fit
    small = ChainLab(
        checked({"vnfs": {"a": {"kind": "testpmd", "options": {"memory": 16}}}, "chain": ["a"]}, "x")
    )
    with pytest.raises(Error) as wrong, small:
        pass
    assert wrong.value.code == "ND-92-61" and "vnfs.a" in wrong.value.at
    assert "Cannot allocate memory" in wrong.value.what, wrong.value


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("impair", {"path": "delay=soon"}, "soon"),
        ("impair", {"path": "metro"}, "presets are for paths of links"),
        ("testpmd", {"mode": "mac"}, "mode"),
        ("graph", {}, "graph"),
    ],
)
def test_wrong_options_are_told(kind: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(Error) as wrong:
        checked({"vnfs": {"a": {"kind": kind, "options": options}}, "chain": ["a"]}, "x")
    assert wrong.value.code == "ND-104-82" and words in str(wrong.value), wrong.value


def test_a_nat_of_ipv4_is_in_no_chain_with_ipv6() -> None:
    with pytest.raises(Error) as wrong:
        checked({"vnfs": {"a": {"kind": "cgnat"}}, "chain": ["a"], "ipv6": True}, "x")
    assert "forwards IPv4 only" in str(wrong.value)


@root
def test_a_graph_without_two_ports_is_told(needs_ovs: None, tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    for text, options, words in (
        ('{"ports": {"a": {"device": "x"}}}', {}, "no graph with two ports"),
        ('{"ports": {"a": {}, "b": {}}}', {"inside": "c"}, "has no port 'c'"),
        ("[]", {}, "no graph with two ports"),
    ):
        file.write_text(text)
        vnfs = {"a": {"kind": "graph", "options": {"graph": str(file), **options}}}
        with pytest.raises(Error) as wrong, ChainLab(checked({"vnfs": vnfs, "chain": ["a"]}, "x")):
            pass
        assert wrong.value.code == "ND-104-82" and words in wrong.value.what
