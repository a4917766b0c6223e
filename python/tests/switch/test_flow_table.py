"""Flow tables of Open vSwitch: one with many rules, and one that a controller fills as flows begin."""

from __future__ import annotations

import ipaddress
import socket
import struct
import subprocess
import time
from collections.abc import Iterator

import pytest

from netdyno.errors import Error
from netdyno.lab.dut import DutSite
from netdyno.lab.network import Network
from netdyno.switch.driver import DRIVERS
from netdyno.switch.driver.ovs import Ovs
from netdyno.switch.openflow import message as of
from netdyno.switch.openflow.flow import match_bytes
from netdyno.system import namespace, proc

from ..conftest import root
from .hosts import lab, passes


@pytest.fixture
def net() -> Iterator[Network]:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    with lab(2, "f") as made:
        yield made


def switch(net: Network, **options: object) -> Ovs:
    made = DRIVERS["ovs-netdev"](DutSite("sw", "", net.namespace("sw")), options)
    assert isinstance(made, Ovs)
    return made


def settled(one: Ovs, least: float) -> float:
    until = time.monotonic() + 30
    while (seen := one.counters()["flows"]) < least and time.monotonic() < until:
        time.sleep(0.1)
    return seen


def answered(net: Network, address: str, seconds: float) -> bool:
    """Whether a datagram to an address of h1 finds that nobody listens there."""

    def probe() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.settimeout(0.2)
            one.connect((address, 9))
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                try:
                    one.send(b"x")
                    one.recv(1)
                except TimeoutError:
                    continue
                except ConnectionRefusedError:
                    return True
                except OSError:
                    time.sleep(0.05)
        return False

    return namespace.inside(net.namespace("h0"), probe)


def ip(net: Network, host: str, *words: str) -> None:
    namespace.inside(net.namespace(host), lambda: subprocess.run(["ip", *words], check=True))


@root
@pytest.mark.slow
def test_packets_find_their_own_rule_among_many(net: Network) -> None:
    last = ipaddress.IPv4Address("10.0.0.0") + 3999
    for one in (last, last + 1):
        ip(net, "h1", "addr", "add", f"{one}/32", "dev", "eth0")
        ip(net, "h0", "route", "add", f"{one}/32", "dev", "eth0", "src", "198.18.0.1")
    ip(net, "h1", "route", "add", "10.0.0.0/32", "dev", "lo")
    made = switch(net, rules=4000)
    made.setup()
    try:
        assert answered(net, str(last), 30) and answered(net, str(last + 1), 30)
        made.settle()
        rules = {
            text.partition("nw_dst=")[2].split(" ")[0]: text
            for text in made.flow_texts()
            if "nw_dst=" in text
        }
        assert len(rules) == 4000 and str(last + 1) not in rules
        met = [one for one, text in rules.items() if "n_packets=0," not in text]
        assert met == [str(last)]
    finally:
        made.teardown()


@root
@pytest.mark.slow
def test_a_controller_sets_flows_up_as_they_begin(net: Network) -> None:
    made = switch(net, controller="reactive")
    made.setup()
    try:
        assert made.counters()["flows"] == 0
        assert passes(net, "h0", "h1", count=3) and passes(net, "h1", "h0", count=3)
        assert settled(made, 2) == 2, "one in each direction, whatever the number of packets"
        controller = made._controller
        assert controller
    finally:
        made.teardown()
    assert not list(proc.members(controller.pid))


def test_rules_and_a_reactive_controller_exclude_each_other() -> None:
    with pytest.raises(Error, match="ND-104-07"):
        DRIVERS["ovs-netdev"](DutSite("sw", ""), {"rules": 1, "controller": "reactive"}).check_table()  # type: ignore[attr-defined]


def test_a_packet_that_comes_to_a_controller_is_read() -> None:
    match = match_bytes(frozenset({(of.IN_PORT, struct.pack("!I", 7))}))
    body = struct.pack("!IHBBQ", of.NO_BUFFER, 60, 0, 0, 0) + match + b"\0\0" + b"frame"
    assert of.packet_in(body) == (7, b"frame")
    assert of.packet_out(7, 2, b"frame").endswith(b"frame")
    for size in range(len(body) - len(b"frame")):
        with pytest.raises(ValueError):
            of.packet_in(body[:size])
