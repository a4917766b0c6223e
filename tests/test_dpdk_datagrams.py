"""Devices with datagram sockets over a DPDK port, against real servers of a kernel host: the same profile, and the same totals as
over kernel sockets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from lab import NETDYNOD, Done, Lab, Wire, group, profile, root, sh, until

pytestmark = root

NEAR6, FAR6 = "fd00:91::1", "fd00:91::2"
PORT, PORT6 = "10.91.0.8", "fd00:91::8"
"""Not addresses of the kernel, which would answer what comes for them."""
SOCKETS: dict[str, Any] = {"sockets": {}}
DPDK: dict[str, Any] = {
    "dpdk": {
        "ports": [{"name": "a", "device": "af_packet:w0,framecnt=4096", "ip": [f"{PORT}/24", f"{PORT6}/64"]}],
    },
}
ONCE: dict[str, Any] = {"closed": {"flows": 1}}
LARGE = 4000
"""Bytes that take three packets."""


@pytest.fixture
def far(cable: Wire) -> Wire:
    """A kernel host with both kinds of addresses, which fills checksums in and asks for whom it does not know."""
    sh(*cable.at_far, "ethtool", "-K", "w1", "tx", "off")
    for space, name, address in ((cable.at_far, "w1", FAR6), (cable.at_near, "w0", NEAR6)):
        sh(*space, "sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=0")
        sh(*space, "ip", "address", "add", f"{address}/64", "dev", name, "nodad")
    return cable


def listens(far: Wire, port: int) -> None:
    until(lambda: f":{port} " in sh(*far.at_far, "ss", "-Hlun"), 60, f"nobody listens at port {port}")


def both(lab: Lab, far: Wire, *groups: dict[str, Any], measure: str = "2s") -> Iterator[Done]:
    """The profile over DPDK, then over sockets. Counts are equal whatever the machine's load makes of the runs' validity."""
    for transport in (DPDK, SOCKETS):
        document = profile(*groups, measure=measure, transport=transport)
        done = lab.run("run", lab.write("p.json", document), prefix=far.at_near)
        assert done.folder is not None, done.text
        assert done.trial.transport == next(iter(transport))
        yield done


def counted(done: Done) -> dict[str, tuple[int, ...]]:
    """Of each group: sent, delivered, failed flows, bytes sent and received."""
    return {
        one.name: (
            one.total.messages_sent,
            one.total.messages_delivered,
            one.total.flows_failed,
            one.total.bytes_sent,
            one.total.bytes_received,
        )
        for one in done.trial.groups
    }


def echoes(far: Wire) -> dict[str, int]:
    """Echo requests that the far kernel received, by family."""
    spaced = sh(*far.at_far, "nstat", "-asz", "IcmpInEchos", "Icmp6InEchos")
    rows = (line.split() for line in spaced.splitlines() if line.startswith("Icmp"))
    return {row[0]: int(row[1]) for row in rows}


def totals_of(done: Done, name: str) -> Any:
    return next(one.total for one in done.trial.groups if one.name == name)


def ping(size: int) -> dict[str, Any]:
    return {"ping": {"interval": "20ms", "count": 30, "size": f"{size}B"}}


def stream(size: int) -> dict[str, Any]:
    # few enough for the queues of a machine that lets everybody wait
    return {"stream": {"interval": "10ms", "count": 20, "size": f"{size}B"}}


def test_coap_ping_and_streams_are_what_the_far_host_counted(lab: Lab, far: Wire) -> None:
    log = lab.base / "coap.log"
    with log.open("w") as text:
        lab.spawn(*far.at_far, "coap-server-notls", "-A", Wire.FAR, "-v", "7", stdout=text, stderr=text)
    lab.spawn(*far.at_far, NETDYNOD, "reflect", "--udp", "7", "--bind", Wire.FAR)
    listens(far, 5683)
    listens(far, 7)
    # every device sends so many, and no message is due after the load's end
    groups = [
        group(
            "get",
            f"coap://{Wire.FAR}",
            {"coap": {"path": "/", "interval": "20ms", "count": 30}},
            8,
            load=ONCE,
        ),
        group("ping", f"ping://{Wire.FAR}", ping(56), 4, load=ONCE),
        group("ping6", f"ping://[{FAR6}]", ping(56), 4, load=ONCE),
        group("echo", f"udp://{Wire.FAR}:7", stream(64), 4, load=ONCE),
        group("large", f"udp://{Wire.FAR}:7", stream(LARGE), 2, load=ONCE),
        group("large6", f"ping://[{FAR6}]", ping(LARGE), 2, load=ONCE),
    ]
    before, requests = echoes(far), 0
    totals = []
    for done in both(lab, far, *groups):
        totals.append(counted(done))
        sent = {name: one[0] for name, one in totals[-1].items()}
        assert sent == {"get": 240, "ping": 120, "ping6": 120, "echo": 80, "large": 40, "large6": 60}
        assert {name: one[1:3] for name, one in totals[-1].items()} == {
            name: (n, 0) for name, n in sent.items()
        }
        now = echoes(far)
        assert {name: now[name] - before[name] for name in now} == {"IcmpInEchos": 120, "Icmp6InEchos": 180}
        before = now
        received = len(re.findall(r"UDP : received \d+ bytes", log.read_text()))
        assert received - requests == 240 + totals_of(done, "get").retransmissions
        requests = received
    assert totals[0] == totals[1]


@pytest.mark.sampled(1, of="sockets and connections over DPDK")
def test_nobody_there_is_told_alike_over_both(lab: Lab, far: Wire) -> None:
    """Nobody listens, nobody has the address, nobody knows the way: the causes are those of kernel sockets."""
    coap = {"coap": {"interval": "200ms", "max_retransmit": 0, "ack_timeout": "500ms"}}
    groups = [
        group("closed", f"coap://{Wire.FAR}", coap),
        group("absent", "coap://10.91.0.77", coap),
        group("silent", "ping://10.91.0.77", {"ping": {"interval": "200ms"}}),
    ]
    causes = []
    for done in both(lab, far, *groups, measure="6s"):
        told = {}
        for one in done.trial.groups:
            assert one.total.messages_delivered == 0
            failures = one.total.model_dump()["failures"]
            told[one.name] = {kind for kind, count in failures.items() if count}
        # the error about one request may come when the next has been sent, which then has none
        told["closed"].discard("unanswered")
        causes.append(told)
    assert causes[0] == causes[1]
    assert causes[0]["closed"] == {"refused"}
