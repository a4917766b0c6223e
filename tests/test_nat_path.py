"""Paths through a NAT between real hosts: their MTU is found out, routers on them report, and nothing comes by a false address."""

from __future__ import annotations

import json
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from lab import Lab, root, sh, until
from nat_hosts import BOX, ECHO, SERVER, Hosts, configuration

from netdyno.nat import counters, running

pytestmark = root

FAR, MAPPED = "198.18.0.9", "203.0.113.16"
SINK = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("up", flush=True)
while True:
    own, _ = server.accept()
    count = 0
    while some := own.recv(65536):
        count += len(some)
    own.sendall(b"%d\\n" % count)
    own.close()
"""
"""Takes what each client sends, and tells how much it was."""
SEND = """
import socket, sys
own = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60)
own.sendall(bytes(300_000))
own.shutdown(socket.SHUT_WR)
print(own.makefile().readline().strip(), own.getsockopt(socket.IPPROTO_IP, 14), flush=True)
"""
"""Sends 300,000 bytes; tells how many arrived, and the MTU of the path that its kernel has found out (IP_MTU)."""
EXCHANGE = """
import json, socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind((sys.argv[1], 5000))
print("up", flush=True)
while True:
    said, peer = own.recvfrom(65536)
    if said.startswith(b"{"):
        what = json.loads(said)
        own.setsockopt(socket.IPPROTO_IP, 10, 2 if what["df"] else 0)
        try:
            own.sendto(bytes(what["size"]), peer)
        except OSError:
            own.setsockopt(socket.IPPROTO_IP, 10, 0)
            own.sendto(b"too long", peer)
    else:
        own.sendto(b"%d" % len(said), peer)
"""
"""Answers with as many bytes as are asked for, with DF or without; or tells how many it got."""
DATAGRAMS = """
import json, socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.settimeout(0.5)
server = (sys.argv[1], 5000)
def ask(what):
    for _ in range(60):
        try:
            own.sendto(what, server)
            return own.recv(65536)
        except TimeoutError:
            pass
        except OSError:
            return b"too long"
def mtu():
    path = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    path.connect(server)
    return path.getsockopt(socket.IPPROTO_IP, 14)
found = {"begins": len(ask(json.dumps({"df": False, "size": 4}).encode()))}
own.setsockopt(socket.IPPROTO_IP, 10, 0)
found["up"] = ask(bytes(1472)).decode()
found["down"] = len(ask(json.dumps({"df": False, "size": 1372}).encode()))
own.setsockopt(socket.IPPROTO_IP, 10, 2)
found["refused"] = ask(bytes(1472)).decode()
found["mtu"] = mtu()
found["told"] = ask(json.dumps({"df": True, "size": 1372}).encode()).decode()
print(json.dumps(found), flush=True)
"""
"""Sends and asks for datagrams that are too long for the path: without DF, then with it."""
TRACE = """
import json, socket, struct, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.setsockopt(socket.IPPROTO_IP, 11, 1)
own.settimeout(0.2)
found = []
for ttl in range(1, int(sys.argv[3]) + 1):
    own.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
    for _ in range(100):
        try:
            own.sendto(b"probe", (sys.argv[1], int(sys.argv[2])))
            own.recv(2048)
            continue
        except TimeoutError:
            continue
        except OSError:
            pass
        try:
            more = own.recvmsg(2048, 512, socket.MSG_ERRQUEUE)[1]
        except OSError:
            continue
        for _, _, error in more:
            kind, code = error[5], error[6]
            found.append([kind, code, socket.inet_ntoa(error[20:24])])
        break
print(json.dumps(found), flush=True)
"""
"""A traceroute: who reports the probe of each TTL, and how (IP_RECVERR)."""


@pytest.fixture
def router(hosts: Hosts) -> Iterator[str]:
    """The subscribers' host is a router inside: behind it is one of 100.64.0.0/24, by a link with an MTU of 1280."""
    deep = f"{hosts.subscribers}-deep"
    sh("ip", "netns", "add", deep)
    sh("ip", "-n", deep, "link", "set", "lo", "up")
    peer = ("type", "veth", "peer", "deep0", "netns", hosts.subscribers)
    sh("ip", "-n", deep, "link", "add", "d0", *peer)
    for space, link, address in (
        (deep, "d0", "100.64.0.2/24"),
        (hosts.subscribers, "deep0", "100.64.0.1/24"),
    ):
        off = ("tso", "off", "gso", "off", "gro", "off", "tx", "off", "rx", "off")
        sh("ip", "netns", "exec", space, "ethtool", "-K", link, *off)
        sh("ip", "-n", space, "link", "set", link, "mtu", "1280", "up")
        sh("ip", "-n", space, "addr", "add", address, "dev", link)
    sh(
        "ip",
        "netns",
        "exec",
        hosts.subscribers,
        "sysctl",
        "-qw",
        "net.ipv4.ip_forward=1",
    )
    # it says nothing of its MTU itself: the path tells
    sh(
        "ip",
        "-n",
        deep,
        "route",
        "add",
        "default",
        "via",
        "100.64.0.1",
        "advmss",
        "1460",
    )
    try:
        yield deep
    finally:
        sh("ip", "netns", "del", deep, check=False)


def begin(lab: Lab, hosts: Hosts, settings: dict[str, Any], ready: tuple[str, ...]) -> None:
    """Run a NAT until somebody gets through."""
    file = lab.write("nat.json", settings)
    lab.start(
        "nat",
        "run",
        file,
        "--for",
        "240s",
        "-q",
        prefix=("ip", "netns", "exec", hosts.box),
    )
    until(
        lambda: "1 received" in sh("ip", "netns", "exec", *ready, check=False),
        60,
        "no way out",
    )


def heard(child: Any) -> str:
    """A line of a script."""
    return str(child.stdout.readline()).strip()


def listening(hosts: Hosts, space: str, text: str, *arguments: str) -> None:
    """Start a server, and wait for it."""
    assert heard(hosts.script(space, text, *arguments)) == "up"


def drops(name: str) -> Counter[str]:
    """What the NAT has dropped, by reason."""
    with running.connected(name) as nat:
        listed = counters.ask(nat).as_dict()["elements"]
    found: Counter[str] = Counter()
    for one in listed:
        found.update(one["drops"])
    return found


def subscribers(lab: Lab, name: str) -> list[str]:
    """Who is one."""
    found = json.loads(lab.good("nat", "subscribers", name, "--json").out)["subscribers"]
    return sorted(one["address"] for one in found)


def test_hosts_find_out_the_mtu_of_their_path(lab: Lab, hosts: Hosts) -> None:
    # the device says 1400 outside, the configuration 1300 inside; what hosts say of their MSS hides neither
    for space, link in ((hosts.box, "out0"), (hosts.world, "o0")):
        sh("ip", "-n", space, "link", "set", link, "mtu", "1400")
    sh(
        "ip",
        "-n",
        hosts.world,
        "route",
        "add",
        "203.0.113.16/28",
        "dev",
        "o0",
        "advmss",
        "1460",
    )
    sh(
        "ip",
        "-n",
        hosts.subscribers,
        "route",
        "replace",
        "default",
        "via",
        BOX,
        "advmss",
        "1460",
    )
    # the router outside has a link with less
    sh("ip", "-n", hosts.world, "link", "add", "narrow", "mtu", "1000", "type", "veth")
    sh("ip", "-n", hosts.world, "link", "set", "narrow", "up")
    sh("ip", "-n", hosts.world, "route", "add", "198.18.0.0/24", "dev", "narrow")
    name = f"t{hosts.box[3:-4]}-mtu"[:32]
    settings = configuration(name)
    settings["inside"]["mtu"] = 1300
    settings["forwards"] = [{"protocol": "tcp", "outside": f"{MAPPED}:8080", "inside": "10.0.0.2:8080"}]
    listening(hosts, hosts.world, SINK, SERVER, "80")
    listening(hosts, hosts.world, EXCHANGE, SERVER)
    listening(hosts, hosts.subscribers, SINK, "10.0.0.2", "8080")
    begin(lab, hosts, settings, (hosts.subscribers, "ping", "-c1", "-W1", SERVER))
    # TCP, whose kernel sends everything with DF: up, and down to a server of a subscriber
    assert heard(hosts.script(hosts.subscribers, SEND, SERVER, "80")) == "300000 1400"
    assert heard(hosts.script(hosts.world, SEND, MAPPED, "8080")) == "300000 1300"
    # UDP
    assert json.loads(heard(hosts.script(hosts.subscribers, DATAGRAMS, SERVER))) == {
        "begins": 4,
        "up": "1472",
        "down": 1372,
        "refused": "too long",
        "mtu": 1400,
        "told": "too long",
    }
    # a router outside reports, and the subscriber hears it
    far = ("ping", "-c1", "-W1", "-M", "do", "-s", "1300", FAR)
    until(
        lambda: "mtu = 1000" in hosts.from_inside(*far, check=False),
        60,
        "nobody is told",
    )
    assert drops(name)["too_big"] > 0


def test_routers_inside_report_and_lead_to_subscribers(lab: Lab, hosts: Hosts, router: str) -> None:
    name = f"t{hosts.box[3:-4]}-in"[:32]
    settings = configuration(name, subscribers=["100.64.0.0/10"])
    settings["inside"]["routes"] = [{"to": "100.64.0.0/24", "via": "10.0.0.1"}]
    settings["forwards"] = [
        {"protocol": "tcp", "outside": f"{MAPPED}:8080", "inside": "100.64.0.2:8080"},
        {"protocol": "udp", "outside": f"{MAPPED}:9", "inside": "100.64.0.2:9"},
    ]
    sh(
        "ip",
        "-n",
        hosts.world,
        "route",
        "add",
        "203.0.113.16/28",
        "dev",
        "o0",
        "advmss",
        "1460",
    )
    listening(hosts, router, SINK, "100.64.0.2", "8080")
    assert (
        "route to 100.64.0.0/24 via 10.0.0.1"
        in lab.good("nat", "check", "--no-devices", lab.write("c.json", settings)).out
    )
    begin(lab, hosts, settings, (hosts.world, "ping", "-c1", "-W1", "203.0.113.2"))
    # it has sent nothing yet, and is found by its router; whose report of the narrow link comes out
    assert heard(hosts.script(hosts.world, SEND, MAPPED, "8080")) == "300000 1280"
    # a traceroute sees the router, the box and the target; from outside no address of the inside
    seen = json.loads(heard(hosts.script(router, TRACE, SERVER, "9", "3")))
    assert seen == [[11, 0, "100.64.0.1"], [11, 0, BOX], [3, 3, SERVER]]
    seen = json.loads(heard(hosts.script(hosts.world, TRACE, MAPPED, "9", "3")))
    assert seen == [[11, 0, "203.0.113.2"], [11, 0, MAPPED], [3, 3, MAPPED]]
    # the router itself is no subscriber
    assert "1 received" not in hosts.from_inside("ping", "-c1", "-W1", "-I", "10.0.0.1", SERVER, check=False)
    assert drops(name)["not_inside"] > 0
    assert subscribers(lab, name) == ["100.64.0.2"]


def test_a_router_outside_with_a_private_address_reports(lab: Lab, hosts: Hosts) -> None:
    # behind the gateway a router numbered from 10.200.0.0/24, as many networks number theirs, in front of a narrow link (RFC 6752)
    middle, far = f"{hosts.world}-mid", f"{hosts.world}-far"
    for space in (middle, far):
        sh("ip", "netns", "add", space)
        sh("ip", "-n", space, "link", "set", "lo", "up")
        sh("ip", "netns", "exec", space, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    try:
        for space, link, address, peer, end, answer, mtu in (
            (hosts.world, "m0", "10.200.0.1/24", middle, "w0", "10.200.0.2/24", "1500"),
            (middle, "f0", "10.201.0.1/24", far, "m0", "10.201.0.2/24", "1300"),
        ):
            sh("ip", "-n", space, "link", "add", link, "type", "veth", "peer", end, "netns", peer)
            for where, name, ip in ((space, link, address), (peer, end, answer)):
                off = ("tso", "off", "gso", "off", "gro", "off", "tx", "off", "rx", "off")
                sh("ip", "netns", "exec", where, "ethtool", "-K", name, *off)
                sh("ip", "-n", where, "addr", "add", ip, "dev", name)
                sh("ip", "-n", where, "link", "set", name, "mtu", mtu, "up")
        sh("ip", "-n", far, "addr", "add", f"{FAR}/32", "dev", "lo")
        sh("ip", "-n", hosts.world, "route", "add", f"{FAR}/32", "via", "10.200.0.2")
        sh("ip", "-n", middle, "route", "add", f"{FAR}/32", "via", "10.201.0.2")
        sh("ip", "-n", middle, "route", "add", "default", "via", "10.200.0.1")
        # it says nothing of its own MTU: the path tells
        sh("ip", "-n", far, "route", "add", "default", "via", "10.201.0.1", "advmss", "1460")
        name = f"t{hosts.box[3:-4]}-rfc"[:32]
        listening(hosts, far, SINK, FAR, "80")
        begin(lab, hosts, configuration(name), (hosts.subscribers, "ping", "-c1", "-W1", FAR))
        assert heard(hosts.script(hosts.subscribers, SEND, FAR, "80")) == "300000 1300"
        seen = json.loads(heard(hosts.script(hosts.subscribers, TRACE, FAR, "9", "4")))
        hops = [[11, 0, BOX], [11, 0, "203.0.113.1"], [11, 0, "10.200.0.2"], [3, 3, FAR]]
        assert seen == hops
        assert drops(name)["spoofed_source"] == 0
        # what is no error of a session is as spoofed as ever
        hosts.from_outside("ping", "-c1", "-W1", "-I", "10.200.0.1", MAPPED, check=False)
        until(lambda: drops(name)["spoofed_source"] > 0, 60, "it is believed")
    finally:
        for space in (far, middle):
            for pid in sh("ip", "netns", "pids", space, check=False).split():
                sh("kill", pid, check=False)
            sh("ip", "netns", "del", space, check=False)


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def datagram(source: tuple[str, int], target: tuple[str, int], options: bytes = b"") -> bytes:
    """A UDP packet without checksum, from whomever it says."""
    body = struct.pack("!HHHH", source[1], target[1], 12, 0) + b"echo"
    head = struct.pack(
        "!BBHHHBBH4s4s", 0x45 + len(options) // 4, 0, 20 + len(options) + len(body), 1, 0, 64, 17, 0,
        socket.inet_aton(source[0]), socket.inet_aton(target[0]),
    )  # fmt: skip
    head += options
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + body


INJECT = """
import socket, sys
own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
own.bind((sys.argv[1], 0))
to = bytes.fromhex(sys.argv[2])
for packet in sys.argv[3:]:
    own.send(to + own.getsockname()[4] + b"\\x08\\x00" + bytes.fromhex(packet))
print("sent", flush=True)
"""
"""Sends packets as they are to an Ethernet address."""
STUN = """
import json, socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind((sys.argv[1], 6000))
own.settimeout(0.5)
seen = None
for _ in range(60):
    own.sendto(b"who am I", (sys.argv[2], 3478))
    try:
        seen = json.loads(own.recv(2048))
        break
    except TimeoutError:
        pass
print(json.dumps(seen), flush=True)
own.settimeout(None)
while True:
    said, peer = own.recvfrom(2048)
    print(json.dumps(peer), flush=True)
    own.sendto(said, peer)
"""
"""Asks how it is seen, and then echoes what comes, as many a service does."""


def echo(source: str, target: str) -> bytes:
    """An echo request, from whomever it says."""
    body = struct.pack("!BBHHH", 8, 0, 0, 1, 1)
    body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
    head = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 28, 1, 0, 64, 1, 0, socket.inet_aton(source), socket.inet_aton(target)
    )
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + body


HEAR = """
import socket, sys
own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
own.bind((sys.argv[1], 0))
print("up", flush=True)
while True:
    frame = own.recv(2048)
    if frame[23] == 1 and frame[34] == 0:
        print(socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34]), flush=True)
"""
"""Tells of each answer to an echo request between whom it is."""


def test_the_box_answers_whom_it_would_forward(lab: Lab, hosts: Hosts) -> None:
    name = f"t{hosts.box[3:-4]}-own"[:32]
    begin(lab, hosts, configuration(name), (hosts.subscribers, "ping", "-c1", "-W1", SERVER))
    macs = {
        link: json.loads(sh("ip", "-n", hosts.box, "-j", "link", "show", link))[0]["address"].replace(":", "")
        for link in ("in0", "out0")
    }
    # RFC 1812 section 4.3.3.6: either of its addresses answers; nothing of that goes to the router
    assert "1 received" in hosts.from_inside("ping", "-c1", "-W5", BOX)
    assert "1 received" in hosts.from_inside("ping", "-c1", "-W5", "203.0.113.2")
    hosts.from_inside("ping", "-c1", "-W1", "-s", "3000", BOX, check=False)
    hosts.from_inside("bash", "-c", "echo > /dev/udp/203.0.113.2/53", check=False)
    until(lambda: drops(name)["fragmented"] == 3 and drops(name)["own_destination"] == 1, 60, "not dropped")
    assert drops(name)["spoofed_source"] == 0
    before = drops(name)
    for space, link, port, target, right, false in (
        (
            hosts.world, "o0", "out0", "203.0.113.2", "203.0.113.1",
            {
                "martian_source": ["203.0.113.255", "203.0.113.0", "0.0.0.0", "127.0.0.1"],
                "spoofed_source": ["10.0.0.1", "10.0.0.254", "203.0.113.17", "192.168.9.9"],
            },
        ),
        (
            hosts.subscribers, "s0", "in0", BOX, "10.0.0.1",
            {
                "martian_source": ["10.0.0.255", "10.0.0.0", "203.0.113.2", "0.0.0.0"],
                "not_inside": ["203.0.113.17", "8.8.8.8"],
            },
        ),
    ):  # fmt: skip
        ears = hosts.script(space, HEAR, link)
        assert heard(ears) == "up"
        packets = [echo(source, target) for listed in false.values() for source in listed]
        made = hosts.script(
            space, INJECT, link, macs[port], *(packet.hex() for packet in [*packets, echo(right, target)])
        )
        assert heard(made) == "sent"
        # the first answer of all is to the last request
        assert heard(ears) == f"{target} {right}"
        for reason, listed in false.items():
            before[reason] += len(listed)
            found = drops(name)[reason]
            assert found == before[reason], f"{reason}: {found}, not {before[reason]}"


def test_nothing_comes_by_a_false_address(lab: Lab, hosts: Hosts) -> None:
    name = f"t{hosts.box[3:-4]}-bog"[:32]
    listening(hosts, hosts.world, ECHO, SERVER)
    settings = configuration(name, acl=[{"action": "deny", "from": "inside", "protocol": "udp", "ports": 53}])
    # jumbo frames, while we are here
    for space, link in (
        (hosts.subscribers, "s0"),
        (hosts.box, "in0"),
        (hosts.box, "out0"),
        (hosts.world, "o0"),
    ):
        sh("ip", "-n", space, "link", "set", link, "mtu", "9000")
    settings["inside"]["mtu"] = settings["outside"]["mtu"] = 9000
    settings["memory"] = "512MiB"
    begin(lab, hosts, settings, (hosts.subscribers, "ping", "-c1", "-W1", "-s8000", "-Mdo", SERVER))
    service = hosts.script(hosts.subscribers, STUN, "10.0.0.2", SERVER)
    mapping = tuple(json.loads(heard(service)))
    macs = {
        link: json.loads(sh("ip", "-n", hosts.box, "-j", "link", "show", link))[0]["address"].replace(":", "")
        for link in ("in0", "out0")
    }

    def inject(space: str, link: str, port: str, *packets: bytes) -> None:
        made = hosts.script(space, INJECT, link, macs[port], *(packet.hex() for packet in packets))
        assert heard(made) == "sent"

    false = {
        "martian_source": [
            "127.0.0.1",
            "0.0.0.7",
            "169.254.1.1",
            "224.0.0.9",
            "255.255.255.255",
            "203.0.113.255",
        ],
        "spoofed_source": [
            "10.0.0.1",
            "10.0.0.254",
            "203.0.113.2",
            "192.168.9.9",
            "203.0.113.17",
        ],
    }
    packets = [datagram((source, 53), mapping) for listed in false.values() for source in listed]
    # from a mapping to itself: whoever echoes it would be its own peer for ever
    packets += [
        datagram(mapping, mapping),
        datagram(("198.51.100.77", 53), mapping, bytes([131, 3, 4, 0])),
    ]
    inject(hosts.world, "o0", "out0", *packets)
    inside = [
        (("10.0.0.254", 9), (SERVER, 9)),
        (("10.0.0.255", 9), (SERVER, 9)),
        (("10.0.0.0", 9), (SERVER, 9)),
    ]
    targets = ["127.0.0.1", "0.0.0.1", "169.254.1.1", "240.0.0.1"]
    inside += [(("10.0.0.1", 9), (target, 9)) for target in targets]
    inside += [
        (("10.0.0.1", 9), ("10.7.7.7", 9)),
        (("10.0.0.1", 9), (SERVER, 53)),
        (("10.0.0.2", 6000), mapping),
    ]
    inject(hosts.subscribers, "s0", "in0", *(datagram(*ends) for ends in inside))
    expected = {
        "martian_source": 6 + 3, "spoofed_source": 5 + 1, "ip_options": 1, "martian_destination": 4,
        "inside_destination": 1, "acl": 1, "land": 1,
    }  # fmt: skip
    until(
        lambda: {key: drops(name)[key] for key in expected} == expected,
        60,
        f"not {expected}",
    )
    # what is right reaches the service, first of all
    inject(hosts.world, "o0", "out0", datagram(("198.51.100.77", 7), mapping))
    assert json.loads(heard(service)) == ["198.51.100.77", 7]
    # another host inside as well, by the mapping (RFC 4787 REQ-9); so nothing before it has come
    inject(hosts.subscribers, "s0", "in0", datagram(("10.0.0.1", 6001), mapping))
    assert json.loads(heard(service))[0].startswith("203.0.113.")
    assert subscribers(lab, name) == ["10.0.0.1", "10.0.0.2"]
