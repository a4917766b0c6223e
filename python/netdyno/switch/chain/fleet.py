"""Hosts of a fleet as the client of a chain: links of their own lead from them into the client's.

Each is a network namespace of this machine with an agent in it. A veth pair joins it to a bridge in the
client's namespace, of which the client's link to the switch is a port; it goes with that namespace, also
after `kill -9`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from netdyno.errors import Error
from netdyno.experiment import cores
from netdyno.experiment.measurer import Connect, FleetHost, LocalKernel
from netdyno.lab.workload import WORKLOADS, Workload
from netdyno.switch import lent
from netdyno.system import namespace

AT = "--fleet"
FIRST, MOST = 216, 32
"""Place of the first host in the client's network, and hosts that there is room for."""
BRIDGE, PORT = "br-fleet", "nd-chain"
OFFLOADS = ("tx", "tso", "gso", "gro")


@dataclass(frozen=True)
class Load:
    """What connects to the hosts of a fleet, each in a namespace here."""

    connect: Connect
    spaces: Mapping[str, str]
    """By host."""


def check(kind: type[Workload], name: str, alone: bool) -> Load:
    """The fleet, if its hosts can be the client. `alone`: nothing else is. Raises Error."""
    if not kind.from_fleet:
        there = ", ".join(one for one, of in WORKLOADS.items() if of.from_fleet)
        what = f"the workload {kind.name} does not come from a fleet"
        raise Error("ND-104-24", what, at=AT, fix=f"Use one of {there}, or leave --fleet out")
    if not alone:
        what = "the client is the hosts of a fleet, and nothing else"
        raise Error("ND-104-07", what, at=AT, fix="Leave out --fleet, or --endpoints, --client and --server")
    hosts = cores.hosts(name)
    if len(hosts) > MOST:
        what = f"the client's network has addresses for {MOST} hosts, and the fleet has {len(hosts)}"
        raise Error("ND-104-07", what, at=AT, fix="Use a smaller fleet")
    return Load(cores.connector(name), {one.name: _space(one) for one in hosts})


def _space(host: FleetHost) -> str:
    kernel = host.kernel
    if not isinstance(kernel, LocalKernel) or kernel.namespace is None:
        what = f"the host {host.name} is no namespace of this machine: no link leads from it to the chain"
        fix = "Use hosts with `launcher: local` and `namespace:`; another machine can be --client"
        raise Error("ND-104-07", what, at=AT, fix=fix)
    return kernel.namespace


@contextlib.contextmanager
def as_client(load: Load, client: str, form: str, mtu: int, routes: Mapping[str, str]) -> Iterator[Connect]:
    """The hosts on the client's link, with addresses by `form` and the client's routes. Raises Error."""
    with ExitStack() as stack:
        _run(client, "ip", "addr", "flush", "dev", "eth0")
        _run(client, "ip", "link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "forward_delay", "0")
        stack.callback(_gone, client, BRIDGE)
        _run(client, "ip", "link", "set", "eth0", "master", BRIDGE)
        _run(client, "ip", "link", "set", BRIDGE, "up")
        for number, (name, space) in enumerate(load.spaces.items()):
            here = f"fleet{number}"
            if namespace.inside(space, lambda: lent.state(PORT)) is not None:
                what = f"the host {name} has an interface {PORT}: it is the client of another chain"
                raise Error(lent.SET_UP, what, at=AT, fix="End that, or use another fleet")
            _run(client, "ip", "link", "add", here, "mtu", str(mtu), "type", "veth", "peer", "name", PORT,
                 "netns", space, "mtu", str(mtu))  # fmt: skip
            stack.callback(_gone, client, here)
            _run(client, "ip", "link", "set", here, "master", BRIDGE, "up")
            off = [word for one in OFFLOADS for word in (one, "off")]
            for where, interface in ((client, here), (space, PORT)):
                _run(where, "ethtool", "-K", interface, *off)
            _run(space, "ip", "addr", "add", form.format(FIRST + number), "dev", PORT)
            _run(space, "ip", "link", "set", PORT, "up")
            for to, by in routes.items():
                _run(space, "ip", "route", "add", to, "via", by, "dev", PORT)
        yield load.connect


def _run(space: str, *words: str) -> None:
    lent.run(space, AT, *words)


def _gone(space: str, interface: str) -> None:
    with contextlib.suppress(Error):
        _run(space, "ip", "link", "del", interface)
