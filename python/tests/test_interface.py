"""Which interfaces of the kernel's ports work over, and what is put back of one."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.system import interface
from netdyno.system.undo import TakenOverError

WAS = {"index": 7, "mtu": "1500", "mac": "02:00:00:00:00:01", "xdp": 0}
MADE = WAS | {"mac": "02:00:00:00:00:09", "xdp": 4}


def test_interfaces_below_ports() -> None:
    devices = [
        "af_packet:eth0", "af_xdp:eth1", "net_af_packet0,iface=eth2", "net_af_xdp,start_queue=1,iface=eth3",
        "eth_af_packet3,iface=eth4,blocksz=4096", "af_packet:eth0",
        # none of the kernel's, or one that goes with the port
        "tap:nd0", "pair:x", "0000:03:00.0", "net_pcap0,iface=eth5", "net_memif0,socket=/x", "af_packet:../x",
    ]  # fmt: skip
    assert interface.below(devices) == ["eth0", "eth1", "eth2", "eth3", "eth4"]


@pytest.mark.parametrize(
    ("now", "made", "put", "theirs"),
    [
        (WAS, MADE, None, ""),
        (None, MADE, None, ""),
        (MADE | {"index": 8}, MADE, None, ""),
        (MADE, MADE, {"mac": WAS["mac"], "xdp": 0}, ""),
        # nobody had the time to say what it became
        (MADE, None, {"mac": WAS["mac"], "xdp": 0}, ""),
        (MADE | {"mtu": "9000"}, MADE, {"mac": WAS["mac"], "xdp": 0}, "MTU"),
        (WAS | {"xdp": 5}, MADE, None, "XDP program"),
    ],
)
def test_what_we_made_of_it_is_put_back(
    monkeypatch: pytest.MonkeyPatch, now: Any, made: Any, put: Any, theirs: str
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(interface, "state", lambda _: now)
    monkeypatch.setattr(interface, "_put", lambda name, was: told.append(was))
    entry = {"name": "eth0", "was": WAS} | ({"made": made} if made else {})
    if theirs:
        with pytest.raises(TakenOverError, match=theirs):
            interface.undo_interface(entry)
    else:
        assert interface.undo_interface(entry) is bool(put)
    assert told == ([put] if put else [])


def test_the_loopback_is_read() -> None:
    now = interface.state("lo")
    assert now is not None and now["mac"] == "00:00:00:00:00:00" and now["xdp"] == 0
    assert interface.state("nd-nothing") is None
