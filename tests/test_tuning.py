"""Known cases on real kernels: the counter of the limit moves, and so does what the service gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, root

pytestmark = root

QUICK = ("stalled-accept", "few-ports", "half-open", "control-backlog", "control-syn-backlog")
SHARED = {"sleeping-reader": "net/core/rmem_default", "slow-path": "net/core/netdev_max_backlog"}
"""Cases of the whole machine's parameters."""


def run(lab: Lab, *arguments: str) -> dict[str, Any]:
    """Cases by name. With one pair of trials, one that the machine had no time for shows; so it gets two more tries."""
    for _ in range(3):
        done = lab.run("tune", "cases", *arguments, "--pairs", "1", "--json")
        if done.code == 0:
            break
    assert done.code == 0, done.text
    return {case["name"]: case for case in json.loads(done.out)["cases"]}


def test_known_cases_show_what_they_must(lab: Lab) -> None:
    found = run(lab, *QUICK)
    assert [case["status"] for case in found.values()] == ["passed"] * len(QUICK), found
    assert not list((lab.state / "journal").glob("*")), "something is left"


@pytest.mark.alone
def test_those_of_the_whole_machine_too_and_it_is_as_it_was(lab: Lab) -> None:
    before = [Path("/proc/sys", name).read_text() for name in SHARED.values()]
    skipped = run(lab, *SHARED)
    assert {case["status"] for case in skipped.values()} == {"skipped"}
    found = run(lab, *SHARED, "--global")
    assert found["sleeping-reader"]["status"] == "passed", found
    # with one processor there is none to steer to
    assert found["slow-path"]["status"] in ("passed", "skipped"), found
    assert [Path("/proc/sys", name).read_text() for name in SHARED.values()] == before


def test_a_setting_is_proven_better(lab: Lab) -> None:
    """Somaxconn, where the queue of a server that does not accept is what limits."""
    bench = lab.base / "bench.yaml"
    bench.write_text(
        "workload: connect-burst\noptions: {connections: 700, stall: 0.3}\nserver: {net.core.somaxconn: 256}\n"
    )
    better = ["tune", "compare", str(bench), "baseline", "net.core.somaxconn=1024", "--pairs", "6"]
    done = lab.run(*better, "--json")
    assert done.code == 0, done.text
    found = json.loads(done.out)
    (failed,) = found["metrics"]
    assert (failed["verdict"], failed["effect"]["b"]) == ("better", 0)
    assert {one["name"] for one in found["counters"] if one["moved"]} >= {"TcpExtListenOverflows"}
    assert not list((lab.state / "journal").glob("*")), "something is left"


@pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="there is no /dev/net/tun")
def test_a_round_trip_less_over_a_long_path(lab: Lab) -> None:
    found = run(lab, "fast-open")
    assert found["fast-open"]["status"] == "passed", found
