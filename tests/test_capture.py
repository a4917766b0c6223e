"""The capture as somebody with Wireshark sees it: the paper's figure 4, on real packets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab import (
    MQTT,
    ROOT,
    Done,
    Lab,
    Wire,
    experiment,
    group,
    profile,
    root,
    sh,
    tshark,
)

pytestmark = root

DIALOGUE = ["1", "2", "3", "4", "3", "4", "3", "4", "14"]
"""CONNECT, CONNACK, three PUBLISH each with its PUBACK, DISCONNECT."""


def captured(lab: Lab, document: dict[str, Any], *arguments: str, **duts: Any) -> tuple[Done, Path]:
    done = lab.good("run", lab.write("e.json", experiment(document, **duts)), *arguments)
    assert done.folder
    assert done.result.files.capture == "capture.pcapng"
    assert "capture " in done.out
    return done, done.folder / "capture.pcapng"


def test_one_device_of_the_preset_is_figure_4(lab: Lab) -> None:
    document = json.loads((ROOT / "profiles" / "mqtt-t4.json").read_text())
    document["groups"][0]["devices"] = 1
    document["groups"][0]["load"] = {"closed": {"flow_interval": "10s"}}
    document["validity"] = profile()["validity"]
    document["phases"] = {"warmup": "0s", "measure": "1s", "drain": "2s"}
    document["thresholds"] = [
        {"metric": "sensors.loss", "max": 0},
        {"metric": "sensors.errors", "max": 0},
    ]
    _, capture = captured(lab, document, "--capture", broker="mosquitto")
    rows = tshark(
        capture,
        "mqtt",
        "tcp.stream",
        "ip.src",
        "mqtt.msgtype",
        "mqtt.qos",
        "mqtt.msgid",
        "mqtt.topic",
    )
    ours = [row for row in rows if row[0] == rows[0][0]]
    # the broker's own counters are read over other streams
    assert [row[2] for row in ours] == DIALOGUE
    generator, broker = "10.92.0.1", "10.92.0.2"
    assert [row[1] for row in ours] == [generator, broker] * 4 + [generator]
    assert [row[3] for row in ours if row[2] == "3"] == ["1", "1", "1"]
    assert [row[5] for row in ours if row[2] == "3"] == ["nd/0"] * 3
    numbers = [row[4] for row in ours if row[2] == "3"]
    assert numbers == [row[4] for row in ours if row[2] == "4"]
    assert len(set(numbers)) == 3
    # from the first SYN to the end of the connection
    # whole: no side acknowledges or continues what is not there; a retransmission, on a busy machine, is
    holes = ("tcp.analysis.lost_segment", "tcp.analysis.ack_lost_segment")
    stream = tshark(capture, f"tcp.stream == {rows[0][0]}", "tcp.flags.syn", "tcp.flags.fin", *holes)
    assert [row[0] for row in stream[:2]] == ["1", "1"]
    assert any(row[1] == "1" for row in stream)
    assert not any(row[2] or row[3] for row in stream)


def test_stamps_have_nanoseconds(lab: Lab) -> None:
    document = profile(group("alive", "host", {"ping": {"interval": "20ms"}}, 2))
    document["targets"] = {"host": "ping://10.92.0.2"}
    _, capture = captured(lab, document, "--capture")
    stamps = [row[0] for row in tshark(capture, "icmp", "frame.time_epoch")]
    assert len(stamps) > 50
    assert all(len(stamp.partition(".")[2]) == 9 for stamp in stamps)
    # a clock of microseconds would end all of them in 000
    assert sum(not stamp.endswith("000") for stamp in stamps) > len(stamps) / 2
    assert stamps == sorted(stamps)
    about = sh("capinfos", "-t", "-s", "-c", "-E", "-l", str(capture))
    assert "pcapng" in about
    assert "Ethernet" in about


def test_filter_and_limit_are_honoured(lab: Lab) -> None:
    document = profile(
        group("alive", "host", {"ping": {"interval": "20ms"}}, 2),
        group("voice", "reflector", {"stream": {"rate": "500/s", "size": "1000B"}}),
        targets={"host": "ping://10.92.0.2"},
        capture={
            "interface": "gen0",
            "filter": "udp port 7",
            "limit": "64KiB",
            "snap": 128,
        },
    )
    done, capture = captured(lab, document, reflector="reflector")
    rows = tshark(capture, "frame", "frame.protocols", "frame.len", "frame.cap_len")
    # some tens of bytes around 128 of each packet
    assert (64 << 10) // (128 + 64) < len(rows) < (64 << 10) // 128
    assert all("udp" in row[0] and "icmp" not in row[0] for row in rows)
    # several datagrams may leave in one buffer, which the cable sees as one packet
    assert {int(row[1]) % 1000 for row in rows} == {42}
    assert {row[2] for row in rows} == {"128"}
    # the file has a head besides
    assert 60 << 10 < capture.stat().st_size <= (64 << 10) + 512
    about = done.trial.capture
    assert about
    assert (about.state, about.packets, about.interface, about.dropped) == (
        "full",
        len(rows),
        "gen0",
        0,
    )
    assert "the capture is full" in done.err


def test_the_command_line_gives_the_filter(lab: Lab, cable: Wire) -> None:
    document = profile(group("alive", f"ping://{Wire.FAR}", {"ping": {"interval": "100ms"}}))
    arguments = ["--capture-filter", "icmp[icmptype] == icmp-echoreply"]
    done = lab.good("run", lab.write("p.json", document), *arguments, prefix=cable.at_near)
    assert done.folder
    rows = tshark(done.folder / "capture.pcapng", "frame", "icmp.type")
    assert len(rows) == done.trial.groups[0].total.messages_delivered
    assert {row[0] for row in rows} == {"0"}


@pytest.mark.parametrize(
    ("capture", "code", "said"),
    [
        ({"interface": "nothere"}, 92, "ND-92-08"),
        ({"interface": "w0", "filter": "tcp prot 1"}, 104, "capture.filter"),
    ],
)
def test_what_cannot_be_captured_is_said(
    lab: Lab, cable: Wire, capture: dict[str, str], code: int, said: str
) -> None:
    document = profile(group("alive", f"ping://{Wire.FAR}", {"ping": {}}), capture=capture)
    done = lab.run("run", lab.write("p.json", document), prefix=cable.at_near)
    assert done.code == code, done.text
    assert said in done.err
    lab.clean()


def test_without_being_asked_nothing_is_captured(lab: Lab, cable: Wire) -> None:
    document = profile(group("sensors", f"mqtt://{Wire.FAR}", MQTT))
    done = lab.run(
        "run",
        lab.write("p.json", document),
        "--duration",
        "500ms",
        prefix=cable.at_near,
    )
    assert done.folder
    assert not list(done.folder.glob("*.pcapng"))
    assert done.result.files.capture is None


def test_the_interface_of_a_port_that_carries_devices_shows_both_directions(lab: Lab) -> None:
    load = {"open": {"rate": "5/s"}}
    http = group("web", "http://10.92.0.2", {"http": {"path": "/64", "requests": 1}}, devices=5, load=load)
    device = "af_packet:gen0,qdisc_bypass=0"
    made = profile(http, capture={"interface": "gen0", "filter": "tcp port 80"})
    made["transport"] = {"dpdk": {"ports": [{"name": "a", "device": device, "ip": "10.92.0.1/24"}]}}
    document = experiment(made, web="nginx")
    near, far = (document["legs"][0]["topology"]["links"][0][end] for end in "ab")
    # the address is the port's, and what the kernel sends has whole checksums
    near["addresses"], far["offloads"] = [], {"tx": False}
    done = lab.run("run", lab.write("e.json", document))
    assert done.folder, done.text
    (web,) = done.trial.groups
    count = web.total.messages_delivered
    assert count and not web.total.failures, done.text
    file = done.folder / "capture.pcapng"
    asked, answered = (tshark(file, shown, "ip.src") for shown in ("http.request", "http.response"))
    assert asked == [["10.92.0.1"]] * count and answered == [["10.92.0.2"]] * count
    # each connection from its SYN to both FINs, and nothing that is not TCP as it should be
    begun = "tcp.flags.syn == 1 && tcp.flags.ack == 0 && !tcp.analysis.retransmission"
    assert len(tshark(file, begun, "ip.src")) == count
    assert len(tshark(file, "tcp.flags.fin == 1 && !tcp.analysis.retransmission", "ip.src")) == 2 * count
    assert tshark(file, "_ws.malformed", "frame.number") == []
    lab.clean()
