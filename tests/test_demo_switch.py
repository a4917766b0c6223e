"""`netdyno demo switch` as a user runs it: a comparison and a proven chain, in one document."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from netdyno.switch.driver import DRIVERS


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed for network namespaces")
def test_the_demo(tmp_path: Path) -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    page = tmp_path / "page.html"
    done = subprocess.run(
        [sys.executable, "-m", "netdyno", "demo", "switch", "--json", "--html", str(page), "--runs", str(tmp_path / "runs")],
        env={**os.environ, "NETDYNO_STATE": str(tmp_path / "state")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    # a machine that others disturb can lose too many trials: that is told, and no fault
    assert done.returncode in (0, 90), done.stderr
    told = json.loads(done.stdout)
    assert [one["name"] for one in told["compare"]["arms"]] == ["linux-bridge", "ovs-netdev"]
    assert told["chain"]["good"], told["chain"]
    assert {one["class"] for one in told["chain"]["directions"]} == {"telnet", "default", "two VLAN tags"}
    assert "ovs-netdev" in page.read_text()
