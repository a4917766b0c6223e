"""The daemon's client: JSON-RPC 2.0, one object a line, over a Unix socket or TCP.

A reader thread sorts what comes in: answers wake the call that waits for them, notifications go to the
subscriptions. While the client is the writer a second thread keeps the lease.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from netdyno.core.address import Address
from netdyno.core.model import Model
from netdyno.core.wire import SeriesPoint, Status, TrialResult
from netdyno.errors import Error, placed

HEARTBEAT = 1.0
"""Seconds between heartbeats; the daemon's lease ends after 3."""

LONGEST = 1 << 30
"""Bytes of a line. A result with its whole series is one."""

DIGITS = 20
"""Of a whole number, its sign included: all of a 64-bit one."""

SILENT = "ND-91-22"
"""The code of an error where nothing answers in time."""
INVALID = "ND-91-32"
"""An answer that is not what the method answers."""

_RPC_CODES = {
    -32001: "ND-92-36",
    -32002: "ND-104-04",
    -32003: "ND-104-28",
    -32004: "ND-104-28",
    -32005: "ND-92-35",
    -32006: "ND-104-28",
    -32600: "ND-104-28",
    -32601: "ND-104-28",
    -32602: "ND-104-28",
}


M = TypeVar("M", bound=Model)


class FlowsPage(Model):
    """An answer to `run.flows`."""

    flows: list[list[Any]]
    total: int = Field(ge=0)


def invalid(method: str, why: str, at: str = "") -> Error:
    """That an answer is not what the method answers."""
    fix = "Check which program answers there, and that its version is that of netdyno"
    return Error(INVALID, f"its answer to {method} is not valid: {why}", at=at, fix=fix)


_KINDS = {"model_type": "this is no object", "dict_type": "this is no object", "missing": "this is missing"}


def checked(model: type[M], answer: Any, method: str, at: str = "") -> M:
    """An answer as its type. Raises `ND-91-32` where it does not fit."""
    try:
        return model.model_validate(answer)
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part)[:80] for part in first["loc"])
        message = _KINDS.get(first["type"]) or str(first["msg"]).removeprefix("Value error, ")
        raise invalid(method, f"{place}: {message}" if place else message, at) from e


@dataclass(frozen=True)
class Event:
    """A notification: a sample of the series, or a new status of the run."""

    sample: dict[str, Any] | None = None
    status: Status | None = None


class Subscription:
    """Events in the order in which the daemon sent them."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Event | Error] = queue.Queue()

    def put(self, event: Event | Error) -> None:
        """Hand an event over; called by the reader thread."""
        self._queue.put(event)

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event, or None when none came in time. Raises when the connection is lost."""
        try:
            event = self._queue.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(event, Error):
            raise event
        return event

    def __iter__(self) -> Iterator[Event]:
        while True:
            event = self.next()
            if event is not None:
                yield event
                if event.status is not None and event.status.ended:
                    return


CREDENTIALS = struct.Struct("iII")
"""struct ucred of unix(7): process, user and group of the other end."""


def trusted_users() -> set[int]:
    """Users whose daemon is told secrets: this one and root; of root only who called sudo besides."""
    own = os.geteuid()
    caller = os.environ.get("SUDO_UID", "") if own == 0 else ""
    return {0, own} | ({int(caller)} if caller.isdecimal() else set())


class Client:
    """One connection to a daemon."""

    process = 0
    """The daemon's process; 0 where it is not of this machine."""

    def __init__(
        self, address: Address | Path | str, timeout: float = 30.0, silence: float | None = None
    ) -> None:
        """`silence`: seconds without an answer to a heartbeat that end the connection; default: none do."""
        self.address = address if isinstance(address, Address) else Address.of(address)
        self.path = str(self.address)
        self.timeout = timeout
        self._silence = silence
        try:
            self._socket = self.address.connect()
        except OSError as e:
            raise Error(
                "ND-91-21",
                f"no daemon answers: {e.strerror or e}",
                at=self.path,
                fix="Start one with `netdyno daemon start`" + (" --tcp" if self.address.remote else ""),
            ) from e
        if not self.address.remote:
            self.process, user, _ = CREDENTIALS.unpack(
                self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
            )
            if user not in trusted_users():
                self._socket.close()
                raise Error(
                    "ND-92-47",
                    f"the daemon behind this socket is of user {user}, who would learn all that it is sent",
                    at=self.path,
                    fix="Start one of your own with `netdyno daemon start`, and name its socket",
                )
        self._sending = threading.Lock()
        self._last = 0
        self._waiting: dict[int, queue.Queue[dict[str, Any] | Error]] = {}
        self._subscriptions: list[Subscription] = []
        self._lost: Error | None = None
        self._why = ""
        """Why we have ended it."""
        self._closed = threading.Event()
        self._heart: threading.Thread | None = None
        self._resting = threading.Event()
        self._reader = threading.Thread(target=self._read, name="rpc-reader", daemon=True)
        self._reader.start()
        if self.address.remote:
            try:
                self.call("control.hello", token=self.address.token)
            except BaseException:
                self.close()
                raise

    def call(self, method: str, *, timeout: float | None = None, **params: Any) -> Any:
        """Send one request and wait for its answer. Arguments that are None are left out."""
        answer: queue.Queue[dict[str, Any] | Error] = queue.Queue(1)
        with self._sending:
            if self._lost:
                raise self._lost
            self._last += 1
            number = self._last
            self._waiting[number] = answer
            request = {
                "jsonrpc": "2.0",
                "id": number,
                "method": method,
                "params": {k: v for k, v in params.items() if v is not None},
            }
            try:
                self._socket.sendall(json.dumps(request).encode() + b"\n")
            except OSError as e:
                self._waiting.pop(number, None)
                raise self._lost or self._loss(e.strerror or str(e)) from e
        wait = self.timeout if timeout is None else timeout
        try:
            reply = answer.get(timeout=wait)
        except queue.Empty:
            self._waiting.pop(number, None)
            raise Error(
                SILENT,
                f"no answer to {method} within {wait:g} s",
                at=self.path,
                fix="See the daemon's log; the machine may be overloaded",
            ) from None
        if isinstance(reply, Error):
            raise reply
        if "error" in reply:
            raise _error(method, reply["error"], self.path)
        return reply.get("result")

    def acquire(self) -> None:
        """Become the writer, and keep the lease until `release` or `close`."""
        self.call("control.acquire")
        self._resting.clear()
        self._heart = threading.Thread(target=self._beat, name="rpc-heart", daemon=True)
        self._heart.start()

    def release(self) -> None:
        """Let another connection write."""
        self._resting.set()
        if self._heart:
            self._heart.join(timeout=2 * HEARTBEAT)
            self._heart = None
        self.call("control.release")

    def subscribe(self) -> Subscription:
        """Samples and changes of state from now on."""
        subscription = Subscription()
        self._subscriptions.append(subscription)
        self.call("stats.subscribe")
        return subscription

    def status(self) -> Status:
        """Where the run is."""
        return checked(Status, self.call("run.status"), "run.status", self.path)

    def result(self) -> TrialResult:
        """What the trial found."""
        answer = self.call("run.result", timeout=max(self.timeout, 60.0))
        return checked(TrialResult, answer, "run.result", self.path)

    def flows(self, page: int = 10_000) -> Iterator[list[Any]]:
        """The per-device summary, row by row."""
        offset = 0
        while True:
            answer = self.call("run.flows", offset=offset, limit=page)
            told = checked(FlowsPage, answer, "run.flows", self.path)
            yield from told.flows
            offset += len(told.flows)
            if not told.flows or offset >= told.total:
                return

    def close(self) -> None:
        """Hang up; the daemon takes that as a release."""
        self._closed.set()
        self._resting.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._reader.join(timeout=2.0)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _loss(self, why: str) -> Error:
        return Error(
            "ND-91-21",
            f"the connection to the daemon was lost: {why}",
            at=self.path,
            fix="See the daemon's log for why it ended",
        )

    def _beat(self) -> None:
        while not self._resting.wait(HEARTBEAT):
            try:
                self.call("control.heartbeat", timeout=self._silence or 5.0)
            except Error as e:
                if self._lost or self._closed.is_set():
                    return
                # a refusal is an answer: the lease is over, as after this process stood still
                if self._silence and e.code == SILENT:
                    self._why = f"nothing was heard for {self._silence:g} s"
                    with contextlib.suppress(OSError):
                        self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        why = ""
        try:
            with self._socket.makefile("rb") as lines:
                while line := lines.readline(LONGEST):
                    if not line.endswith(b"\n"):
                        raise ValueError(f"it sends a line cut short, or of more than {LONGEST:,} bytes")
                    message = json.loads(
                        line, parse_constant=_no_number, parse_float=_finite, parse_int=_whole
                    )
                    if not isinstance(message, dict):
                        raise ValueError("it sends what is no JSON-RPC")
                    self._sort(message)
        except Error as e:
            why = e.what
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as e:
            why = str(e)
        with self._sending:
            self._lost = self._loss(self._why or why or "it closed the connection")
        for answer in list(self._waiting.values()):
            answer.put(self._lost)
        if not self._closed.is_set():
            for subscription in self._subscriptions:
                subscription.put(self._lost)

    def _sort(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        if number is not None:
            waiting = self._waiting.pop(number, None)
            if waiting:
                waiting.put(message)
            return
        params = message.get("params") or {}
        if message.get("method") == "stats.sample":
            event = Event(sample=params)
        elif message.get("method") == "run.state":
            event = Event(status=checked(Status, params, "run.state", self.path))
        else:
            return
        for subscription in self._subscriptions:
            subscription.put(event)


def typed(sample: dict[str, Any]) -> SeriesPoint:
    """A sample as the model has it. Raises `ND-91-32` where it does not fit."""
    return checked(SeriesPoint, sample, "stats.sample")


def _no_number(text: str) -> float:
    raise ValueError(f"it sends {text[:40]}, which is no number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _whole(text: str) -> int:
    if len(text) > DIGITS:
        raise ValueError(f"it sends a whole number of {len(text):,} digits")
    return int(text)


def _error(method: str, error: Any, at: str) -> Error:
    if not isinstance(error, dict) or type(number := error.get("code", 0)) is not int:
        return invalid(method, "error: it is no error of JSON-RPC", at)
    data = error.get("data")
    if isinstance(data, dict) and data.get("code"):
        what = data.get("what")
        return Error.of(placed({**data, "what": what if isinstance(what, str) else error.get("message")}))
    return Error(_RPC_CODES.get(number, "ND-91-24"), str(error.get("message", "failed")), at=method)
