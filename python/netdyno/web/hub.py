"""Streams of server-sent events: one reader for each run, whatever the number of browsers that watch it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from netdyno.errors import Error
from netdyno.web.access import Session

SEND = 10.0
"""Seconds that a browser may take for a message; one that takes longer is hung up on."""
SHARE = 4.0
"""So many times what reading a source took passes before it is read again."""
STREAMS = 24
"""Streams that a browser may have open; one of its pages has one or two."""
CHANNELS = 200
"""Things that are watched at a time, by all browsers together."""
QUIET = 15.0
"""Seconds without news after which a stream says that it is still there."""


class Source(Protocol):
    """What is watched: read at intervals, shown whole to who comes new or was too slow."""

    async def read(self) -> Any:
        """What is new, as JSON; None when nothing is."""

    async def snapshot(self) -> Any:
        """Everything, as JSON."""

    @property
    def over(self) -> bool:
        """Whether nothing comes any more."""


class Channel:
    """A source and its watchers. Of each only the place is kept: who falls behind gets the whole instead."""

    def __init__(self, source: Source, interval: float, forget: Callable[[], None]) -> None:
        self.source, self._interval, self._forget = source, interval, forget
        self._number = 0
        self._latest = b""
        self._snapshot: tuple[int, bytes] | None = None
        self._news = asyncio.Condition()
        self._using = asyncio.Lock()
        """Held while the source is read: a snapshot has what was read up to its number, and no more."""
        self._watchers = 0
        self._reader: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()
        """Set once the source was read for the first time."""
        self._fault = ""
        """What nobody foresaw, as it was told last."""

    @property
    def is_idle(self) -> bool:
        """Whether nobody watches it."""
        return not self._watchers and self._reader is None

    async def watch(self) -> AsyncIterator[bytes]:
        """Messages for one watcher: the whole first, then what is new."""
        self._watchers += 1
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
        try:
            await self._begun.wait()
            place, whole = await self._state_event()
            yield whole
            while not self.source.over or place != self._number:
                await self._wait(place)
                if self._number == place:
                    if not self.source.over:
                        yield _message("still", {})
                elif self._number == place + 1:
                    place = self._number
                    yield self._latest
                else:
                    place, whole = await self._state_event()
                    yield whole
            yield _message("over", {})
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._reader.cancel()
                self._forget()

    async def _wait(self, place: int) -> None:
        """Until there is news after a place, or a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIET), self._news:
                await self._news.wait_for(lambda: self._number != place or self.source.over)

    async def _state_event(self) -> tuple[int, bytes]:
        """Everything, and the number of the news up to which it is."""
        async with self._using:
            if self._snapshot is None or self._snapshot[0] != self._number:
                self._snapshot = (self._number, _message("whole", await self.source.snapshot()))
            return self._snapshot

    async def _look(self) -> Any:
        """What is new. What cannot be read now may be the next time; what nobody foresaw is told where the
        dashboard was started, once for as long as it is the same."""
        try:
            found = await self.source.read()
        except (OSError, Error):
            return None
        except Exception as e:  # noqa: BLE001 - a page that stands still for good is worse
            said = f"{type(e).__name__}: {e}"
            if said != self._fault:
                traceback.print_exc()
            self._fault = said
            return None
        self._fault = ""
        return found

    async def _read(self) -> None:
        while True:
            began = time.monotonic()
            async with self._using:
                found = await self._look()
                if found is not None and self._begun.is_set():
                    self._number += 1
                    self._latest = _message("news", found)
            self._begun.set()
            if found is not None or self.source.over:
                async with self._news:
                    self._news.notify_all()
            if self.source.over:
                return
            # what takes long to read is read less often
            await asyncio.sleep(max(self._interval, SHARE * (time.monotonic() - began)))


class Hub:
    """Channels by name, for as long as somebody watches them."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}

    def channel(self, name: str, source: Callable[[], Source], interval: float) -> Channel:
        """The channel of a name."""
        if name not in self._channels:
            if len(self._channels) >= CHANNELS:
                # of a stream that was refused nobody watches it
                for idle in [one for one, channel in self._channels.items() if channel.is_idle]:
                    self._drop(idle)
            if len(self._channels) >= CHANNELS:
                what = f"{CHANNELS} runs and tables are watched already"
                raise Error("ND-104-17", what, fix="Close some of the pages that watch others")
            self._channels[name] = Channel(source(), interval, lambda: self._drop(name))
        return self._channels[name]

    def _drop(self, name: str) -> None:
        self._channels.pop(name, None)


class Stream:
    """A channel as an answer of `text/event-stream`."""

    def __init__(self, channel: Channel, session: Session | None) -> None:
        self._channel, self._session = channel, session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what comes, until the browser goes, freezes or is logged out."""
        session = self._session
        if session is None:
            await self._stream(receive, send)
            return
        if session.streams >= STREAMS:
            what = f"this browser watches {STREAMS} runs and tables already"
            raise Error("ND-104-17", what, fix="Close some of its pages")
        session.streams += 1
        try:
            await self._stream(receive, send)
        finally:
            session.streams -= 1

    async def _stream(self, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_disconnected(receive))
        _, rest = await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await task
        if not sending.cancelled():
            sending.result()

    async def _send(self, send: Send) -> None:
        watching = self._channel.watch()
        try:
            async for message in watching:
                if self._session and self._session.ended:
                    break
                async with asyncio.timeout(SEND):
                    await send({"type": "http.response.body", "body": message, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (TimeoutError, OSError):
            return
        finally:
            with contextlib.suppress(RuntimeError):
                await watching.aclose()  # type: ignore[attr-defined]


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _message(event: str, data: Any) -> bytes:
    return f"event: {event}\ndata: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()
