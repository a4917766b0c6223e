"""A search on a real bench: a send buffer that binds on a long path is found, raised, and proven to be it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from inconclusive import Verdict

WMEM = "net.ipv4.tcp_wmem.max"


@pytest.mark.root
def test_a_search_finds_what_binds_on_a_long_path(tmp_path: Path, verdict: Verdict) -> None:
    command = [
        sys.executable, "-m", "netdyno", "tune", "search", "flow-completion", "--set", "size=1MB",
        "--set", "flows=2", "--path", "delay=15ms", "--baseline", f"{WMEM}=65536", "--param", WMEM,
        "--trials", "5", "--pairs", "2", "--spare", "20", "--json",
    ]  # fmt: skip
    done = subprocess.run(
        command,
        env=os.environ | {"NETDYNO_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (0, 90), done.stderr
    verdict.baseline_undisturbed(done.stderr)
    result = json.loads(done.stdout)["result"]
    assert len(result["tried"]) == 2
    # a trial that the host took the CPU from does not count, and without the others there is nothing to find
    verdict.trials_undisturbed({"steal": sum(t["lost"] for t in result["tried"])})
    proof = result["proofs"][0]
    assert proof["setting"][WMEM] > 1 << 20
    if not proof["comparison"]["metrics"]:
        assert done.returncode == 90, "no pair is valid, and that is said"
        verdict.trials_undisturbed(proof["comparison"]["lost"])
    change = next(m for m in proof["comparison"]["metrics"] if m["metric"]["name"] == "completion_mean")
    if proof["verdict"] == "invalid":
        assert done.returncode == 90, "steal met one setting more often, and that is said"
        verdict.trials_undisturbed(proof["comparison"]["again"])
    assert change["effect"]["change"] < -0.4
    # two pairs prove nothing, so that more are measured; if they are lost to the machine, that is the verdict
    assert result["planned"]["pairs"] == result["planned"]["least"] > 2
    assert (change["effect"]["interval"] is None) == (change["verdict"] == "too few pairs")
    assert (done.returncode == 90) == (change["verdict"] == "too few pairs")
    low, high = change["effect"]["interval"] or (-1, 1)
    assert (low <= 0 <= high) == (change["verdict"] in ("not shown", "no effect", "too few pairs"))
    # whatever was tried lies between the bounds that the other parameters leave
    assert all(t["setting"].get(WMEM, 65536) >= 16384 for t in result["tried"])
