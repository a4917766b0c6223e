"""Kinds of network functions: one a class, one contract (`base.py`), one line here."""

from collections.abc import Mapping

from netdyno.switch.chain.vnf.balancer import Balancer
from netdyno.switch.chain.vnf.base import Vnf
from netdyno.switch.chain.vnf.bridged import Bridge, Firewall, Limiter
from netdyno.switch.chain.vnf.command import Command
from netdyno.switch.chain.vnf.dpi import Dpi
from netdyno.switch.chain.vnf.graphs import Cgnat, Graph, Impair
from netdyno.switch.chain.vnf.machine import Machine
from netdyno.switch.chain.vnf.proxy import Proxy
from netdyno.switch.chain.vnf.routed import Nat, Router
from netdyno.switch.chain.vnf.testpmd import Testpmd

KINDS: Mapping[str, type[Vnf]] = {
    one.kind: one
    for one in (
        Bridge,
        Router,
        Firewall,
        Nat,
        Limiter,
        Dpi,
        Balancer,
        Proxy,
        Command,
        Machine,
        Graph,
        Impair,
        Cgnat,
        Testpmd,
    )
}

__all__ = ["KINDS", "Vnf"]
