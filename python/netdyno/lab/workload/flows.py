"""Flow completion: how long an answer of some bytes takes, on a connection that is kept or on a new one."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import Literal

from pydantic import Field

from netdyno.errors import Error
from netdyno.lab.dut.base import Settings
from netdyno.lab.sockets import congestion_window
from netdyno.lab.workload.base import Site, Workload, WorkloadResult, metric_table
from netdyno.stats.estimate import mean
from netdyno.stats.observation import Metric
from netdyno.system import namespace
from netdyno.units import SIZE, TIME, bound, seconds

PORT = 8081
TCP_FASTOPEN_CONNECT = 30
"""linux/tcp.h."""
_ASK = struct.Struct("!Q")
TIMEOUT = 30.0
"""Seconds that a flow may take."""


class Options(Settings):
    """Settings of flows."""

    flows: int = Field(default=10, ge=1, le=100_000)
    """How many are measured; one before them is not."""
    size: str = "1MB"
    """Bytes of each answer."""
    idle: str = "0s"
    """Rest between them."""
    connection: Literal["kept", "new", "fastopen"] = "kept"
    """One for all; one for each; one for each, with the request in its first packet (RFC 7413)."""


class FlowCompletion(Workload):
    """Answers one after the other."""

    name = "flow-completion"
    about = "answers of some bytes one after the other, over a kept or a new connection"
    needs_ports = (("tcp", PORT),)
    Options = Options
    metrics = metric_table(
        Metric("completion_mean", "ms", "lower"),
        Metric("completion_max", "ms", "lower"),
    )

    def open(self, site: Site, stack: contextlib.ExitStack) -> None:
        """Listen, and answer."""
        self.windows: list[int] = []
        self._bytes = int(bound(SIZE.text(self.options.size, "size")))
        self._idle = seconds(TIME.text(self.options.idle, "idle"))

        def make() -> socket.socket:
            made = socket.socket()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((site.address, PORT))
            # a server may offer it always: the kernel's parameter decides
            with contextlib.suppress(OSError):
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 1024)
            made.listen(1024)
            return made

        listener = namespace.inside(site.server, make)
        server = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        server.start()

        def end() -> None:
            # shutting down wakes the accept that waits; closing alone does not
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            server.join(5.0)

        stack.callback(end)

    def run(self, site: Site, seed: int) -> WorkloadResult:
        """Ask and wait, again and again."""
        o = self.options
        self.windows.clear()
        try:
            times = namespace.inside(site.client, lambda: self._ask(site))
        except OSError as e:
            what = f"a flow did not complete: {e.strerror or e}"
            raise Error("ND-91-25", what, at=self.label, fix="Check the path; it may lose too much") from e
        windows = self.windows[1:] or [0]
        # a machine that pauses makes some longer, and none shorter
        counted = {"flow.completion_min": min(times)}
        if o.connection == "kept":
            counted["tcp.cwnd_at_start"] = mean(windows)
        return WorkloadResult({"completion_mean": mean(times), "completion_max": max(times)}, counted)

    def _ask(self, site: Site) -> list[float]:
        times: list[float] = []
        kept: socket.socket | None = None
        try:
            for number in range(self.options.flows + 1):
                if number and self._idle:
                    time.sleep(self._idle)
                start = time.perf_counter()
                if kept is None:
                    kept = self._connect(site)
                else:
                    kept.sendall(_ASK.pack(self._bytes))
                self._take(kept)
                times.append((time.perf_counter() - start) * 1e3)
                if self.options.connection != "kept":
                    kept.close()
                    kept = None
        finally:
            if kept is not None:
                kept.close()
        return times[1:]

    def _connect(self, site: Site) -> socket.socket:
        """A connection with its first request sent."""
        made = socket.socket()
        try:
            made.settimeout(TIMEOUT)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ask, to = _ASK.pack(self._bytes), (site.address, PORT)
            if self.options.connection == "fastopen":
                # connect() does nothing then if the server's cookie is known, and the request goes in the SYN
                made.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
            made.connect(to)
            made.sendall(ask)
        except BaseException:
            made.close()
            raise
        return made

    def _take(self, one: socket.socket) -> None:
        left, buffer = self._bytes, bytearray(1 << 18)
        while left:
            got = one.recv_into(buffer)
            if not got:
                raise ConnectionResetError(0, "the server closed the connection")
            left -= got

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(one,), daemon=True).start()

    def _answer(self, one: socket.socket) -> None:
        block = b"x" * 65536
        with one, contextlib.suppress(OSError):
            one.settimeout(TIMEOUT * 2)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while ask := one.recv(_ASK.size, socket.MSG_WAITALL):
                left = _ASK.unpack(ask)[0] if len(ask) == _ASK.size else 0
                first = True
                while left:
                    left -= one.send(block[: min(left, len(block))])
                    if first and (window := congestion_window(info(one))) is not None:
                        self.windows.append(window)
                    first = False


def info(one: socket.socket) -> bytes:
    """What TCP tells of a connection."""
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
