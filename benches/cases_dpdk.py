"""The dpdk transport: what one core sends, reflects and measures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from bed import GENERATOR, Core, folder, namespace


@contextlib.contextmanager
def loopback(seconds: float) -> Iterator[tuple[Callable[[], dict[str, float]], None]]:
    """64-byte frames through a cable to our reflector and back, every one measured, all on one worker."""
    with namespace() as name, folder() as where:
        core = Core(name, where)

        def ours() -> dict[str, float]:
            elements = ["a.generator", "a.receiver", "b.reflector"]
            trial = {
                "name": "bench",
                "phases": {"warmup": "1s", "measure": f"{seconds}s", "drain": "1s"},
                "transport": {
                    "dpdk": {
                        "ports": [
                            {"name": "a", "device": "pair:x", "ip": "10.0.0.1"},
                            {"name": "b", "device": "pair:x", "ip": "10.0.0.2", "role": "reflector"},
                        ],
                        "placement": [{"core": GENERATOR, "elements": elements}],
                    }
                },
                "groups": [
                    {
                        "name": "g",
                        "target": "udp://10.0.0.2:9000",
                        "model": {"stream": {"size": "18B", "rate": "50M/s", "echo": True}},
                    }
                ],
            }
            result, _ = core.run(trial)
            return {"rate": result["groups"][0]["rates"]["messages_delivered"]}

        yield ours, None
        core.close()
