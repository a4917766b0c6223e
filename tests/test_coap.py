"""CoAP against libcoap's server: our numbers, the server's log and what tshark saw on the cable are the same."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lab import Done, Lab, Wire, group, profile, root, sh, tshark, until

pytestmark = root

URL = f"coap://{Wire.FAR}"
# as numbers, the types of messages (RFC 7252 section 3)
CON, NON, ACK = "0", "1", "2"
GET, PUT, CREATED, CHANGED, CONTENT = "1", "3", "65", "68", "69"


class Server:
    """A coap-server of the test's own, and its log."""

    def __init__(self, lab: Lab, cable: Wire, *options: str) -> None:
        self.log = lab.base / "coap.log"
        with self.log.open("w") as log:
            lab.spawn(
                *cable.at_far,
                "coap-server-notls",
                "-A",
                Wire.FAR,
                "-v",
                "7",
                *options,
                stdout=log,
                stderr=log,
            )
        until(
            lambda: ":5683 " in sh(*cable.at_far, "ss", "-Hlun"),
            60,
            "coap-server does not listen",
        )

    def datagrams(self, way: str) -> int:
        """How many it received, or sent, as it says."""
        return len(re.findall(rf"UDP : {way} \d+ bytes", self.log.read_text()))


def run(lab: Lab, cable: Wire, *groups: Any, measure: str = "1s") -> tuple[Done, dict[str, Any]]:
    """Run it with a capture and no warm-up; what each group counted over the whole run."""
    document = profile(*groups, measure=measure, capture={"interface": "w0", "limit": "64MiB"})
    document["phases"]["warmup"] = "0s"
    done = lab.run("run", lab.write("p.json", document), prefix=cable.at_near)
    assert done.code == 0, done.text
    return done, {g.name: g.total for g in done.trial.groups}


def seen(done: Done, shown: str = "coap") -> list[dict[str, str]]:
    """The messages on the cable, none malformed."""
    assert done.folder
    capture: Path = done.folder / "capture.pcapng"
    assert not tshark(capture, "_ws.malformed || (udp && !coap && !icmp)", "frame.number")
    names = (
        "ip.src",
        "udp.srcport",
        "coap.type",
        "coap.code",
        "coap.mid",
        "coap.token",
    )
    return [
        dict(zip((n.split(".")[1] for n in names), row, strict=True))
        for row in tshark(capture, shown, *names)
    ]


def ours(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    return [m for m in messages if m["src"] == Wire.NEAR]


def test_requests_are_what_the_server_and_tshark_saw(lab: Lab, cable: Wire) -> None:
    server = Server(lab, cable, "-d", "100")
    put = {
        "method": "PUT",
        "path": "/nd-{device}",
        "payload": "{seq}",
        "confirmable": False,
        "timeout": "10s",
    }
    done, counted = run(
        lab,
        cable,
        group("get", URL, {"coap": {"path": "/", "interval": "50ms"}}, 8),
        group("put", URL, {"coap": {**put, "interval": "50ms"}}, 4),
    )
    get, put_ = counted["get"], counted["put"]
    assert get.messages_sent == get.messages_delivered > 100
    assert put_.messages_sent == put_.messages_delivered > 50
    messages = seen(done)
    kinds = Counter((m["type"], m["code"]) for m in ours(messages))
    # a server on a busy machine may be slow to acknowledge
    assert kinds == {
        (CON, GET): get.messages_sent + get.retransmissions,
        (NON, PUT): put_.messages_sent,
    }
    assert server.datagrams("received") == len(ours(messages))
    assert server.datagrams("sent") == len(messages) - len(ours(messages))
    answers = Counter((m["type"], m["code"]) for m in messages if m["src"] == Wire.FAR)
    assert answers[ACK, CONTENT] >= get.messages_delivered
    assert sum(count for (kind, _), count in answers.items() if kind == NON) >= put_.messages_delivered
    assert len({(m["srcport"], m["mid"]) for m in ours(messages)}) == get.messages_sent + put_.messages_sent
    assert get.bytes_sent + put_.bytes_sent == sum(_bytes(done, f"ip.src == {Wire.NEAR}"))


def _bytes(done: Done, shown: str) -> list[int]:
    assert done.folder
    return [
        int(row[0]) - 8 for row in tshark(done.folder / "capture.pcapng", f"coap && {shown}", "udp.length")
    ]


def test_transfers_in_blocks_are_whole(lab: Lab, cable: Wire) -> None:
    Server(lab, cable)
    put = {
        "path": "/example_data",
        "method": "PUT",
        "size": "3000B",
        "block_size": "256B",
        "interval": "50ms",
    }
    done, counted = run(
        lab,
        cable,
        group("up", URL, {"coap": put}),
        group(
            "down",
            URL,
            {
                "coap": {
                    "path": "/.well-known/core",
                    "block_size": "64B",
                    "interval": "50ms",
                }
            },
            3,
        ),
    )
    up, down = counted["up"], counted["down"]
    assert up.messages_sent == up.messages_delivered > 10
    assert down.messages_sent == down.messages_delivered > 30
    # 3000 bytes are twelve blocks, the server's description of itself is three
    assert up.block_requests == 11 * up.messages_sent
    assert down.block_requests == 2 * down.messages_sent
    messages = seen(done)
    sent = Counter(m["code"] for m in ours(messages))
    assert sent[PUT] == 12 * up.messages_sent + up.retransmissions
    assert sent[GET] == 3 * down.messages_sent + down.retransmissions
    last = {m["mid"] for m in messages if m["code"] in (CREATED, CHANGED)}
    assert len(last) == up.messages_delivered


def test_an_observed_resource_is_followed_to_its_end(lab: Lab, cable: Wire) -> None:
    Server(lab, cable)
    done, counted = run(
        lab,
        cable,
        group("watch", URL, {"coap": {"path": "/time", "observe": True}}, 5),
        measure="4s",
    )
    watch = counted["watch"]
    assert watch.notifications == watch.messages_received > 0
    # each registers and deregisters once
    assert watch.messages_sent == watch.messages_delivered == 10
    assert (watch.flows_started, watch.flows_completed) == (5, 5)
    messages = seen(done)
    theirs = [m for m in messages if m["src"] == Wire.FAR]
    notifications = {(m["mid"], m["token"]) for m in theirs if m["type"] in (CON, NON)}
    assert len(notifications) == watch.notifications
    acknowledged = [m for m in ours(messages) if m["type"] == ACK]
    assert len(acknowledged) == sum(m["type"] == CON for m in theirs)
    tokens = {(m["srcport"], m["token"]) for m in ours(messages) if m["code"] == GET}
    assert len(tokens) == 5, "an observation has one token from its beginning to its end"


def test_a_separate_response_is_acknowledged(lab: Lab, cable: Wire) -> None:
    Server(lab, cable)
    model = {"coap": {"path": "/async?1", "count": 1}}
    load = {"closed": {"flows": 1}}
    done, counted = run(lab, cable, group("slow", URL, model, 3, load=load), measure="2s")
    slow = counted["slow"]
    assert slow.messages_sent == slow.messages_delivered == slow.separate_responses == 3
    kinds = Counter((m["type"], m["code"]) for m in ours(seen(done)))
    assert kinds[ACK, "0"] == sum(m["type"] == CON for m in seen(done, f"ip.src == {Wire.FAR} && coap"))
    delays = done.trial.groups[0].delays
    # the server waits for a second before it responds
    assert delays["response"].min > max(0.9e9, delays["acknowledgement"].min)


@pytest.mark.parametrize("confirmable", [True, False])
def test_what_is_lost_is_sent_again_if_it_is_confirmable(lab: Lab, cable: Wire, confirmable: bool) -> None:
    server = Server(lab, cable, "-l", "20%")
    model = {"path": "/", "interval": "20ms", "nstart": 200, "confirmable": confirmable}
    patience = {"ack_timeout": "100ms", "max_retransmit": 8} if confirmable else {"timeout": "1s"}
    done, counted = run(lab, cable, group("get", URL, {"coap": {**model, **patience}}, 4))
    get = counted["get"]
    failed = sum(error.total or 0 for error in done.trial.groups[0].errors)
    assert get.messages_sent == get.messages_delivered + failed > 100
    messages = seen(done)
    assert len(ours(messages)) == get.messages_sent + get.retransmissions == server.datagrams("received")
    answers = len(messages) - len(ours(messages))
    assert answers >= get.messages_delivered
    if confirmable:
        # only what is lost again and again until the drain ends
        assert failed < get.messages_sent / 10
        assert get.retransmissions > 10
        assert done.trial.groups[0].delays["response"].max >= 100e6, (
            "a retransmission does not begin the delay anew"
        )
    else:
        assert failed > 10
        assert get.retransmissions == 0
