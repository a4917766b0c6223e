"""The NAT on two cores: as a pipeline and run to completion, and on one of them.

Its ports make and take the load themselves, so that both cores are the NAT's: the inside one gives the frames
of 1,024 flows again and again, the outside one tells who the router is, and throws away what is sent.
"""

from __future__ import annotations

import contextlib
import ipaddress
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bed import CORES, GENERATOR, SERVER, Core, Skipped, folder, namespace
from cases_nat import translating
from rounds import Sides, UnusableError

FLOWS, PORTS = 1_024, 64
MAC = {
    "inside": b"\2\0\0\0\0\2",
    "outside": b"\2\0\0\0\0\3",
    "router": b"\2\0\0\0\0\11",
    "sender": b"\2\0\0\0\0\1",
}
ANSWERS = 20_000
"""ARP answers of the router: one of them comes after it was asked for."""


def checksum(data: bytes) -> int:
    """That of RFC 1071."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def datagram(flow: int) -> bytes:
    """The 64-byte frame of a flow, without FCS."""
    addresses = struct.pack("!II", subscriber(flow), int(ipaddress.ip_address("198.51.100.9")))
    payload = bytes(18)
    length = 8 + len(payload)
    udp = struct.pack("!HHHH", 10_000 + flow % PORTS, 53, length, 0)
    udp = udp[:6] + struct.pack("!H", checksum(addresses + struct.pack("!HH", 17, length) + udp + payload))
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0, 64, 17, 0) + addresses
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    return MAC["inside"] + MAC["sender"] + b"\x08\0" + ip + udp + payload


def answer() -> bytes:
    """Who the router is."""
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 2)
    router, own = (ipaddress.ip_address(x).packed for x in ("203.0.113.1", "203.0.113.2"))
    arp = head + MAC["router"] + router + MAC["outside"] + own
    return MAC["outside"] + MAC["router"] + b"\x08\x06" + arp + bytes(18)


def recorded(path: Path, frames: Sequence[bytes]) -> Path:
    """A file of pcap."""
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1)
    packets = (struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame for frame in frames)
    path.write_bytes(head + b"".join(packets))
    return path


def subscriber(flow: int) -> int:
    """The address that sends a flow."""
    return 0x0A000100 + flow // PORTS


def queue(address: int, count: int) -> int:
    """The queue of a NIC with `rss: source` (crates/packet/src/rss.rs)."""
    return (address ^ address >> 7 ^ address >> 14 ^ address >> 21) % 128 % count


def graph(
    where: Path, workers: dict[int, list[str]], count: int = 1, number: int = 0, *, steered: bool = False
) -> dict[str, Any]:
    """The NAT between these ports, with so many of what each worker has one of; `number` tells NATs apart.

    `steered`: each queue has packets of the subscribers that a NIC would steer to it.
    """
    router = recorded(where / "out.pcap", [answer()] * ANSWERS)
    files = [where / f"in{one}.pcap" for one in range(count)]
    for one, file in enumerate(files):
        own = [f for f in range(FLOWS) if not steered or queue(subscriber(f), count) == one]
        recorded(file, [datagram(flow) for flow in own])
    queues = "".join(f"rx_pcap={file}," for file in files)
    ports = {
        "b": {
            "device": f"net_pcap{2 * number},{queues}infinite_rx=1",
            "ip": "10.255.255.254/8", "mac": "02:00:00:00:00:02", "queues": count,
        },
        "c": {
            "device": f"net_pcap{2 * number + 1}" + f",rx_pcap={router}" * count,
            "ip": "203.0.113.2/24", "mac": "02:00:00:00:00:03", "queues": count,
        },
    }  # fmt: skip
    elements, edges = translating(2 * FLOWS)  # they are not the same number on both
    made: dict[str, Any] = {
        "ports": ports, "elements": elements, "edges": edges,
        "placement": [{"core": core, "elements": names} for core, names in workers.items()],
    }  # fmt: skip
    if count > 1:
        made["replicas"] = {name: {"count": count, "affinity": "owner"} for name in ("nat", "conntrack")}
        if steered:
            elements["conntrack"]["steering"] = "rss"
        for name in ("in-validity", "out-validity"):
            made["replicas"][name] = {"count": count, "affinity": "upstream"}
    return made


FIRST = ["b.rx", "in-validity", "nat"]
LAST = ["conntrack", "c.tx", "c.rx", "out-validity", "in-host", "out-host", "b.tx"]


def of_worker(number: int) -> list[str]:
    """What each of two workers has: a queue of both ports each way; the first, what answers for the box."""
    own = [
        f"b.rx{number}", f"in-validity#{number}", f"c.rx{number}", f"out-validity#{number}", f"nat#{number}",
        f"conntrack#{number}", f"b.tx{number}", f"c.tx{number}",
    ]  # fmt: skip
    return own + (["in-host", "out-host"] if number == 0 else [])


def carried(core: Core, seconds: float, *documents: dict[str, Any]) -> tuple[float, float]:
    """Packets a second that they send out, and ticks that all their workers are busy for each."""

    def seen() -> tuple[int, int]:
        stats = [core.client.call("graph.stats", graph=graph) for graph in made]
        elements = (e for one in stats for e in one["elements"])
        out = sum(e["packets_in"] for e in elements if e["name"].startswith("c.tx"))
        return out, sum(worker["busy_cycles"] for one in stats for worker in one["workers"])

    made = [core.client.call("graph.run", graph=document)["graph"] for document in documents]
    try:
        time.sleep(1.0)  # who the router is, and sessions
        (packets, cycles), began = seen(), time.monotonic()
        time.sleep(seconds)
        (packets_then, cycles_then), took = seen(), time.monotonic() - began
    finally:
        for graph in made:
            core.client.call("graph.stop", graph=graph)
    count = packets_then - packets
    if count == 0:
        raise UnusableError("nothing was sent")
    return count / took, (cycles_then - cycles) / count


@contextlib.contextmanager
def two_workers() -> Iterator[Sides]:
    """Both cores: `rate` run to completion on each, `pipeline` over both; `one`: the same on one core.

    Each has a receive queue with packets of its own subscribers, as from a NIC that goes by source addresses.
    With `mixed` they are of all, as from one whose RSS knows nothing of subscribers: half of what a worker
    receives it hands on to the other.
    `apart` are two NATs with ports of their own, which hand on nothing. `handed` is what a packet takes more
    in the pipeline than on one core, on both together: it goes from one to the other once.
    """
    if len(CORES) < 2:
        raise Skipped("two cores are needed, one for each worker; there is one")
    with namespace() as name, folder() as where:
        core = Core(name, where)
        whole = [*FIRST, *LAST]

        def ours(seconds: float) -> dict[str, float]:
            one, alone = carried(core, seconds, graph(where, {GENERATOR: whole}))
            pipeline, parted = carried(core, seconds, graph(where, {GENERATOR: FIRST, SERVER: LAST}))
            workers = {GENERATOR: of_worker(0), SERVER: of_worker(1)}
            two, _ = carried(core, seconds, graph(where, workers, 2, steered=True))
            mixed, _ = carried(core, seconds, graph(where, workers, 2))
            both = [graph(where, {place: whole}, number=i) for i, place in enumerate((GENERATOR, SERVER))]
            apart, _ = carried(core, seconds, *both)
            return {
                "rate": two, "mixed": mixed, "pipeline": pipeline, "one": one, "apart": apart,
                "scale": two / one, "handed": parted - alone,
            }  # fmt: skip

        yield Sides(ours)
        core.close()
