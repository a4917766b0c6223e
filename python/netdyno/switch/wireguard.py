"""WireGuard between the gateways of two switches, by the program wireguard-go: no kernel module is needed."""

from __future__ import annotations

import contextlib
import secrets
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from netdyno import files
from netdyno.errors import Error
from netdyno.switch.driver.ovs_daemon import listens
from netdyno.switch.tunnel import WAN, WIREGUARD_PORT, Line, Tunnel
from netdyno.system import namespace
from netdyno.system.journal import Journal
from netdyno.system.process import Process, find

SOCKETS = Path("/var/run/wireguard")
"""Where wireguard-go has a socket for each of its interfaces."""
NEIGHBOURS = (b"\x00", b"\x3a")
"""Headers after that of IPv6 in messages between neighbours: hop-by-hop options of MLD, and ICMPv6."""
PATIENCE = 20.0
"""Seconds in which an interface must be there: a busy machine needs them."""


class WireGuard:
    """Both gateways: each encrypts what goes to the network of the other."""

    def __init__(self, line: Line, space: Callable[[str], str], folder: Path, notes: Journal) -> None:
        assert line.tunnel is not None, "a tunnel is encrypted"
        self.tunnel: Tunnel = line.tunnel
        self.line, self.folder, self.notes = line, folder, notes
        self._space = space
        token = secrets.token_hex(4)
        # the sockets of all namespaces are in one folder
        self._names = {host: f"nd-{token}{number}" for number, host in enumerate(line.gateways)}
        self._public: dict[str, str] = {}
        self._entries: list[int] = []
        self._processes: dict[str, Process] = {}

    def setup(self) -> None:
        """Start both, and give each the key of the other. Raises Error."""
        program = find("wireguard-go", "wireguard-go")
        for host, name in self._names.items():
            secret = _run(None, find("wg", "wireguard-tools"), "genkey")
            self._public[host] = _run(None, find("wg", "wireguard-tools"), "pubkey", text=secret)
            files.write(self.folder / f"{host}.key", secret)
            self._entries.append(self.notes.write("path", path=str(SOCKETS / f"{name}.sock")))
            self._processes[host] = Process(
                [program, "-f", name], log=self.folder / f"{host}.log", namespace=self._space(host),
                environment={"LOG_LEVEL": "error"}, notes=self.notes,
            )  # fmt: skip
        for host, name in self._names.items():
            self._await(host, SOCKETS / f"{name}.sock")
            key = str(self.folder / f"{host}.key")
            self._wg(host, "private-key", key, "listen-port", str(WIREGUARD_PORT))
            self.connect(host)
            self._ip(host, "link", "set", name, "mtu", str(self.tunnel.wire_mtu), "up")
            self._ip(host, "route", "add", self.line.lan(self._side(self._other(host))), "dev", name)

    def connect(self, host: str) -> None:
        """Let a gateway exchange packets with the other."""
        other = self._other(host)
        address = self.line.wan(self._side(other))
        endpoint = f"[{address}]" if self.tunnel.ipv6 else address
        allowed = ("allowed-ips", self.line.lan(self._side(other)))
        self._wg(host, "peer", self._public[other], *allowed, "endpoint", f"{endpoint}:{WIREGUARD_PORT}")

    def forget(self, host: str) -> None:
        """Have a gateway know no other, for a test of faults."""
        self._wg(host, "peer", self._public[self._other(host)], "remove")

    def peers(self, host: str) -> int:
        """How many gateways one knows."""
        return len(
            _run(self._space(host), find("wg", "wireguard-tools"), "show", self._names[host], "peers").split()
        )

    def cpu(self) -> float:
        """CPU time of both, seconds."""
        return sum(one.cpu() for one in self._processes.values())

    def dead(self) -> str:
        """How one ended; empty: none has."""
        for host, one in self._processes.items():
            if one.exited() is not None:
                return f"WireGuard at {host} ({one.ending()}): {one.tail(2) or 'no log'}"
        return ""

    def teardown(self) -> None:
        """End both. What they made goes with them."""
        processes, self._processes = self._processes, {}
        entries, self._entries = self._entries, []
        with contextlib.ExitStack() as every:
            every.callback(self.notes.undo, *entries)
            for one in processes.values():
                every.callback(one.stop)

    def _side(self, host: str) -> int:
        return self.line.gateways.index(host)

    def _other(self, host: str) -> str:
        return self.line.gateways[1 - self._side(host)]

    def _wg(self, host: str, *words: str) -> None:
        _run(self._space(host), find("wg", "wireguard-tools"), "set", self._names[host], *words)

    def _ip(self, host: str, *words: str) -> None:
        _run(self._space(host), find("ip", "iproute2"), *words)

    def _await(self, host: str, path: Path) -> None:
        until = time.monotonic() + PATIENCE
        while not listens(path):
            if why := self.dead() or ("no answer" if time.monotonic() > until else ""):
                raise Error("ND-92-63", f"wireguard-go does not start: {why}", at=host)
            time.sleep(0.02)


class WanCapture:
    """Packets on the wire between both gateways, counted from its making until it is read."""

    def __init__(self, space: str) -> None:
        self._socket = namespace.inside(space, self._open)

    @staticmethod
    def _open() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        made.bind((WAN, 0))
        made.setblocking(False)
        return made

    def read(self) -> tuple[int, int]:
        """Encrypted packets, and IP packets that are not WireGuard's; it is closed.

        ICMPv6 is none of them: neighbours find each other by it.
        """
        encrypted, plain = 0, 0
        with self._socket as made:
            while True:
                try:
                    frame = made.recv(256)
                except BlockingIOError:
                    return encrypted, plain
                over_ipv6 = frame[12:14] == b"\x86\xdd" and frame[20:21] not in NEIGHBOURS
                if over_ipv6 or frame[12:14] == b"\x08\x00":
                    data = is_wireguard(frame)
                    encrypted += data is True
                    plain += data is None


def is_wireguard(frame: bytes) -> bool | None:
    """Whether a frame over IP is a transport data message of WireGuard, or another one; None: neither."""
    if len(frame) < 34:
        return None
    if frame[12:14] == b"\x86\xdd":
        at, protocol = 54, frame[20]
    else:
        at, protocol = 14 + (frame[14] & 15) * 4, frame[23]
    if len(frame) < at + 12 or protocol != 17:
        return None
    port = WIREGUARD_PORT.to_bytes(2, "big")
    if port not in (frame[at : at + 2], frame[at + 2 : at + 4]) or not 1 <= frame[at + 8] <= 4:
        return None
    return frame[at + 8] == 4


def _run(space: str | None, *command: str, text: str | None = None) -> str:
    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, check=False, input=text)

    done = namespace.inside(space, run) if space else run()
    if done.returncode:
        # keys are in no message
        words = " ".join(command[1:3])
        raise Error(
            "ND-92-63", f"{Path(command[0]).name} {words}: {done.stderr.strip()[:200]}", at="wireguard"
        )
    return done.stdout.strip()
