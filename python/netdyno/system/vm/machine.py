"""A command run in a virtual machine: started, listened to, told to stop, ended, with nothing left."""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from netdyno import files, paths
from netdyno.errors import Error
from netdyno.system.interrupt import Interrupts
from netdyno.system.journal import Journal, journal
from netdyno.system.process import Process, last_lines
from netdyno.system.vm import commands, initramfs, scripts
from netdyno.system.vm.scripts import CONTROL, END, ERR, OUT
from netdyno.system.vm.setup import Setup

Sink = Callable[[bytes], object]
"""Takes what is printed."""
BOOT = {"kvm": 120.0, "tcg": 600.0}
"""Seconds in which the command must have begun; KVM that takes longer does not work."""
SPEED = {"kvm": "KVM", "tcg": "TCG, which is slow: its figures compare settings, and not machines"}
SILENCE = 300.0
"""Seconds without a sign of life after which it hangs."""
SOCKETS = 20.0
"""Seconds in which virtiofsd must listen."""


@dataclass(frozen=True)
class Job:
    """What to run in it."""

    command: Sequence[str]
    folder: Path
    """Where it runs."""
    share: Path
    """The one folder that it can write to so that it stays."""
    environment: Mapping[str, str]
    """All of it."""


@dataclass
class VirtualMachine:
    """A virtual machine for one command."""

    setup: Setup
    job: Job
    notes: Journal = field(default_factory=journal)
    boot: Mapping[str, float] = field(default_factory=lambda: BOOT)

    def run(self, out: Sink, err: Sink, interrupts: Interrupts, told: Callable[[str], None]) -> int:
        """Run the command, with what it prints passed on; its exit status. An interrupt is passed on, too."""
        for way in self.setup.accelerators:
            stack, at = ExitStack(), time.monotonic()
            try:
                session = self._start(stack, way)
                session.until_up(self.boot[way], interrupts)
                told(f"virtual machine up after {time.monotonic() - at:.0f} s, by {SPEED[way]}")
                return session.listen(out, err, interrupts)
            except Error as e:
                if e.code != "ND-92-44" or way == self.setup.accelerators[-1]:
                    raise
                told(f"no virtual machine by {way.upper()}: {e.what}")
            finally:
                with interrupts.shielded():
                    stack.close()
        raise AssertionError("there is an accelerator")

    def _start(self, stack: ExitStack, way: str) -> Session:
        """Both shares and QEMU; what is made is in the journal before, and goes with the stack."""
        folder = files.own_folder(paths.runtime()) / f"nd-vm-{secrets.token_hex(3)}"
        stack.callback(self.notes.undo, self.notes.write("path", path=str(folder)))
        files.own_folder(folder)
        share = self.job.share.resolve()
        made, text = self.setup.kernel, scripts.agent(self.job.command, self.job.folder, self.job.environment)
        init = scripts.init(made.release, made.modules.resolve(), self.setup.busybox, share)
        archive = initramfs.build(made, self.setup.busybox, {"init": init, "agent": text})
        with files.open_private(folder / "initramfs", "xb") as file:
            file.write(archive)
        sockets = {name: folder / f"{name}.socket" for name in ("root", "share", *commands.PORTS)}
        program = self.setup.virtiofsd
        # what netdyno is made of does not change meanwhile
        for name, shared, cache in (("root", Path("/"), "always"), ("share", share, "auto")):
            command = commands.private(commands.share(program, shared, sockets[name], cache), folder, shared)
            self._listening(stack, command, folder / f"{name}.log", sockets[name])
        listeners = {name: stack.enter_context(_listen(sockets[name])) for name in commands.PORTS}
        command = commands.qemu(self.setup, way, folder, sockets)
        process = Process(command, log=folder / "qemu.log", notes=self.notes, private=True)
        stack.callback(process.stop)
        ports = {name: _accepted(stack, one, process) for name, one in listeners.items()}
        return Session(process, ports, folder / "console.log")

    def _listening(self, stack: ExitStack, command: list[str], log: Path, at: Path) -> None:
        process = Process(command, log=log, notes=self.notes)
        stack.callback(process.stop)
        until = time.monotonic() + SOCKETS
        while not at.exists():
            if process.exited() is not None or time.monotonic() > until:
                what = f"virtiofsd does not listen: {process.tail() or process.exited()}"
                raise Error("ND-92-44", what, fix=FIX)
            time.sleep(0.02)


FIX = "`--no-vm` goes without; `netdyno doctor` shows what there is"


@dataclass
class Session:
    """QEMU while it runs, and the other ends of its serial ports."""

    process: Process
    ports: Mapping[str, socket.socket]
    console: Path
    _told: bytes = b""

    def until_up(self, seconds: float, interrupts: Interrupts) -> None:
        """Wait for the command to begin."""
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as ready:
            ready.register(self.ports[CONTROL], selectors.EVENT_READ)
            while b"up\n" not in self._told:
                if interrupts.count:
                    raise Error("ND-105-20", "interrupted", fix="What was measured until then is kept")
                if self.process.exited() is not None or time.monotonic() > until:
                    why = self._ended() or f"not up within {seconds:g} s"
                    raise Error("ND-92-44", f"{why}: {self._last()}", fix=FIX)
                if ready.select(0.2) and not self._hear():
                    self.process.wait(5.0)

    def listen(self, out: Sink, err: Sink, interrupts: Interrupts) -> int:
        """Pass on what the command prints until it has ended; its exit status."""
        streams = {OUT: out, ERR: err}
        passed, heard = interrupts.count, time.monotonic()
        code: int | None = None
        with selectors.DefaultSelector() as ready:
            for name, port in self.ports.items():
                ready.register(port, selectors.EVENT_READ, name)
            while code is None or streams:
                for key, _ in ready.select(0.2):
                    heard = time.monotonic()
                    if key.data == CONTROL:
                        if not self._hear():
                            self.process.wait(5.0)
                            raise self._lost(self._ended() or "it says nothing any more")
                        code = self._code()
                    elif self._passed_on(key.data, streams[key.data]):
                        ready.unregister(key.fileobj)
                        del streams[key.data]
                if interrupts.count > passed:
                    passed = interrupts.count
                    with contextlib.suppress(OSError):
                        self.ports[CONTROL].sendall(b"stop\n")
                if time.monotonic() - heard > SILENCE:
                    raise self._lost(f"no sign of life for {SILENCE:g} s")
        return code

    def _hear(self) -> bool:
        """Read what it says of itself; whether it still can."""
        try:
            data = self.ports[CONTROL].recv(4096)
        except OSError:
            data = b""
        self._told = (self._told + data)[-8192:]
        return bool(data)

    def _code(self) -> int | None:
        for line in self._told.split(b"\n")[:-1]:
            if line.startswith(b"exit "):
                return int(line[5:])
        return None

    def _passed_on(self, name: str, to: Sink) -> bool:
        """Pass on what there is; whether it was the last."""
        try:
            data = self.ports[name].recv(1 << 16)
        except OSError:
            data = b""
        text, end, _ = data.partition(END)
        to(text)
        return bool(end) or not data

    def _ended(self) -> str:
        how = self.process.ending()
        return f"QEMU ended ({how})" if how else ""

    def _lost(self, why: str) -> Error:
        fix = "The same command goes on with what was measured; `--no-vm` goes without"
        return Error("ND-91-28", f"the virtual machine was lost: {why}: {self._last()}", fix=fix)

    def _last(self) -> str:
        lines = [*last_lines(self.process.log)[-3:], *last_lines(self.console)[-5:]]
        return " | ".join(lines) or "it said nothing"


def _listen(at: Path) -> socket.socket:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        one.bind(str(at))
        one.listen(1)
        one.settimeout(0.2)
    except BaseException:
        one.close()
        raise
    return one


def _accepted(stack: ExitStack, listener: socket.socket, process: Process) -> socket.socket:
    """QEMU's end of a port: it connects as it starts."""
    until = time.monotonic() + SOCKETS
    while True:
        with contextlib.suppress(TimeoutError):
            return stack.enter_context(listener.accept()[0])
        if process.exited() is not None or time.monotonic() > until:
            raise Error("ND-92-44", f"QEMU does not start: {process.tail() or process.exited()}", fix=FIX)
