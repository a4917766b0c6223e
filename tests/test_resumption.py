"""What a peer asks a client to send again: MQTT sessions that lose their connection, and CoAP's Echo option."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab import Done, Lab, group, profile, sh, until
from ports import free_port

ODD = str(Path(__file__).with_name("odd_peers.py"))
BACK = {"reconnect": {"fixed": {"delay": "50ms"}}}
KEPT = {
    "version": "5.0",
    "clean_session": False,
    "session_expiry": "5min",
    "payload": "{seq}",
    **BACK,
}


class Odd:
    """An odd peer, and what it saw."""

    def __init__(self, lab: Lab, what: str, kind: int) -> None:
        self.port = free_port()
        self._log = lab.base / f"{what}.json"
        lab.spawn(
            sys.executable,
            ODD,
            what,
            str(self.port),
            str(self._log),
            stdout=subprocess.DEVNULL,
        )
        until(self._log.exists, 60, "the peer does not listen")

    def seen(self, who: Any) -> list[list[Any]]:
        return [rest for first, *rest in json.loads(self._log.read_text()) if first == who]


def flow(target: str, name: str, model: dict[str, Any], devices: int = 1) -> dict[str, Any]:
    """A group whose devices have one flow each."""
    return group(name, target, model, devices, load={"closed": {"flows": 1}})


def run(lab: Lab, *groups: dict[str, Any], measure: str = "2s", drain: str = "20s") -> Done:
    document = profile(*groups, measure=measure)
    document["phases"] |= {"warmup": "0s", "drain": drain}
    done = lab.run("run", lab.write("p.json", document))
    assert done.code == 0, done.text
    return done


def total(done: Done, name: str) -> Any:
    return next(one.total for one in done.trial.groups if one.name == name)


def test_an_odd_broker_gets_all_that_was_not_acknowledged_and_no_more_at_a_time(
    lab: Lab,
) -> None:
    odd = Odd(lab, "mqtt", socket.SOCK_STREAM)
    target = f"mqtt://127.0.0.1:{odd.port}"
    mqtt = {"interval": "10ms", "count": 10, **KEPT}
    done = run(
        lab,
        flow(target, "comp", {"mqtt": {**mqtt, "client_id": "comp", "qos": 2}}),
        flow(
            target,
            "few",
            {"mqtt": {**mqtt, "client_id": "few", "qos": 1, "max_inflight": 4}},
        ),
        flow(
            target,
            "owed",
            {"mqtt": {**mqtt, "client_id": "owed", "qos": 1, "max_inflight": 4}},
        ),
        flow(
            target,
            "alive",
            {
                "mqtt": {
                    "version": "5.0",
                    "client_id": "alive",
                    "interval": "1h",
                    "keep_alive": "60s",
                }
            },
        ),
        measure="4s",
    )
    comp, few, owed, alive = (total(done, name) for name in ("comp", "few", "owed", "alive"))
    for one in (comp, few, owed):
        assert one.messages_sent == one.messages_delivered == 10
        assert one.failures == {"closed": 1}
        assert (one.sessions, one.sessions_resumed, one.flows_completed) == (2, 1, 1)
    # PUBCOMP 0x92 after a PUBREL that was sent again is how the broker says that it had released the message
    released = [one[1] for one in odd.seen("comp") if one[0] == "PUBREL"]
    assert released[:2] == [released[0]] * 2
    assert len(set(released)) == 10 == len(released) - 1
    assert [one[2] for one in odd.seen("comp") if one[0] == "PUBREL"].count(False) == 1
    # four were open when the connection was lost, and come again in their order, two at a time
    publishes = [rest for what, *rest in odd.seen("few") if what == "PUBLISH"]
    assert few.publishes_resent == 4
    assert [payload for *_, payload in publishes] == [
        "0",
        "1",
        "2",
        "3",
        *map(str, range(10)),
    ]
    assert [again for _, again, *_ in publishes] == [0] * 4 + [1] * 4 + [0] * 6
    assert [number for number, *_ in publishes[:4]] == [number for number, *_ in publishes[4:8]]
    assert max(open_ for _, _, open_, _ in publishes[4:]) <= 2
    # the server's keep-alive of a second, and not our own
    assert ["SILENT"] not in odd.seen("alive")
    assert odd.seen("alive").count(["PINGREQ"]) >= 2
    assert (alive.sessions, alive.messages_delivered) == (1, 1)


@pytest.mark.parametrize("version", ["3.1.1", "5.0"])
def test_a_broker_that_restarts_gets_each_message_once(lab: Lab, version: str) -> None:
    port = free_port()
    lab.write(
        "mosquitto.conf",
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
        f"persistence_location {lab.base}/\nmax_inflight_messages 5\nmax_queued_messages 0\nuser root\n",
    )

    def broker() -> subprocess.Popen[str]:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        child = lab.spawn("mosquitto", "-c", str(lab.base / "mosquitto.conf"), **quiet)
        until(lambda: not _refused(port), 60, "mosquitto does not listen")
        return child

    # a witness that is away all the while: the broker keeps for it what it took, over its restart too
    witness = (
        "mosquitto_sub",
        "-p",
        str(port),
        "-i",
        "witness",
        "-c",
        "-q",
        "2",
        "-t",
        "n",
        "-V",
        "mqttv311",
    )
    first = broker()
    sh(*witness, "-E")
    mqtt = {
        **(KEPT if version == "5.0" else BACK | {"clean_session": False, "payload": "{seq}"}),
        # in 5.0 the broker says that it takes no more than 5 at a time; in 3.1.1 it hangs up on more
        "max_inflight": 20 if version == "5.0" else 5,
        "version": version, "qos": 2, "topic": "n", "interval": "5ms", "count": 600,
    }  # fmt: skip
    document = profile(flow(f"mqtt://127.0.0.1:{port}", "dev", {"mqtt": mqtt}), measure="8s")
    document["phases"] |= {"warmup": "0s", "drain": "30s"}
    running = lab.start("run", lab.write("p.json", document))
    lab.sampled(delivered=50)
    first.send_signal(signal.SIGTERM)
    first.wait(30)
    broker()
    done = lab.wait(running)
    assert done.code == 0, done.text
    dev = total(done, "dev")
    assert dev.messages_sent == dev.messages_delivered == 600, dev
    assert (dev.sessions_resumed, dev.flows_completed) == (1, 1)
    assert sorted(map(int, sh(*witness, "-C", "600").split())) == list(range(600)), "each once"


def _refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return True
    return False


def test_a_request_is_repeated_with_the_echo_option_that_the_server_gave(
    lab: Lab,
) -> None:
    odd = Odd(lab, "coap", socket.SOCK_DGRAM)
    coap = {"path": "/lock", "interval": "200ms", "count": 3}
    done = run(lab, flow(f"coap://127.0.0.1:{odd.port}", "get", {"coap": coap}))
    get = total(done, "get")
    assert get.messages_sent == get.messages_delivered == get.echo_challenges == 3
    assert get.failures == {}
    (port,) = {first for first, *_ in json.loads((lab.base / "coap.json").read_text()) if first != "begin"}
    asked = odd.seen(port)
    # repeats because of a slow machine aside
    assert [known for known, _ in asked if not known].count(False) >= 3
    assert {value for known, value in asked if known} == {f"{port:04x}010203"}
    # the server takes 50 ms for each answer: the delay counts from when the request was due, over both
    assert done.trial.groups[0].delays["response"].min >= 100e6
