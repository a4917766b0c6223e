"""The dpdk transport against DPDK's own test program: what one core sends and forwards."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bed import BEYOND, GENERATOR, SERVER, Core, Skipped, folder, frames, namespace
from rounds import Peer, Round, Sides, UnusableError
from testpmd import FRAME, RXONLY, TXONLY, Testpmd

Setup = Callable[[], contextlib.AbstractContextManager[Sides]]

TUPLE = [
    {"field": "ipv4.source", "change": {"increment": {"from": "10.1.0.0", "count": 65536}}},
    {"field": "ipv4.destination", "change": {"increment": {"from": "10.2.0.0", "count": 251}}},
    {"field": "udp.source_port", "change": {"increment": {"from": 1024, "count": 60000}}},
    {"field": "udp.destination_port", "change": {"increment": {"from": 5000, "count": 1000}}},
]
"""A 5-tuple that does not come again for a long time."""
BURSTS = (32, 64, 128)
"""Of testpmd, which has 32 if it is told nothing."""
LONG = 600.0
"""Seconds that are not waited for: the run is stopped when it has been looked at."""
FLYING = 512
"""Frames that go round where what is forwarded comes back."""
CROSSING = 1536
"""The same between two processes: more, as both are at work all the time; half of them fit a ring."""


def flood(seconds: float, device: str, *, signed: bool) -> dict[str, Any]:
    """The smallest frames with a varying 5-tuple and right checksums, as fast as they go."""
    port = {"name": "a", "device": device, "ip": "10.0.0.1", "peer_mac": "02:00:00:00:00:02"}
    frame = {
        "size": {"fixed": "64B"}, "rate": {"frames": "200M/s"}, "vary": TUPLE, "measured": signed,
    }  # fmt: skip
    group = {
        "name": "g", "target": "udp://10.0.0.2:9000", "model": {"stream": {"echo": False}}, "frame": frame,
    }  # fmt: skip
    return frames(seconds, [port], [group])


def send_null(*, signed: bool) -> Setup:
    """64-byte frames of many flows into nothing."""

    @contextlib.contextmanager
    def play() -> Iterator[Sides]:
        device = "net_null0,no-rx=1"
        with namespace() as name, folder() as where:
            core = Core(name, where)

            def ours(seconds: float) -> dict[str, float]:
                result, _ = core.run(flood(seconds, device, signed=signed), allowed=BEYOND)
                return {"rate": result["groups"][0]["rates"]["messages_sent"]}

            def peer(seconds: float, burst: int) -> dict[str, float]:
                with Testpmd(GENERATOR, [device], *TXONLY, burst=burst) as testpmd:
                    testpmd.say("start")
                    return {"rate": testpmd.rate("TX", seconds)}

            yield Sides(ours, (at_bursts(peer),))
            core.close()

    return play


def at_bursts(play: Callable[[float, int], dict[str, float]]) -> Peer:
    """testpmd, which is tried with each burst before it is compared with; ours keeps its default."""

    def at(burst: int) -> Round:
        return lambda seconds: play(seconds, burst)

    return Peer("testpmd", {f"burst {burst}": at(burst) for burst in BURSTS})


def reference() -> float | None:
    """What the machine gives this hour: testpmd at its default sending into nothing; None without testpmd."""
    try:
        with Testpmd(GENERATOR, ["net_null0,no-rx=1"], *TXONLY, burst=32) as testpmd:
            testpmd.say("start")
            return testpmd.rate("TX", 1.0)
    except (Skipped, UnusableError):
        return None


def memif(role: str, path: Path, number: int = 0) -> str:
    """One end of shared memory between two processes."""
    return f"net_memif{number},role={role},socket-abstract=no,socket={path}"


def send_memif(path: Path) -> tuple[str, str]:
    """The end that receives, and the one that sends."""
    return memif("server", path), memif("client", path)


def send_vhost(path: Path) -> tuple[str, str]:
    """The same of a virtual machine's network interface, and its host's end."""
    return f"net_vhost0,iface={path}", f"net_virtio_user0,path={path},queue_size=1024,mac=02:00:00:00:00:01"


def send_across(ends: Callable[[Path], tuple[str, str]]) -> Setup:
    """64-byte frames of many flows to another process on another core: what arrives there.

    The process at the far end is the same for both: testpmd that counts what it receives and throws it away.
    """

    @contextlib.contextmanager
    def play() -> Iterator[Sides]:
        with namespace() as name, folder() as where:
            core, path = Core(name, where), where / "wire"
            near, far = ends(path)

            @contextlib.contextmanager
            def sink() -> Iterator[Testpmd]:
                path.unlink(missing_ok=True)
                with Testpmd(SERVER, [near], *RXONLY) as testpmd:
                    testpmd.say("start")
                    yield testpmd

            def ours(seconds: float) -> dict[str, float]:
                with sink() as testpmd:
                    profile = flood(LONG, far, signed=False)
                    return {"rate": core.during(profile, lambda: testpmd.rate("RX", seconds))}

            def peer(seconds: float, burst: int) -> dict[str, float]:
                with sink() as testpmd, Testpmd(GENERATOR, [far], *TXONLY, burst=burst) as sender:
                    sender.say("start")
                    return {"rate": testpmd.rate("RX", seconds)}

            yield Sides(ours, (at_bursts(peer),))
            core.close()

    return play


def bridge(mode: str, devices: list[str]) -> list[dict[str, Any]]:
    """Two ports that hand on to each other."""
    return [
        {"name": a, "device": device, "role": "l2fwd", "to": b, "forward": mode}
        for (a, b), device in zip((("a", "b"), ("b", "a")), devices, strict=True)
    ]


def sent(result: dict[str, Any]) -> dict[str, float]:
    """Frames a second out of both ports."""
    total = sum(result["interfaces"][port]["tx_packets"] for port in ("a", "b"))
    return {"rate": total / sum(result["phases"].values())}


def forward_null(mode: str) -> Setup:
    """Forwarding between two ports of nothing that are always full."""

    @contextlib.contextmanager
    def play() -> Iterator[Sides]:
        devices = [f"net_null{n},size={FRAME}" for n in (0, 1)]
        with namespace() as name, folder() as where:
            core = Core(name, where)

            def ours(seconds: float) -> dict[str, float]:
                return sent(core.run(frames(seconds, bridge(mode, devices), []))[0])

            def peer(seconds: float, burst: int) -> dict[str, float]:
                with Testpmd(GENERATOR, devices, f"--forward-mode={mode}", burst=burst) as testpmd:
                    testpmd.say("start")
                    return {"rate": testpmd.rate("TX", seconds)}

            yield Sides(ours, (at_bursts(peer),))
            core.close()

    return play


def forward_ring(mode: str) -> Setup:
    """Forwarding between two rings, each giving back what is put into it: the same frames go round."""

    @contextlib.contextmanager
    def play() -> Iterator[Sides]:
        devices, numbers = ["net_ring0", "net_ring1"], itertools.count()
        with namespace() as name, folder() as where:
            core = Core(name, where)

            def ours(seconds: float) -> dict[str, float]:
                # two more ports, idle afterwards, bring the frames in
                feed = {"name": "feed", "device": "pair:x", "ip": "10.0.0.1"}
                into = {"name": "into", "device": "pair:x", "role": "l2fwd", "to": "a"}
                model = {"stream": {"size": "18B", "rate": "1M/s", "count": FLYING, "echo": False}}
                group = {"name": "g", "target": "udp://10.0.0.2:9000", "model": model, "port": "feed"}
                once = {"load": {"closed": {"flows": 1}}}
                # other rings than those of the round before, which are not empty
                ports = [*bridge(mode, [f"net_ring{next(numbers)}" for _ in devices]), feed, into]
                return sent(core.run(frames(seconds, ports, [group | once]))[0])

            def peer(seconds: float, burst: int) -> dict[str, float]:
                with Testpmd(GENERATOR, devices, f"--forward-mode={mode}", burst=burst) as testpmd:
                    testpmd.say(f"start tx_first {FLYING // 2 // burst}")
                    return {"rate": testpmd.rate("TX", seconds)}

            yield Sides(ours, (at_bursts(peer),))
            core.close()

    return play


def forward_memif(mode: str) -> Setup:
    """Forwarding between two processes' ends of shared memory; on another core testpmd hands all back.

    The frames go round, half of them each way, fewer than fit a ring, so that none is lost; the far end, the
    same for both, counts.
    It ends last: the driver does not bear that the other end goes while frames pass.
    """

    @contextlib.contextmanager
    def play() -> Iterator[Sides]:
        with namespace() as name, folder() as where:
            core, paths = Core(name, where), [where / "wire0", where / "wire1"]
            near = [memif("server", path, n) for n, path in enumerate(paths)]
            far = [memif("client", path, n) for n, path in enumerate(paths)]

            def beyond(seconds: float, last: contextlib.ExitStack) -> float:
                testpmd = last.enter_context(Testpmd(SERVER, far, "--forward-mode=io"))
                testpmd.connected()
                testpmd.say(f"start tx_first {CROSSING // 2 // 32}")
                return testpmd.rate("RX", seconds)

            def fresh() -> None:
                for path in paths:
                    path.unlink(missing_ok=True)

            def ours(seconds: float) -> dict[str, float]:
                fresh()
                profile = frames(LONG, bridge(mode, near), [])
                with contextlib.ExitStack() as last:
                    return {"rate": core.during(profile, lambda: beyond(seconds, last))}

            def peer(seconds: float, burst: int) -> dict[str, float]:
                fresh()
                with (
                    contextlib.ExitStack() as last,
                    Testpmd(GENERATOR, near, f"--forward-mode={mode}", burst=burst) as testpmd,
                ):
                    testpmd.say("start")
                    return {"rate": beyond(seconds, last)}

            yield Sides(ours, (at_bursts(peer),))
            core.close()

    return play
