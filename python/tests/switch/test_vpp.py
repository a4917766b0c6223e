"""The driver of VPP against a stand-in that reads its configuration and commands and bridges real frames."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.lab.dut import DutSite
from netdyno.lab.network import Network
from netdyno.switch.driver.vpp import Vpp, configuration, interfaces
from netdyno.system import namespace, proc
from netdyno.system.journal import journal

from ..conftest import root
from .hosts import lab, passes

HERE = Path(__file__).parent / "vpp_stand_in"


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    monkeypatch.setenv("PATH", f"{HERE}:{os.environ['PATH']}")
    with lab(2, "v") as made:
        yield made


@root
@pytest.mark.parametrize("over", ["af_packet", "af_xdp"])
def test_it_bridges_counts_and_leaves_nothing(net: Network, over: str) -> None:
    before, folder = journal().open_entries, None
    one = Vpp(DutSite("sw", "", net.namespace("sw")), {"over": over})
    try:
        one.setup()
        folder = one.folder
        assert passes(net, "h0", "h1", count=3) and passes(net, "h1", "h0", count=3)
        counts = one.counters()
        assert counts["p0.rx_packets"] >= 3 and counts["p1.tx_bytes"] > 100 and counts["p1.rx_dropped"] == 0
        assert one.version() == "24.02-release" and one.alive()
        process = one.process
        assert process
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30.0)
        assert not one.alive() and "signal 9" in one.death()
    finally:
        one.teardown()
    assert journal().open_entries == before and folder and not folder.exists()
    assert not list(proc.members(process.pid))
    left = {name for _, name in namespace.inside(net.namespace("sw"), socket.if_nameindex)}
    assert left == {"lo", "p0", "p1"}


@root
def test_a_port_that_it_does_not_take_is_told(net: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client ends with status 0 whatever happened: the state of the interfaces tells."""
    one = Vpp(DutSite("sw", "", net.namespace("sw")), {"over": "af_packet"})
    ask = one._ask

    def other(command: str) -> str:
        return ask(command.replace("name p1", "name p9"))

    monkeypatch.setattr(one, "_ask", other)
    with pytest.raises(Error) as wrong:
        one.setup()
    assert wrong.value.code == "ND-92-60" and "the port p1" in wrong.value.what
    assert "No such device" in wrong.value.what and one.process is None


@root
def test_one_that_does_not_start_is_told(net: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdyno.switch.driver.vpp.configuration", lambda *_: "unix { cli-listen /x }\n")
    one = Vpp(DutSite("sw", "", net.namespace("sw")))
    with pytest.raises(Error) as wrong:
        one.setup()
    assert wrong.value.code == "ND-91-40" and "no huge pages" in wrong.value.what


def test_its_configuration_is_private() -> None:
    text = configuration(Path("/tmp/nd-vpp-1"), "nd-vpp-1", [2, 3, 5])
    for words in (
        "cli-listen /tmp/nd-vpp-1/cli.sock", "socket-name /tmp/nd-vpp-1/api.sock", "nodaemon",
        "socket-name /tmp/nd-vpp-1/stats.sock", "main-core 2", "corelist-workers 3,5", "prefix nd-vpp-1",
        "plugin dpdk_plugin.so { disable }",
    ):  # fmt: skip
        assert words in text
    assert text.count("{") == text.count("}") and "cpu" not in configuration(Path("/x"), "x", [])


def test_counters_are_read() -> None:
    text = """\
              Name               Idx    State  MTU (L3/IP4/IP6/MPLS)     Counter          Count
host-p0                           1      up          9000/0/0/0     rx packets                    12
                                                                    rx bytes                     504
                                                                    drops                          2
                                                                    ip4                            9
host-p1                           2     down         9000/0/0/0     tx-error                       4
local0                            0     down          0/0/0/0
"""
    assert interfaces(text) == {
        "host-p0": ("up", {"rx_packets": 12.0, "rx_bytes": 504.0, "rx_dropped": 2.0}),
        "host-p1": ("down", {"tx_dropped": 4.0}),
        "local0": ("down", {}),
    }
