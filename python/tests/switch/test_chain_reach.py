"""Ports of a workload that a chain denies: told before the first trial, and by `verify` as not tested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.lab.workload import WORKLOADS
from netdyno.switch.chain import reach
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.vnf.base import VnfSite
from netdyno.switch.chain.vnf.bridged import Firewall
from netdyno.switch.driver import DRIVERS

from ..conftest import root

TELNET = {"match": {"protocol": "tcp", "port": 23}, "chain": ["fw"], "blocked_by": "fw"}


def firewall(*deny: str, **classes: Any) -> dict[str, Any]:
    return {
        "vnfs": {"fw": {"kind": "firewall", "options": {"deny": list(deny)}}}, "chain": ["fw"],
        "classes": classes,
    }  # fmt: skip


def test_denied_ports_that_no_class_proves_are_named() -> None:
    assert reach.unproven(checked(firewall("tcp/23", telnet=TELNET), "x")) == []
    (said,) = reach.unproven(checked(firewall("tcp/23", "tcp/5201", telnet=TELNET), "x"))
    assert said.startswith("fw denies tcp/5201: not tested") and "port 40007 only" in said
    (said,) = reach.unproven(checked(firewall("udp/23", telnet=TELNET), "x"))
    assert said.startswith("fw denies udp/23: not tested"), "a class of TCP says nothing of UDP"


def test_where_replies_without_the_dscp_of_a_class_go() -> None:
    def of(**matches: dict[str, Any]) -> list[str]:
        classes = {name: {"match": match, "chain": ["fw"]} for name, match in matches.items()}
        return reach.unmarked(checked(firewall(**classes), "x"))

    start = "voice: replies without DSCP 46, as ordinary servers send them, "
    web, dns = {"protocol": "tcp", "port": 80}, {"protocol": "udp", "port": 53}
    assert of(voice={"dscp": 46}) == [f"{start}take the path of default"]
    assert of(voice={"dscp": 46}, web=web) == [
        f"{start}are in the class of their port; others take the path of default"
    ]
    assert of(voice=web | {"dscp": 46}, dns=dns, web=web) == [f"{start}take the path of web"]
    assert of(voice=web | {"dscp": 46}, dns=dns) == [f"{start}take the path of default"]
    assert of(voice=web | {"dscp": 46}, rest={"dscp": 0}) == [f"{start}take the path of rest"]
    assert of(voice={"protocol": "udp", "dscp": 46}, web=web) == [f"{start}take the path of default"]
    assert of(web=web, rest={"dscp": 0}) == [], "replies without a mark have DSCP 0"
    telnet = TELNET | {"match": TELNET["match"] | {"dscp": 46}, "blocked_by": None}
    (said,) = reach.unmarked(checked(firewall("tcp/23", marked=telnet, telnet=TELNET), "x"))
    assert said.endswith("are dropped, as those of telnet are")


def test_show_and_verify_say_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plain = firewall(voice={"match": {"dscp": 46}, "chain": ["fw"]})
    assert reach.unproven(checked(plain, "x")) == [
        f"{one}: not tested" for one in reach.unmarked(checked(plain, "x"))
    ]
    file = tmp_path / "chain.yaml"
    file.write_text(json.dumps(plain))
    assert call(["chain", "show", str(file)]) == 0
    assert "voice: replies without DSCP 46" in capfd.readouterr().out
    assert call(["chain", "show", str(file), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["notes"] == reach.unmarked(checked(plain, "x"))


def test_workloads_of_iperf3_say_their_ports() -> None:
    assert WORKLOADS["iperf3-tcp"].needs_ports == (("tcp", 5201),)
    assert WORKLOADS["iperf3-udp"].needs_ports == (("tcp", 5201), ("udp", 5201))


@root
@pytest.mark.parametrize(
    ("workload", "passes", "denied"),
    [("iperf3-tcp", "udp/5201", "tcp/5201"), ("iperf3-udp", "tcp/5202", "udp/5201")],
)
def test_who_denies_a_port_is_named(
    workload: str, passes: str, denied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    monkeypatch.setattr(reach, "PATIENCE", 4.0)
    with ChainLab(checked(firewall(passes), "x")) as lab:
        reach.probe_ports(lab, workload, "x")
    with ChainLab(checked(firewall(denied), "x")) as lab:
        with pytest.raises(Error) as wrong:
            reach.probe_ports(lab, workload, "x")
        assert wrong.value.code == "ND-104-87"
        assert wrong.value.what.endswith(f"{denied}, which {workload} needs, passes the chain: fw denies it")


@root
def test_no_trial_is_measured_of_a_workload_that_is_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NETDYNO_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(reach, "PATIENCE", 2.0)
    file = tmp_path / "denied.yaml"
    file.write_text(json.dumps(firewall("tcp/5201")))
    for words in (["run"], ["search", "--target", "1M"]):
        assert call(["chain", words[0], str(file), *words[1:], "--set", "seconds=1"]) == 104
        said = " ".join(capfd.readouterr().err.split())
        assert "fw denies it" in said and "Remove tcp/5201 from `deny`" in said and "trial 1" not in said
    assert call(["chain", "verify", str(file)]) == 0
    assert "fw denies tcp/5201: not tested" in " ".join(capfd.readouterr().out.split())


@pytest.mark.parametrize("deny", [[23], ["23"], [True], [2.5]])
def test_a_denied_port_needs_its_protocol(deny: list[Any]) -> None:
    with pytest.raises(Error) as wrong:
        Firewall(VnfSite("fw", "x", Path()), {"deny": deny})
    assert wrong.value.exit_code == 104
    if deny in ([23], ["23"]):
        assert "write it like tcp/23" in str(wrong.value)
