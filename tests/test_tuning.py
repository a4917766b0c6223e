"""Known cases on real kernels: the counter of the limit moves, and so does what the service gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab import Lab, root

pytestmark = root

QUICK = (
    "stalled-accept", "sleeping-reader", "slow-path", "few-ports", "half-open", "control-backlog",
    "control-syn-backlog",
)  # fmt: skip
SHARED = ("net/core/rmem_default", "net/core/netdev_max_backlog")


def test_known_cases_show_what_they_must(lab: Lab) -> None:
    before = [Path("/proc/sys", name).read_text() for name in SHARED]
    done = lab.run("tune", "cases", *QUICK, "--pairs", "1", "--global", "--json")
    assert done.code == 0, done.text
    found = {case["name"]: case for case in json.loads(done.out)["cases"]}
    assert found.keys() == set(QUICK)
    assert {case["status"] for case in found.values()} <= {"passed", "skipped"}, done.out
    assert found["stalled-accept"]["status"] == "passed"
    assert [Path("/proc/sys", name).read_text() for name in SHARED] == before
    assert not list((lab.state / "journal").glob("*")), "something is left"


def test_a_setting_is_proven_better(lab: Lab) -> None:
    """Somaxconn, where the queue of a server that does not accept is what limits."""
    bench = lab.base / "bench.yaml"
    bench.write_text(
        "workload: connect-burst\noptions: {connections: 700, stall: 0.1}\nserver: {net.core.somaxconn: 256}\n"
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
    done = lab.run("tune", "cases", "fast-open", "--pairs", "1", "--json")
    (case,) = json.loads(done.out)["cases"]
    assert (done.code, case["status"]) == (0, "passed"), done.text
