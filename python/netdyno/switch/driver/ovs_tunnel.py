"""An end of a tunnel at a private Open vSwitch: the underlay's bridge, and the tunnel's port."""

from __future__ import annotations

import contextlib
import errno
import re
import socket
import time
from typing import Any

from netdyno.errors import Error
from netdyno.lab.node import add_address
from netdyno.switch.driver.ovs_daemon import OvsDaemon
from netdyno.switch.tunnel import LineEnd
from netdyno.system import namespace

DISCARD = 9
PATIENCE = 30.0
"""Seconds in which the other end must answer."""


def join(made: OvsDaemon, bridge: str, datapath: str, end: LineEnd, number: int) -> None:
    """Make it, with this OpenFlow port number. Raises Error."""
    line, columns = end.line, [f"ofport_request={number}"]
    if line.tunnel:
        made.vsctl("add-br", line.bridge, "--", "set", "bridge", line.bridge, f"datapath_type={datapath}",
                   "--", "add-port", line.bridge, line.interface)  # fmt: skip
        namespace.inside(made.namespace, lambda: _up(end))
        columns.append(f"type={line.tunnel.kind}")
        columns += [f"options:{key}={value}" for key, value in end.options().items()]
    made.vsctl("add-port", bridge, line.device, "--", "set", "interface", line.device, *columns)
    seen = made.interfaces()
    for name in dict.fromkeys((line.interface, line.device)):
        of, error = seen.get(name, (None, "it is not there"))
        if error or (name == line.device and of != number):
            why = error or made.words() or "no reason is known"
            raise Error("ND-92-63", f"the tunnel {line} cannot be made: {name}: {why}", at=made.at)


def await_other(made: OvsDaemon, end: LineEnd) -> None:
    """Wait until the other end answers over the underlay, and the switch knows its Ethernet address.

    Raises Error that says what is missing.
    """
    until, answered = time.monotonic() + PATIENCE, False
    neighbour = end.gateway or end.remote
    # over a long path, the answer to a datagram comes after the next were sent: one socket hears all
    with namespace.inside(made.namespace, lambda: _datagrams(end.remote)) as probe:
        while time.monotonic() < until:
            answered = answered or _answers(probe, end.remote)
            known = made.appctl("tnl/neigh/show") if answered else ""
            if re.search(rf"^{re.escape(neighbour)}\s", known, re.MULTILINE):
                return
            if answered:
                time.sleep(0.02)
                # the switch learns from answers, and a kernel that was asked first does not ask itself
                namespace.inside(made.namespace, lambda: _asked_again(end.line.bridge, neighbour))
    what = (
        f"the other end of the tunnel, {end.remote}, does not answer over the underlay within {PATIENCE:g} s"
    )
    if answered:
        what = f"the switch does not learn the Ethernet address of the tunnel's other end, {end.remote}"
    raise Error("ND-92-63", what, at=made.at, fix="See the underlay's `path`: it may lose all packets")


def options(made: OvsDaemon, device: str) -> dict[str, str]:
    """Options that a tunnel's port has now."""
    said = made.vsctl("get", "interface", device, "options")
    return dict(re.findall(r'(\w+)="?([^",}]+)"?', said))


def change(made: OvsDaemon, device: str, wanted: dict[str, str]) -> None:
    """Give a tunnel's port other options."""
    made.vsctl("set", "interface", device, *(f"options:{key}={value}" for key, value in wanted.items()))


def _up(end: LineEnd) -> None:
    from ipaddress import ip_interface

    # a large library, of which most commands need nothing
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        work: Any = ip
        index = work.link_lookup(ifname=end.line.bridge)[0]
        add_address(work, index, ip_interface(f"{end.local}/{end.line.prefix}"))
        work.link("set", index=index, state="up")
        if end.gateway:
            work.route("add", dst=end.network, gateway=end.gateway)


def _asked_again(bridge: str, neighbour: str) -> None:
    """Have the kernel forget a neighbour, and ask for its address."""
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    with IPRoute() as ip:
        work: Any = ip
        index = work.link_lookup(ifname=bridge)[0]
        with contextlib.suppress(NetlinkError):
            work.neigh("del", dst=neighbour, ifindex=index)
    with _datagrams(neighbour) as probe:
        _answers(probe, neighbour)


def _datagrams(remote: str) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in remote else socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(0.3)
    return made


def _answers(probe: socket.socket, remote: str) -> bool:
    """Whether a datagram to a port where nobody listens is refused there, this one or one before."""
    try:
        probe.connect((remote, DISCARD))
        probe.send(b"")
        probe.recv(1)
    except OSError as e:
        return e.errno == errno.ECONNREFUSED
    return False
