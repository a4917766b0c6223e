"""Devices of a fleet have the numbers that they would have on one host: servers tell users and clients apart."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

from fleet_lab import SERVER, FleetLab
from lab import Lab, root, sh, tshark, until

pytestmark = root
USERS = 300
MOSQUITTO = "listener 1883 {address}\nallow_anonymous true\nlog_dest stderr\nlog_type notice\n"


def group(name: str, target: str, model: dict[str, Any], devices: int, **more: Any) -> dict[str, Any]:
    """Devices that each have one flow."""
    load = {"closed": {"flows": 1}}
    return {"name": name, "target": target, "model": model, "devices": devices, "load": load} | more


def test_sip_users_clients_and_rows_of_tables_are_each_of_one_device(lab: Lab) -> None:
    fleet = FleetLab(lab)
    registrar = lab.start(
        "sip", "serve", "proxy", "--listen", f"{SERVER}:5060", "--domain", "example.net", prefix=fleet.prefix
    )
    conf = lab.write("m.conf", MOSQUITTO.format(address=SERVER))
    broker = lab.spawn(*fleet.prefix, "mosquitto", "-c", conf, stderr=(lab.base / "broker.log").open("w"))
    capture = lab.base / "sip.pcap"
    words = ("-q", "-i", "br0", "-f", "udp port 5060", "-w", str(capture))
    witness = lab.spawn(*fleet.prefix, "tshark", *words)
    for port in ("5060", "1883"):
        until(
            lambda p=port: f"{SERVER}:{p}" in sh("ss", "-Hltn", "-N", fleet.server),
            60,
            f"no server at {port}",
        )
    until(capture.exists, 60, "nothing is captured")
    lab.write("people.csv", "name\n" + "".join(f"p{number:03}\n" for number in range(40)))
    profile = {
        "name": "numbers",
        "phases": {"warmup": "0s", "measure": "4s", "drain": "5s", "sample": "500ms"},
        "validity": {"lateness_p99": "60s", "offered": 0.001, "starved": 1.0},
        "data": {"people": "people.csv"},
        "targets": {"registrar": f"sip://{SERVER}"},
        "groups": [
            group("phones", "registrar", {"sip": {"domain": "example.net", "t1": "4s"}}, USERS),
            group(
                "sensors", f"mqtt://{SERVER}", {"mqtt": {"client_id": "s{device}", "interval": "1s"}}, 60,
                first_device=1000, total=60,
            ),
            group("web", f"http://{SERVER}", {"http": {"path": "/{people.name}", "interval": "1s"}}, 40, total=40),
        ],
    }  # fmt: skip
    fleet.up(fleet.local())
    done = fleet.run("run", lab.write("numbers.json", profile), "--fleet", fleet.name, "-q")
    assert done.code == 0, done.text
    assert [one.measured.messages_delivered for one in done.trial.groups] == [USERS, 60, 40]
    # each host had a part of each
    assert all(set(one.devices) == {"phones", "sensors", "web"} for one in done.trial.hosts)
    for server in (witness, registrar, broker):
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)
    shown = tshark(capture, 'sip.Method == "REGISTER"', "sip.from.user", "sip.CSeq.seq")
    # a request that was sent again is the same request
    registered = Counter(user for user, _ in {tuple(row) for row in shown})
    assert registered == Counter(f"user{number}" for number in range(USERS))
    clients = Counter(
        line.split(" as ")[1].split()[0]
        for line in (lab.base / "broker.log").read_text().splitlines()
        if "New client connected" in line
    )
    assert clients == Counter(f"s{number}" for number in range(1000, 1060))
    asked = [line.split()[3] for line in (lab.base / "access.log").read_text().splitlines()]
    assert Counter(asked) == Counter(f"/p{number:03}" for number in range(40))
    assert fleet.run("fleet", "down", fleet.name).code == 0
    fleet.clean()
