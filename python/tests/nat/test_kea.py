"""The DHCP server of the demo, where it does not hear anybody."""

from __future__ import annotations

import subprocess

import pytest

from netdyno.errors import Error
from netdyno.lab.dut import DutSite
from netdyno.lab.dut.base import has
from netdyno.lab.network import Network
from netdyno.nat.access import plan
from netdyno.nat.access.kea import UNHEARD, Kea

from ..conftest import root
from ..test_dut import network

pytestmark = root

__all__ = ["network"]


def test_it_serves_only_where_it_listens(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has("kea-dhcp4"):
        pytest.skip("no kea-dhcp4")
    space = network.namespace("server")

    def ip(*words: str) -> None:
        subprocess.run(["ip", "-n", space, *words], check=True)

    ip("link", "add", "port", "type", "veth", "peer", "name", "end")
    ip("link", "add", plan.BRIDGE, "type", "bridge")
    ip("link", "set", "port", "master", plan.BRIDGE)
    ip("address", "add", f"{plan.DHCP}/{plan.SEGMENT}", "dev", plan.BRIDGE)
    for one in (plan.BRIDGE, "port"):
        ip("link", "set", one, "up")
    monkeypatch.setattr(Kea, "start_timeout", lambda self: 1.0)
    with pytest.raises(Error, match="does not serve") as silent:
        Kea(DutSite("kea", plan.DHCP, space), plan.PRIVATE).setup()
    assert (silent.value.code, UNHEARD in silent.value.what) == ("ND-92-25", True)
    ip("link", "set", "end", "up")
    server = Kea(DutSite("kea", plan.DHCP, space), plan.PRIVATE)
    try:
        server.setup()
    finally:
        server.teardown()
