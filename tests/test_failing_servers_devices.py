"""Every server of `failing/` gets the same verdict from devices over a DPDK port as from devices over kernel sockets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from failing.cases import CASES, Case
from failing.harness import Far, document, group, judged
from failing.nobody import Swallowed
from inconclusive import Verdict
from lab import Lab, root, sh, wire

# two ports are polled by one worker, whose queues overflow where it has no core
pytestmark = [root, pytest.mark.alone]


def port(name: str, network: int) -> dict[str, Any]:
    """A port with addresses that no kernel has, which would answer what comes for them."""
    return {
        "name": name,
        "device": "af_packet:w0,framecnt=4096",
        "ip": f"10.91.{network}.8/24",
    }


# the second one's network is that of `Swallowed`
TRANSPORT = {"dpdk": {"ports": [port("a", 0), port("b", 2)]}}


def placed(case: Case, group: dict[str, Any]) -> dict[str, Any]:
    """The group with its port."""
    return group | {"port": "b" if isinstance(case.server(), Swallowed) else "a"}


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    """A place for servers. A port without a gateway has no way to others than its own networks."""
    with wire() as cable:
        place = Far(cable, tmp_path_factory.mktemp("far"))
        # between kernels a veth leaves checksums out
        sh(*cable.at_far, "ethtool", "-K", "w1", "tx", "off")
        # ARP finds it, and nothing that is sent there comes to anybody
        sh("ip", "-n", cable.far, "addr", "add", f"{Swallowed.address}/24", "dev", "w1")
        hook = "{ type filter hook input priority 0; }"
        for line in ("table ip t", f"chain ip t i {hook}", f"rule ip t i ip daddr {Swallowed.address} drop"):
            sh(*cable.at_far, "nft", f"add {line}")
        yield place


def test_each_failing_server_is_told_for_what_it_is(far: Far, lab: Lab, verdict: Verdict) -> None:
    """One run of all cases, a group each, with a threshold on the errors of each."""
    with contextlib.ExitStack() as ends:
        servers = [far.run(case, ends) for case in CASES]
        groups = [placed(case, group(case, server)) for case, server in zip(CASES, servers, strict=True)]
        limits = [{"metric": f"{case.name}.errors", "max": 0} for case in CASES]
        path = lab.write("p.json", document(groups, thresholds=limits, transport=TRANSPORT))
        done = lab.run("run", path, "--json", prefix=far.cable.at_near, timeout=240)
        assert done.folder, done.text
        assert done.trial.transport == "dpdk"
        assert not [fault for server in servers for fault in server.faults]
    verdict.valid(done.result.reasons)
    assert (done.code, done.result.verdict) == (99, "fail")
    wrong = {}
    for case in CASES:
        try:
            judged(done.result, case)
        except AssertionError as e:
            wrong[case.name] = str(e)
    assert not wrong
