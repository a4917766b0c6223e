"""An HTTP server that breaks: PORT MODE AFTER.

hang|refuse|500: after so many requests it answers no more, is gone, or says 500 to all. never: from the first on
404. collapse: while more than AFTER connections are open it answers nobody, and is as before when fewer are.
"""

from __future__ import annotations

import asyncio
import os
import sys

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
NOT = b"HTTP/1.1 %s\r\nContent-Length: 4\r\n\r\nnope"


class Server:
    """What it has seen."""

    def __init__(self, mode: str, after: int) -> None:
        self.mode, self.after = mode, after
        self.served = self.open = 0

    def answer(self) -> bytes | None:
        """To the next request."""
        if self.mode == "collapse":
            return None if self.open > self.after else OK
        self.served += 1
        if self.served <= self.after:
            return OK
        if self.mode == "refuse":
            os._exit(0)
        return {
            "hang": None,
            "500": NOT % b"500 Broken",
            "never": NOT % b"404 Not Found",
        }[self.mode]

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.open += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                if (answer := self.answer()) is None:
                    await reader.read()
                    return
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.open -= 1
            writer.close()


async def main() -> None:
    """Serve until somebody ends it."""
    port, mode, after = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    server = await asyncio.start_server(Server(mode, after).client, "127.0.0.1", port, backlog=512)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
