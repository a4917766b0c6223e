"""An HTTP server whose answers take a time: `each` on its own, however many there are; in a `queue`, one after the other.

    queueing_server.py HOW PORT MILLISECONDS [CUT]

With CUT, each answer after so many on a connection is cut in its body, and the connection closed.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import nullcontext


async def main(how: str, port: int, seconds: float, cut: int) -> None:
    """Serve until the process ends."""
    queue = asyncio.Lock()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for number in range(sys.maxsize):
                await reader.readuntil(b"\r\n\r\n")
                async with queue if how == "queue" else nullcontext():
                    await asyncio.sleep(seconds)
                whole = not cut or number < cut
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + (b"ok" if whole else b"o"))
                await writer.drain()
                if not whole:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=1024)
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    _, how, port, milliseconds, *cut = sys.argv
    asyncio.run(main(how, int(port), float(milliseconds) / 1e3, int(cut[0]) if cut else 0))
