"""Web servers that do what HTTP allows are called healthy, and what they say early is heard."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import odd_http
import pytest
from lab import PATIENT, Done, Lab, Wire, group, root, until, wire

from netdyno.core.wire import GroupResult

pytestmark = root
PORT, NGINX = 18971, 18972
SERVER = str(Path(odd_http.__file__))
PHASES = {"warmup": "0s", "measure": "5s", "drain": "3s", "sample": "500ms"}
SECOND = 10**9
IDLE = [f"idle-{how}-{gap}" for how in ("408", "fin", "rst") for gap in ("250ms", "400ms")]
CONFIG = """
worker_processes 1;
pid {base}/nginx.pid;
error_log {base}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  server {{ listen {address}:{port}; keepalive_timeout 1s; return 200 ok; }}
}}
"""


def http(path: str, interval: str = "100ms", **more: Any) -> dict[str, Any]:
    return {"http": {"path": f"/{path}", "interval": interval, **more}}


def document(groups: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": "odd", "phases": PHASES, "validity": PATIENT, "groups": groups}


@pytest.fixture(scope="module")
def cable() -> Iterator[Wire]:
    with wire() as one:
        yield one


@pytest.fixture(scope="module")
def place(cable: Wire) -> Iterator[Lab]:
    """Both servers at the far end."""
    lab = Lab()
    try:
        log = lab.base / "log"
        lab.spawn(*cable.at_far, sys.executable, SERVER, Wire.FAR, str(PORT), str(log))
        config = CONFIG.format(base=lab.base, address=Wire.FAR, port=NGINX)
        lab.spawn(
            *cable.at_far,
            "nginx",
            "-c",
            lab.write("nginx.conf", config),
            "-g",
            "daemon off;",
        )
        until(log.exists, 60)
        until((lab.base / "nginx.pid").exists, 60)
        yield lab
    finally:
        lab.close()


@pytest.fixture(scope="module")
def seen(place: Lab, cable: Wire) -> dict[str, GroupResult]:
    """One run of all, by group."""
    target = f"http://{Wire.FAR}:{PORT}"
    groups = [group(path, target, http(path), 2) for path in [*odd_http.PLAIN, "close-after-each"]]
    groups += [
        group(name, target, http(name.rpartition("-")[0], name.rpartition("-")[2]), 4) for name in IDLE
    ]
    groups += [
        group("says-timeout", target, http("says-timeout", "1s", method="POST"), 4),
        group(
            "close-after-each-post",
            target,
            http("close-after-each", "50ms", method="POST"),
            2,
        ),
        group("nginx", f"http://{Wire.FAR}:{NGINX}", http("", "1s"), 20),
    ]
    done = place.run("run", place.write("p.json", document(groups)), prefix=cable.at_near)
    assert done.folder, done.text
    return {one.name: one for one in done.trial.groups}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("path", [*odd_http.PLAIN, *IDLE, "close-after-each", "says-timeout", "nginx"])
def test_a_server_that_does_what_http_allows_is_healthy(seen: dict[str, GroupResult], path: str) -> None:
    result, total = seen[path], seen[path].total
    assert not result.errors, result.errors
    assert total.messages_sent > 0
    assert total.messages_delivered == total.messages_sent


def test_idle_closes_are_counted_apart_and_what_met_one_was_sent_again(
    seen: dict[str, GroupResult],
) -> None:
    for name in IDLE:
        assert own(seen[name], "idle_closes") > 0, name
        assert own(seen[name], "connections") > 4, name
        assert own(seen[name], "retried") <= own(seen[name], "idle_closes"), name
    # who says how long it keeps a connection is asked on another one before that: a POST never meets the close
    assert own(seen["says-timeout"], "retried") == 0
    assert own(seen["says-timeout"], "connections") > 4


def own(result: GroupResult, name: str) -> int:
    """A counter of the model's own."""
    return int(getattr(result.total, name))


@pytest.mark.parametrize("scheme", ["http"])
def test_what_a_server_says_before_it_closes_is_heard(place: Lab, cable: Wire, scheme: str) -> None:
    model = http("early-413", "200ms", method="POST", size="4MiB")
    path = place.write(
        "early.json",
        document([group("early", f"{scheme}://{Wire.FAR}:{PORT}", model, 4)]),
    )
    before = cable.counters(cable.near, "w0")["tx_bytes"]
    done: Done = place.run("run", path, prefix=cable.at_near)
    after = cable.counters(cable.near, "w0")["tx_bytes"]
    (result,) = done.trial.groups
    assert {error.kind for error in result.errors} == {"rejected"}, result.errors
    assert own(result, "responses_4xx") == result.total.messages_sent > 8
    # the wire has headers besides, at most 66 bytes for each segment, and what was sent again
    wired = after - before
    assert wired * 0.8 < result.total.bytes_sent < wired, (
        wired,
        result.total.bytes_sent,
    )
