"""Faucet as a controller: its configuration from rules, and, where it is installed, real packets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.lab.dut.base import DutSite
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.mutate import mutants
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.verify import verify
from netdyno.switch.controller import faucet, table
from netdyno.switch.controller.faucet import configuration
from netdyno.switch.driver import DRIVERS
from netdyno.switch.driver.base import Flow
from netdyno.switch.driver.ovs import Ovs
from netdyno.switch.openflow.action import PopVlan, PushVlan, Select

from ..conftest import root


class Switch(Ovs):
    """Two ports, and a table that is given."""

    driver = "ovs-netdev"
    lines: tuple[str, ...] = ()

    @property
    def numbers(self) -> Mapping[str, int]:
        return {"p0": 1, "p1": 2}

    def datapath_id(self) -> str:
        return "00000a"

    def flow_texts(self) -> list[str]:
        return list(self.lines)


@pytest.fixture
def switch() -> Switch:
    return Switch(DutSite("switch", "", "none"))


def test_rules_become_acls_of_ports_by_priority(switch: Switch) -> None:
    flows = [
        Flow(1, "p0", [PopVlan(), "p1"], {"dl_vlan": "101"}, 100),
        Flow(2, "p0", ["p1", PushVlan(7), "p0"], {"udp6": "", "tp_dst": "53"}, 200),
        Flow(3, "p1", [], {}),
    ]
    made = configuration(switch, flows)
    drop = {"rule": {"actions": {"allow": 0}}}
    assert made["acls"]["port1"] == [
        {"rule": {"eth_type": 0x86DD, "ip_proto": 17, "udp_dst": 53, "cookie": 2,
                  "actions": {"allow": 0, "output": [{"port": 2}, {"vlan_vid": 7}, {"port": 1}]}}},
        {"rule": {"vlan_vid": 101, "cookie": 1, "actions": {"allow": 0, "output": [{"pop_vlans": 1}, {"port": 2}]}}},
        drop,
    ]  # fmt: skip
    assert made["acls"]["port2"] == [{"rule": {"cookie": 3, "actions": {"allow": 0}}}, drop]
    assert made["dps"]["switch"]["dp_id"] == 10
    assert made["dps"]["switch"]["interfaces"]["port2"]["acls_in"] == ["port2"]


@pytest.mark.parametrize(
    ("flow", "words"),
    [
        (Flow(1, "p0", [Select(("p0", "p1"))]), "no action for Select"),
        (Flow(1, "", ["p0"]), "are of ports"),
        (Flow(1 << 32, "p0", ["p1"]), "up to 65,536"),
        (Flow(1, "p0", ["p1"], {"nsh_spi": "3"}), "does not match nsh_spi"),
    ],
)
def test_what_it_cannot_do_is_told(switch: Switch, flow: Flow, words: str) -> None:
    with pytest.raises(Error) as wrong:
        configuration(switch, [flow])
    assert wrong.value.code == "ND-104-83" and words in wrong.value.what


def test_what_the_switch_has(switch: Switch) -> None:
    """Of the rules; Faucet's own flows have a cookie beyond them."""
    switch.lines = (
        " cookie=0x5adc15c0, duration=5s, table=0, n_packets=0, n_bytes=0, priority=20480,in_port=2 actions=drop",
        " cookie=0x3, duration=5s, table=0, n_packets=0, n_bytes=0, priority=20479,udp,in_port=1,tp_dst=53 actions=output:2",
        " cookie=0x1, duration=5s, table=0, n_packets=0, n_bytes=0, priority=20479,in_port=2,dl_vlan=101 actions=pop_vlan,output:1",
    )  # fmt: skip
    wanted = [Flow(3, "p0", ["p1"]), Flow(1, "p1", [PopVlan(), "p0"])]
    there = table.installed(switch, lambda cookie: cookie <= faucet.MOST_COOKIE)
    assert there == sorted(table.expected(switch, one) for one in wanted)


def test_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for named in ("", "/nowhere/faucet"):
        monkeypatch.setenv(faucet.PROGRAM, named)
        with pytest.raises(Error) as wrong:
            faucet.find_program()
        assert wrong.value.code == "ND-92-62" and "pip install faucet" in wrong.value.fix


PLAIN: dict[str, Any] = {
    "controller": "faucet", "steering": "vlan", "ipv6": True,
    "vnfs": {"a": {"kind": "bridge"}, "look": {"kind": "dpi"}}, "chain": ["a", "look"],
    "classes": {"dns": {"match": {"protocol": "udp", "port": 53}, "chain": ["look"]}},
}  # fmt: skip


@root
@pytest.mark.long
def test_faucet_steers_and_a_wrong_rule_is_named() -> None:
    try:
        faucet.find_program()
    except Error as e:
        pytest.skip(e.what)
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    with ChainLab(checked(PLAIN, "x")) as lab:
        found = verify(lab)
        assert found.good, found.first_fault
        one = next(one for one in mutants(lab.rules) if one.name.startswith("misdirect"))
        lab.program(one.rules)
        tried = [verify(lab, 1).named for _ in range(2)]
        assert any(named and named <= one.changed for named in tried), (one.name, tried)
        lab.program(lab.rules)
        assert sorted({one.flow.cookie for one in lab.rules}) == [
            cookie for cookie in lab.flow_cookies() if cookie <= faucet.MOST_COOKIE
        ]
