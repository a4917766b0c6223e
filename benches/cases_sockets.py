"""The sockets transport against wrk, a Paho client and iperf3."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bed import (
    GENERATOR,
    SERVER,
    Core,
    Sides,
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

from netdyno.daemon import program

Setup = contextlib.AbstractContextManager[Sides]

CONNECTIONS = 64
AGENT = "bench"
NGINX = """
user root; worker_processes 1; daemon off; pid {where}/pid; error_log {where}/error;
events {{ worker_connections 1024; }}
http {{ access_log off; keepalive_requests 1000000000;
  server {{ listen 127.0.0.1:8080; root {where}; }} }}
"""


def delivered(result: dict[str, Any]) -> int:
    """Messages confirmed in the whole run; a run without any is no figure."""
    group = result["groups"][0]
    done: int = group["total"]["messages_delivered"]
    if done == 0:
        seen = {name: delay["count"] for name, delay in group["delays"].items()}
        raise SystemExit(f"nothing was delivered: {group['errors']}, measured {seen}")
    return done


@contextlib.contextmanager
def http(seconds: float) -> Iterator[Sides]:
    """Requests as fast as nginx answers, on 64 kept connections: ours against `wrk -t1`."""
    nginx, wrk = need("nginx"), need("wrk")
    with namespace() as name, folder() as where:
        (where / "page").write_bytes(b"x" * 512)
        (where / "conf").write_text(NGINX.format(where=where))
        with server(name, SERVER, nginx, "-c", str(where / "conf"), port=8080):
            core = Core(name, where)

            def ours() -> dict[str, float]:
                group = {
                    "target": "http://127.0.0.1:8080/page",
                    "devices": CONNECTIONS,
                    "model": {"http": {}},
                }
                result, cpu = core.run(profile(seconds, group))
                done = delivered(result)
                return {"rate": result["groups"][0]["rates"]["messages_delivered"], "cpu": cpu / done * 1e6}

            def peer() -> dict[str, float]:
                # byte for byte the request that we send, so that nginx has the same work
                command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds:.0f}s", "-H", f"User-Agent: {AGENT}"]
                command.append("http://127.0.0.1:8080/page")
                text, cpu = measured(inside(name, GENERATOR, *command), seconds + 20)
                done = int(re.search(r"(\d+) requests in", text)[1])  # type: ignore[index]
                rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])  # type: ignore[index]
                return {"rate": rate, "cpu": cpu / done * 1e6}

            yield ours, peer
            core.close()


MOSQUITTO = "listener 1883 127.0.0.1\nallow_anonymous true\nmax_connections -1\nmax_inflight_messages 0\n"


@contextlib.contextmanager
def broker() -> Iterator[tuple[str, Path]]:
    """mosquitto on the server's core."""
    with namespace() as name, folder() as where:
        (where / "conf").write_text(MOSQUITTO)
        with server(name, SERVER, need("mosquitto"), "-c", str(where / "conf"), port=1883):
            yield name, where


def _paho() -> Path:
    """The peer, built once."""
    source = Path(__file__).parent / "peers" / "mqtt-paho"
    built = Path(__file__).parent.parent / "target" / "bench-peers" / "mqtt-paho"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([need("go"), "build", "-o", str(built), "."], cwd=source, check=True)
    return built


@contextlib.contextmanager
def mqtt(seconds: float) -> Iterator[Sides]:
    """50 clients at QoS 1, each waiting for its PUBACK: ours against Paho in Go."""
    paho = _paho()
    with broker() as (name, where):
        core = Core(name, where)

        def ours() -> dict[str, float]:
            model = {"mqtt": {"qos": 1, "count": 0, "interval": "0s", "size": "64B"}}
            group = {"target": "mqtt://127.0.0.1", "devices": 50, "model": model}
            result, cpu = core.run(profile(seconds, group))
            done = delivered(result)
            return {"rate": result["groups"][0]["rates"]["messages_delivered"], "cpu": cpu / done * 1e6}

        def peer() -> dict[str, float]:
            command = [str(paho), "-clients", "50", "-seconds", str(seconds), "-size", "64"]
            text, cpu = measured(inside(name, GENERATOR, *command), seconds + 20)
            done = json.loads(text)["acked"]
            return {"rate": done / seconds, "cpu": cpu / done * 1e6}

        yield ours, peer
        core.close()


@contextlib.contextmanager
def mqtt_idle(seconds: float) -> Iterator[Sides]:
    """50,000 devices that are connected and speak every 20 s, in one process: what each costs in memory.

    Fewer where this machine does not let a process open so many files; `devices` says how many there were.
    """
    devices = min(50_000, files() - 200)
    with broker() as (name, where):

        def ours() -> dict[str, float]:
            core = Core(name, where)
            empty = rss_of(core.pid)
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
            result, _ = core.run(trial, at_middle=lambda: seen.append(rss_of(core.pid)))
            core.close()
            active = max(p["groups"]["g"]["devices_active"] for p in result["series"])
            return {"memory": (seen[0] - empty) / devices, "devices": active}

        yield ours, None


def udp(size: int) -> Callable[[float], Setup]:
    """One-way datagrams as fast as one core sends them: ours against `iperf3 -u -b 0`."""

    @contextlib.contextmanager
    def setup(seconds: float) -> Iterator[Sides]:
        iperf = need("iperf3")
        sink = [str(program()), "reflect", "--udp", "9000", "--mode", "sink"]
        with (
            namespace() as name,
            folder() as where,
            server(name, SERVER, *sink, port=9000),
            server(name, SERVER, iperf, "-s", "-p", "5201", port=5201),
        ):
            core = Core(name, where)

            def ours() -> dict[str, float]:
                model = {"stream": {"size": f"{size}B", "rate": "20M/s", "echo": False}}
                result, cpu = core.run(profile(seconds, {"target": "udp://127.0.0.1:9000", "model": model}))
                sent = result["groups"][0]["total"]["messages_sent"]
                return {"rate": result["groups"][0]["rates"]["messages_sent"], "cpu": cpu / sent * 1e6}

            def peer() -> dict[str, float]:
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

            yield ours, peer
            core.close()

    return setup


assert os.geteuid() == 0, "the benches make network namespaces: run them as root"
