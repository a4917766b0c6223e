"""A chain of one function over vhost-user or memif, behind OVS with DPDK: ours in place of testpmd."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bed import GENERATOR, SERVER, Core, Skipped, cpu_of, folder, frames, namespace
from cases_testpmd import LONG, at_bursts, bridge
from rounds import Sides, UnusableError
from testpmd import FRAME, Testpmd

from netdyno.switch.driver.ovs import parse_ports
from netdyno.switch.driver.ovs_daemon import OvsDaemon
from netdyno.switch.driver.ovs_dpdk import MEMIF_QUEUES, OvsDpdk
from netdyno.switch.openflow import message as of
from netdyno.system.journal import Journal

FLYING = 256
"""Frames that go round in each direction: a ring of 1,024 holds all of them."""
PATIENCE = 60.0
CONTROLLER = 0xFFFFFFFD
"""The port that packets of a controller come in by (OFPP_CONTROLLER)."""


class Ring:
    """Open vSwitch between both ports of a function, which hands on what comes: frames go round."""

    def __init__(self, name: str, where: Path) -> None:
        program = OvsDpdk.vswitchd()
        if program is None:
            raise Skipped(OvsDpdk.missing())
        self.where = where
        self.ovs = OvsDaemon(where / "ovs", program, name, Journal(where / "journal"), "bench")
        self.ovs.folder.mkdir()
        extra = f"--no-huge --legacy-mem -m 512 --no-pci --file-prefix=nd-bench-{where.name}"
        self.ovs.start({
            "dpdk-init": "true", "dpdk-extra": extra, "pmd-cpu-mask": hex(1 << SERVER),
            "per-port-memory": "true",
        })  # fmt: skip
        self.ovs.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev",
                       "protocols=OpenFlow13", "fail-mode=secure")  # fmt: skip

    def sockets(self) -> list[Path]:
        """Where a function listens for either port."""
        return [self.where / f"wire{number}" for number in (0, 1)]

    @contextlib.contextmanager
    def ports(self) -> Iterator[list[str]]:
        """Devices of a function over vhost-user, which waits for Open vSwitch as its client: a switch that
        listens stands still until somebody comes."""
        kinds = [["type=dpdkvhostuserclient", f"options:vhost-server-path={path}"] for path in self.sockets()]
        self._add(kinds)
        try:
            yield [
                f"net_virtio_user{number},path={path},server=1,queue_size=1024,"
                f"mac=02:00:00:00:00:0{number + 1}"
                for number, path in enumerate(self.sockets())
            ]
        finally:
            self.ovs.vsctl("del-port", "br0", "v0", "--", "del-port", "br0", "v1")

    @contextlib.contextmanager
    def memifs(self) -> Iterator[list[str]]:
        """Devices of a function over memif, which connects to Open vSwitch, once: version 3.1.0 with DPDK
        22.11.11 ends (SIGSEGV) when such a port is deleted."""
        about = ",id=0,socket-abstract=no,socket="
        kinds = [
            ["type=dpdk", f'options:dpdk-devargs="net_memif{number},role=server{about}{path}"',
             f"options:n_rxq={MEMIF_QUEUES}"]
            for number, path in enumerate(self.sockets())
        ]  # fmt: skip
        self._add(kinds)
        yield [f"net_memif{number},role=client{about}{path}" for number, path in enumerate(self.sockets())]

    def _add(self, kinds: list[list[str]]) -> None:
        add: list[str] = []
        for number, (path, kind) in enumerate(zip(self.sockets(), kinds, strict=True)):
            path.unlink(missing_ok=True)
            add += ["--", "add-port", "br0", f"v{number}", "--", "set", "interface", f"v{number}", *kind,
                    f"ofport_request={number + 1}"]  # fmt: skip
        self.ovs.vsctl(*add[1:])
        self.ovs.ofctl("replace-flows", "br0", "-", text="in_port=1,actions=2\nin_port=2,actions=1\n")

    def count(self, seconds: float, pid: int) -> dict[str, float]:
        """Frames a second that a function hands on, from both its ports, and its CPU time for one."""
        end = time.monotonic() + PATIENCE
        while not all(self._is_up(port) for port in (0, 1)):
            if time.monotonic() > end:
                raise UnusableError("the function's ports are not up")
            time.sleep(0.1)
        self._feed()
        time.sleep(0.5)
        before, cpu, began = self._received(), cpu_of(pid), time.monotonic()
        time.sleep(seconds)
        passed, spent, took = self._received() - before, cpu_of(pid) - cpu, time.monotonic() - began
        if passed <= 0:
            raise UnusableError("nothing goes round")
        return {"rate": passed / took, "cpu": spent / passed * 1e6}

    def _is_up(self, port: int) -> bool:
        return self.ovs.vsctl("get", "interface", f"v{port}", "link_state").strip() == "up"

    def _received(self) -> int:
        seen = parse_ports(self.ovs.ofctl("dump-ports", "br0"), ["v0", "v1"])
        return sum(int(seen[f"{port}.rx_packets"]) for port in ("v0", "v1"))

    def _feed(self) -> None:
        """Frames into either port."""
        with socket.socket(socket.AF_UNIX) as made:
            made.connect(str(self.ovs.folder / "br0.mgmt"))
            made.sendall(bytes(of.Message(of.HELLO, 1, of.hello())))
            for number in range(2 * FLYING):
                out = 1 + number % 2
                frame = bytes.fromhex("0200000000aa0200000000bb0800").ljust(FRAME, b"\0")
                body = of.packet_out(CONTROLLER, out, frame)
                made.sendall(bytes(of.Message(of.PACKET_OUT, 2 + number, body)))
            time.sleep(0.2)

    def close(self) -> None:
        """End it."""
        self.ovs.stop()


@contextlib.contextmanager
def vhost() -> Iterator[Sides]:
    """Frames that go round through a function over vhost-user and Open vSwitch, a core each."""
    with _round() as (core, ring):

        def ours(seconds: float) -> dict[str, float]:
            with ring.ports() as devices:
                profile = frames(LONG, bridge("io", devices), [])
                found: dict[str, float] = {}

                def look() -> float:
                    found.update(ring.count(seconds, core.pid))
                    return found["rate"]

                core.during(profile, look)
                return found

        yield Sides(ours, (at_bursts(_testpmd(ring, ring.ports)),))


@contextlib.contextmanager
def memif() -> Iterator[Sides]:
    """The same over memif, where ours is a graph with as many queues as the switch sends by."""

    def ours(seconds: float) -> dict[str, float]:
        with _round() as (core, ring), ring.memifs() as devices:
            graph = core.client.call("graph.run", graph=_forwarder(devices), timeout=PATIENCE)["graph"]
            try:
                return ring.count(seconds, core.pid)
            finally:
                core.client.call("graph.stop", graph=graph)

    def peer(seconds: float, burst: int) -> dict[str, float]:
        queues = (f"--rxq={MEMIF_QUEUES}", f"--txq={MEMIF_QUEUES}")
        with _round() as (_, ring):
            return _testpmd(ring, ring.memifs, *queues)(seconds, burst)

    yield Sides(ours, (at_bursts(peer),))


@contextlib.contextmanager
def _round() -> Iterator[tuple[Core, Ring]]:
    # paths of sockets are short
    with namespace() as name, folder() as where, tempfile.TemporaryDirectory(prefix="nd-v") as short:
        core, ring = Core(name, where), Ring(name, Path(short))
        try:
            yield core, ring
        finally:
            ring.close()
            core.close()


def _testpmd(
    ring: Ring, ports: Callable[[], contextlib.AbstractContextManager[list[str]]], *words: str
) -> Callable[[float, int], dict[str, float]]:
    def peer(seconds: float, burst: int) -> dict[str, float]:
        with (
            ports() as devices,
            Testpmd(GENERATOR, devices, "--forward-mode=io", *words, burst=burst) as testpmd,
        ):
            testpmd.say("start")
            return ring.count(seconds, testpmd.process.pid)

    return peer


def _forwarder(devices: list[str]) -> dict[str, Any]:
    """Between two ports, on one core."""
    a, b = ({"device": device, "queues": MEMIF_QUEUES} for device in devices)
    return {
        "ports": {"a": a, "b": b},
        "elements": {"there": {"kind": "l2fwd"}, "back": {"kind": "l2fwd"}},
        "edges": ["a.rx -> there -> b.tx", "b.rx -> back -> a.tx"],
        "placement": [{"core": GENERATOR, "elements": ["there", "back"]}],
    }
