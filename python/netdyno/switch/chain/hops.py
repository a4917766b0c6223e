"""Hops of a chain counted over a trial: packets, drops with their reasons, CPU time, cycles of the switch.

Where CPU time of the kernel went cannot be read for each namespace. So what a hop costs is the difference
between lengths of the chain: CPU time of forwarding for each packet of the client.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdyno.lab.counters import Counters, CounterSource, read
from netdyno.lab.workload import WORKLOADS
from netdyno.stats.estimate import estimate, mean
from netdyno.stats.observation import Metric, Observation
from netdyno.switch.chain import layout
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.steering import CLIENT, SERVER
from netdyno.switch.chain.vnf import KINDS
from netdyno.switch.chain.vnf.base import IN
from netdyno.system import namespace
from netdyno.system.process import find

CPU = Metric("cpu_per_packet", "s", "lower")
"""CPU time of forwarding for each packet that the client sent or received: the kernel's soft interrupts, the
switch, and programs of functions. Client and server, and whatever else runs on the machine, are left out."""
PREFIX = "hop/"
NEAR = frozenset(f"dev.{port}.{way}_packets" for port in ("in", "eth0") for way in ("rx", "tx"))
NEAR_BYTES = {f"near.{way}_bytes": (f"dev.in.{way}_bytes", f"dev.eth0.{way}_bytes") for way in ("rx", "tx")}
"""Bytes at a hop's port towards the client: packets are joined and parted on their way."""
MISSED, FEW = 0.5, 100_000.0
"""Of the bytes that arrive at an end, the share that each function must have seen; of fewer none is asked."""
SIDES = {"near": ("in", "eth0"), "far": ("out",)}
"""Ports of a hop towards the client and towards the server; of client and server, their only one is near."""
INTERNAL = "switch/"
"""Before the counters that a switch has of its own, beside those of its ports."""
REASONS: Mapping[str, str] = {
    "rx_dropped": "not taken by an interface", "tx_dropped": "not sent by an interface",
    "queue": "queue full", "IpInDiscards": "discarded by IP", "IpOutDiscards": "discarded by IP",
    "IpOutNoRoutes": "no route", "IpInAddrErrors": "wrong address", "IpInHdrErrors": "wrong header or TTL",
    "conntrack.drop": "connection table full", "conntrack.insert_failed": "connection not tracked",
    "rule": "denied by a rule", "shared.full": "queue of shared memory full",
    "shared.too_large": "too large for its port", "UdpRcvbufErrors": "buffer of a UDP socket full",
}  # fmt: skip
"""Why packets are dropped, by the counter that tells."""
THROUGH = {"forward": ("near", "far"), "reverse": ("far", "near")}
"""Sides on which a function receives packets of a direction, and sends them."""
AGAIN = "TcpRetransSegs"
"""Segments that client or server sent again."""
BACKLOG = {"softnet.dropped": "dropped", "softnet.time_squeeze": "time_squeeze"}
"""What the kernel counts of packets that wait for its soft interrupts, on the whole machine."""


@dataclass(frozen=True)
class Hop:
    """A function, or an end, over the valid trials of a length; numbers are means of a trial."""

    name: str
    kind: str
    received: float
    """Packets, both ways."""
    sent: float
    near: float
    """Packets of both ways at its port towards the client; of client and server, at their only one."""
    instances: int
    mirror: bool
    """It gets copies, and sends none on."""
    cpu: float | None
    """CPU time of its program, as a share of one processor; None: it has none."""
    drops: Mapping[str, float]
    """Packets by reason."""
    again: float | None = None
    """Segments that it sent again; None: it is a function."""
    lost: float | None = None
    """Packets that the hop before it and itself sent each other and that did not arrive; None: not known."""
    retries: float = 0.0
    """How often the switch tried again to put packets into its full queue (shared memory)."""
    inside: float | None = None
    """Packets of either direction that it received and did not send on; None: it is an end or gets copies,
    or ends connections and begins others in their place."""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "name": self.name, "kind": self.kind, "received": self.received, "sent": self.sent,
            "near": self.near, "instances": self.instances, "mirror": self.mirror, "cpu": self.cpu,
            "drops": dict(self.drops), "again": self.again, "retries": self.retries, "lost": self.lost,
            "inside": self.inside,
        }  # fmt: skip


def passed(lab: ChainLab, functions: Sequence[str]) -> dict[str, list[str]]:
    """What traffic passes, in order: ends and functions, with the hosts of each."""
    of = {name: [host for host, one in lab.chain.hosts().items() if one == name] for name in functions}
    return {CLIENT: [CLIENT], **of, SERVER: [SERVER]}


def counters(lab: ChainLab, functions: Sequence[str]) -> Counters:
    """Counters of every hop as they are now, by `hop/HOST/COUNTER`, and those of the switches."""
    found: Counters = {}
    names = layout.switch_ports(lab.chain)
    shared = [(one, names[one.name]) for one in layout.shared_ports(lab.chain)]
    of_ports = lab.switch.counters() if shared else {}
    queues = lab.switch.queues() if shared else {}
    for host in itertools.chain.from_iterable(passed(lab, functions).values()):
        space = lab.network.namespace(host)
        seen = read(CounterSource(space))
        counted = {name: seen[name] for name in (*REASONS, AGAIN) if name in seen}
        for way in ("rx_packets", "tx_packets", "rx_dropped", "tx_dropped"):
            counted[way] = sum(v for k, v in seen.items() if _interface(k) and k.endswith(f".{way}"))
        counted["near"] = sum(v for k, v in seen.items() if k in NEAR)
        counted |= {name: sum(seen.get(one, 0.0) for one in of) for name, of in NEAR_BYTES.items()}
        for side, names_of in SIDES.items():
            for way in ("rx", "tx"):
                counted[f"{side}.{way}"] = sum(seen.get(f"dev.{of}.{way}_packets", 0.0) for of in names_of)
        if ports := [(one.interface, name) for one, name in shared if one.host == host]:
            # its interfaces show copies, and these only while somebody watches: the switch counts packets
            counted = {name: value for name, value in counted.items() if name not in NEAR_BYTES}
            for way, other in (("rx", "tx"), ("tx", "rx")):
                for kind in ("packets", "dropped"):
                    counted[f"{way}_{kind}"] = sum(
                        of_ports.get(f"{name}.{other}_{kind}", 0.0) for _, name in ports
                    )
            for kind in ("full", "too_large", "retries"):
                counted[f"shared.{kind}"] = sum(queues.get(f"{name}.{kind}", 0.0) for _, name in ports)
            # the switch counts those among what it could not send
            known = counted["shared.full"] + counted["shared.too_large"]
            counted["rx_dropped"] = max(0.0, counted["rx_dropped"] - known)
            near = next(name for interface, name in ports if interface == IN)
            counted["near"] = sum(of_ports.get(f"{near}.{way}_packets", 0.0) for way in ("rx", "tx"))
            for interface, name in ports:
                side = "near" if interface == IN else "far"
                for way, other in (("rx", "tx"), ("tx", "rx")):
                    counted[f"{side}.{way}"] = of_ports.get(f"{name}.{other}_packets", 0.0)
        vnf = lab.vnfs.get(host)
        if vnf:
            counted["queue"] = _queues(space)
            counted["rule"] = float(vnf.denied())
            if vnf.process:
                counted["cpu"] = vnf.process.cpu()
        found |= {f"{PREFIX}{host}/{name}": value for name, value in counted.items()}
    for host, switch in lab.switches.items():
        found |= {f"{INTERNAL}{host}/{name}": value for name, value in switch.internals().items()}
    return found


def differences(before: Mapping[str, float], after: Mapping[str, float]) -> Counters:
    """By how much each counter moved."""
    return {name: value - before.get(name, 0.0) for name, value in after.items()}


def bypassed(lab: ChainLab, functions: Sequence[str], counted: Mapping[str, float]) -> str:
    """Which function saw much less than what arrived at the end behind it, in words; nothing: none did.

    What is lost before a function is not at the end either, and so is no sign of another way.
    """

    def of(hosts: Sequence[str], way: str) -> float | None:
        found = [counted.get(f"{PREFIX}{host}/near.{way}_bytes") for host in hosts]
        return None if None in found else sum(one or 0.0 for one in found)

    for end, way, to in ((SERVER, "rx", "the server"), (CLIENT, "tx", "the client")):
        # the server's frames come to the client from the function's port towards it
        arrived = of([end], "rx") or 0.0
        for name, hosts in passed(lab, functions).items():
            if name not in lab.chain.vnfs or lab.chain.mirror(name):
                continue
            saw = of(hosts, way)
            if saw is not None and arrived > FEW and saw < MISSED * arrived:
                return (
                    f"{arrived:,.0f} bytes came to {to}, and only {saw:,.0f} of them passed {name}: "
                    "the others took another way"
                )
    return ""


def cpu_per_packet(counted: Mapping[str, float]) -> float | None:
    """CPU time of forwarding for each packet of the client, seconds; None if there were none."""
    packets = sum(counted.get(f"{PREFIX}{CLIENT}/{way}", 0.0) for way in ("rx_packets", "tx_packets"))
    if packets < 1:
        return None
    interrupts = counted.get("cpu.softirq", 0.0) / os.sysconf("SC_CLK_TCK")
    programs = sum(v for k, v in counted.items() if k.startswith(PREFIX) and k.endswith("/cpu"))
    return (interrupts + counted.get("switch.cpu", 0.0) + programs) / packets


def shown(seen: Sequence[Observation]) -> list[Observation]:
    """The valid trials; where there is none, those that failed and were counted: where packets are lost shows
    why."""
    valid = [one for one in seen if one.valid]
    return valid or [one for one in seen if f"{PREFIX}{CLIENT}/rx_packets" in one.counters]


def hops(lab: ChainLab, functions: Sequence[str], seen: Sequence[Observation]) -> list[Hop]:
    """Every hop over the trials of a length that show it; replicas are one."""
    valid = shown(seen)
    made = []
    # trials of an earlier version did not count at both sides
    counted = all(any(name.endswith("/near.rx") for name in one.counters) for one in valid)
    lost = _lost_before(lab, functions, valid) if counted else {}
    for name, hosts in passed(lab, functions).items() if valid else ():

        def total(counter: str, hosts: Sequence[str] = hosts) -> float:
            return mean(
                [sum(one.counters.get(f"{PREFIX}{h}/{counter}", 0.0) for h in hosts) for one in valid]
            )

        drops: dict[str, float] = {}
        for counter, reason in REASONS.items():
            if count := total(counter):
                drops[reason] = drops.get(reason, 0.0) + count
        seconds = mean([one.seconds for one in valid])
        runs = any(f"{PREFIX}{host}/cpu" in valid[0].counters for host in hosts)
        made.append(
            Hop(
                name,
                lab.chain.vnfs[name].kind if name in lab.chain.vnfs else name,
                total("rx_packets"),
                total("tx_packets"),
                total("near"),
                len(hosts),
                name in lab.chain.vnfs and lab.chain.mirror(name),
                total("cpu") / seconds if runs and seconds else None,
                drops,
                None if name in lab.chain.vnfs else total(AGAIN),
                lost.get(name),
                total("shared.retries"),
                _lost_inside(lab, name, total) if counted else None,
            )
        )
    return made


def _lost_before(lab: ChainLab, functions: Sequence[str], valid: Sequence[Observation]) -> dict[str, float]:
    """Packets lost between each hop and the one before it; nothing where traffic may be of another class."""
    if lab.chain.classes and list(functions) == lab.chain.chain:
        ports = {one.match.port for one in lab.chain.classes.values()}
        if None in ports or any(port in ports for load in WORKLOADS.values() for _, port in load.needs_ports):
            return {}
    found: dict[str, float] = {}
    before: list[str] = []
    for name, hosts in passed(lab, functions).items():
        if name in lab.chain.vnfs and lab.chain.mirror(name):
            continue
        if before and valid:
            side = "near" if before == [CLIENT] else "far"
            places = [*(f"{PREFIX}{host}/{side}" for host in before), *(f"{PREFIX}{h}/near" for h in hosts)]
            sums = [
                sum(one.counters.get(f"{at}.tx", 0.0) - one.counters.get(f"{at}.rx", 0.0) for at in places)
                for one in valid
            ]
            # a packet on its way as a trial begins is none that was lost
            found[name] = max(0.0, mean(sums))
        before = hosts
    return found


def _lost_inside(lab: ChainLab, name: str, total: Callable[[str], float]) -> float | None:
    """Packets that a function received and did not send on, either direction for itself: what it sends of its
    own in one makes up for no loss in the other."""
    vnf = lab.chain.vnfs.get(name)
    if vnf is None or lab.chain.mirror(name):
        return None
    kind = KINDS[vnf.kind]
    if kind.http(vnf.options) or kind.ends(vnf.options, "tcp", 1):
        return None
    return sum(max(0.0, total(f"{into}.rx") - total(f"{out}.tx")) for into, out in THROUGH.values())


def internals(seen: Sequence[Observation]) -> dict[str, Any]:
    """What the switches count of themselves over the trials shown: packets, cycles for each where they are
    known, the share of packets by how their flow was found, drops by reason."""
    valid = shown(seen)
    sums: dict[str, float] = {}
    for one in valid:
        for name, value in one.counters.items():
            if name.startswith(INTERNAL):
                key = name.rpartition("/")[2]
                sums[key] = sums.get(key, 0.0) + value
    cycles, packets = sums.pop("cycles", 0.0), sums.pop("packets", 0.0)
    return {
        "packets": packets / len(valid) if valid else 0.0,
        "cycles": cycles / packets if packets and cycles else None,
        "found": {
            name.removeprefix("found."): value / packets
            for name, value in sums.items()
            if name.startswith("found.") and packets
        },
        "drops": {
            name.removeprefix("drop."): value / len(valid)
            for name, value in sums.items()
            if name.startswith("drop.") and value > 0
        },
    }


def backlog(seen: Sequence[Observation]) -> dict[str, float]:
    """Packets that found no room in the kernel's queue before its soft interrupts, and how often a soft
    interrupt ended with packets left; of a trial that is shown, on the whole machine."""
    valid = shown(seen)
    return {
        name: mean([one.counters.get(counter, 0.0) for one in valid]) if valid else 0.0
        for counter, name in BACKLOG.items()
    }


def added(shorter: Sequence[Observation], longer: Sequence[Observation]) -> dict[str, Any] | None:
    """CPU time for each packet that one function more takes, over the blocks in which both lengths count."""
    pairs = [
        longer[place].metrics[CPU.name] - shorter[place].metrics[CPU.name]
        for place in range(min(len(shorter), len(longer)))
        if shorter[place].valid and longer[place].valid
        and CPU.name in shorter[place].metrics and CPU.name in longer[place].metrics
    ]  # fmt: skip
    if not pairs:
        return None
    found = estimate(pairs)
    return {"n": found.n, "mean": found.mean, "interval": list(found.interval) if found.interval else None}


def _interface(counter: str) -> bool:
    return counter.startswith(("dev.in.", "dev.out.", "dev.eth0."))


def _queues(space: str | None) -> float:
    """Packets that the queues of a namespace dropped; none where it has no queues."""
    command = [find("tc", "iproute2"), "-s", "-j", "qdisc", "show"]
    done = namespace.inside(
        space, lambda: subprocess.run(command, capture_output=True, text=True, check=False)
    )
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
        return float(sum(one.get("drops", 0) for one in json.loads(done.stdout or "[]")))
    return 0.0
