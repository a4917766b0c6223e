"""Functions that share memory with Open vSwitch over DPDK: proved by copies of what passes their ports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.switch.bench import Spec
from netdyno.switch.chain.bench import bench_of
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.mutate import mutants
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.verify import verify
from netdyno.switch.driver import DRIVERS
from netdyno.system.process import find

from ..conftest import root

GRAPH = """\
ports: {a: {device: net_null0}, b: {device: net_null1}}
elements: {there: {kind: l2fwd}, back: {kind: l2fwd}}
edges: ["a.rx -> there -> b.tx", "b.rx -> back -> a.tx"]
"""


def shared(over: str) -> dict[str, Any]:
    """DPDK's forwarder and ours."""
    return {
        "switch": "ovs-dpdk",
        "options": {"over": "system"},
        "vnfs": {
            "io": {"kind": "testpmd", "options": {"over": over}},
            "own": {"kind": "graph", "options": {"graph": "own.yaml", "over": over}},
        },
        "chain": ["io", "own"],
    }


@root
@pytest.mark.drawn
@pytest.mark.parametrize("over", ["vhost-user", "memif"])
def test_functions_over_shared_memory_are_proved_and_measured(
    over: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := DRIVERS["ovs-dpdk"].missing():
        pytest.skip(why)
    try:
        find("dpdk-testpmd", "dpdk-dev")
    except Error as e:
        pytest.skip(e.what)
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text(GRAPH)
    with ChainLab(checked(shared(over), "x")) as lab:
        found = verify(lab)
        assert found.good, found.first_fault
        udp = next(one for one in found.directions if (one.protocol, one.direction) == ("udp", "forward"))
        assert [str(step) for step in udp.steps][1:-1] == [
            "io.in receives", "io.out sends", "own.in receives", "own.out sends",
        ]  # fmt: skip
        # wrong rules are named from the copies, too
        every = list(mutants(lab.rules))
        for word in ("delete", "misdirect"):
            one = next(one for one in every if one.name.startswith(word))
            lab.program(one.rules)
            seen = verify(lab)
            assert seen.named and seen.named <= one.changed, (one.name, seen.first_fault)
        lab.program(lab.rules)
        with bench_of(lab, Spec(options={"seconds": 1})) as bench:
            measured = bench.measure({"functions": 2}, 1)
        assert measured.valid, measured.why
        sent = measured.counters["hop/client/tx_packets"]
        for host in ("io", "own"):
            assert measured.counters[f"hop/{host}/rx_packets"] >= sent > 0, measured.counters
            # the switch has statistics of queues over vhost-user only
            told = {
                name
                for name in ("full", "too_large", "retries")
                if f"hop/{host}/shared.{name}" in measured.counters
            }
            assert told == {"full", "too_large", "retries"}
        queues = lab.switch.queues()
        assert ({name.rpartition(".")[2] for name in queues} == told) == (over == "vhost-user")
        # one that ends is no rule's fault
        process = lab.vnfs["io"].process
        assert process
        process.stop()
        with pytest.raises(Error) as wrong:
            verify(lab, 1)
        assert wrong.value.code == "ND-91-41" and "io" in wrong.value.what


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"switch": "ovs-netdev", "options": {}}, "needs ovs-dpdk"),
        ({"tunnel": {"kind": "vxlan"}}, "one switch"),
        ({"steering": "nsh"}, "no NSH"),
    ],
)
@pytest.mark.parametrize("over", ["vhost-user", "memif"])
def test_what_does_not_go_with_shared_memory_is_told(over: str, more: dict[str, Any], words: str) -> None:
    with pytest.raises(Error) as wrong:
        checked({**shared(over), **more}, "x")
    assert wrong.value.code == "ND-104-82" and words in str(wrong.value)
