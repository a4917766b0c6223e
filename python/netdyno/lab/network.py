"""A topology made real for one run: its hosts, the links between them, and all of it taken away again."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from netdyno.errors import Error
from netdyno.lab import impairment
from netdyno.lab.cable import Cable, ImpairedCable, Plug, Veth
from netdyno.lab.links import UNASKED, Links
from netdyno.lab.node import NODES, Node
from netdyno.lab.topology import End, Link, Topology, expand, need_root
from netdyno.system.journal import Journal, journal

PATIENCE = 20.0
"""Seconds in which a link comes up."""


class Network:
    """Journalled piece by piece before it is made; what lives in a host of ours goes with that host."""

    def __init__(
        self,
        topology: Topology,
        run: str,
        notes: Journal | None = None,
        log: Path = Path(os.devnull),
        seed: int | None = None,
    ) -> None:
        """With a `seed`, that of each impaired link which names none follows from it; else it is 0."""
        self.topology = topology
        self.run = run
        self.log = log
        """Where the daemon that carries impaired links logs."""
        self.links: Links | None = None
        self._seed = seed
        self._notes = notes or journal()
        self.nodes: dict[str, Node] = {
            name: NODES[host.kind](name, run, self._notes) for name, host in topology.hosts.items()
        }
        self._cables: list[tuple[Link, Cable]] = []

    def namespace(self, host: str) -> str:
        """The network namespace of a host."""
        found = self.nodes[host].namespace
        if found is None:
            what = f"the host {host!r} is no namespace of this machine"
            raise Error("ND-104-29", what, at=f"topology.hosts.{host}")
        return found

    def address(self, host: str, version: int = 4) -> str:
        """The first address of a host that others can reach it at."""
        return self.topology.address(host, version)

    def up(self) -> None:
        """Make everything; on failure what was made is taken away again."""
        need_root()
        # a large library, of which runs without a topology need nothing
        from pyroute2.netlink.exceptions import NetlinkError

        try:
            for node in self.nodes.values():
                node.up()
            with contextlib.ExitStack() as stack:
                for node in self.nodes.values():
                    stack.enter_context(node.busy())
                self._join()
        except (NetlinkError, OSError) as e:
            with contextlib.suppress(Error):
                self.down()
            raise Error(
                "ND-92-26",
                f"the topology could not be made: {e}",
                fix="`netdyno doctor` shows whether namespaces and veth links work here",
            ) from e
        except BaseException:
            with contextlib.suppress(Error):
                self.down()
            raise

    def _join(self) -> None:
        """Make all links, set kernel parameters, and wait for the carrier of each interface."""
        for link in self.topology.links:
            self._link(link)
        for name, node in self.nodes.items():
            node.settle(self.topology.hosts[name].sysctl)
        ends: dict[str, list[str]] = {name: [] for name in self.nodes}
        for _, cable in self._cables:
            for plug in (cable.a, cable.b):
                ends[plug.node.name].append(plug.interface)
        for name, interfaces in ends.items():
            if interfaces:
                await_carrier(self.nodes[name], interfaces)

    def down(self) -> None:
        """Take everything away."""
        links, self.links = self.links, None
        self._cables.clear()
        with contextlib.ExitStack() as stack:
            for node in self.nodes.values():
                stack.callback(node.down)
            # first, as it holds interfaces in the hosts
            if links:
                stack.callback(links.stop)

    def impaired(self) -> Iterator[tuple[Link, dict[str, Any]]]:
        """Each impaired link and its counters. Raises when one carries nothing any more."""
        for link, cable in self._cables:
            if (counters := cable.counters()) is not None:
                yield link, counters

    def unasked(self) -> int:
        """Packets that impaired links dropped so far without being asked to."""
        return sum(
            int(stats[way][name])
            for _, stats in self.impaired()
            for way in impairment.WAYS
            for name in UNASKED
        )

    def impaired_links(self) -> dict[str, Any] | None:
        """Where impaired links are asked for their counters, and by which names; None: there are none."""
        if self.links is None:
            return None
        made = [(link, cable.link) for link, cable in self._cables if isinstance(cable, ImpairedCable)]
        listed = [{"link": one, "a": str(link.a), "b": str(link.b)} for link, one in made if one]
        return {"daemon": str(self.links.daemon.socket), "links": listed}

    def described(self) -> Iterator[tuple[Link, dict[str, Any]]]:
        """Each impaired link and its description; that of a preset is known to the daemon alone."""
        for link, cable in self._cables:
            if isinstance(cable, ImpairedCable) and self.links:
                if isinstance(link.impair, dict):
                    yield link, link.impair
                else:
                    known = {one["link"]: one["spec"] for one in self.links.client.call("impair.list")}
                    yield link, dict(known[cable.link])

    def seed_of(self, link: Link) -> int | None:
        """The seed of an impaired link; None: the core's default, 0."""
        fixed = impairment.fixed_seed(link.impair)
        if fixed is not None or self._seed is None:
            return fixed
        return impairment.draws(self._seed, str(link.a), str(link.b))

    def draw_anew(self, seed: int) -> int | None:
        """Have all impaired links draw anew, each by a seed that follows from this one or that it names; that
        of the first. None: no link is impaired."""
        first: int | None = None
        for link, cable in self._cables:
            if isinstance(cable, ImpairedCable):
                fixed = impairment.fixed_seed(link.impair)
                drawn = impairment.draws(seed, str(link.a), str(link.b)) if fixed is None else fixed
                cable.draw_anew(drawn)
                first = drawn if first is None else first
        return first

    def missing_part(self, hosts: Iterable[str]) -> str | None:
        """A cable's end that is not there any more, or a host itself; None while all is there."""
        for host in hosts:
            try:
                there = self.nodes[host].interfaces()
            except FileNotFoundError:
                return f"the {self.nodes[host].kind} of {host}"
            except OSError:
                continue
            for _, cable in self._cables:
                for plug in (cable.a, cable.b):
                    if plug.node.name == host and cable.watched(plug) and plug.interface not in there:
                        return f"the interface {host}.{plug.interface}"
        return None

    def _link(self, link: Link) -> None:
        a, b = (Plug(self.nodes[end.host], end.name, end.mac) for end in (link.a, link.b))
        cable: Cable
        if link.impair is None:
            cable = Veth(a, b, link.mtu)
        else:
            self.links = self.links or Links(self.run, self.log, self._notes)
            seed, spec = self.seed_of(link), link.impair
            if seed is not None:
                spec = self.links.seeded(spec, seed)
            cable = ImpairedCable(a, b, link.mtu, spec, self.links)
        self._cables.append((link, cable))
        cable.up()
        for end in (link.a, link.b):
            self._interface(end, link.mtu)

    def _interface(self, end: End, mtu: int) -> None:
        node = self.nodes[end.host]
        if end.offloads:
            node.offloads(end.name, end.offloads)
        pool = [address for text in end.pool for address in expand(text)]
        node.address(end.name, [*end.addresses, *pool], mtu, end.mac)

    def __enter__(self) -> Network:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()


def await_carrier(node: Node, interfaces: list[str]) -> None:
    """Wait until they carry: what is sent first is not to be lost, as ARP asks once a second."""
    until = time.monotonic() + PATIENCE
    while not node.carries(*interfaces):
        if time.monotonic() > until:
            idle = next((one for one in interfaces if not node.carries(one)), interfaces[0])
            what = f"{node.name}.{idle} is up, and carries nothing after {PATIENCE:g} s"
            raise Error("ND-92-26", what, at=f"topology.hosts.{node.name}", fix="Try again")
        time.sleep(0.005)
