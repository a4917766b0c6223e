"""Client and server as virtual machines: each takes the address and MAC of its host's interface.

They boot once and stay for all trials. One is joined to the host's link by a tap and a bridge, or to a
switch over vhost-user, which leaves the link unused. A script in it runs what it is told over a serial port.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import select
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Union

from netdyno.errors import Error
from netdyno.lab import effect
from netdyno.lab.workload import WORKLOADS, Workload
from netdyno.lab.workload.base import deaf
from netdyno.switch.remote import Remote
from netdyno.system import namespace
from netdyno.system.journal import Journal
from netdyno.system.process import Process, find
from netdyno.system.vm import setup, small
from netdyno.system.vm.setup import MissingRequirement, Setup

Machine = Union["Guest", Remote]
"""Client or server that is no namespace."""
Machines = tuple[Machine | None, Machine | None]
"""Client and server; None: a namespace."""
Endpoints = Literal["namespace", "vm", "container", "dpdk"]
"""Client and server of a bench: network namespaces, virtual machines, containers of an image, or two DPDK
ports of our generator."""
AT = "--endpoints"
MODULES = ("virtio_pci", "virtio_net", "virtio_console")
MEMORY = 160
"""MiB of each, beside what its file system takes."""
SERVE = 20.0
"""Seconds in which a server must listen."""
GRACE = 30.0
"""Seconds beyond those of a program after which a virtual machine that does not answer hangs."""
UP = b"up\n"
_INIT = """\
{head}$b mkdir /tmp
$b ip link set lo up
$b ip link set eth0 mtu {mtu} || exit
$b ip addr add {address} dev eth0
$b ip link set eth0 up
{more}
for at in /sys/class/virtio-ports/*; do
    read -r name <"$at/name" && [ "$name" = netdyno.run ] && port="/dev/${{at##*/}}"
done
exec 3<>"$port"
echo up >&3
while read -r line <&3; do
    $b sh -c "$line" >/tmp/out 2>&1 3>&-
    code=$?
    echo "$code $($b stat -c %s /tmp/out)" >&3
    $b cat /tmp/out >&3
done
"""


def requirement() -> Setup:
    """What virtual machines are made of here. Raises Error."""
    found = setup.find()
    if isinstance(found, MissingRequirement):
        what = f"client and server cannot be virtual machines: {found.why}"
        raise Error("ND-92-44", what, at=AT, fix=found.fix or "Leave --endpoints out")
    return found


def check(kind: type[Workload], segments: bool) -> Setup:
    """Raises if a workload cannot run in virtual machines, or they cannot be had; what they are made of."""
    if not kind.in_guests:
        what = f"the workload {kind.name} does not run in virtual machines"
        fix = f"Use {' or '.join(in_machines())}, or leave --endpoints out"
        raise Error("ND-104-24", what, at=AT, fix=fix)
    if segments:
        what = "virtual machines send frames of the MTU, and no segments"
        raise Error("ND-104-80", what, at="--segments", fix="Leave out --segments or --endpoints")
    kind.in_machines()
    return requirement()


def in_machines() -> list[str]:
    """Workloads that run in virtual machines."""
    return [name for name, one in WORKLOADS.items() if one.in_guests]


def describe(made: Setup, kind: type[Workload]) -> str:
    """Their kernel and how they run, in a line, with what that means for figures."""
    which = "a virtual machine as server" if kind.client_stays else "virtual machines as client and server"
    said = f"{which}: {made.description}"
    if made.accelerators[0] == "kvm":
        return said
    return f"{said}. QEMU translates their code: they, not the switch, may be what limits throughput"


@dataclass
class Guest:
    """A virtual machine as client or server."""

    name: str
    """Client or server."""
    space: str
    """The namespace of its host."""
    address: str
    """With the prefix."""
    mtu: int
    folder: Path
    notes: Journal
    programs: Sequence[str] = ()
    """Paths of those that it has beside BusyBox."""
    vhost: Path | None = None
    """Where it listens for a switch over vhost-user; None: a tap is joined to its host's interface."""
    more: Sequence[str] = ()
    """Further lines of its script, such as routes."""
    process: Process | None = None
    _port: socket.socket | None = None
    _listener: socket.socket | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    INTERFACE: ClassVar[str] = "eth0"

    def start(self, made: Setup, mac: str) -> None:
        """Let it boot, with this MAC on its interface. Its tap goes with the namespace."""
        tag = f"{self.name}-{'vhost' if self.vhost else 'tap'}"
        self._console = self.folder / f"vm-{tag}.console"
        initrd, port = self.folder / f"vm-{tag}.initramfs", self.folder / f"vm-{tag}.port"
        script = _INIT.format(head=small.HEAD, mtu=self.mtu, address=self.address, more="\n".join(self.more))
        small.archive(made, initrd, script, MODULES, map(Path, self.programs))
        self._listener = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        self._listener.bind(str(port))
        self._listener.listen(1)
        devices = small.vhost_user(0, self.vhost, mac) if self.vhost else small.tap(0, self._tap(), mac)
        devices += ["-device", "virtio-serial-pci", "-chardev", f"socket,id=run,path={port}",
                    "-device", "virtserialport,chardev=run,name=netdyno.run"]  # fmt: skip
        # while it boots it has its file system twice, and files may take half of its memory
        memory = MEMORY + 4 * (initrd.stat().st_size >> 20)
        command = small.command(made, initrd, self._console, memory, devices)
        self.process = Process(
            command, log=self.folder / f"vm-{tag}.log", namespace=self.space, notes=self.notes
        )
        self._stack.callback(self.process.stop)

    def _tap(self) -> str:
        """A tap that stands for the host's interface, which gives its address away."""
        number = secrets.token_bytes(5).hex(":")
        self._ip("ip", "link", "set", self.INTERFACE, "address", f"02:{number}")
        self._ip("ip", "addr", "flush", "dev", self.INTERFACE)
        return small.join(self._ip, self.INTERFACE, self.INTERFACE)

    def await_ready(self) -> None:
        """Wait until it takes commands. Raises Error with its last words."""
        assert self.process is not None and self._listener is not None, "it was started"
        until, said = time.monotonic() + small.BOOT, b""
        self._listener.settimeout(0.2)
        while self._port is None or UP not in said:
            if self.process.exited() is not None or time.monotonic() > until:
                how = self.process.ending() or f"it takes no commands within {small.BOOT:g} s"
                what = f"the virtual machine of the {self.name} does not start ({how}): {self._last_words()}"
                raise Error("ND-92-44", what[:600], at=AT)
            if self._port is None:
                with contextlib.suppress(TimeoutError):
                    self._port = self._stack.enter_context(self._listener.accept()[0])
            elif select.select([self._port], [], [], 0.2)[0]:
                if not (read := self._port.recv(64)):
                    # QEMU has closed it: it ends
                    self.process.wait(5.0)
                said += read

    def run(self, command: Sequence[str], seconds: float) -> tuple[int, str]:
        """Run a program in it to its end, at most so long: its exit status and what it printed.

        Raises Error if the virtual machine is lost.
        """
        assert self._port is not None, "it is ready"
        line = shlex.join(["/bin/busybox", "timeout", "-s", "KILL", f"{max(1, round(seconds))}", *command])
        until = time.monotonic() + seconds + GRACE
        with contextlib.suppress(OSError):
            self._port.sendall(line.encode() + b"\n")
        head, _, rest = self._read(lambda got: b"\n" in got, until).partition(b"\n")
        code, size = map(int, head.split())
        text = rest + self._read(lambda got: len(rest) + len(got) >= size, until)
        return code, text.decode(errors="replace")

    def serve(self, command: Sequence[str], listens: Callable[[str], bool], stack: ExitStack) -> None:
        """A server in the background until the stack closes. Raises Error if it does not listen."""
        shell = 'exec "$@" </dev/null >/tmp/serve 2>&1 &'
        self.run(["/bin/busybox", "sh", "-c", shell, "sh", *command], 10)
        stack.callback(self.run, ["/bin/busybox", "killall", Path(command[0]).name], 10)
        until = time.monotonic() + SERVE
        while time.monotonic() < until:
            if listens(self.run(["/bin/busybox", "cat", "/proc/net/tcp"], 10)[1]):
                return
        said = self.run(["/bin/busybox", "tail", "-n", "3", "/tmp/serve"], 10)[1].strip()
        name = Path(command[0]).name
        raise deaf(said or "it says nothing", f"the {self.name}'s virtual machine", name)

    def ping(self, address: str, size: int) -> bool:
        """Whether a ping of so many bytes is answered within a second."""
        return self.run(["/bin/busybox", "ping", "-c", "1", "-W", "1", "-s", f"{size}", address], 5)[0] == 0

    def must_answer(self) -> None:
        """Raises Error if it has ended or hangs: then nothing else is to blame."""
        self.run(["/bin/busybox", "true"], 5)

    def _read(self, enough: Callable[[bytes], bool], until: float) -> bytes:
        assert self._port is not None and self.process is not None, "it is ready"
        got = b""
        while not enough(got):
            read = b""
            if select.select([self._port], [], [], 0.2)[0]:
                with contextlib.suppress(OSError):
                    read = self._port.recv(1 << 16)
                if not read:
                    self.process.wait(5.0)
            got += read
            if why := self.dead() or ("it does not answer" if time.monotonic() > until else ""):
                fix = "The same command resumes with what was measured"
                raise Error("ND-91-28", f"the {self.name}: {why}: {self._last_words()}"[:600], at=AT, fix=fix)
        return got

    def dead(self) -> str:
        """How it ended; empty: it runs."""
        assert self.process is not None, "it was started"
        return f"its virtual machine ended ({how})" if (how := self.process.ending()) else ""

    def stop(self) -> None:
        """End it."""
        self._stack.close()

    def _last_words(self) -> str:
        assert self.process is not None
        return small.last_words(self.process, self._console)

    def _ip(self, *words: str) -> None:
        command = [find(words[0], "iproute2"), *words[1:]]
        done = namespace.inside(
            self.space,
            lambda: subprocess.run(command, capture_output=True, text=True, check=False),
        )
        if done.returncode:
            raise Error("ND-92-44", f"{' '.join(words)}: {done.stderr.strip()}", at=AT)


@contextlib.contextmanager
def in_place_of(
    hosts: Mapping[str, tuple[str, str]],
    kind: type[Workload],
    mtu: int,
    folder: Path,
    notes: Journal,
    more: Mapping[str, Sequence[str]],
) -> Iterator[Machines]:
    """Virtual machines in place of client and server, which are namespaces with addresses. Raises Error."""
    made, programs = check(kind, segments=False), kind.in_machines()
    every = {
        name: Guest(name, space, address, mtu, folder, notes, programs, more=more.get(name, ()))
        for name, (space, address) in hosts.items()
        if name != "client" or not kind.client_stays
    }
    with ExitStack() as stack:
        boot(every.values(), made, {name: mac(space) for name, (space, _) in hosts.items()}, stack)
        yield every.get("client"), every["server"]


def pinged(one: Machine, address: str, count: int = 5) -> effect.Measured:
    """Round trips from a machine, one each second."""
    program = ["/bin/busybox", "ping"] if isinstance(one, Guest) else ["ping"]
    _, text = one.run([*program, "-c", f"{count}", address], 3 * count)
    return effect.Measured(count, tuple(float(ms) / 1e3 for ms in re.findall(r"time=([0-9.]+) ms", text)))


def must_answer(both: Iterable[Machine | None]) -> None:
    """Raises Error if a machine is lost: then nothing else is to blame."""
    for one in both:
        if one:
            one.must_answer()


def boot(guests: Iterable[Guest], made: Setup, macs: Mapping[str, str], stack: ExitStack) -> None:
    """Boot these at once; they end with the stack. Raises Error."""
    every = list(guests)
    for one in every:
        stack.callback(one.stop)
        one.start(made, macs[one.name])
    for one in every:
        one.await_ready()


def mac(space: str, interface: str = Guest.INTERFACE) -> str:
    """Ethernet address of an interface of a namespace."""

    def hardware_address() -> str:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as made:
            made.bind((interface, 0))
            address: bytes = made.getsockname()[4]
            return address.hex(":")

    return namespace.inside(space, hardware_address)
