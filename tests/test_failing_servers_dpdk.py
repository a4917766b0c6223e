"""Servers of `failing/` that answer datagrams get their right verdict over DPDK: from a port over veth to a kernel host."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from failing.cases import DPDK, Case
from failing.harness import Far, document, group, judged
from failing.silent import Silent
from lab import Lab, root, sh, wire

from netdyno.core.result import Result

pytestmark = root

PORT = "10.91.0.8"
"""Not an address of the kernel, which would answer what comes for it."""
NEAR_MAC, FAR_MAC = "02:00:00:00:91:01", "02:00:00:00:91:02"
TRANSPORT = {
    "dpdk": {
        "ports": [
            {
                "name": "a",
                "device": "net_af_packet0,iface=w0",
                "ip": PORT,
                "mac": NEAR_MAC,
                "peer_mac": FAR_MAC,
            }
        ]
    }
}
SILENCE = [DPDK[0], *(case for case in DPDK if type(case.server()) is Silent)]


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    """A place for servers."""
    with wire() as cable:
        neighbour = f"neigh replace {PORT} lladdr {NEAR_MAC} dev w1 nud permanent"
        sh("ip", "-n", cable.far, *neighbour.split())
        # between kernels a veth leaves checksums out
        sh(*cable.at_far, "ethtool", "-K", "w1", "tx", "off")
        yield Far(cable, tmp_path_factory.mktemp("far"))


def run(far: Far, cases: list[Case], judge: bool = True) -> tuple[int, Result]:
    """Run these cases side by side, a group each; the exit code and the result."""
    lab = Lab()
    try:
        with contextlib.ExitStack() as ends:
            groups = [group(case, far.run(case, ends)) for case in cases]
            limits = [{"metric": f"{case.name}.errors", "max": 0} for case in cases if judge]
            wanted = document(groups, transport=TRANSPORT, thresholds=limits)
            done = lab.run(
                "run",
                lab.write("p.json", wanted),
                "--json",
                prefix=far.cable.at_near,
                timeout=120,
            )
        assert done.result.valid, done.text
        assert done.trial.transport == "dpdk"
        return done.code, done.result
    finally:
        lab.close()


@pytest.fixture(scope="module")
def together(far: Far) -> tuple[int, Result]:
    """One run of all cases."""
    return run(far, DPDK)


@pytest.mark.parametrize("case", DPDK, ids=lambda case: case.name)
def test_each_failing_server_is_told_for_what_it_is(together: tuple[int, Result], case: Case) -> None:
    _, result = together
    judged(result, case)


def test_a_run_with_a_failing_server_fails(together: tuple[int, Result]) -> None:
    code, result = together
    assert (code, result.verdict) == (99, "fail")


def test_a_good_server_passes(far: Far) -> None:
    code, result = run(far, DPDK[:1])
    assert (code, result.verdict) == (0, "pass")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", SILENCE, ids=lambda case: case.name)
def test_without_thresholds_nothing_passes(far: Far, case: Case) -> None:
    code, result = run(far, [case], judge=False)
    assert result.verdict == case.bare
    assert code == {"none": 0, "fail": 99}[case.bare]
