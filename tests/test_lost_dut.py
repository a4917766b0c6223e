"""A search over real sockets whose server breaks, never worked, or collapses and recovers."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from inconclusive import OF_TIME, Verdict
from lab import PATIENT, Lab, until
from ports import free_port

SERVER = Path(__file__).with_name("broken_server.py")


def serve(lab: Lab, mode: str, after: int) -> int:
    port = free_port()
    lab.spawn(sys.executable, str(SERVER), str(port), mode, str(after))

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(listens, 60, "the server does not listen")
    return port


def document(port: int, devices: int = 16) -> dict[str, Any]:
    """A closed loop: the load is the number of devices."""
    model = {"http": {"requests": 5, "interval": "50ms", "timeout": "400ms"}}
    group = {
        "name": "web",
        "target": f"http://127.0.0.1:{port}",
        "devices": devices,
        "model": model,
    }
    return {
        "name": "lost",
        "phases": {
            "warmup": "200ms",
            "measure": "1s",
            "drain": "600ms",
            "sample": "200ms",
        },
        "validity": PATIENT,
        "groups": [group | {"load": {"closed": {}}}],
        "thresholds": [{"metric": "web.errors", "max": 0}],
    }


@pytest.mark.parametrize(
    ("mode", "cause"),
    [("hang", "timeout"), ("refuse", "refused"), ("500", "rejected (500 × ")],
)
def test_a_server_that_breaks_is_lost(lab: Lab, mode: str, cause: str) -> None:
    # it serves the first trials whole, whose loads pass
    port = serve(lab, mode, 500)
    done = lab.run(
        "bench",
        "rate",
        lab.write("p.json", document(port)),
        "-q",
        "--resolution",
        "10%",
    )
    assert done.code == 91, done.text
    assert "ND-91-29" in done.err and "stopped answering" in done.err and cause in done.err, done.err
    search = done.result.search
    assert search is not None and not search.valid
    (part,) = search.parts
    assert part.findings[0].limit == "lost" and len(part.checks) == 3
    assert "the DUT was lost" in done.out


def test_a_server_that_never_served_is_told_with_the_cause(lab: Lab) -> None:
    port = serve(lab, "never", 0)
    done = lab.run(
        "bench",
        "rate",
        lab.write("p.json", document(port)),
        "-q",
        "--resolution",
        "10%",
    )
    assert done.code == 91, done.text
    assert "ND-91-30" in done.err and "rejected (404 × " in done.err, done.err


def test_a_server_that_collapses_and_recovers_has_a_limit(lab: Lab, verdict: Verdict) -> None:
    port = serve(lab, "collapse", 8)
    # a kept connection: as many are open as there are devices
    made = document(port)
    made["groups"][0]["model"]["http"] |= {"requests": 0}
    done = lab.run(
        "bench",
        "rate",
        lab.write("p.json", made),
        "-q",
        "--resolution",
        "10%",
        "--repeat",
        "3",
    )
    if done.code == 90 and OF_TIME & {reason.code for reason in done.result.reasons}:
        verdict.valid(done.result.reasons)
    assert done.code == 0, done.text
    search = done.result.search
    assert search is not None and search.valid
    (part,) = search.parts
    assert part.findings[0].load == 8 and part.findings[0].limit == "dut", part.findings
    assert part.checks and not any(one.loss == 1 for one in part.checks)
