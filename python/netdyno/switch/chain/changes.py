"""Whether a packet is the same at each point of its path, but for what functions on it may change; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import get_args

from netdyno.switch.chain.sight import Content, Fault, Sighting
from netdyno.switch.chain.spec import Chain
from netdyno.switch.chain.steering import Step
from netdyno.switch.chain.vnf import KINDS
from netdyno.switch.chain.vnf.base import Changed

_WORDS: Mapping[Changed, str] = {
    "macs": "other Ethernet addresses", "addresses": "other addresses", "ports": "other ports",
    "dscp": "another DSCP", "payload": "another payload", "ttl": "another TTL", "ecn": "another ECN field",
    "identity": "another IP identification, DF or flow label", "ip_options": "other IP options",
    "segment": "other options, another window or urgent pointer of TCP", "unchecked": "no checksum of UDP",
}  # fmt: skip


def changed(chain: Chain, path: Sequence[Step], seen: Sequence[Sighting]) -> Fault | None:
    """The first change of a packet that was seen where it is to be, by a switch or a function."""
    hosts = chain.hosts()
    before = path[0]
    for step in path[1:]:
        allowed: Collection[Changed] = ()
        hops = 0
        if step.port.host == before.port.host and step.sends and step.port.host in hosts:
            one = chain.vnfs[hosts[step.port.host]]
            allowed = KINDS[one.kind].changes(one.options)
            # RFC 1812 section 5.3.1, RFC 8200 section 3
            hops = int(KINDS[one.kind].routed)
        came = [one._replace(ttl=one.ttl - hops) for one in _at(before, seen)]
        if part := _differs(came, _at(step, seen), allowed):
            what = f"{step} it with {_WORDS[part]}"
            return Fault(what, step.rule, "" if step.rule else before.port.host, leak=True)
        before = before if step.copy else step
    return None


def _at(step: Step, seen: Sequence[Sighting]) -> list[Content]:
    every = [one.content for one in seen if (one.port, one.sends) == (step.port, step.sends)]
    return [one for one in every if one is not None]


def _differs(
    before: Sequence[Content], after: Sequence[Content], allowed: Collection[Changed]
) -> Changed | None:
    for part in get_args(Changed):
        known = {getattr(one, part) for one in before}
        if part not in allowed and known and any(getattr(one, part) not in known for one in after):
            return part  # type: ignore[no-any-return]
    return None
