"""A function that forwards by XDP, which its own interfaces do not show: it is proved at the switch's end."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.lab.dut.base import DutSite
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.spec import Chain, checked
from netdyno.switch.chain.verify import verify
from netdyno.switch.driver import DRIVERS, Switch

from ..conftest import root

PROGRAM = Path(__file__).parent / "xdp_forwarder.sh"

pytestmark = [root, pytest.mark.drawn]


@pytest.fixture(autouse=True)
def needs() -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)


def chain(*words: str) -> Chain:
    """Such a function before a bridge."""
    options = {"command": ["sh", str(PROGRAM), *words], "seconds": 5}
    return checked(
        {"vnfs": {"own": {"kind": "command", "options": options}, "br": {"kind": "bridge"}},
         "chain": ["own", "br"], "classes": {"dns": {"match": {"protocol": "udp", "port": 53}, "chain": ["own"]}}},
        "x",
    )  # fmt: skip


def test_it_is_proved_or_told_that_nobody_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with ChainLab(chain()) as lab:
        found = verify(lab)
        assert found.good, found.first_fault
        forward = [one for one in found.directions if one.direction == "forward" and not one.refused]
        assert forward and all(one.counts["own.out sends"] for one in forward)
        monkeypatch.setattr(Switch, "visible", False)
        with pytest.raises(Error) as wrong:
            verify(lab)
    assert wrong.value.code == "ND-104-80"
    assert "own.in has an XDP program" in wrong.value.what


def test_one_that_drops_is_named() -> None:
    with ChainLab(chain("drop")) as lab:
        found = verify(lab, 1)
    wrong = {
        (one.traffic, one.direction, one.protocol): str(one.fault) for one in found.directions if one.fault
    }
    assert wrong["dns", "reverse", "udp"] == "own: own.in never sends it"


@pytest.mark.parametrize(("kind", "options"), [("ovs-afxdp", {}), ("ovs-dpdk", {"over": "af_xdp"})])
def test_switches_that_take_frames_beside_the_kernel_are_known(kind: str, options: dict[str, str]) -> None:
    assert not DRIVERS[kind](DutSite("sw", ""), options).visible
    assert DRIVERS["ovs-netdev"](DutSite("sw", ""), {}).visible
