"""SIP calls over one TCP or TLS connection, calls with audio, and the delay that the tester itself adds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bed import (
    BEYOND,
    GENERATOR,
    SERVER,
    Core,
    cpu_of,
    folder,
    inside,
    measured,
    namespace,
    need,
    profile,
    server,
)
from rounds import Peer, Sides, UnusableError

AT_ONCE = 1000
OURS, OURS_TLS, PEER = 5070, 5071, 5080
SIPP_RATE = 20_000
"""Calls for each second of a round of SIPp, which ends when all of them have."""
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

                peers = () if tls else (Peer("sipp -t t1 -sn uac, uas", {"": _sipp(name)}),)
                absent = {"sipp -t l1": "this distribution builds SIPp without TLS"} if tls else {}
                yield Sides(ours, peers, absent=absent)
                core.close()

    return setup


def _sipp(name: str) -> Callable[[float], dict[str, float]]:
    program = need("sipp")

    def play(seconds: float) -> dict[str, float]:
        calls = int(SIPP_RATE * seconds)
        end = ("-i", "127.0.0.1", "-t", "t1", "-buff_size", "4194304", "-nostdin")
        with server(name, SERVER, program, "-sn", "uas", "-p", str(PEER), *end, port=PEER):
            began = time.monotonic()
            many = ("-r", "200000", "-l", str(AT_ONCE), "-m", str(calls), "-d", "0")
            _, cpu = measured(
                inside(name, GENERATOR, program, "-sn", "uac", *end, *many, f"127.0.0.1:{PEER}"), 300
            )
            took = time.monotonic() - began
        return {"rate": calls / took, "cpu": cpu / calls * 1e6}

    return play


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
