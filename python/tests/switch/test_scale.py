"""Long chains and switches with many ports: they work as short ones do, and leave nothing.

Durations are printed (`pytest -s`), and no test fails by them: benches/README.md has those that were seen.
"""

from __future__ import annotations

import os
import time

import pytest

from netdyno.lab.dut import DutSite
from netdyno.lab.network import Network
from netdyno.lab.topology import End, Host, Link, Topology
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.mutate import mutants
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.verify import verify
from netdyno.switch.driver.base import Flow, Wiring
from netdyno.switch.driver.ovs import OvsNetdev
from netdyno.system import namespace

from ..conftest import root
from .hosts import OFF, passes

pytestmark = [root, pytest.mark.drawn]
TRIES = 3
"""Verifications of a mutant at most: a busy machine loses packets."""


@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.full)])
def test_a_long_chain_is_proved_and_its_mutants_are_named(count: int) -> None:
    """One of each kind of mutant, at the middle of the chain, where a rule is found last."""
    if why := OvsNetdev.missing():
        pytest.skip(why)
    names = [f"v{number}" for number in range(count)]
    chain = checked({"vnfs": {one: {"kind": "bridge"} for one in names}, "chain": names}, "x")
    began = time.monotonic()
    with ChainLab(chain) as made:
        print(f"set up in {time.monotonic() - began:.1f} s")
        spaces = {made.network.namespace(host) for host in made.network.nodes}
        assert len(spaces) == count + 3
        found = verify(made)
        assert found.good, found.first_fault
        print(f"verified in {found.seconds:.1f} s")
        every = list(mutants(made.rules))
        for word in ("delete", "misdirect", "duplicate", "reorder"):
            of = [one for one in every if one.name.startswith(word)]
            one = of[len(of) // 2]
            made.program(one.rules)
            for _ in range(TRIES):
                began = time.monotonic()
                named = verify(made, 1).named
                print(f"{one.name}: {time.monotonic() - began:.1f} s")
                if named and named <= one.changed:
                    break
            else:
                pytest.fail(f"{one.name}: {named} named")
        folder, began = made.folder, time.monotonic()
    print(f"torn down in {time.monotonic() - began:.1f} s")
    assert not spaces & set(namespace.names())
    assert folder and not folder.exists()


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.full)])
def test_a_switch_with_many_ports_forwards_by_each_flow(count: int) -> None:
    """Each port's frames go to its neighbour's: those of the first and of the last pair are sent."""
    if why := OvsNetdev.missing():
        pytest.skip(why)
    hosts = {"a": 0, "b": 1, "y": count - 2, "z": count - 1}
    links = []
    for number in range(count):
        host = next((name for name, at in hosts.items() if at == number), "rest")
        addresses = [f"198.18.{number % 2}.{number // 2 % 2 + 1}/16"] if host != "rest" else []
        a = End(host=host, name=f"e{number}", addresses=addresses, offloads=OFF if addresses else {})
        links.append(Link(a=a, b=End(host="sw", name=f"p{number}")))
    made = Topology(hosts={name: Host() for name in ("sw", "rest", *hosts)}, links=links)
    began = time.monotonic()
    with Network(made, f"m{os.getpid() % 10000}") as net:
        spaces = {net.namespace(host) for host in net.nodes}
        one = OvsNetdev(DutSite("sw", "", net.namespace("sw")), wiring=Wiring(learning=False))
        try:
            one.setup()
            assert len(one.ports) == count
            one.program([Flow(at + 1, f"p{at}", [f"p{at ^ 1}"]) for at in range(count)])
            print(f"set up in {time.monotonic() - began:.1f} s")
            assert passes(net, "a", "b") and passes(net, "y", "z")
            packets = one.flow_packets()
            assert set(packets) == set(range(1, count + 1))
            assert packets[1] >= 1 and packets[count - 1] >= 1
            assert sum(name.endswith(".rx_packets") for name in one.counters()) >= count
        finally:
            folder, began = one.folder, time.monotonic()
            one.teardown()
    print(f"torn down in {time.monotonic() - began:.1f} s")
    assert not spaces & set(namespace.names()) and not folder.exists()
