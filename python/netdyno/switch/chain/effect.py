"""Paths of a chain probed before it is verified or measured: whether they do what is described."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from netdyno.lab import effect
from netdyno.lab.effect import HEADERS, Prober
from netdyno.lab.topology import Link
from netdyno.switch.chain import layout
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.spec import REST
from netdyno.switch.chain.steering import CLIENT, PROBE_TYPE, SERVER, probe_address
from netdyno.switch.chain.talk import port_of
from netdyno.switch.tunnel import PROBER, SWITCH, WAN, Line
from netdyno.system import namespace

_FORM = struct.Struct("!BIQ")
"""As of probes of the policy: the number of the path, their own, and a time."""
SOURCE = bytes.fromhex("026e64000301")


def probe_paths(lab: ChainLab, note: Callable[[str], None], at: str) -> None:
    """Probe each path between the switches, and that of the client. Raises Error if one has no effect."""
    specs = list(lab.network.described())
    lines = [(line, found) for line in lab.chain.lines() if (found := _of(line, specs))]
    for line, spec in lines if lab.chain.wan else ():
        _tell(note, effect.probed(f"the path {line.name}", [spec], partial(_line, lab, line), at))
    client = [spec for link, spec in specs if CLIENT in (link.a.host, link.b.host)]
    taken = [spec for line, spec in lines if line.name == lab.by[REST]]
    if lab.chain.servers() or not (client or (taken and not lab.chain.wan)):
        return
    name = "the client's path" if client else "the path of the tunnel"
    _tell(note, effect.probed(name, [*client, *taken], partial(_datagrams, lab), at))


def _tell(note: Callable[[str], None], said: str) -> None:
    if said:
        note(said)


def _of(line: Line, specs: Sequence[tuple[Link, dict[str, Any]]]) -> dict[str, Any] | None:
    encrypted = line.tunnel is not None and line.tunnel.wireguard
    end = f"{line.gateways[0]}.{WAN}" if encrypted else f"{SWITCH}.{line.interface}"
    return next((spec for link, spec in specs if end in (str(link.a), str(link.b))), None)


def _line(lab: ChainLab, line: Line, wanted: effect.Described) -> effect.Measured:
    """By frames that the far switch sends back."""
    with namespace.inside(lab.network.namespace(PROBER), lambda: _Frames(line)) as prober:
        return effect.measure(prober, wanted)


def _datagrams(lab: ChainLab, wanted: effect.Described) -> effect.Measured:
    """By datagrams of the default class that the server sends back."""
    with _Datagrams(lab) as prober:
        return effect.measure(prober, wanted)


class _Frames(Prober):
    def __init__(self, line: Line) -> None:
        kind = struct.pack("!H", PROBE_TYPE)
        self._line = line
        self._head = bytes.fromhex(probe_address(line).replace(":", "")) + SOURCE + kind
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.bind(("eth0", PROBE_TYPE))

    def __enter__(self) -> _Frames:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, number: int, size: int) -> None:
        frame = self._head + _FORM.pack(self._line.number, number, 0)
        with contextlib.suppress(OSError):
            self._socket.send(frame.ljust(max(60, size + HEADERS), b"\0"))

    def answers(self, seconds: float) -> list[int]:
        if not select.select([self._socket], [], [], seconds)[0]:
            return []
        frame, about = self._socket.recvfrom(2048)
        if about[2] == socket.PACKET_OUTGOING or frame[6:12] != SOURCE or len(frame) < 14 + _FORM.size:
            return []
        line, number, _ = _FORM.unpack_from(frame, 14)
        return [number] if line == self._line.number else []


class _Datagrams(Prober):
    def __init__(self, lab: ChainLab) -> None:
        to = (layout.addresses(lab.chain).server, port_of(lab.chain, REST))
        self._server = namespace.inside(lab.network.namespace(SERVER), lambda: _bound(("", to[1])))
        self._client = namespace.inside(lab.network.namespace(CLIENT), lambda: _bound(("", 0)))
        self._client.connect(to)
        self._ended = threading.Event()
        self._echoing = threading.Thread(target=self._echo, daemon=True)

    def __enter__(self) -> _Datagrams:
        self._echoing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._echoing.join()
        self._client.close()
        self._server.close()

    def _echo(self) -> None:
        self._server.settimeout(0.1)
        while not self._ended.is_set():
            with contextlib.suppress(OSError):
                data, sender = self._server.recvfrom(2048)
                self._server.sendto(data, sender)

    def send(self, number: int, size: int) -> None:
        with contextlib.suppress(OSError):
            self._client.send(struct.pack("!I", number).ljust(max(4, size), b"\0"))

    def answers(self, seconds: float) -> list[int]:
        if not select.select([self._client], [], [], seconds)[0]:
            return []
        with contextlib.suppress(OSError):
            return [struct.unpack_from("!I", self._client.recv(2048))[0]]
        return []


def _bound(address: tuple[str, int]) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.bind(address)
    except BaseException:
        made.close()
        raise
    return made
