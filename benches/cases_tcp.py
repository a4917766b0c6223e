"""TCP over DPDK ports: our clients and server joined by memif; against kernel sockets and wrk."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bed import BEYOND, SERVER, Core, folder, namespace, need, profile, server
from cases_sockets import delivered, nginx_page, wrk_round
from rounds import Peer, Round, Sides

from netdyno.core.daemon import program

CLIENT, SERVICE = "10.96.0.1", "10.96.0.2"
"""Addresses of the two ports."""
MTU = 9000
PORTS = {"http": 80, "mqtt": 1883}
CONNECTIONS = 256
"""Connections of ours: enough that neither core waits for the other, and few enough for its cache."""
PEERS_CONNECTIONS = (64, 256, 1024)
"""A peer plays with what is best for it."""


def _memif(role: str) -> str:
    # an abstract socket: each round's namespace has its own
    return f"net_memif,role={role},id=0,socket-abstract=yes,socket=/nd-bench,bsize=10240"


@contextlib.contextmanager
def _served(name: str, protocol: str, *, port: bool) -> Iterator[str]:
    """Our server on the server's core, on a DPDK port or over the kernel's loopback: its URL."""
    host = SERVICE if port else "127.0.0.1"
    settings: dict[str, Any] = {"protocol": protocol, "listen": f"{host}:{PORTS[protocol]}"}
    if port:
        settings["port"] = {"name": "server", "device": _memif("server"), "ip": f"{SERVICE}/24", "mtu": MTU}
    command = [str(program()), "service", "--settings", json.dumps(settings)]
    with server(name, SERVER, *command, port=None if port else PORTS[protocol]):
        yield f"{protocol}://{host}"


Figure = Callable[[Mapping[str, Any]], float]
"""From a group's rates to what a case is about."""


def _round(
    name: str,
    core: Core,
    model: Mapping[str, Any],
    figure: Figure,
    *,
    port: bool,
    connections: int = CONNECTIONS,
) -> Round:
    """A round of ours over the port, or over kernel sockets. Its server ends with it: it polls its port."""
    (protocol,) = model

    def play(seconds: float) -> dict[str, float]:
        with _served(name, protocol, port=port) as url:
            trial = profile(seconds, {"target": url, "devices": connections, "model": model})
            if port:
                end = {"name": "a", "device": _memif("client"), "ip": f"{CLIENT}/24", "mtu": MTU}
                trial["transport"] = {"dpdk": {"ports": [end]}}
            result, _ = core.run(trial, allowed=BEYOND)
        delivered(result)
        return {"rate": figure(result["groups"][0]["rates"])}

    return play


def exchanges(
    model: Mapping[str, Any], figure: Figure
) -> Callable[[], contextlib.AbstractContextManager[Sides]]:
    """Messages that are answered, over memif; against the same clients and server over kernel sockets."""

    @contextlib.contextmanager
    def setup() -> Iterator[Sides]:
        with namespace() as name, folder() as where:
            core = Core(name, where)
            settings = {
                f"{n} connections": _round(name, core, model, figure, port=False, connections=n)
                for n in PEERS_CONNECTIONS
            }
            peer = Peer("kernel sockets", settings)
            yield Sides(_round(name, core, model, figure, port=True), (peer,))
            core.close()

    return setup


@contextlib.contextmanager
def delay() -> Iterator[Sides]:
    """Delay of responses at half of the load that both ends carry: stacks, models and the way between."""
    path = {"path": "/512"}
    with namespace() as name, folder() as where:
        core = Core(name, where)
        carry = _round(name, core, {"http": path}, messages, port=True)
        found: list[float] = []

        def ours(seconds: float) -> dict[str, float]:
            if not found:
                found.append(carry(seconds)["rate"])
            # each of the connections at its own pace, so that a request waits for no other of its own
            interval = CONNECTIONS / (found[0] / 2)
            model = {"http": path | {"interval": f"{interval * 1e9:.0f}ns"}}
            carried = _round(name, core, model, messages, port=True)(seconds)
            of = core.result["groups"][0]["delays"]["response"]
            return carried | {"p50": of["p50"] / 1e3, "p99": of["p99"] / 1e3}

        yield Sides(ours)
        core.close()


def messages(rates: Mapping[str, Any]) -> float:
    """Answered messages a second."""
    return float(rates["messages_delivered"])


def packets(rates: Mapping[str, Any]) -> float:
    """Packets a second of exchanges that fit in one packet each way."""
    return 2.0 * messages(rates)


def bits(rates: Mapping[str, Any]) -> float:
    """Bits of TCP payload received a second."""
    return float(rates["bits_received"])


@contextlib.contextmanager
def against_wrk() -> Iterator[Sides]:
    """Requests for 512 bytes on kept connections: ours over memif and our server, against wrk and nginx."""
    wrk = need("wrk")
    with nginx_page() as (name, where):
        core = Core(name, where)
        settings = {f"-c{n}": wrk_round(name, wrk, n) for n in PEERS_CONNECTIONS}
        yield Sides(
            _round(name, core, {"http": {"path": "/512"}}, messages, port=True),
            (Peer("wrk -t1 on nginx", settings),),
        )
        core.close()
