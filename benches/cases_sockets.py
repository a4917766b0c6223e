"""The sockets transport against wrk, a Paho client and iperf3."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bed import (
    BEYOND,
    GENERATOR,
    SERVER,
    Core,
    Skipped,
    files,
    folder,
    inside,
    measured,
    namespace,
    need,
    profile,
    rss_of,
    server,
)
from rounds import Peer, Round, Sides, UnusableError

from netdyno.core.daemon import program

Setup = contextlib.AbstractContextManager[Sides]

CONNECTIONS = 64
AGENT = "bench"
NGINX = """
user root; worker_processes 1; daemon off; pid {where}/pid; error_log {where}/error;
events {{ worker_connections 2048; }}
http {{ access_log off; keepalive_requests 1000000000;
  server {{ listen 127.0.0.1:8080; root {where}; }} }}
"""


def delivered(result: dict[str, Any]) -> int:
    """Messages confirmed in the whole run; a run without any is no figure."""
    group = result["groups"][0]
    done: int = group["total"]["messages_delivered"]
    if done == 0:
        seen = {name: delay["count"] for name, delay in group["delays"].items()}
        raise UnusableError(f"our run: nothing was delivered: {group['errors']}, measured {seen}")
    return done


def wrk_round(name: str, wrk: str, connections: int = CONNECTIONS) -> Round:
    """A round of wrk: byte for byte the request that we send, so that nginx has the same work."""

    def play(seconds: float) -> dict[str, float]:
        command = [wrk, "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "-H", f"User-Agent: {AGENT}"]
        command.append("http://127.0.0.1:8080/page")
        text, cpu = measured(inside(name, GENERATOR, *command), seconds + 20)
        # it says so only where there were any
        if failed := re.search(r"Socket errors:.*|Non-2xx.*", text):
            raise UnusableError(f"wrk: {failed[0].strip()}")
        done = int(re.search(r"(\d+) requests in", text)[1])  # type: ignore[index]
        rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])  # type: ignore[index]
        return {"rate": rate, "cpu": cpu / done * 1e6}

    return play


@contextlib.contextmanager
def nginx_page() -> Iterator[tuple[str, Path]]:
    """nginx on the server's core, with a page of 512 bytes: its namespace, and a folder."""
    nginx = need("nginx")
    with namespace() as name, folder() as where:
        (where / "page").write_bytes(b"x" * 512)
        (where / "conf").write_text(NGINX.format(where=where))
        with server(name, SERVER, nginx, "-c", str(where / "conf"), port=8080):
            yield name, where


@contextlib.contextmanager
def http() -> Iterator[Sides]:
    """Requests as fast as nginx answers, on 64 kept connections: ours against `wrk -t1`."""
    wrk = need("wrk")
    with nginx_page() as (name, where):
        core = Core(name, where)

        def ours(seconds: float) -> dict[str, float]:
            group = {"target": "http://127.0.0.1:8080/page", "devices": CONNECTIONS, "model": {"http": {}}}
            result, cpu = core.run(profile(seconds, group))
            done = delivered(result)
            return {"rate": result["groups"][0]["rates"]["messages_delivered"], "cpu": cpu / done * 1e6}

        yield Sides(ours, (Peer(f"wrk -t1 -c{CONNECTIONS}", {"": wrk_round(name, wrk)}),))
        core.close()


MOSQUITTO = "listener 1883 127.0.0.1\nallow_anonymous true\nmax_connections -1\nmax_inflight_messages 0\n"


@contextlib.contextmanager
def broker() -> Iterator[tuple[str, Path]]:
    """mosquitto on the server's core."""
    with namespace() as name, folder() as where:
        (where / "conf").write_text(MOSQUITTO)
        with server(name, SERVER, need("mosquitto"), "-c", str(where / "conf"), port=1883):
            yield name, where


@dataclass(frozen=True)
class Client:
    """A generator of `peers/`: what builds it, where it is then, and how it is told a round."""

    folder: str
    build: tuple[str, ...]
    program: str
    words: tuple[str, ...]


CLIENTS = {
    "paho": Client(
        "mqtt-paho",
        ("go", "build", "-o", "{target}", "."),
        "mqtt-paho",
        ("-clients", "50", "-seconds", "{seconds}", "-size", "64"),
    ),
    "rumqttc": Client(
        "mqtt-rumqtt",
        ("cargo", "build", "--release", "--locked", "--target-dir", "{target}"),
        "release/mqtt-rumqtt",
        ("--clients", "50", "--seconds", "{seconds}", "--size", "64", "--inflight", "1"),
    ),
}


def _built(client: Client) -> Path:
    """A peer of `peers/`, built when first needed and when its source has changed."""
    source = Path(__file__).parent / "peers" / client.folder
    target = Path(__file__).parent.parent / "target" / "bench-peers" / client.folder
    built = target / client.program
    newest = max(path.stat().st_mtime for path in source.rglob("*") if path.is_file())
    if not built.exists() or built.stat().st_mtime < newest:
        print(f"  building the peer {client.folder} …", flush=True)
        if target.is_file():  # of an earlier version, which had the program itself there
            target.unlink()
        target.mkdir(parents=True, exist_ok=True)
        tool, *words = (word.format(target=target) for word in client.build)
        done = subprocess.run([need(tool), *words], cwd=source, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise Skipped(
                f"{client.folder} could not be built: {(done.stderr or done.stdout).strip()[-500:]}"
            )
        built.touch()
    return built


def _rounds(name: str, program: Path, client: Client) -> Round:
    """A round of a generator that prints what was acknowledged, and what failed."""

    def play(seconds: float) -> dict[str, float]:
        words = [word.format(seconds=seconds) for word in client.words]
        text, cpu = measured(inside(name, GENERATOR, str(program), *words), seconds + 20)
        counts = json.loads(text)
        if counts["failed"] or not counts["acked"]:
            raise UnusableError(f"{client.folder}: {counts['failed']} failed, {counts['acked']} acked")
        return {"rate": counts["acked"] / seconds, "cpu": cpu / counts["acked"] * 1e6}

    return play


@contextlib.contextmanager
def mqtt() -> Iterator[Sides]:
    """50 clients at QoS 1, each waiting for its PUBACK: ours against Paho in Go and rumqttc in Rust."""
    found: dict[str, Path] = {}
    absent: dict[str, str] = {}
    for peer, client in CLIENTS.items():
        try:
            found[peer] = _built(client)
        except Skipped as why:
            absent[peer] = str(why)
    with broker() as (name, where):
        core = Core(name, where)

        def ours(seconds: float) -> dict[str, float]:
            model = {"mqtt": {"qos": 1, "count": 0, "interval": "0s", "size": "64B"}}
            group = {"target": "mqtt://127.0.0.1", "devices": 50, "model": model}
            result, cpu = core.run(profile(seconds, group))
            done = delivered(result)
            return {"rate": result["groups"][0]["rates"]["messages_delivered"], "cpu": cpu / done * 1e6}

        peers = (Peer(peer, {"": _rounds(name, path, CLIENTS[peer])}) for peer, path in found.items())
        yield Sides(ours, tuple(peers), absent=absent)
        core.close()


IDLE = 50_000
SPARE = 300
"""Open files that the daemon wants beside those of its devices."""


@contextlib.contextmanager
def mqtt_idle() -> Iterator[Sides]:
    """50,000 devices that are connected and speak every 20 s, in one process: what each costs in memory.

    Fewer where this machine does not let a process open so many files; `devices` says how many there were.
    """
    devices = min(IDLE, files() - SPARE)
    with broker() as (name, where):

        def ours(seconds: float) -> dict[str, float]:
            seen: list[int] = []
            group = {
                "target": "mqtt://127.0.0.1",
                "devices": devices,
                # four addresses, so that ports are not the limit
                "source": ["127.0.0.2-127.0.0.5"],
                "connect_timeout": "30s",
                "model": {"mqtt": {"qos": 1, "count": 0, "interval": "20s", "size": "64B"}},
                "load": {"closed": {"ramp": "20s"}},
            }
            trial = profile(max(seconds, 10), group)
            trial["phases"]["warmup"] = "25s"
            with contextlib.closing(Core(name, where)) as core:
                empty = rss_of(core.pid)
                result, _ = core.run(trial, at_middle=lambda: seen.append(rss_of(core.pid)))
            active = max(p["groups"]["g"]["devices_active"] for p in result["series"])
            return {"memory": (seen[0] - empty) / devices, "devices": active}

        fits = f"a process may open {devices + SPARE:,} files here"
        yield Sides(ours, cannot={"devices": fits} if devices < IDLE else {})


def udp(size: int) -> Callable[[], Setup]:
    """One-way datagrams as fast as one core sends them: ours against `iperf3 -u -b 0`."""

    @contextlib.contextmanager
    def setup() -> Iterator[Sides]:
        iperf = need("iperf3")
        sink = [str(program()), "reflect", "--udp", "9000", "--mode", "sink"]
        with (
            namespace() as name,
            folder() as where,
            server(name, SERVER, *sink, port=9000),
            server(name, SERVER, iperf, "-s", "-p", "5201", port=5201),
        ):
            core = Core(name, where)

            def ours(seconds: float) -> dict[str, float]:
                model = {"stream": {"size": f"{size}B", "rate": "20M/s", "echo": False}}
                group = {"target": "udp://127.0.0.1:9000", "model": model}
                result, cpu = core.run(profile(seconds, group), allowed=BEYOND)
                sent = result["groups"][0]["total"]["messages_sent"]
                return {"rate": result["groups"][0]["rates"]["messages_sent"], "cpu": cpu / sent * 1e6}

            def peer(seconds: float) -> dict[str, float]:
                command = [
                    iperf,
                    "-c",
                    "127.0.0.1",
                    "-u",
                    "-b",
                    "0",
                    "-l",
                    str(size),
                    "-t",
                    f"{seconds:.0f}",
                    "-J",
                ]
                text, cpu = measured(inside(name, GENERATOR, *command), seconds + 20)
                sent = json.loads(text)["end"]["sum"]["packets"]
                return {"rate": sent / seconds, "cpu": cpu / sent * 1e6}

            yield Sides(ours, (Peer("iperf3 -u -b 0", {"": peer}),))
            core.close()

    return setup
