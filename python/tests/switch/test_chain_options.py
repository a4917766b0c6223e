"""Options of a chain's functions and of its switch: read once, and refused where they mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.lab.dut import DutSite
from netdyno.switch import compare
from netdyno.switch.chain import spec
from netdyno.switch.chain.spec import Chain, checked, load
from netdyno.switch.driver import DRIVERS
from netdyno.switch.driver.base import Wiring

EXAMPLES = Path(__file__).parents[3] / "examples"


def of(kind: str, options: Any) -> Chain:
    return checked({"vnfs": {"f": {"kind": kind, "options": options}}, "chain": ["f"]}, "x")


def test_a_number_in_quotes_is_the_same_number_for_all_who_ask() -> None:
    for servers in (3, "3", 3.0):
        assert of("balancer", {"servers": servers}).servers() == 3
    assert of("proxy", {"ports": ["80"]}).http("f") == [80]
    assert of("balancer", {"servers": "3"}).vnfs["f"].options == {"servers": 3}


def test_options_that_make_no_sense_are_named_by_their_place() -> None:
    for kind, options, at in (
        ("proxy", {"ports": ["http"]}, "x: vnfs.f.options: ports[0]"),
        ("balancer", {"servers": 99}, "x: vnfs.f.options: servers"),
        ("bridge", {"colour": "red"}, "x: vnfs.f.options: colour"),
    ):
        with pytest.raises(Error) as wrong:
            of(kind, options)
        assert (wrong.value.code, wrong.value.at) == ("ND-104-82", at)


@pytest.mark.parametrize(
    "plain", [{"chain": ["f"]}, {"vnfs": 3, "chain": ["f"]}, {"vnfs": {"f": 3}, "chain": ["f"]}]
)
def test_what_is_no_function_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises(Error, match="ND-104-82") as wrong:
        checked(plain, "x")
    assert wrong.value.at.startswith("x: vnfs")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("chain*.yaml")), ids=lambda path: path.stem)
def test_a_chain_that_was_read_is_read_alike_again(path: Path) -> None:
    chain = load(path)
    assert checked(chain.model_dump(), "x") == chain


@pytest.mark.parametrize("name", ["learning", "sockets", "shared", "memif", "ports", "rules", "controller"])
def test_wiring_of_a_switch_is_no_option_of_a_chain(name: str) -> None:
    """It would be without effect, or take packets from where a chain sends them."""
    plain = {"vnfs": {"f": {"kind": "bridge"}}, "chain": ["f"], "switch": "ovs-dpdk"}
    value = {"rules": 5, "controller": "reactive", "learning": True, "sockets": "/tmp"}.get(name, ["p0"])
    with pytest.raises(Error, match="ND-104-82") as wrong:
        checked({**plain, "options": {name: value}}, "x")
    assert wrong.value.at == f"x: options: {name}"
    assert checked({**plain, "options": {"over": "system"}}, "x").options == {"over": "system"}


def test_a_comparison_joins_its_own_ports() -> None:
    with pytest.raises(Error, match="the bench joins its own ports"):
        compare.setting("ovs-netdev:ports=[a]")


def test_texts_name_the_switches_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that is added is among them, and no driver needs options that Open vSwitch has."""

    class Own(DRIVERS["linux-bridge"]):  # type: ignore[misc]
        driver = "own"
        openflow = tunnels = shares_memory = True

    monkeypatch.setattr(spec, "DRIVERS", {**DRIVERS, "own": Own})
    shared = {"vnfs": {"f": {"kind": "testpmd", "options": {"over": "vhost-user"}}}, "chain": ["f"]}
    with pytest.raises(Error, match="that needs ovs-dpdk or own, and one switch"):
        checked({**shared, "switch": "ovs-netdev"}, "x")
    assert checked({**shared, "switch": "own"}, "x").switch == "own"
    made = Own(DutSite("s", "", None), {}, Wiring(("p0",), learning=False))
    assert made.wiring.ports == ("p0",) and not made.wiring.learning


def test_a_kind_that_is_misspelt_is_guessed() -> None:
    with pytest.raises(Error, match="did you mean 'bridge'") as wrong:
        of("brige", {})
    assert wrong.value.at == "x: vnfs.f.kind"
    with pytest.raises(Error, match="is not known; there are bridge"):
        of("zzz", {})
