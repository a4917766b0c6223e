"""A search on a real bench: a send buffer that binds on a long path is found, raised, and proven to be it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WMEM = "net.ipv4.tcp_wmem.max"


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_search_finds_what_binds_on_a_long_path(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "netdyno", "tune", "search", "flow-completion", "--set", "size=1MB",
        "--set", "flows=2", "--path", "delay=15ms", "--baseline", f"{WMEM}=65536", "--param", WMEM,
        "--trials", "5", "--pairs", "2", "--json",
    ]  # fmt: skip
    done = subprocess.run(
        command,
        env=os.environ | {"NETDYNO_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert len(result["tried"]) == 2
    proof = result["proofs"][0]
    assert proof["setting"][WMEM] > 1 << 20
    change = next(m for m in proof["comparison"]["metrics"] if m["metric"]["name"] == "completion_mean")
    # two pairs prove nothing, and it does not say that they do
    assert change["effect"]["change"] < -0.4
    assert not result["proven"]
    # whatever was tried lies between the bounds that the other parameters leave
    assert all(t["setting"].get(WMEM, 65536) >= 16384 for t in result["tried"])
