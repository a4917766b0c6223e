"""What messages of agents cost a controller and a relay, measured over sockets with real messages.

A real agent runs a load on loopback, and what it tells is kept. Stand-ins then tell that, each over a socket
of its own, to the code that controllers and relays have, in a process whose CPU time is read.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from netdyno.core.daemon import Daemon
from netdyno.core.wire import SeriesPoint, TrialResult
from netdyno.fleet import merge
from netdyno.fleet.agents import Agent
from netdyno.fleet.hosts import HostSpec
from netdyno.fleet.links import Links, connect_all
from netdyno.fleet.shard import Shard
from netdyno.system.journal import journal

AGENTS, RELAYS = (50, 100, 200), 20
SECONDS = 12.0


class Hello(BaseHTTPRequestHandler):
    """A server."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """A short answer."""
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def real(folder: Path) -> tuple[list[dict[str, Any]], TrialResult, dict[str, Any]]:
    """The samples and the result of a run of one agent, and what it says of itself."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hello)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    group = {
        "name": "web", "target": f"http://127.0.0.1:{server.server_port}",
        "model": {"http": {"interval": "50ms"}}, "devices": 20,
        "load": {"closed": {"flows": 1}}, "total": None,
    }  # fmt: skip
    profile = {
        "name": "one", "groups": [group],
        "phases": {"warmup": "0s", "measure": "10s", "drain": "2s", "sample": "1s"},
    }  # fmt: skip
    with Daemon(folder / "core.sock", folder / "core.log") as daemon, daemon.connect() as client:
        about = client.call("core.describe")
        client.acquire()
        client.call("run.load", profile=profile, timeout=60.0)
        events = client.subscribe()
        client.call("run.start")
        samples = [event.sample for event in events if event.sample]
        result = client.result()
    server.shutdown()
    return samples, result, about


def serve(folder: Path, count: int, lines: list[bytes], about: dict[str, Any]) -> None:
    """Stand-ins that tell these lines, one a second each, from their subscription on."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def tell() -> None:
            for line in lines * 100:
                await asyncio.sleep(1.0 - time.time() % 1.0)
                writer.write(line)

        told = None
        while line := await reader.readline():
            asked = json.loads(line)
            answer = about if asked["method"] == "core.describe" else {}
            writer.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}).encode() + b"\n")
            if asked["method"] == "stats.subscribe":
                told = asyncio.create_task(tell())
        if told:
            told.cancel()

    async def all_of_them() -> None:
        servers = [await asyncio.start_unix_server(one, folder / f"{i}.sock") for i in range(count)]
        await asyncio.gather(*(server.serve_forever() for server in servers))

    asyncio.run(all_of_them())


def listen(folder: Path, count: int, relay: bool, cpu: Any) -> None:
    """What a controller does, or a relay; its CPU time of a second."""
    links = Links(lambda hosts, error: sys.exit(f"lost: {error}"))
    agents = [Agent(HostSpec(name=f"h{i}"), str(folder / f"{i}.sock")) for i in range(count)]
    made, absent = connect_all(agents, "bench", journal())
    assert not absent, absent
    links.links.extend(made)
    for host in links.hosts:
        host.shard = Shard({}, {"web": 1})
    links.each(lambda link: link.client.acquire())
    events = links.subscribe()
    used, began, points = 0.0, 0.0, 0
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        event = events.next(1.0)
        if event and event.sample:
            if relay:
                point = merge.thinned(SeriesPoint.model_validate(event.sample), "relay-1")
                json.dumps(
                    {"jsonrpc": "2.0", "method": "stats.sample", "params": point.model_dump()}
                ).encode()
            points += 1
            if points == 2:
                used, began = time.process_time(), time.monotonic()
    cpu.send(((time.process_time() - used) / (time.monotonic() - began), points))
    os._exit(0)


def cpu_of(folder: Path, count: int, lines: list[bytes], about: dict[str, Any], relay: bool) -> float:
    """Seconds of CPU that one process takes for as many stand-ins, a second."""
    many = multiprocessing.get_context("spawn")
    place = Path(tempfile.mkdtemp(dir=folder))
    server = many.Process(target=serve, args=(place, count, lines, about))
    server.start()
    while len(list(place.glob("*.sock"))) < count:
        time.sleep(0.1)
    here, there = many.Pipe(duplex=False)
    listener = many.Process(target=listen, args=(place, count, relay, there))
    listener.start()
    there.close()
    try:
        found, points = here.recv()
    finally:
        listener.join()
        server.kill()
        server.join()
    print(f"{count} {'behind a relay' if relay else ''}: {found:.3f} of a core, {points} points", flush=True)
    return float(found)


def line(point: SeriesPoint) -> bytes:
    """A point as it travels."""
    plain = {"jsonrpc": "2.0", "method": "stats.sample", "params": point.model_dump()}
    return json.dumps(plain).encode() + b"\n"


def processor() -> str:
    """What the kernel says that it is."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (one.partition(":")[2].strip() for one in lines if one.startswith("model name")), platform.machine()
    )


def measure() -> dict[str, Any]:
    """All costs."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        samples, result, about = real(folder)
        points = [SeriesPoint.model_validate(one) for one in samples if one["phase"] == "measure"]
        lines = [line(SeriesPoint.model_validate(one)) for one in samples[1:9]]
        each = [cpu_of(folder, count, lines, about, True) / count for count in AGENTS]
        merged = [
            merge.thinned(merge.point({f"h{i}": one for i in range(250)}), "relay-1") for one in points[1:9]
        ]
        through = [line(one) for one in merged]
        relay_cpu = cpu_of(folder, RELAYS, through, about, False) / RELAYS
        parts = {f"h{i}": result for i in range(100)}
        began = time.process_time()
        merge.trial(parts, {"groups": [{"name": "web"}]}, "")
        merging = (time.process_time() - began) / len(parts)
    return {
        "machine": f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "agent_cpu": max(each),
        "agent_bytes": round(statistics.mean(map(len, lines))),
        "relay_cpu": relay_cpu,
        "relay_bytes": round(statistics.mean(map(len, through))),
        "result_cpu": merging,
        "result_bytes": len(result.model_dump_json()),
    }
