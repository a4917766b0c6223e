"""Frames of all kinds over DPDK ports, as tshark reads them."""

from __future__ import annotations

from typing import Any

from lab import PATIENT, Lab, root, tshark

pytestmark = root

V6 = {"ipv6": {"source": "fd00::1", "destination": "fd00::2"}}
KINDS: dict[str, list[dict[str, Any]]] = {
    "qinq": [{"ethernet": {}}, {"vlan": {"id": 100, "priority": 5}}, {"vlan": {"id": 7}}, {"ipv4": {}}, {"udp": {}}],
    "mpls": [{"ethernet": {}}, {"mpls": {"label": 16}}, {"mpls": {"label": 17}}, {"ipv4": {}}, {"udp": {}}],
    "tcp": [{"ethernet": {}}, {"ipv4": {"dscp": 46}}, {"tcp": {"flags": "SA", "source_port": 80}}],
    "six": [{"ethernet": {}}, V6, {"icmp": {"identifier": 9}}],
    "gre": [{"ethernet": {}}, {"ipv4": {}}, {"gre": {"key": 5}}, V6, {"udp": {}}],
    "vxlan": [
        {"ethernet": {}}, {"ipv4": {}}, {"udp": {"checksum": True}}, {"vxlan": {"vni": 77}},
        {"ethernet": {}}, {"ipv4": {"source": "192.0.2.1"}}, {"tcp": {}},
    ],
}  # fmt: skip
VARY = {
    "qinq": [{"field": "vlan[1].id", "change": {"increment": {"from": 7, "count": 3}}}],
    "vxlan": [{"field": "ipv4[1].destination", "change": {"list": ["192.0.2.8", "192.0.2.9"]}}],
}
SEEN = {
    "qinq": "eth:ethertype:ieee8021ad:ethertype:vlan:ethertype:ip:udp",
    "mpls": "eth:ethertype:mpls:ip:udp",
    "tcp": "eth:ethertype:ip:tcp",
    "six": "eth:ethertype:ipv6:icmpv6",
    "gre": "eth:ethertype:ip:gre:ipv6:udp",
    "vxlan": "eth:ethertype:ip:udp:vxlan:eth:ethertype:ip:tcp",
}


def document(frames: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Each frame in a group of its own, from port `a` to port `b`."""
    return {
        "name": "frames",
        "phases": {
            "warmup": "100ms",
            "measure": "500ms",
            "drain": "500ms",
            "sample": "100ms",
        },
        "validity": PATIENT,
        "targets": {"far": "udp://10.94.0.2:40007"},
        "transport": {
            "dpdk": {
                "ports": [
                    {"name": "a", "device": "pair:frames", "ip": "10.94.0.1"},
                    {"name": "b", "device": "pair:frames", "ip": "10.94.0.2"},
                ]
            }
        },
        "capture": {"interface": "b"},
        "groups": [
            {
                "name": name,
                "target": "far",
                "model": {"stream": {"echo": False}},
                "port": "a",
                "frame": frame,
            }
            for name, frame in frames.items()
        ],
    }


def test_what_is_sent_is_what_tshark_reads_checksums_and_all(lab: Lab) -> None:
    frames = {
        name: {
            "layers": layers,
            "vary": VARY.get(name, []),
            "size": {"fixed": "180B"},
            "rate": {"frames": "400/s"},
        }
        for name, layers in KINDS.items()
    }
    done = lab.good("run", lab.write("p.json", document(frames)))
    sent = {}
    for group in done.trial.groups:
        total = group.total
        assert 0 < total.messages_sent == total.messages_delivered, group.name
        assert (total.corrupted, total.reordered, total.duplicates) == (0, 0, 0)
        sent[group.name] = total.messages_sent
    assert done.folder is not None
    capture = done.folder / "capture.pcapng"
    rows = tshark(
        capture, "frame", "frame.protocols", "frame.len", "ip.checksum.status", "tcp.checksum.status",
        "udp.checksum.status", "icmpv6.checksum.status", "vlan.id", "ip.dst",
        options=("ip.check_checksum", "tcp.check_checksum", "udp.check_checksum"),
    )  # fmt: skip
    named = {protocols: name for name, protocols in SEEN.items()}
    seen = dict.fromkeys(KINDS, 0)
    varied: dict[str, set[str]] = {"qinq": set(), "vxlan": set()}
    for protocols, length, *statuses, vlan, destination in rows:
        name = named[protocols.removesuffix(":data")]
        seen[name] += 1
        assert length == "176"
        # 1: good; 2: unverified
        assert {status for one in statuses for status in one.split(",") if status} <= {"1"}, (name, statuses)
        if name == "qinq":
            varied[name].add(vlan)
        if name == "vxlan":
            varied[name].add(destination.split(",")[1])
    assert seen == sent
    assert varied == {"qinq": {"7", "8", "9"}, "vxlan": {"192.0.2.8", "192.0.2.9"}}
    lab.clean()


def test_a_large_frame_leaves_as_packets_that_tshark_puts_together(lab: Lab) -> None:
    """Text over IPv4 and IPv6: 3,000 bytes of it by 1,000, and a port that has no part in it."""
    text, large = "".join(f"{number:04}" for number in range(750)), []
    for name, ip in (("four", {"ipv4": {"identification": 65535}}), ("six", V6)):
        headers = 54 if name == "four" else 74
        tcp = {"flags": "FPA", "sequence": 2**32 - 1000, "window": 9, "segment": 1000}
        layers = [{"ethernet": {}}, ip, {"tcp": tcp}, {"payload": {"text": text}}]
        size = {"fixed": f"{headers + len(text) + 4}B"}
        large.append(
            (
                name,
                {
                    "layers": layers,
                    "size": size,
                    "rate": {"frames": "300/s"},
                    "measured": False,
                },
            )
        )
    done = lab.good("run", lab.write("p.json", document(dict(large))))
    assert done.folder is not None
    capture = done.folder / "capture.pcapng"
    fields = (
        "ip.id",
        "tcp.seq_raw",
        "tcp.flags",
        "tcp.len",
        "tcp.payload",
        "frame.len",
    )
    for group, shown in zip(done.trial.groups, ("ip", "ipv6"), strict=True):
        rows = tshark(
            capture, f"tcp and {shown}", "ip.checksum.status", "tcp.checksum.status", *fields,
            options=("ip.check_checksum", "tcp.check_checksum"),
        )  # fmt: skip
        assert len(rows) == group.total.messages_sent > 50
        v4 = shown == "ip"
        assert {tuple(row[:2]) for row in rows} == {("1" if v4 else "", "1")}
        for first in range(0, len(rows), 3):
            three = [row[2:] for row in rows[first : first + 3]]
            ids, numbers, flags, lengths, payloads, whole = zip(*three, strict=True)
            assert ids == (("0xffff", "0x0000", "0x0001") if v4 else ("", "", ""))
            assert numbers == (str(2**32 - 1000), "0", "1000")
            assert flags == ("0x0010", "0x0010", "0x0019")
            assert lengths == ("1000",) * 3
            assert whole == ("1054" if v4 else "1074",) * 3
            assert bytes.fromhex("".join(payloads)) == text.encode()
    assert done.trial.ports[0]["work"]["segments"] == "software"
    lab.clean()


def test_a_capture_can_be_sent_again(lab: Lab) -> None:
    """A recording beside the profile, named without a folder."""
    first = {"one": {"size": {"genome": "ag"}, "rate": {"frames": "100/s"}}}
    recorded = lab.good("run", lab.write("p.json", document(first)))
    assert recorded.folder is not None
    (recorded.folder / "capture.pcapng").rename(lab.base / "again.pcapng")
    frames = tshark(lab.base / "again.pcapng", "frame", "frame.len")
    assert len(frames) == recorded.trial.groups[0].total.messages_sent
    again = {
        "two": {
            "replay": {"file": "again.pcapng", "own_timing": True, "rest": "1h"},
            "measured": False,
        }
    }
    done = lab.good("run", lab.write("q.json", document(again)))
    assert done.folder is not None
    # the last ones may come too late for the end of the run on a busy machine
    sent = done.trial.groups[0].total.messages_sent
    assert 0 < sent <= len(frames)
    assert tshark(done.folder / "capture.pcapng", "frame", "frame.len") == frames[:sent]
    lab.clean()
