"""Client or server as another machine over SSH, on a cable to an interface of this one.

The interface comes into the namespace of the host that the machine stands for, and is bridged to the host's
link: so every switch, path and tunnel works as with namespaces. The machine has address and MAC of the host
for as long as a session is open; the script of that session puts back what it has set when it ends, however
it ends.
"""

from __future__ import annotations

import contextlib
import secrets
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from netdyno import config
from netdyno.config import Config
from netdyno.errors import Error
from netdyno.lab.workload import WORKLOADS
from netdyno.lab.workload.base import Workload, deaf
from netdyno.switch import lent
from netdyno.switch.lent import SET_UP
from netdyno.system import namespace
from netdyno.system.journal import Journal
from netdyno.system.ssh import CONNECT, START, Session, SshHost

EndName = Literal["client", "server"]
LOST = "ND-91-43"
BRIDGE = "br-remote"
GRACE = 30.0
"""Seconds beyond those of a program after which the machine is lost."""
OFFLOADS = ("tx", "tso", "gso", "gro")
_PATH = "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH\n"
_HOLD = """\
{path}set -e
i={interface}
b=
ip link show dev "$i" >/dev/null
if [ -n "$(ip -o addr show dev "$i" scope global)" ]; then
    echo "the interface $i has addresses: something uses it" >&2
    exit 1
fi
for p in {programs}; do
    command -v "$p" >/dev/null || {{ echo "$p is not installed there" >&2; exit 1; }}
done
about=$(ip -o link show dev "$i")
mac=$(echo "$about" | sed -n 's/.*link\\/ether \\([0-9a-f:]*\\).*/\\1/p')
mtu=$(echo "$about" | sed -n 's/.* mtu \\([0-9]*\\).*/\\1/p')
case "$about" in *[\\<,]UP[,\\>]*) up=up ;; *) up=down ;; esac
was=
for f in tx-checksumming tcp-segmentation-offload generic-segmentation-offload generic-receive-offload; do
    now=$(ethtool -k "$i" 2>/dev/null | sed -n "s/^$f: \\(on\\|off\\).*/\\1/p")
    case "$f" in tx-*) n=tx ;; tcp-*) n=tso ;; *segment*) n=gso ;; *) n=gro ;; esac
    [ -z "$now" ] || was="$was $n $now"
done
back() {{
    trap '' HUP INT TERM PIPE
    ip addr flush dev "$i" scope global
    ip link set "$i" down
    ip link set "$i" address "$mac" mtu "$mtu" "$up"
    [ -z "$was" ] || ethtool -K "$i" $was
}} >/dev/null 2>&1
trap back EXIT
trap 'exit 1' HUP INT TERM PIPE
ip link set "$i" down
ip link set "$i" address {mac} mtu {mtu} up
[ -z "$was" ] || ethtool -K "$i" tx off tso off gso off gro off >/dev/null 2>&1 || true
ip addr add {address} dev "$i"
{more}
echo ready
cat >/dev/null
"""
_SERVE = """\
{path}{command} </dev/null >&2 &
p=$!
trap 'kill -9 $p 2>/dev/null' EXIT
trap 'exit 1' HUP INT TERM PIPE
echo started
cat >/dev/null
"""


class RemoteHost(Config):
    """A machine that is client or server."""

    address: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@:%-]{0,254}$")
    """`HOST` or `USER@HOST`, or a name of the SSH configuration."""
    interface: str
    """Its interface on the cable, without addresses."""
    here: str
    """The other end of the cable: an interface of this machine, without addresses."""
    port: int | None = Field(default=None, ge=1, le=65535)
    key: str | None = None
    known_hosts: str | None = None

    @field_validator("interface", "here")
    @classmethod
    def _interface(cls, value: str) -> str:
        if not namespace.is_interface(value):
            raise ValueError(f"{value[:80]!r} cannot be an interface")
        return value

    def __str__(self) -> str:
        return f"{self.address} over SSH ({self.interface} at {self.here})"


def checked(text: str, at: str) -> RemoteHost:
    """`root@192.0.2.7,interface=eth1,here=eth2,key=FILE` as a machine. Raises Error."""
    head, *parts = (part.strip() for part in text.split(","))
    given: dict[str, Any] = {"address": head}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not value or key in given:
            raise Error("ND-104-04", f"{part[:80]!r} says nothing of a machine", at=at, fix=_FIX)
        given[key] = int(value) if key == "port" and value.isdecimal() else value
    return config.check(RemoteHost, given, "ND-104-86", at)


_FIX = "Write it like root@192.0.2.7,interface=eth1,here=eth2,key=FILE"


@dataclass
class Remote:
    """A machine in place of the client's or the server's namespace."""

    name: EndName
    spec: RemoteHost
    space: str
    """The namespace of the host that it stands for."""
    address: str
    """With the prefix."""
    mtu: int
    notes: Journal
    programs: Sequence[str] = ()
    """That it must have."""
    more: Sequence[str] = ()
    """Further lines of its script, such as routes."""
    _session: Session | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def at(self) -> str:
        """The option that names it."""
        return f"--{self.name}"

    @property
    def way(self) -> SshHost:
        """How it is reached."""
        one = self.spec
        return SshHost(one.address, SET_UP, one.port, one.key, one.known_hosts)

    def start(self, mac: str) -> None:
        """Have it stand for its host, whose MAC this is. Raises Error, and leaves nothing of it then."""
        with ExitStack() as stack:
            script = _HOLD.format(
                path=_PATH, interface=self.spec.interface, mac=mac, mtu=self.mtu, address=self.address,
                programs=" ".join(map(shlex.quote, self.programs)) or "ip", more="\n".join(self.more),
            )  # fmt: skip
            self._cable(stack)
            session = Session(self.way, script, self.notes)
            stack.callback(session.finish, START)
            if (said := session.line(CONNECT + START)) != "ready":
                raise self.way.failed(f"it says {said[:80]!r}, and not that it is ready")
            self._session = session
            self._stack = stack.pop_all()

    def _cable(self, stack: ExitStack) -> None:
        """Its interface of this machine, bridged to the link of the host that it stands for."""
        here = self.spec.here
        entry = lent.lend(here, self.space, self.notes, self.at)
        stack.callback(self.notes.undo, entry)
        run = self._ip
        run("ip", "link", "set", "eth0", "address", f"02:{secrets.token_bytes(5).hex(':')}")
        run("ip", "addr", "flush", "dev", "eth0")
        run("ip", "link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "forward_delay", "0",
            "ageing_time", "0")  # fmt: skip
        run("ip", "link", "set", here, "mtu", str(self.mtu))
        # frames as they come from the wire
        with contextlib.suppress(Error):
            run("ethtool", "-K", here, *(word for one in OFFLOADS for word in (one, "off")))
        for one in ("eth0", here):
            run("ip", "link", "set", one, "master", BRIDGE, "up")
        run("ip", "link", "set", BRIDGE, "up")

    def run(self, command: Sequence[str], seconds: float) -> tuple[int, str]:
        """Run a program on it to its end, at most so long: its exit status and what it printed.

        Raises Error if the machine is lost.
        """
        self.must_answer()
        line = shlex.join(["timeout", "-s", "KILL", f"{max(1, round(seconds))}", *_plain(command)])
        try:
            code, text, said = self.way.outcome(_PATH + line, timeout=seconds + GRACE)
        except Error as e:
            raise self._lost(e.what) from None
        if code == 255:
            raise self._lost(self.way.failed(said).what)
        return code, text + (said if code else "")

    def serve(self, command: Sequence[str], listens: Callable[[str], bool], stack: ExitStack) -> None:
        """A server on it, until the stack closes. Raises Error if it does not listen."""
        self.must_answer()
        script = _SERVE.format(path=_PATH, command=shlex.join(_plain(command)))
        session = Session(self.way, script, self.notes)
        stack.callback(session.finish, CONNECT)
        session.line(CONNECT + START)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if listens(self.run(["cat", "/proc/net/tcp"], CONNECT)[1]):
                return
        session.finish(CONNECT)
        raise deaf("it does not listen", self.spec.address)

    def ping(self, address: str, size: int) -> bool:
        """Whether a ping of so many bytes is answered within a second."""
        return self.run(["ping", "-c", "1", "-W", "1", "-s", str(size), address], 5)[0] == 0

    def dead(self) -> str:
        """That its session is over; empty: it is open."""
        return "its SSH session ended" if self._session is None or self._session.ended() else ""

    def must_answer(self) -> None:
        """Raises Error if it is lost: then nothing else is to blame."""
        if why := self.dead():
            raise self._lost(why)

    def stop(self) -> None:
        """Put back what was set on it and here."""
        self._session = None
        self._stack.close()

    def _lost(self, why: str) -> Error:
        fix = "The same command resumes with what was measured"
        return Error(LOST, f"the {self.name} {self.spec.address}: {why}", at=self.at, fix=fix)

    def _ip(self, *words: str) -> None:
        lent.run(self.space, self.at, *words)


def in_place_of(
    which: Mapping[EndName, RemoteHost],
    hosts: Mapping[str, tuple[str, str]],
    macs: Mapping[str, str],
    mtu: int,
    programs: Iterable[str],
    notes: Journal,
    stack: ExitStack,
    more: Mapping[str, Sequence[str]] = {},
) -> tuple[Remote | None, Remote | None]:
    """Machines in place of the namespaces of client and server, until the stack closes. Raises Error."""
    made: dict[str, Remote] = {}
    for name, spec in which.items():
        space, address = hosts[name]
        one = Remote(name, spec, space, address, mtu, notes, list(programs), more.get(name, ()))
        stack.callback(one.stop)
        one.start(macs[name])
        made[name] = one
    return made.get("client"), made.get("server")


def _plain(command: Sequence[str]) -> list[str]:
    """By the name of its program: where that is differs from machine to machine."""
    return [Path(command[0]).name, *command[1:]]


def check(kind: type[Workload], hosts: Mapping[EndName, RemoteHost], endpoints: str, segments: bool) -> None:
    """Raises if a workload cannot run on other machines, or other choices exclude them."""
    for name, one in hosts.items():
        at = f"--{name}"
        if not kind.in_guests:
            there = ", ".join(name for name, one in WORKLOADS.items() if one.in_guests)
            fix = f"Use one of {there}, or leave it out"
            what = f"the workload {kind.name} does not run on other machines"
            raise Error("ND-104-24", what, at=at, fix=fix)
        if name == "client" and kind.client_stays:
            what = f"the workload {kind.name} sends from here"
            raise Error("ND-104-24", what, at=at, fix="Use --server, or iperf3-tcp or iperf3-udp")
        if endpoints != "namespace" or segments:
            other = "--segments" if segments else "--endpoints"
            raise Error("ND-104-80", f"a machine over SSH does not go with {other}", at=at,
                        fix=f"Leave out {other} or {at}")  # fmt: skip
        if lent.state(one.here) is None:
            raise Error(SET_UP, f"there is no interface {one.here} here", at=at, fix="`ip link` lists them")
    if len({one.here for one in hosts.values()}) < len(hosts):
        raise Error("ND-104-07", "client and server have one interface here", at="--client",
                    fix="Give each a cable of its own")  # fmt: skip
