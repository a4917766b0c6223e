"""Our numbers against those of witnesses that know nothing of us: exactly, where both count the same thing."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab import (
    MQTT,
    NETDYNOD,
    Lab,
    Wire,
    experiment,
    group,
    profile,
    root,
    sh,
    tshark,
    until,
)

from netdyno.core.result import Repetition

pytestmark = root


def totals(trial: Repetition, name: str) -> Any:
    return next(g.total for g in trial.groups if g.name == name)


def broker(lab: Lab, cable: Wire) -> None:
    """A mosquitto of the test's own."""
    text = (
        f"listener 1883 {Wire.FAR}\nallow_anonymous true\nsys_interval 1\nmax_queued_messages 0\nuser root\n"
    )
    lab.spawn(
        *cable.at_far,
        "mosquitto",
        "-c",
        lab.write("m.conf", text),
        stderr=subprocess.DEVNULL,
    )
    until(
        lambda: ":1883" in sh(*cable.at_far, "ss", "-Hltn"),
        60,
        "mosquitto does not listen",
    )


def received(cable: Wire) -> int:
    """`$SYS`: PUBLISH packets received so far, as of the last second."""
    topic = "$SYS/broker/publish/messages/received"
    seen = sh(
        *cable.at_far,
        "mosquitto_sub",
        "-h",
        Wire.FAR,
        "-t",
        topic,
        "-C",
        "1",
        "-W",
        "60",
    )
    return int(seen.split()[-1])


def settled(cable: Wire, least: int) -> int:
    """The broker publishes `$SYS` once a second, and only what changed."""
    until(lambda: received(cable) >= least, 60, f"the broker does not count up to {least}")
    return received(cable)


def test_mqtt_is_what_the_broker_a_subscriber_the_cable_and_tshark_saw(lab: Lab, cable: Wire) -> None:
    broker(lab, cable)
    seen = lab.base / "seen"
    with seen.open("w") as sink:
        lab.spawn(
            *cable.at_far, "mosquitto_sub", "-h", Wire.FAR, "-t", "nd/#", "-q", "1", "-F", "%t %q",
            stdout=sink, bufsize=0,
        )  # fmt: skip
        until(
            lambda: "ESTAB" in sh(*cable.at_far, "ss", "-Htn"),
            60,
            "mosquitto_sub does not connect",
        )
        document = profile(
            group(
                "sensors",
                f"mqtt://{Wire.FAR}",
                MQTT,
                40,
                load={"closed": {"flow_interval": "300ms"}},
            ),
            capture={"interface": "w0", "limit": "64MiB"},
        )
        done = lab.good("run", lab.write("p.json", document), prefix=cable.at_near)
        total = totals(done.trial, "sensors")
        sent = total.messages_sent
        assert sent > 100
        assert sent == total.messages_delivered
        assert total.flows_failed == 0
        # the broker's own count
        assert settled(cable, sent) == sent
        # a subscriber's
        until(
            lambda: seen.read_text().count("\n") >= sent,
            60,
            "the subscriber does not see all",
        )
    lines = seen.read_text().splitlines()
    assert len(lines) == sent
    assert {line.split()[0] for line in lines} == {f"nd/{device}" for device in range(40)}
    # tshark's: the capture covers the whole run
    assert done.folder
    kinds = [
        k for row in tshark(done.folder / "capture.pcapng", "mqtt", "mqtt.msgtype") for k in row[0].split(",")
    ]
    assert kinds.count("3") == sent
    assert kinds.count("4") == total.messages_delivered
    assert kinds.count("1") == kinds.count("2") == total.flows_started
    assert kinds.count("14") == total.flows_completed
    # per device, the same sums
    rows = (done.folder / "flows.csv").read_text().splitlines()[1:]
    assert sum(int(row.split(",")[6]) for row in rows) == sent


NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log stderr; user root;
events {{ worker_connections 1000; }}
http {{
  log_format line '$request_method $uri $status $body_bytes_sent';
  access_log {folder}/access line;
  keepalive_requests 1000000;
  server {{
    listen {address}:80;
    location = /status {{ stub_status; access_log off; }}
    location / {{ return 200 "twelve bytes"; }}
  }}
}}
"""


def test_http_is_what_nginx_counted_and_logged(lab: Lab, cable: Wire) -> None:
    configuration = lab.write("nginx.conf", NGINX.format(folder=lab.base, address=Wire.FAR))
    lab.spawn(*cable.at_far, "nginx", "-p", str(lab.base), "-e", "stderr", "-c", configuration)
    until(lambda: ":80 " in sh(*cable.at_far, "ss", "-Hltn"), 60, "nginx does not listen")

    def requests() -> int:
        text = sh(*cable.at_far, "curl", "-s", f"http://{Wire.FAR}/status")
        return int(text.splitlines()[2].split()[2])

    before = requests()
    model = {"http": {"path": "/some/thing", "interval": "50ms"}}
    document = profile(group("web", f"http://{Wire.FAR}", model, 8))
    done = lab.good("run", lab.write("p.json", document), prefix=cable.at_near)
    total = totals(done.trial, "web")
    assert total.messages_sent == total.messages_delivered > 100
    # less the witness's own second request
    assert requests() - before - 1 == total.messages_sent
    log = (lab.base / "access").read_text().splitlines()
    assert log == ["GET /some/thing 200 12"] * total.messages_sent
    codes = done.trial.groups[0].model_dump().get("statuses")
    assert codes is None or codes == {"200": total.messages_sent}


def test_datagrams_are_what_the_reflector_and_the_cable_counted(lab: Lab, cable: Wire) -> None:
    reflector = lab.spawn(*cable.at_far, NETDYNOD, "reflect", "--udp", "7", "--bind", Wire.FAR, bufsize=0)
    assert reflector.stdout
    assert "ready" in reflector.stdout.readline()
    near, far = cable.counters(cable.near, "w0"), cable.counters(cable.far, "w1")
    model = {"stream": {"size": "200B", "rate": "500/s", "echo": True}}
    document = profile(group("voice", f"udp://{Wire.FAR}:7", model, 4))
    done = lab.good("run", lab.write("p.json", document), prefix=cable.at_near)
    total = totals(done.trial, "voice")
    sent = total.messages_sent
    assert sent == total.messages_delivered > 1000
    near_after, far_after = (
        cable.counters(cable.near, "w0"),
        cable.counters(cable.far, "w1"),
    )
    # a datagram is a packet of 14 + 20 + 8 + 200 bytes, and nothing else was on the cable
    for way in ("tx", "rx"):
        assert near_after[f"{way}_packets"] - near[f"{way}_packets"] == sent
        assert far_after[f"{way}_packets"] - far[f"{way}_packets"] == sent
        assert near_after[f"{way}_bytes"] - near[f"{way}_bytes"] == sent * 242
        assert done.trial.interfaces["w0"][f"{way}_packets"] == sent
        assert done.trial.interfaces["w0"][f"{way}_bytes"] == sent * 242
    assert total.bytes_sent == total.bytes_received == sent * 200
    reflector.send_signal(signal.SIGTERM)
    counters = json.loads(reflector.communicate(timeout=60)[0].splitlines()[-1])
    assert counters["datagrams_received"] == counters["datagrams_sent"] == sent


def test_pings_are_what_the_kernel_counted(lab: Lab, cable: Wire) -> None:
    def echoes() -> tuple[int, int]:
        text = sh(*cable.at_far, "cat", "/proc/net/snmp").splitlines()
        names, values = (line.split()[1:] for line in text if line.startswith("Icmp:"))
        counts = dict(zip(names, map(int, values), strict=True))
        return counts["InEchos"], counts["OutEchoReps"]

    assert echoes() == (0, 0)
    document = profile(group("alive", f"ping://{Wire.FAR}", {"ping": {"interval": "50ms"}}, 5))
    done = lab.good("run", lab.write("p.json", document), prefix=cable.at_near)
    total = totals(done.trial, "alive")
    assert total.messages_sent == total.messages_delivered > 50
    assert echoes() == (total.messages_sent, total.messages_delivered)


def test_loss_doubles_and_disorder_are_told_apart(lab: Lab, cable: Wire) -> None:
    script = str(Path(__file__).with_name("bad_reflector.py"))
    reflector = lab.spawn(*cable.at_far, sys.executable, script, Wire.FAR, "7")
    assert reflector.stdout
    assert "ready" in reflector.stdout.readline()
    # each device sends 100: its tens come out even
    model = {"stream": {"rate": "100/s", "count": 100, "echo": True}}
    load = {"closed": {"flows": 1}}
    document = profile(group("voice", f"udp://{Wire.FAR}:7", model, 2, load=load), measure="1500ms")
    document["thresholds"] = [{"metric": "voice.loss", "max": 0}]
    done = lab.run("run", lab.write("p.json", document), prefix=cable.at_near)
    assert done.code == 99, done.text
    total = totals(done.trial, "voice")
    reflector.send_signal(signal.SIGTERM)
    theirs = json.loads(reflector.communicate(timeout=60)[0].splitlines()[-1])
    assert total.messages_sent == theirs["received"] == 200
    assert total.messages_delivered == 200 - theirs["lost"] == 180
    assert total.duplicates == theirs["doubled"] == 20
    assert total.reordered == theirs["late"] == 20
    assert done.folder
    rows = list(csv.DictReader((done.folder / "flows.csv").open()))
    assert [(row["duplicates"], row["reordered"]) for row in rows] == [("10", "10")] * 2
    [voice] = done.trial.groups
    order, measured = voice.reordering, voice.measured
    assert order is not None
    assert order.ratio == order.by_three == measured.reordered / measured.messages_delivered > 0
    assert (order.extent.count, order.extent.min, order.extent.max) == (
        measured.reordered,
        3,
        3,
    )
    assert 0 < order.late.min <= order.late.max < 1e9
    # the three that overtake one come a place too early, and it comes three too late
    density, losses = order.density, voice.losses
    assert set(density.displaced) == {-1, 0, 3}
    assert density.displaced[-1] == 3 * density.displaced[3] > 0
    assert sum(density.displaced.values()) == sum(density.waiting.values()) == measured.messages_delivered
    # one is lost of every ten, and each comes ten after the one before
    assert losses is not None
    lost = measured.messages_sent - measured.messages_delivered
    assert (
        losses.lost,
        losses.length.max,
        losses.distance.min,
        losses.distance.max,
    ) == (lost, 1, 10, 10)
    assert losses.noticeable == losses.distance.count / lost
    seen = [(row["longest_loss"], row["furthest"], int(row["loss_periods"])) for row in rows]
    assert [one[:2] for one in seen] == [("1", "3")] * 2
    assert sum(periods for *_, periods in seen) == losses.length.count


def test_the_drivers_own_witnesses_agree(lab: Lab) -> None:
    document = profile(
        group("sensors", "broker", MQTT, 20),
        group("web", "web", {"http": {"interval": "50ms"}}, 5),
        group("voice", "reflector", {"stream": {"rate": "100/s"}}, 3),
    )
    web = {"driver": "nginx", "host": "srv", "options": {"access_log": True}}
    wanted = experiment(document, broker="mosquitto", web=web, reflector="reflector")
    done = lab.good("run", lab.write("e.json", wanted))
    found = {w.what: w for w in done.trial.witnesses}
    assert len(found) == 3, found
    for what, witness in found.items():
        assert witness.agree, what
        assert witness.ours == witness.theirs > 0, what
    assert "agrees: " in done.out
    assert "DISAGREES" not in done.out
    # what left our end of the cable is what came in at the other
    assert done.trial.interfaces["gen0"]["tx_packets"] > 100
    assert Path(str(done.folder), "dut-broker.log").exists()
    lab.clean()
