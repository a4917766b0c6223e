"""SIP calls and registrations: against SIPp, against Kamailio, and the memory of registered users."""

from __future__ import annotations

import contextlib
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
    rss_of,
    server,
)
from rounds import Peer, Sides, UnusableError

AT_ONCE = 1000
"""Calls under way on either side."""
OURS, PEER = 5070, 5080
SIPP_ROOM = ("-buff_size", "4194304")
"""With its default buffers SIPp manages a sixth of the calls."""
SIPP_RATE = 20_000
"""Calls for each second of a round of SIPp, which ends when all of them have."""
REGISTRAR = """
debug=0
log_stderror=no
children={workers}
auto_aliases=no
listen=udp:127.0.0.1:5060
loadmodule "sl.so"
loadmodule "tm.so"
loadmodule "pv.so"
loadmodule "usrloc.so"
loadmodule "registrar.so"
loadmodule "auth.so"
modparam("usrloc", "db_mode", 0)
modparam("auth", "nonce_expire", 300)
request_route {{
    if (method != "REGISTER") {{ sl_send_reply("405", "Method Not Allowed"); exit; }}
    if ({challenge} && !pv_www_authenticate("example.net", "secret", "0")) {{
        www_challenge("example.net", "0");
        exit;
    }}
    save("location");
    exit;
}}
"""


def _group(model: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": {"sip": {"sockets": "shared", "domain": "example.net", **model}}, **more}


def _uas(core: Core, seconds: float) -> None:
    """Begin to answer calls on the server's core."""
    model = {"scenario": {"preset": "uas"}, "port": OURS}
    group = _group(model, target="sip://127.0.0.1:5060", devices=2 * AT_ONCE, source=["127.0.0.1"])
    document = profile(seconds, group)
    document["transport"]["sockets"]["cores"] = [SERVER]
    core.client.call("run.load", profile=document)
    core.client.call("run.start")
    while core.client.call("run.status")["phase"] != "measure":
        time.sleep(0.05)


def _ended(core: Core) -> dict[str, Any]:
    core.client.call("run.stop")
    while core.client.call("run.status")["state"] not in ("done", "failed"):
        time.sleep(0.1)
    result: dict[str, Any] = core.client.call("run.result")
    return result


def sipp(name: str, *transport: str) -> Callable[[float], dict[str, float]]:
    """A round of SIPp's own callers and callees; `transport` are its words for another one than UDP."""
    program = need("sipp")

    def play(seconds: float) -> dict[str, float]:
        calls = int(SIPP_RATE * seconds)
        end = ("-i", "127.0.0.1", *transport, *SIPP_ROOM, "-nostdin")
        with server(name, SERVER, program, "-sn", "uas", "-p", str(PEER), *end, port=PEER) as uas:
            before, began = cpu_of(uas.pid), time.monotonic()
            many = ("-r", "200000", "-l", str(AT_ONCE), "-m", str(calls), "-d", "0")
            _, cpu = measured(
                inside(name, GENERATOR, program, "-sn", "uac", *end, *many, f"127.0.0.1:{PEER}"), 300
            )
            took = time.monotonic() - began
            spent = cpu_of(uas.pid) - before
        return {"rate": calls / took, "cpu": cpu / calls * 1e6, "uas": spent / calls * 1e6}

    return play


def _calls(sockets: str) -> Callable[[], contextlib.AbstractContextManager[Sides]]:
    @contextlib.contextmanager
    def setup() -> Iterator[Sides]:
        with namespace() as name, folder() as near, folder() as far:
            uac, uas = Core(name, near), Core(name, far)

            def ours(seconds: float) -> dict[str, float]:
                _uas(uas, seconds + 60)
                before = cpu_of(uas.pid)
                model = {"scenario": {"preset": "call"}, "sockets": sockets}
                group = _group(model, target=f"sip://127.0.0.1:{OURS}", devices=AT_ONCE)
                try:
                    result, cpu = uac.run(profile(seconds, group), allowed=BEYOND)
                    spent = cpu_of(uas.pid) - before
                finally:
                    ended = _ended(uas)
                total, answered = result["groups"][0]["total"], ended["groups"][0]["total"]
                calls = total["sessions_completed"]
                if not calls == answered["calls_received"] == total["session_requests"]:
                    raise UnusableError(f"{calls} calls, {answered['calls_received']} received")
                rate = result["groups"][0]["measured"]["sessions_completed"] / seconds
                return {"rate": rate, "cpu": cpu / calls * 1e6, "uas": spent / calls * 1e6}

            yield Sides(ours, (Peer("sipp -sn uac, uas", {"": sipp(name)}),))
            uac.close()
            uas.close()

    return setup


shared, own = _calls("shared"), _calls("own")


@contextlib.contextmanager
def _registrar(challenge: bool, workers: int) -> Iterator[tuple[str, Path]]:
    with namespace() as name, folder() as where:
        config = where / "kamailio.cfg"
        config.write_text(REGISTRAR.format(workers=workers, challenge="1" if challenge else "0"))
        words = (
            "-DD",
            "-E",
            "-f",
            str(config),
            "-P",
            str(where / "pid"),
            "-m",
            "2048",
            "-M",
            "32",
            "-Y",
            str(where),
        )
        with server(name, SERVER, need("kamailio"), *words, port=5060):
            yield name, where


@contextlib.contextmanager
def registrations() -> Iterator[Sides]:
    """Registrations with a challenge each, as many as Kamailio takes: what they cost the generator."""
    with _registrar(challenge=True, workers=1) as (name, where):
        core = Core(name, where)

        def ours(seconds: float) -> dict[str, float]:
            model = {"scenario": {"preset": "register"}, "password": "secret"}
            group = _group(model, target="sip://127.0.0.1:5060", devices=100)
            result, cpu = core.run(profile(seconds, group), allowed=BEYOND)
            done = result["groups"][0]["total"]["registrations_accepted"]
            return {"rate": done / seconds, "cpu": cpu / done * 1e6}

        yield Sides(ours)
        core.close()


USERS = 1_000_000
EVERY = 60.0
"""Seconds between two registrations of a user: Kamailio has time for a million of them."""


@contextlib.contextmanager
def registered() -> Iterator[Sides]:
    """Memory for each user who stays registered."""
    with _registrar(challenge=False, workers=1) as (name, where):
        core = Core(name, where)

        def ours(seconds: float) -> dict[str, float]:
            model = {"scenario": {"preset": "stay_registered"}, "hold": f"{EVERY}s"}
            load = {"closed": {"ramp": f"{EVERY}s", "scales": False}}
            group = _group(model, target="sip://127.0.0.1:5060", devices=USERS, load=load)
            before = rss_of(core.pid)
            document = profile(2 * EVERY + seconds, group)

            def memory() -> float:
                time.sleep(EVERY + seconds)
                return rss_of(core.pid) - before

            return {"memory": core.during(document, memory) / USERS}

        yield Sides(ours)
        core.close()
