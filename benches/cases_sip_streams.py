"""SIP calls over one TCP or TLS connection, calls with audio, and the delay that the tester itself adds."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bed import (
    BEYOND,
    SERVER,
    Core,
    cpu_of,
    folder,
    namespace,
    profile,
    server,
)
from cases_sip import AT_ONCE, OURS, sipp
from rounds import Peer, Sides, UnusableError

OURS_TLS = 5071
AUDIO = 3_000
"""Calls with audio at once."""


def _call(scheme: str, port: int, model: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    sip = {"scenario": {"preset": "call"}, "domain": "example.net", **model}
    return {"model": {"sip": sip}, "target": f"{scheme}://127.0.0.1:{port}", **more}


@contextlib.contextmanager
def _answering(name: str, where: Path, *options: str) -> Iterator[int]:
    """Our callees on the server's core; the process."""
    words = ("sip", "serve", "uas", "--listen", f"127.0.0.1:{OURS}", *options)
    with server(name, SERVER, sys.executable, "-m", "netdyno", *words, port=OURS) as process:
        yield process.pid


def _one_connection(scheme: str, port: int) -> Callable[[], contextlib.AbstractContextManager[Sides]]:
    @contextlib.contextmanager
    def setup() -> Iterator[Sides]:
        tls = scheme == "sips"
        with namespace() as name, folder() as where:
            made = ("--tls-self-signed", str(where / "server.pem")) if tls else ()
            with _answering(name, where, *made):
                core = Core(name, where)

                def ours(seconds: float) -> dict[str, float]:
                    more = {"tls": {"insecure": True}} if tls else {}
                    group = _call(scheme, port, {"connections": 1}, devices=AT_ONCE, **more)
                    result, cpu = core.run(profile(seconds, group), allowed=BEYOND)
                    total, within = result["groups"][0]["total"], result["groups"][0]["measured"]
                    if not total["sessions_completed"] == total["session_requests"]:
                        raise UnusableError(
                            f"{total['session_requests'] - total['sessions_completed']} calls failed"
                        )
                    rate = within["sessions_completed"] / seconds
                    return {"rate": rate, "cpu": cpu / total["sessions_completed"] * 1e6}

                peers = () if tls else (Peer("sipp -t t1 -sn uac, uas", {"": sipp(name, "-t", "t1")}),)
                absent = {"sipp -t l1": "this distribution builds SIPp without TLS"} if tls else {}
                yield Sides(ours, peers, absent=absent)
                core.close()

    return setup


tcp, tls = _one_connection("sip+tcp", OURS), _one_connection("sips", OURS_TLS)


@contextlib.contextmanager
def audio() -> Iterator[Sides]:
    """Calls with G.711 both ways, all of them at once: whether each packet left in time and came back."""
    with namespace() as name, folder() as where, _answering(name, where, "--echo"):
        core = Core(name, where)

        def ours(seconds: float) -> dict[str, float]:
            # each comes up within the ramp, and lasts to the end
            ramp = 10.0
            load = {"closed": {"ramp": f"{ramp}s"}}
            model = {"sockets": "shared", "hold": f"{ramp + seconds}s", "media": {}}
            document = profile(ramp + seconds, _call("sip", OURS, model, devices=AUDIO, load=load))
            document["phases"]["drain"] = f"{ramp + 5}s"
            result, cpu = core.run(document, allowed=BEYOND)
            total = result["groups"][0]["total"]
            lost = total["rtp_sent"] - total["rtp_received"] + total["rtp_unsent"]
            return {
                "calls": float(total["audio_calls"]),
                "lost": lost / max(1, total["rtp_sent"]),
                "cpu": cpu / max(1, total["rtp_sent"] + total["rtp_received"]) * 1e6,
            }

        yield Sides(ours)
        core.close()


@contextlib.contextmanager
def delay() -> Iterator[Sides]:
    """How late requests leave at half of the load that callers and callees carry."""
    with namespace() as name, folder() as where, _answering(name, where) as callees:
        core = Core(name, where)
        found: list[float] = []

        def ours(seconds: float) -> dict[str, float]:
            if not found:
                group = _call("sip", OURS, {"sockets": "shared"}, devices=AT_ONCE)
                result, _ = core.run(profile(seconds, group), allowed=BEYOND)
                found.append(result["groups"][0]["measured"]["sessions_completed"] / seconds)
            load = {"open": {"rate": f"{found[0] / 2:.0f}/s"}}
            group = _call("sip", OURS, {"sockets": "shared"}, devices=4 * AT_ONCE, load=load)
            before = cpu_of(callees)
            result, cpu = core.run(profile(seconds, group), allowed=BEYOND)
            of = result["groups"][0]
            calls = of["total"]["sessions_completed"]
            return {
                "late": of["lateness"]["p99"] / 1e3,
                "rate": of["measured"]["sessions_completed"] / seconds,
                "cpu": cpu / calls * 1e6,
                "uas": (cpu_of(callees) - before) / calls * 1e6,
            }

        yield Sides(ours)
        core.close()
