"""A connection from a switch to a controller: handshake, requests with their replies, flow tables."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from netdyno.switch.openflow import message as of
from netdyno.switch.openflow.flow import FlowEntry
from netdyno.switch.openflow.message import Header, Message, OpenFlowError

PATIENCE = 10.0
"""Seconds within which a switch must answer a request."""


class ChannelError(Exception):
    """A peer that does not speak OpenFlow 1.3, or does not answer."""


@dataclass(frozen=True)
class Change:
    """A flow table that was made equal to what is wanted."""

    added: int
    removed: int
    kept: int
    confirmed: float
    """When the switch confirmed it, on the monotonic clock."""


class Channel:
    """One switch. Each request has a transaction of its own; a reply or error finds it by that."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._xids = itertools.count(1)
        self._waiting: dict[int, asyncio.Queue[Message]] = {}
        self._refused: dict[int, OpenFlowError] = {}
        self._reading: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self.datapath = 0
        self.ready = False
        """Its role is settled."""
        self.closed = asyncio.Event()
        self.why = ""
        """Why it is closed."""
        self.packet_in: Callable[[bytes], None] | None = None
        """Called with the body of each PACKET_IN."""

    async def open(self) -> None:
        """HELLO both ways, then the switch's identity. Raises ChannelError."""
        self._send(of.HELLO, next(self._xids), of.hello())
        try:
            async with asyncio.timeout(PATIENCE):
                header, body = await self._read()
        except TimeoutError:
            raise ChannelError(f"the peer sends no HELLO within {PATIENCE:g} s") from None
        if header.kind != of.HELLO:
            raise ChannelError(f"the peer begins with a message of type {header.kind} and not with HELLO")
        if not of.speaks_13(header, body):
            raise ChannelError("the switch does not speak OpenFlow 1.3")
        self._reading = asyncio.create_task(self._read_all())
        try:
            self.datapath = of.datapath((await self.ask(of.FEATURES_REQUEST, b"")).body)
        except ValueError as e:
            raise ChannelError(str(e)) from None

    async def ask(self, kind: int, body: bytes) -> Message:
        """Send a request and wait for its reply. Raises OpenFlowError and ChannelError."""
        return (await self._ask(kind, body))[0]

    async def role(self, kind: int, generation: int) -> None:
        """Become master or slave. Raises OpenFlowError with STALE if there is a newer master."""
        await self.ask(of.ROLE_REQUEST, of.role(kind, generation))

    async def flows(self) -> list[FlowEntry]:
        """All entries of table 0. Raises ChannelError."""
        found = []
        try:
            for part in await self._ask(of.MULTIPART_REQUEST, of.flow_stats()):
                found += [one.flow for one in of.flow_entries(part.body) if one.table == 0]
        except ValueError as e:
            raise ChannelError(f"the switch's list of flows cannot be read: {e}") from None
        return found

    async def groups(self) -> set[int]:
        """Numbers of all groups. Raises ChannelError."""
        found: set[int] = set()
        try:
            for part in await self._ask(of.MULTIPART_REQUEST, of.group_stats()):
                found |= of.group_numbers(part.body)
        except ValueError as e:
            raise ChannelError(f"the switch's list of groups cannot be read: {e}") from None
        return found

    async def reconcile(self, wanted: Sequence[FlowEntry]) -> Change:
        """Make the flow table and its groups equal to what is wanted.

        Entries that differ are changed in one bundle, so that packets meet either the old table or the new
        one; entries that are right are not touched. Raises OpenFlowError and ChannelError.
        """
        async with self._lock:
            add, remove = of.changes(await self.flows(), list(wanted))
            named = {one.number: one for flow in wanted for one in flow.groups}
            there = await self.groups()
            # groups come before flows that name them; one that goes first would take its flows along
            mods = [(of.GROUP_MOD, of.group_mod(of.ADD, one)) for n, one in named.items() if n not in there]
            mods += [(of.FLOW_MOD, of.flow_mod(of.ADD, one)) for one in add]
            mods += [(of.FLOW_MOD, of.flow_mod(of.DELETE_STRICT, one)) for one in remove]
            mods += [(of.GROUP_MOD, of.group_mod(of.DELETE_GROUP, n)) for n in sorted(there - set(named))]
            if mods:
                await self._commit(mods)
            await self.ask(of.BARRIER_REQUEST, b"")
            return Change(len(add), len(remove), len(wanted) - len(add), time.monotonic())

    async def _commit(self, mods: Sequence[tuple[int, bytes]]) -> None:
        number = next(self._xids)
        await self.ask(of.EXPERIMENTER, of.bundle(of.OPEN, number))
        sent = []
        for kind, body in mods:
            xid = next(self._xids)
            inner = Message(kind, xid, body)
            self._send(of.EXPERIMENTER, xid, of.bundled(number, inner))
            sent.append(xid)
        try:
            await self.ask(of.EXPERIMENTER, of.bundle(of.COMMIT, number))
        except OpenFlowError as failed:
            # the error of an entry says more than that of the commit
            raise next((self._refused[xid] for xid in sent if xid in self._refused), failed) from None
        finally:
            self._refused.clear()

    async def _ask(self, kind: int, body: bytes) -> list[Message]:
        xid, answers = next(self._xids), asyncio.Queue[Message]()
        if self.closed.is_set():
            raise ChannelError(f"the switch is not connected: {self.why}")
        self._waiting[xid] = answers
        self._send(kind, xid, body)
        found: list[Message] = []
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    got = await answers.get()
                    if got.kind == of.ERROR:
                        raise OpenFlowError(got.body)
                    if got.kind == of.HELLO:
                        raise ChannelError(f"the switch is not connected any more: {self.why}")
                    found.append(got)
                    if got.kind != of.MULTIPART_REPLY or not of.more(got.body):
                        return found
        except TimeoutError:
            raise ChannelError(
                f"the switch does not answer a message of type {kind} within {PATIENCE:g} s"
            ) from None
        finally:
            del self._waiting[xid]

    def send(self, kind: int, body: bytes) -> None:
        """Send what has no reply."""
        self._send(kind, next(self._xids), body)

    def _send(self, kind: int, xid: int, body: bytes) -> None:
        self._writer.write(bytes(Message(kind, xid, body)))

    async def _read(self) -> tuple[Header, bytes]:
        try:
            header = Header.of(await self._reader.readexactly(of.HEADER))
            return header, await self._reader.readexactly(header.length - of.HEADER)
        except ValueError as e:
            raise ChannelError(str(e)) from None
        except (asyncio.IncompleteReadError, OSError) as e:
            raise ChannelError(f"the connection ended: {e}") from None

    async def _read_all(self) -> None:
        try:
            while True:
                header, body = await self._read()
                if header.kind == of.ECHO_REQUEST:
                    self._send(of.ECHO_REPLY, header.xid, body)
                elif header.kind == of.PACKET_IN:
                    if self.packet_in:
                        self.packet_in(body)
                elif header.xid in self._waiting:
                    self._waiting[header.xid].put_nowait(Message(header.kind, header.xid, body))
                elif header.kind == of.ERROR:
                    self._refused[header.xid] = OpenFlowError(body)
        except ChannelError as e:
            self.why = str(e)
        finally:
            self.closed.set()
            for answers in self._waiting.values():
                answers.put_nowait(Message(of.HELLO, 0, b""))

    def close(self) -> None:
        """End it."""
        if self._reading:
            self._reading.cancel()
        self.closed.set()
        with contextlib.suppress(OSError):
            self._writer.close()
