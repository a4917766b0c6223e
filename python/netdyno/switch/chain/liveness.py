"""Whether functions of a running chain live, and its rules without those that do not.

A function lives while its program runs, its ports are up, and probes pass it: frames that are sent into one
of its ports and come out of the other. Under load a function may lose or delay probes, so any frame that
comes out counts. Programs and ports are watched by events of the kernel; probes are sent each `interval`.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from netdyno.lab.counters import devices
from netdyno.switch.chain import layout
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.steering import PROBE_TYPE
from netdyno.switch.chain.vnf.base import IN, OUT
from netdyno.switch.driver.base import Flow
from netdyno.switch.tunnel import SWITCH
from netdyno.system import namespace

PROBE_MAC = "02:6e:64:00:01:00"
PROBE_PROTOCOL = 253
"""IP protocol for experiments (RFC 3692)."""
GUARD = (1 << 33) + 1
"""Cookie of the first flow that keeps probes from going on."""
_RTMGRP_LINK = 1
Cause = Literal["program ended", "port down", "probes lost", "probes answered"]


@dataclass(frozen=True)
class LivenessEvent:
    """A function that failed, or lives again, and what the rules do since. Times: the monotonic clock, s."""

    host: str
    failed: bool
    cause: Cause
    detected: float
    confirmed: float
    """When the switch had confirmed the new rules."""
    result: str
    """In words: bypassed, chain cut, flows of the replica moved, restored."""


def guards() -> list[Flow]:
    """Flows that drop probes on their way out of functions: the switch is not to forward them."""
    fields = ({"dl_dst": PROBE_MAC}, {"ip": "", "nw_proto": str(PROBE_PROTOCOL)})
    return [Flow(GUARD + at, "", [], dict(match), 65_000) for at, match in enumerate(fields)]


def probe_frames(lab: ChainLab, host: str) -> list[bytes]:
    """Frames that a function sends on, from its port `in` to `out` and back.

    Of a router or NAT, there is the way forward only: a packet from its network to the next host with an
    address.
    """
    marker = host.encode()[:10].ljust(10, b"\0")
    known, chain = layout.addresses(lab.chain), lab.chain
    to = bytes.fromhex(PROBE_MAC.replace(":", ""))
    if host not in known.inside:
        sources = (to[:5] + b"\x01", to[:5] + b"\x02")
        return [to + source + struct.pack("!H", PROBE_TYPE) + bytes(20) + marker for source in sources]
    routed = chain.routed(chain.chain)
    after = routed[routed.index(host) + 1 :]
    target = known.inside[after[0]].partition("/")[0] if after else known.server
    source = known.inside[host].rpartition(".")[0] + ".250"
    address = bytes.fromhex(lab.mac(host, IN).replace(":", ""))
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 38, 0, 0, 64, PROBE_PROTOCOL, 0,
                       socket.inet_aton(source), socket.inet_aton(target))  # fmt: skip
    total = sum(struct.unpack("!10H", head))
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    ip = head[:10] + struct.pack("!H", checksum) + head[12:]
    return [address + to[:5] + b"\x01" + b"\x08\x00" + ip + marker]


@dataclass
class _Probe:
    """One direction of a function."""

    into: str
    """The switch's interface that leads in."""
    out: str
    frame: bytes
    sent: bool = False
    left: int = 0
    """Frames that had come out when the probe was sent."""


@dataclass
class _Watched:
    host: str
    ports: list[str]
    """Interfaces of the switch."""
    probes: list[_Probe] = field(default_factory=list)
    process: int = -1
    """Descriptor of its program, if it has one; -1: none, or ended."""
    ended: bool = False
    down: bool = False
    misses: int = 0
    """Intervals in a row without a sign of life, or, if it has failed, with one."""


class Monitor:
    """Watches the functions that have `on_failure`, and programs the chain. It begins when it is entered."""

    def __init__(self, lab: ChainLab) -> None:
        self.lab = lab
        self.events: list[LivenessEvent] = []
        self._condition = threading.Condition()
        self._error: BaseException | None = None
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="liveness", daemon=True)

    def __enter__(self) -> Monitor:
        self.lab.guards = guards()
        self.lab.program(self.lab.rules)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.send(b"x")
        self._thread.join()
        self._stop.close()
        self._stopped.close()
        self.lab.guards = ()

    def wait(self, wanted: Callable[[LivenessEvent], bool], seconds: float) -> LivenessEvent | None:
        """The first event that is wanted; None if there is none in time. Raises what stopped the monitor."""
        with self._condition:
            self._condition.wait_for(lambda: self._error or any(map(wanted, self.events)), seconds)
            if self._error:
                raise self._error
            return next((one for one in self.events if wanted(one)), None)

    # ------------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            namespace.inside(self.lab.network.namespace(SWITCH), self._watch)
        except BaseException as e:  # noqa: BLE001 - handed to who waits
            with self._condition:
                self._error = e
                self._condition.notify_all()

    def _watch(self) -> None:
        every = self._watched()
        interval, most = self.lab.chain.liveness.seconds, self.lab.chain.liveness.misses
        senders: dict[str, socket.socket] = {}
        links = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        poll = select.epoll()
        try:
            links.bind((0, _RTMGRP_LINK))
            links.setblocking(False)
            for descriptor in (links.fileno(), self._stopped.fileno()):
                poll.register(descriptor, select.EPOLLIN)
            for one in every:
                if one.process >= 0:
                    poll.register(one.process, select.EPOLLIN)
                for probe in one.probes:
                    senders[probe.into] = _open(probe.into)
            due = time.monotonic()
            while True:
                for descriptor, _ in poll.poll(max(0.0, due - time.monotonic())):
                    if descriptor == self._stopped.fileno():
                        return
                    if descriptor == links.fileno():
                        _drain(links)
                        self._ports(every)
                    else:
                        (ended,) = [one for one in every if one.process == descriptor]
                        poll.unregister(descriptor)
                        os.close(descriptor)
                        ended.process, ended.ended = -1, True
                        self._failed(ended, "program ended")
                if time.monotonic() >= due:
                    frames = _frames_out()
                    self._judge(every, most, frames)
                    for one in every:
                        for probe in one.probes:
                            probe.sent, probe.left = True, frames.get(probe.out, 0)
                            _send(senders[probe.into], probe.frame)
                    due = time.monotonic() + interval
        finally:
            poll.close()
            links.close()
            for made in senders.values():
                made.close()
            for one in every:
                if one.process >= 0:
                    os.close(one.process)

    def _watched(self) -> list[_Watched]:
        chain, ports = self.lab.chain, layout.switch_ports(self.lab.chain)
        found = []
        for host, name in chain.hosts().items():
            if chain.vnfs[name].on_failure is None:
                continue
            into, out = ports[f"{host}-{IN}"], ports.get(f"{host}-{OUT}")
            one = _Watched(host, [into] if out is None else [into, out])
            process = self.lab.vnfs[host].process
            if process is not None:
                one.process = os.pidfd_open(process.pid)
            if out is not None:
                made = probe_frames(self.lab, host)
                ways = ((into, out), (out, into))
                one.probes = [_Probe(*way, frame) for way, frame in zip(ways, made, strict=False)]
            found.append(one)
        return found

    def _ports(self, every: list[_Watched]) -> None:
        for one in every:
            down = not all(namespace.carries(port) for port in one.ports)
            if down and not one.down:
                one.down = True
                self._failed(one, "port down")
            one.down = down

    def _judge(self, every: list[_Watched], most: int, frames: dict[str, int]) -> None:
        for one in every:
            lives = all(not probe.sent or frames.get(probe.out, 0) > probe.left for probe in one.probes)
            failed = one.host in self.lab.failed
            lives = lives and not one.down and not one.ended
            one.misses = one.misses + 1 if lives == failed else 0
            if one.misses >= most:
                one.misses = 0
                if not failed:
                    self._failed(one, "probes lost")
                else:
                    self._change(one.host, failed=False, cause="probes answered")

    def _failed(self, one: _Watched, cause: Cause) -> None:
        one.misses = 0
        if one.host not in self.lab.failed:
            self._change(one.host, failed=True, cause=cause)

    def _change(self, host: str, *, failed: bool, cause: Cause) -> None:
        detected = time.monotonic()
        self.lab.without(self.lab.failed | {host} if failed else self.lab.failed - {host})
        made = LivenessEvent(host, failed, cause, detected, time.monotonic(), self._result(host, failed))
        with self._condition:
            self.events.append(made)
            self._condition.notify_all()

    def _result(self, host: str, failed: bool) -> str:
        if not failed:
            return "restored"
        name = self.lab.chain.hosts()[host]
        if not set(self.lab.chain.instances(name)) <= self.lab.failed:
            return "its flows moved to other replicas"
        return "bypassed" if self.lab.chain.vnfs[name].on_failure == "open" else "chain cut"


def _open(interface: str) -> socket.socket:
    """It sends, and receives nothing."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        made.bind((interface, 0))
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def _send(made: socket.socket, frame: bytes) -> None:
    # a port that is down or gone takes none: nothing comes out then
    with contextlib.suppress(OSError):
        made.send(frame.ljust(60, b"\0"))


def _drain(made: socket.socket) -> None:
    while True:
        try:
            made.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            # messages were lost: the ports are asked in any case
            continue


def _frames_out() -> dict[str, int]:
    """Frames that came out of the functions at each interface of this namespace."""
    return {name: int(of["rx_packets"]) for name, of in devices().items()}
