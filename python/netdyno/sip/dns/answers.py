"""Which answer a query gets: the zone's records, or a fault that somebody asked for."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dnslib import AAAA, CLASS, NAPTR, QTYPE, RCODE, RR, SRV, TXT, A, DNSLabel, DNSRecord
from dnslib.dns import DNSError

from netdyno import units
from netdyno.errors import Error

RECORD = r"^[A-Za-z0-9_@.*-]+( +[0-9]+)?( +IN)? +(A|AAAA|CNAME|NAPTR|SRV|TXT) +[^\r\n\\;()]{1,400}$"
"""A line of a zone file."""
KINDS = ("delay", "silent", "nxdomain", "servfail", "wrong")
COUNTERS = "counters.netdyno."
"""Asked for as TXT in class CH it tells what the server counted."""
WRONG_A, WRONG_AAAA, WRONG_PORT = "192.0.2.1", "2001:db8::1", 9
"""What a wrong answer says: addresses of documentation (RFC 5737, RFC 3849), and the port of discard."""
_RULE = re.compile(
    r"(?P<name>[A-Za-z0-9_.*-]+)(?:/(?P<type>[A-Za-z]+))?=(?P<kind>[a-z]+)(?::(?P<value>\S+))?"
)
_CHAIN_MAX = 8


@dataclass(frozen=True)
class Fault:
    """What becomes of queries for a name and type."""

    name: str
    """In lower case, without the dot at its end; `*`: any."""
    type: str | None
    kind: str
    share: float = 1.0
    delay: float = 0.0

    def meets(self, name: str, kind: str) -> bool:
        """Whether it is about this query."""
        return self.name in ("*", name) and self.type in (None, kind)


def fault(text: str, at: str = "--fault") -> Fault:
    """Read `NAME[/TYPE]=KIND[:VALUE]`, like `*/SRV=delay:50ms` or `home.example.net=silent:10%`."""
    found = _RULE.fullmatch(text)
    fix = "Write NAME[/TYPE]=KIND[:VALUE], like '*/SRV=delay:50ms' or 'home.example.net=silent:10%'"
    if not found:
        raise Error("ND-104-04", f"{text!r} is no fault of a DNS server", at=at, fix=fix)
    kind, value = found["kind"], found["value"]
    if kind not in KINDS:
        raise Error("ND-104-06", f"no fault is called {kind}", at=at, fix=f"Use one of {', '.join(KINDS)}")
    name, of = found["name"].lower().rstrip("."), found["type"] and found["type"].upper()
    if kind == "delay":
        if not value:
            raise Error("ND-104-04", f"{text!r} says no time", at=at, fix=fix)
        return Fault(name, of, kind, delay=units.TIME.value(value, at) / 1e9)
    share = _share(value or "100%")
    if share is None:
        raise Error("ND-104-05", f"{value!r} is no share", at=at, fix="Use above 0 to 100%")
    return Fault(name, of, kind, share=share)


def _share(text: str) -> float | None:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return None
    return value if 0 < value <= 1 else None


@dataclass(frozen=True)
class Reply:
    """An answer, and when it goes; without a record there is none."""

    record: DNSRecord | None
    delay: float = 0.0


class Zone:
    """Records of one zone, and faults; counts what it was asked."""

    def __init__(
        self, name: str, records: Sequence[str], faults: Sequence[Fault] = (), ttl: int = 300, seed: int = 0
    ) -> None:
        self.name = DNSLabel(name.rstrip(".") + ".")
        self.faults = tuple(faults)
        self.counters: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._records: dict[str, list[RR]] = {}
        for line in records:
            if not re.fullmatch(RECORD, line):
                fix = "Like 'home A 192.0.2.2' or '_sip._udp SRV 10 0 5060 home'"
                raise Error("ND-104-04", f"{line!r} is no record of a zone", at="--record", fix=fix)
            try:
                made = RR.fromZone(line, origin=str(self.name), ttl=ttl)
            except (DNSError, ValueError, TypeError, IndexError, KeyError) as e:
                raise Error("ND-104-04", f"{line!r} cannot be read: {e}", at="--record") from e
            for one in made:
                if one.rtype == QTYPE.SRV and not line.rstrip().endswith("."):
                    # dnslib leaves this name as it is
                    one.rdata.target = f"{line.split()[-1]}.{self.name}"
                self._records.setdefault(_key(one.rname), []).append(one)

    def reply(self, query: DNSRecord, transport: str) -> Reply:
        """The answer to a query."""
        name, kind = _key(query.q.qname), str(QTYPE.get(query.q.qtype, query.q.qtype))
        answer = query.reply(aa=1, ra=0)
        if query.q.qclass == CLASS.CH:
            if name + "." == COUNTERS and kind == "TXT":
                answer.add_answer(RR(COUNTERS, QTYPE.TXT, CLASS.CH, 0, TXT(_pieces(self.counters))))
            else:
                answer.header.rcode = RCODE.REFUSED
            return Reply(answer)
        self.counters[transport] += 1
        self.counters[kind] += 1
        delay, wrong = 0.0, False
        for one in self.faults:
            if not one.meets(name, kind) or (one.share < 1 and self._random.random() >= one.share):
                continue
            self.counters["delayed" if one.kind == "delay" else one.kind] += 1
            match one.kind:
                case "delay":
                    delay += one.delay
                case "silent":
                    return Reply(None)
                case "wrong":
                    wrong = True
                case _:
                    answer.header.rcode = RCODE.NXDOMAIN if one.kind == "nxdomain" else RCODE.SERVFAIL
                    return Reply(answer, delay)
        self._fill(answer, name, query.q.qtype)
        if wrong:
            answer.rr, answer.ar = [_wrong(one) for one in answer.rr], []
        return Reply(answer, delay)

    def _fill(self, answer: DNSRecord, name: str, number: int) -> None:
        zone = _key(self.name)
        if name != zone and not name.endswith("." + zone):
            answer.header.rcode, answer.header.aa = RCODE.REFUSED, 0
            return
        for _ in range(_CHAIN_MAX):
            found = self._records.get(name, [])
            answer.add_answer(*(one for one in found if one.rtype == number))
            alias = next((one for one in found if one.rtype == QTYPE.CNAME), None)
            if alias is None or number == QTYPE.CNAME:
                break
            answer.add_answer(alias)
            name = _key(alias.rdata.label)
        below = any(known.endswith("." + name) for known in self._records)
        if not self._records.get(name) and not below and name != zone and not answer.rr:
            answer.header.rcode = RCODE.NXDOMAIN
        # who asks for SRV asks for addresses next (RFC 2782)
        targets = {_key(one.rdata.target) for one in answer.rr if one.rtype == QTYPE.SRV}
        for target in sorted(targets):
            for one in self._records.get(target, []):
                kind = str(QTYPE.get(one.rtype))
                # where these queries have a fault they are to be asked
                if kind in ("A", "AAAA") and not any(rule.meets(target, kind) for rule in self.faults):
                    answer.add_ar(one)


def _key(name: DNSLabel) -> str:
    return str(name).lower().rstrip(".")


def _pieces(counters: Counter[str]) -> list[bytes]:
    text = json.dumps(counters).encode()
    return [text[at : at + 255] for at in range(0, len(text), 255)]


def _wrong(one: RR) -> RR:
    """The same record with an answer that leads nowhere."""
    match one.rtype:
        case QTYPE.A:
            data = A(WRONG_A)
        case QTYPE.AAAA:
            data = AAAA(WRONG_AAAA)
        case QTYPE.SRV:
            data = SRV(one.rdata.priority, one.rdata.weight, WRONG_PORT, one.rdata.target)
        case QTYPE.NAPTR:
            old = one.rdata
            data = NAPTR(old.order, old.preference, b"s", b"SIP+D2X", b"", old.replacement)
        case _:
            return one
    return RR(one.rname, one.rtype, one.rclass, one.ttl, data)
