"""Who has an outside address and port by configuration: port forwards, deterministic ports (RFC 7422)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from netdyno.nat.config import Nat
from netdyno.nat.log_records import NAMES, Holder, LogPosition, Record
from netdyno.nat.ports import CLIENT_PORTS, PER_BLOCK
from netdyno.nat.who import Answer, BindingHistory, HolderMatch

_NUMBERS = {name: number for number, name in NAMES.items()}
LEAST = 65_536 - CLIENT_PORTS
"""The first port that is given out."""


@dataclass(frozen=True)
class ConfiguredPorts:
    """What a configuration says of an outside address and port."""

    file: Path
    nat: Nat
    address: IPv4Address
    port: int
    protocol: str | None

    def complete(self, answer: Answer) -> None:
        """Add to an answer what leaves no record.

        Logs are right where they know better: a configuration may be of another time.
        """
        kinds = {one.holder.kind for one in answer.found}
        found = [] if kinds & {"mapping", "session"} or answer.ended is not None else self.forwards()
        # a forward has its protocol only; with the protocol known, what is beside it is not meant
        if not (found and self.protocol):
            found += [] if answer.found else self.deterministic()
        if not found:
            if not answer.found and not answer.gaps:
                answer.configured = self._nobody()
            return
        instance = answer.found[0].holder.instance if answer.found else None
        answer.found += [replace(one, holder=replace(one.holder, instance=instance)) for one in found]
        answer.gaps = [] if answer.certain else answer.gaps
        answer.notes.append(f"by {self.file}, if the NAT ran with it at that time: no log says so")

    def forwards(self) -> list[HolderMatch]:
        """The port forwards that have it."""
        outside = f"{self.address}:{self.port}"
        found = []
        for number, one in enumerate(self.nat.conntrack.get("forwards", ())):
            if one["outside"] != outside or self.protocol not in (None, one["protocol"]):
                continue
            inside, _, port = one["inside"].rpartition(":")
            tags = one.get("vlan") or ()
            vlans = (tags,) if isinstance(tags, int) else tuple(tags)
            protocol, ports = _NUMBERS[one["protocol"]], (self.port, self.port)
            holder = Holder("port forward", inside, int(port), vlans, protocol, ports)
            found.append(self._match(holder, f"forwards[{number}]", f"{one['outside']} is {one['inside']}"))
        return found

    def deterministic(self) -> list[HolderMatch]:
        """The subscriber whose ports follow from its address: number N of them has block N of the pool."""
        prefix, size = self.nat.conntrack.get("deterministic"), self.nat.ports_per_block or PER_BLOCK
        place = self._place_in_pool()
        blocks = CLIENT_PORTS // size
        block = (self.port - LEAST) // size
        if prefix is None or place is None or not 0 <= block < blocks:
            return []
        subscribers, index = IPv4Network(prefix, strict=False), place * blocks + block
        if index >= subscribers.num_addresses:
            return []
        first = LEAST + block * size
        inside = str(subscribers[index])
        holder = Holder("deterministic ports", inside, None, (), None, (first, first + size - 1))
        text = f"{inside} is number {index:,} of {prefix}, and has port block {index:,} of the pool"
        return [self._match(holder, "deterministic", text)]

    def _match(self, holder: Holder, key: str, text: str) -> HolderMatch:
        record = Record(0.0, "interim", holder, LogPosition(str(self.file), key, "key", text))
        return HolderMatch(holder, BindingHistory(), near=False, proof=record)

    def _place_in_pool(self) -> int | None:
        """Which of the pool's addresses it is."""
        before = 0
        for text in self.nat.pool:
            network = IPv4Network(text, strict=False)
            if self.address in network:
                return before + int(self.address) - int(network.network_address)
            before += network.num_addresses
        return None

    def _nobody(self) -> str | None:
        """Why nobody has it."""
        if self.nat.sites is not None:
            return None
        if self._place_in_pool() is None:
            exempt = self.nat.conntrack.get("exempt")
            untranslated = (
                f"; traffic to {', '.join(exempt)} is not translated, and not logged" if exempt else ""
            )
            return f"{self.address} is no address of the pool of {self.file}{untranslated}"
        if self.nat.conntrack.get("deterministic") is not None:
            return f"no subscriber has this port by `deterministic` of {self.file}"
        return None
