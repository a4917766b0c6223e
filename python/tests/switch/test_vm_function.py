"""Functions in virtual machines: the same proof as of others, a failure that is told, and nothing left."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.mutate import mutants
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.verify import verify
from netdyno.switch.chain.vnf import machine
from netdyno.switch.driver import DRIVERS
from netdyno.system import namespace, proc
from netdyno.system.vm import setup
from netdyno.system.vm.setup import MissingRequirement

from ..conftest import root

CHAIN: dict[str, Any] = {
    "vnfs": {"a": {"kind": "vm"}, "wall": {"kind": "firewall"}, "b": {"kind": "vm", "options": {"memory": 80}}},
    "chain": ["a", "wall", "b"], "ipv6": True,
}  # fmt: skip


@pytest.fixture
def possible() -> None:
    found = setup.find()
    if isinstance(found, MissingRequirement):
        pytest.skip(f"no virtual machine: {found.why}")
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)


@root
@pytest.mark.full
def test_a_chain_of_virtual_machines_is_proved_and_one_that_ends_is_told(possible: None) -> None:
    with ChainLab(checked(CHAIN, "x")) as lab:
        found = verify(lab)
        assert found.good, found.first_fault
        assert {one.protocol for one in found.directions} == {"arp", "nd", "tcp", "tcp6", "udp", "udp6"}
        every = list(mutants(lab.rules))
        for word in ("delete", "misdirect", "duplicate", "reorder"):
            one = next(one for one in every if one.name.startswith(word))
            lab.program(one.rules)
            tried = [verify(lab, 1).named for _ in range(3)]
            assert any(named and named <= one.changed for named in tried), (one.name, tried)
        lab.program(lab.rules)
        machines = [vnf.process for vnf in lab.vnfs.values() if vnf.process]
        assert len(machines) == 2
        spaces = {lab.network.namespace(host) for host in lab.network.nodes}
        # a virtual machine that hangs forwards nothing: it is named
        machines[1].send(signal.SIGSTOP)
        hung = verify(lab)
        assert {one.host for one in hung.faults if not one.rule} == {"b"}, [str(one) for one in hung.faults]
        machines[1].send(signal.SIGCONT)
        machines[1].send_all(signal.SIGKILL)
        machines[1].wait(30.0)
        assert "the function b (SIGKILL)" in lab.dead()
        folder = lab.folder
    assert not spaces & set(namespace.names()) and not any(list(proc.members(one.pid)) for one in machines)
    assert folder and not folder.exists()


@root
@pytest.mark.drawn
def test_one_that_does_not_start_is_told(possible: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its console has the reason, and all is taken away."""
    monkeypatch.setattr(machine, "_INIT", "#!/bin/busybox sh\necho no bridge here\n")
    lab = ChainLab(checked({"vnfs": {"a": {"kind": "vm"}}, "chain": ["a"]}, "x"))
    with pytest.raises(Error) as wrong, lab:
        pass
    assert wrong.value.code == "ND-92-61" and "vnfs.a" in wrong.value.at
    assert "no bridge here" in wrong.value.what
    assert not {lab.network.namespace(host) for host in lab.network.nodes} & set(namespace.names())
    assert lab.folder and not lab.folder.exists()


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(setup, "find", lambda: MissingRequirement("no kernel to boot", "./do setup"))
    from netdyno.switch.chain.vnf.base import VnfSite

    one = machine.Machine(VnfSite("a", "none", tmp_path))
    with pytest.raises(Error) as wrong:
        one.setup()
    assert (wrong.value.code, wrong.value.at, wrong.value.fix) == ("ND-92-61", "vnfs.a", "./do setup")


@pytest.mark.parametrize("options", [{"memory": 16}, {"memory": "much"}, {"disk": 1}])
def test_wrong_settings_are_told(options: dict[str, Any]) -> None:
    with pytest.raises(Error) as wrong:
        checked({"vnfs": {"a": {"kind": "vm", "options": options}}, "chain": ["a"]}, "x")
    assert wrong.value.code == "ND-104-82" and "vnfs.a.options" in wrong.value.at
