"""Which replica of a function the packets of each flow took, and whether it is the same for all; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from netdyno.switch.chain.sight import Fault, Sighting
from netdyno.switch.chain.spec import Chain
from netdyno.switch.chain.steering import Direction, Rule
from netdyno.switch.chain.vnf import KINDS


class Choices:
    """Replicas by flow, in one direction of a class."""

    def __init__(self, chain: Chain, rules: Sequence[Rule], traffic: str, direction: Direction) -> None:
        self._hosts = {host: name for host, name in chain.hosts().items() if chain.vnfs[name].replicas > 1}
        self._rules = [one for one in rules if (one.traffic, one.direction) == (traffic, direction)]
        self.taken: dict[int, dict[str, str]] = {}
        """Of each flow, the replica of each function that its first packet took."""
        self.fault: Fault | None = None
        """Packets of one flow that took different replicas, if there are any."""

    def add(self, flow: int, seen: Sequence[Sighting]) -> Collection[str]:
        """A packet of a flow; returns the replicas that it took."""
        found: dict[str, str] = {}
        for one in sorted(seen, key=lambda s: s.at):
            name = self._hosts.get(one.port.host)
            if name is not None and not one.sends:
                found.setdefault(name, one.port.host)
        before = self.taken.setdefault(flow, {})
        for name, host in found.items():
            if before.setdefault(name, host) != host and self.fault is None:
                what = f"packets of one flow take {before[name]} and {host}"
                self.fault = Fault(what, leads_to(self._rules, host))
        return found.values()

    def flows(self) -> dict[str, dict[str, int]]:
        """Flows that each replica took, by function."""
        made: dict[str, dict[str, int]] = {}
        for host, name in self._hosts.items():
            if any(host in _hosts(one) for one in self._rules):
                count = Counter(taken.get(name) for taken in self.taken.values())
                made.setdefault(name, {})[host] = count[host]
        return made

    def unused(self, chain: Chain, protocol: str) -> Fault | None:
        """A replica that no flow took, though its group is to give it some.

        A group behind other replicas gives each flow what its hash says; so only groups of rules that all
        flows meet are judged. Behind a NAT, all datagrams have one address, and so one hash.
        """
        total = len(self.taken)
        for rule in self._rules:
            if rule.source.host in self._hosts or (protocol == "udp" and _behind_nat(chain, rule)):
                continue
            for host in dict.fromkeys(_hosts(rule)):
                name = self._hosts.get(host)
                if name and not any(taken.get(name) == host for taken in self.taken.values()):
                    return Fault(f"none of {total} flows takes {host}", rule)
        return None


def disagreement(
    rules: Sequence[Rule],
    traffic: str,
    forward: Mapping[int, Mapping[str, str]],
    reverse: Mapping[int, Mapping[str, str]],
) -> Fault | None:
    """A flow whose directions took different replicas. The rules that lead there are both named."""
    for flow, taken in forward.items():
        for name, host in taken.items():
            other = reverse.get(flow, {}).get(name, host)
            if other == host:
                continue
            ways = {
                way: [one for one in rules if (one.traffic, one.direction) == (traffic, way)]
                for way in ("forward", "reverse")
            }
            what = f"a flow takes {host} forward and {other} in reverse"
            return Fault(
                what,
                leads_to(ways["forward"], host, taken.values()),
                also=leads_to(ways["reverse"], other, reverse[flow].values()),
            )
    return None


def leads_to(rules: Sequence[Rule], host: str, through: Collection[str] = ()) -> Rule | None:
    """The rule that leads to a replica, from one of these hosts if several do."""
    found = [one for one in rules if host in _hosts(one)]
    return next((one for one in found if one.source.host in through), found[0] if found else None)


def _behind_nat(chain: Chain, rule: Rule) -> bool:
    """Whether a rule leads to a function that has a NAT between itself and the client."""
    path = chain.paths()[rule.traffic]
    name = chain.hosts().get(rule.targets[0].host) if rule.targets else None
    before = path[: path.index(name)] if name in path else ()
    return any(KINDS[chain.vnfs[one].kind].hides for one in before)


def _hosts(rule: Rule) -> list[str]:
    return [one.host for one in rule.targets]
