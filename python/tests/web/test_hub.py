"""Streams: one reader for many watchers, and a slow one that gets the whole instead of a backlog."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.web.hub import CHANNELS, Channel, Hub, Stream


class Counting:
    """A source whose news are numbers."""

    def __init__(self, last: int) -> None:
        self.number, self.last, self.reads = 0, last, 0

    async def read(self) -> Any:
        self.reads += 1
        if self.number >= self.last:
            return None
        self.number += 1
        return self.number

    async def snapshot(self) -> Any:
        return {"until": self.number}

    @property
    def over(self) -> bool:
        return self.number >= self.last


def told(message: bytes) -> tuple[str, Any]:
    event, data = message.decode().strip().split("\n")
    return event.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_all_watchers_share_one_reader() -> None:
    async def main() -> None:
        source = Counting(20)
        channel = Channel(source, 0.001, lambda: None)

        async def watch() -> list[Any]:
            return [told(message) async for message in channel.watch()]

        seen = await asyncio.gather(*(watch() for _ in range(50)))
        assert source.reads <= 22
        for events in seen:
            assert events[0][0] == "whole"
            assert events[-1] == ("over", {})
            # nothing is missing: each number follows the one before, or a whole stands in its place
            at = 0
            for name, data in events[:-1]:
                if name == "whole":
                    assert data["until"] >= at
                    at = data["until"]
                else:
                    assert data == at + 1
                    at = data
            assert at == 20

    asyncio.run(main())


class Slow(Counting):
    """One that others get to run beside while it is read."""

    def __init__(self, last: int) -> None:
        super().__init__(last)
        self.inside = 0

    async def read(self) -> Any:
        assert not self.inside, "it is read twice at a time"
        self.inside += 1
        await asyncio.sleep(0.002)
        found = await super().read()
        await asyncio.sleep(0.002)
        self.inside -= 1
        return found

    async def snapshot(self) -> Any:
        assert not self.inside, "it is shown while it is read"
        return await super().snapshot()


def test_watchers_that_come_at_once_have_one_reader_and_nothing_twice() -> None:
    async def main() -> None:
        source = Slow(30)
        channel = Channel(source, 0.001, lambda: None)

        async def watch(after: float) -> list[Any]:
            await asyncio.sleep(after)
            return [told(message) async for message in channel.watch()]

        seen = await asyncio.gather(*(watch(number * 0.0007) for number in range(50)))
        assert source.reads <= 32
        for events in seen:
            at = 0
            for name, data in events[:-1]:
                assert name == "whole" or data == at + 1
                at = data["until"] if name == "whole" else data
            assert at == 30

    asyncio.run(main())


@pytest.mark.parametrize("fault", [OSError(), Error("ND-92-35", "not now"), KeyError("nobody foresaw")])
def test_a_source_that_fails_for_a_while_is_read_again(
    fault: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(Counting):
        async def read(self) -> Any:
            if self.reads in (1, 2):
                self.reads += 1
                raise fault
            return await super().read()

    async def main() -> None:
        channel = Channel(Failing(5), 0.001, lambda: None)
        assert [told(one)[0] async for one in channel.watch()][-1] == "over"

    asyncio.run(asyncio.wait_for(main(), 60))
    # once, where the dashboard was started
    assert capsys.readouterr().err.count("KeyError") == isinstance(fault, KeyError)


def test_a_source_that_fails_at_its_first_look_has_its_watchers_all_the_same() -> None:
    class Failing(Counting):
        async def read(self) -> Any:
            if not self.reads:
                self.reads += 1
                raise KeyError("nobody foresaw")
            return await super().read()

    async def main() -> None:
        channel = Channel(Failing(5), 0.001, lambda: None)
        assert [told(one)[0] async for one in channel.watch()][-1] == "over"

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_watcher_that_stands_still_gets_the_whole_afterwards() -> None:
    async def main() -> None:
        channel = Channel(Counting(30), 0.001, lambda: None)
        slow, quick = channel.watch(), channel.watch()
        assert told(await anext(slow)) == ("whole", {"until": 1})
        assert [told(one)[0] async for one in quick][-1] == "over"
        assert told(await anext(slow)) == ("whole", {"until": 30})
        assert told(await anext(slow)) == ("over", {})

    asyncio.run(main())


def test_the_last_watcher_ends_the_reader() -> None:
    async def main() -> None:
        source = Counting(10**9)
        hub = Hub()
        channel = hub.channel("x", lambda: source, 0.001)
        assert hub.channel("x", lambda: Counting(1), 0.001) is channel
        watching = channel.watch()
        await anext(watching)
        await anext(watching)
        await watching.aclose()  # type: ignore[attr-defined]
        reads = source.reads
        await asyncio.sleep(0.05)
        assert source.reads <= reads + 1
        assert hub.channel("x", lambda: Counting(1), 0.001) is not channel

    asyncio.run(main())


def test_a_browser_that_takes_nothing_is_hung_up_on(monkeypatch: Any) -> None:
    monkeypatch.setattr("netdyno.web.hub.SEND", 0.05)

    async def main() -> None:
        source = Counting(10**9)
        channel = Channel(source, 0.001, lambda: None)
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)
            if len(sent) > 3:
                await asyncio.Event().wait()  # its window is full

        async def receive() -> Any:
            await asyncio.Event().wait()

        await asyncio.wait_for(Stream(channel, None)({"type": "http"}, receive, send), 60)
        assert len(sent) == 4
        reads = source.reads
        await asyncio.sleep(0.05)
        assert source.reads <= reads + 1

    asyncio.run(main())


def test_a_browser_that_leaves_ends_its_stream() -> None:
    async def main() -> None:
        channel = Channel(Counting(10**9), 0.001, lambda: None)
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            await asyncio.sleep(0.05)
            return {"type": "http.disconnect"}

        await asyncio.wait_for(Stream(channel, None)({"type": "http"}, receive, send), 60)
        assert sent[0]["type"] == "http.response.start"

    asyncio.run(main())


def test_channels_of_refused_streams_make_room() -> None:
    hub = Hub()
    for number in range(2 * CHANNELS):
        hub.channel(str(number), lambda: Counting(1), 0.001)

    async def main() -> None:
        watched = [hub.channel(f"watched {n}", lambda: Counting(1_000_000), 10.0) for n in range(CHANNELS)]
        streams = [one.watch() for one in watched]
        for stream in streams:
            await anext(stream)
        with pytest.raises(Error, match="watched already"):
            hub.channel("one more", lambda: Counting(1), 0.001)
        for stream in streams:
            await stream.aclose()

    asyncio.run(main())
