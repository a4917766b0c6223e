"""`netdyno serve` at its end: by a signal in good order, with its counters; by itself with a reason and exit code 91."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lab import NETDYNO, Lab, Wire, root, sh, until
from served import OWN, fill_checksums

pytestmark = root


def serve(lab: Lab, *words: str, at: tuple[str, ...] = ()) -> tuple[Any, Path]:
    """A server that listens, and the file of what it says."""
    out = lab.base / "said"
    with out.open("w") as to:
        process = lab.spawn(
            *at, NETDYNO, "serve", "http", *words, "--json", stdout=to, stderr=subprocess.STDOUT
        )
    until(lambda: "http on" in out.read_text(), 60, "it does not listen")
    return process, out


def counters(out: Path) -> dict[str, int]:
    """What it counted, as it says."""
    text = out.read_text()
    found: dict[str, int] = json.JSONDecoder().raw_decode(text[text.index("{") :])[0]["counters"]
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_good_order_with_its_counters(lab: Lab, number: signal.Signals) -> None:
    process, out = serve(lab, "--listen", "127.0.0.1:0")
    address = out.read_text().split(" on ")[1].split()[0]
    sh("curl", "-sS", "--max-time", "60", "-o", "/dev/null", f"http://{address}/7")
    process.send_signal(number)
    assert process.wait(60) == 0, out.read_text()
    assert (counters(out)["requests"], counters(out)["body_bytes"]) == (1, 7)


def test_a_daemon_that_is_killed_is_told(lab: Lab) -> None:
    process, out = serve(lab, "--listen", "127.0.0.1:0")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1, children
    os.kill(int(children[0]), signal.SIGKILL)
    assert process.wait(60) == 91, out.read_text()
    assert "ND-91-23" in out.read_text() and "SIGKILL" in out.read_text(), out.read_text()


def test_a_port_whose_interface_is_gone_is_told(lab: Lab, cable: Wire) -> None:
    words = ("--listen", f"{OWN}:80", "--port", "af_packet:w1", "--prefix", "24")
    fill_checksums(cable)
    process, out = serve(lab, *words, at=cable.at_far)
    sh(*cable.at_near, "curl", "-sS", "--max-time", "60", "-o", "/dev/null", f"http://{OWN}/7")
    sh(*cable.at_far, "ip", "link", "del", "w1")
    assert process.wait(60) == 91, out.read_text()
    assert "ND-91-23" in out.read_text() and "gone" in out.read_text(), out.read_text()


def test_packets_with_wrong_checksums_are_told(lab: Lab, cable: Wire) -> None:
    words = ("--listen", f"{OWN}:80", "--port", "af_packet:w1", "--prefix", "24")
    process, out = serve(lab, *words, at=cable.at_far)
    # the kernel leaves the checksum of what it sends over a veth pair to be filled in
    sh(*cable.at_near, "sh", "-c", f"curl -sS --max-time 3 http://{OWN}/ || true")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, out.read_text()
    assert "wrong checksums" in out.read_text() and "ethtool -K" in out.read_text(), out.read_text()
