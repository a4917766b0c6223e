"""A NAT ends in no silence: a full disk below its state, records that no collector has, another NAT on its devices, files of others."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

from lab import Done, Lab, root, until
from nat_hosts import ECHO, SERVER, Hosts, configuration

from netdyno.system import namespace

pytestmark = root

PING = ("ping", "-c1", "-W1", "-I", "10.0.0.1", SERVER)


def within(hosts: Hosts) -> tuple[str, ...]:
    return ("ip", "netns", "exec", hosts.box)


def begun(lab: Lab, hosts: Hosts, file: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A NAT that carries something."""
    child = lab.start("nat", "run", file, "--for", "240s", "-q", prefix=prefix or within(hosts))

    def passes() -> bool:
        assert child.poll() is None, lab.wait(child).text
        return "1 received" in hosts.from_inside(*PING, check=False)

    until(passes, 60, "no way out")
    return child


def ended(lab: Lab, child: subprocess.Popen[str]) -> Done:
    child.send_signal(signal.SIGTERM)
    return lab.wait(child)


def test_a_full_disk_is_said(lab: Lab, hosts: Hosts) -> None:
    small = lab.base / "small"
    small.mkdir()
    state = small / "cgn.state"
    file = lab.write("nat.json", configuration(f"e{os.getpid()}", state=str(state)))
    # mounted where nobody else sees it, and full before the NAT ends
    mounted = f'mount -t tmpfs -o size=64k none {small} && exec "$@"'
    prefix = (*within(hosts), "unshare", "-m", "sh", "-c", mounted, "sh")
    child = begun(lab, hosts, file, prefix)
    there = Path(f"/proc/{child.pid}/root{small}/filler")
    with there.open("wb") as filler:
        try:
            while True:
                os.write(filler.fileno(), bytes(4096))
        except OSError:
            pass
    done = ended(lab, child)
    assert done.code == 92, done.text
    assert "ND-92-18" in done.err and "No space left" in done.err and str(state) in done.err
    lab.clean()


def test_records_that_no_collector_confirmed_are_said(lab: Lab, hosts: Hosts) -> None:
    name = f"e{os.getpid()}"
    # nobody listens there
    log = {"syslog": "tcp://127.0.0.1:4514", "ipfix": "127.0.0.1:4739", "sessions": True}
    file = lab.write("nat.json", configuration(name, log=log))
    done = ended(lab, begun(lab, hosts, file))
    assert done.code == 91, done.text
    assert "ND-91-03" in done.err and "were not confirmed by tcp://127.0.0.1:4514" in done.err
    # and that is said too when the daemon is stopped with the command, as a service manager does
    child = begun(lab, hosts, file)
    for pid in [*lab.processes()]:
        if "netdynod" in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGTERM)
    done = ended(lab, child)
    assert done.code == 91 and "ND-91-03" in done.err, done.text
    lab.clean()


def test_a_second_nat_on_the_devices_is_refused(lab: Lab, hosts: Hosts) -> None:
    name = f"e{os.getpid()}"
    file = lab.write("nat.json", configuration(name))
    child = begun(lab, hosts, file)
    other = configuration(f"{name}-b", inside={"device": "af_xdp:in0", "ip": "10.0.0.253/24"})
    refused = lab.run("nat", "run", lab.write("other.json", other), "--for", "1s", prefix=within(hosts))
    assert refused.code == 92 and "another NAT, process" in refused.err, refused.text
    assert "inside.device" in refused.err
    # who was killed is in nobody's way
    for pid in lab.processes():
        os.kill(pid, signal.SIGKILL)
    lab.wait(child)
    lab.good("restore")
    assert ended(lab, begun(lab, hosts, file)).code == 0
    lab.clean()


def test_files_of_others_stay(lab: Lab, hosts: Hosts) -> None:
    letters, link, fifo = (lab.base / name for name in ("letters", "link", "fifo"))
    letters.write_text("somebody's letters")
    link.symlink_to(letters)
    os.mkfifo(fifo)
    for number, path in enumerate((letters, link, fifo)):
        settings = configuration(f"e{os.getpid()}-{number}", state=str(path))
        done = lab.run("nat", "run", lab.write("nat.json", settings), "--for", "1s", prefix=within(hosts))
        assert done.code == 104 and "state" in done.err and str(path) in done.err, done.text
    old = lab.base / "new.state.old"
    old.write_text("more letters")
    settings = configuration(f"e{os.getpid()}-old", state=str(lab.base / "new.state"))
    done = lab.run("nat", "run", lab.write("nat.json", settings), "--for", "1s", prefix=within(hosts))
    assert done.code == 104 and "another program's file" in done.err, done.text
    assert (letters.read_text(), old.read_text()) == ("somebody's letters", "more letters")
    lab.clean()


class Collectors(threading.Thread):
    """Keep what comes: IPFIX messages one after another in a file (RFC 5655), and a stream of syslog."""

    def __init__(self, space: str, folder: Path) -> None:
        super().__init__(daemon=True)
        self.ipfix, self.syslog = folder / "nat.ipfix", folder / "nat.syslog"

        def opened() -> tuple[socket.socket, socket.socket]:
            datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            datagrams.bind(("127.0.0.1", 4739))
            return datagrams, socket.create_server(("127.0.0.1", 4514))

        self.datagrams, self.server = namespace.inside(space, opened)

    def run(self) -> None:
        other = threading.Thread(target=self._stream, daemon=True)
        other.start()
        with self.ipfix.open("ab") as file:
            while message := self.datagrams.recv(65535):
                file.write(message)
                file.flush()

    def _stream(self) -> None:
        with self.syslog.open("ab") as file:
            while True:
                own, _ = self.server.accept()
                while part := own.recv(65535):
                    file.write(part)
                    file.flush()


def test_who_it_was_is_what_the_server_saw(lab: Lab, hosts: Hosts) -> None:
    folder = lab.base / "logs"
    folder.mkdir()
    collectors = Collectors(hosts.box, folder)
    collectors.start()
    log = {"syslog": "tcp://127.0.0.1:4514", "ipfix": "127.0.0.1:4739", "sessions": True}
    kept = lab.base / "nfcapd"
    kept.mkdir()
    file = lab.write("nat.json", configuration(f"e{os.getpid()}", log=log))
    child = begun(lab, hosts, file)
    server = hosts.script(hosts.world, ECHO, SERVER)
    assert server.stdout and server.stdout.readline() == "up\n"
    seen = {}
    for inside in ("10.0.0.1", "10.0.0.2"):
        asked = hosts.from_inside("python3", "-c", ASK, inside, SERVER)
        seen[inside] = json.loads(asked)
    server.kill()
    server.wait()
    done = ended(lab, child)
    assert done.code == 0, done.text
    # the collector of UDP confirms nothing, which is said
    assert "by UDP: nobody confirms" in done.err, done.text
    for inside, (when, (outside, port)) in seen.items():
        for logs in (collectors.ipfix, collectors.syslog, folder):
            words = (f"{outside}:{port}", str(logs), "--at", when, "--protocol", "udp", "--json")
            found: dict[str, Any] = json.loads(lab.good("nat", "who", *words, "--tolerance", "1s").out)
            assert found["subscribers"] == [{"inside": inside, "vlans": []}], (inside, logs, found)
            assert {one["by"] for one in found["found"]} == {"session", "port block"}
    lab.clean()


ASK = """
import datetime, json, socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind((sys.argv[1], 0))
own.settimeout(1)
while True:
    own.sendto(b"who am I", (sys.argv[2], 3478))
    try:
        seen = json.loads(own.recv(2048))
        break
    except TimeoutError:
        pass
print(json.dumps([datetime.datetime.now(datetime.timezone.utc).isoformat(), seen]))
"""
"""How a server sees it, and when."""
