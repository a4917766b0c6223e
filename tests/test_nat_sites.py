"""Public addresses of sites by DHCP between real hosts: one Kea for subscribers, another for their NAT."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, Popen
from typing import Any

import pytest
from lab import Lab, root, sh, until

pytestmark = root

ROUTER, SERVER, PUBLIC, PRIVATE = (
    "203.0.113.1",
    "198.51.100.9",
    "203.0.113.100",
    "10.0.0.100",
)
MAC = "02:4e:44:00:00:00"
LEASE = 10
"""Seconds of a public lease: it is to be lost while we wait."""
HOOK = """#!/bin/sh
case "$1" in bound)
    ip -4 address replace "$ip/24" dev "$interface"
    ip -4 route replace default via "$router" dev "$interface" ;;
esac
"""
WEB = """
import http.server
class Who(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        told = self.client_address[0].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)
http.server.HTTPServer(("198.51.100.9", 8000), Who).serve_forever()
"""
"""Tells each client how it is seen."""
SURF = "import urllib.request; print(urllib.request.urlopen('http://198.51.100.9:8000', timeout=30).read().decode())"
SNIFF = """
import socket
own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
own.bind(("o0", 0))
print("up", flush=True)
while True:
    frame = own.recv(2048)
    if frame[23] == 1 and frame[34] == 8:
        print(frame[6:12].hex(":"), socket.inet_ntoa(frame[26:30]), flush=True)
        break
"""
"""Tells from which addresses the first echo request comes."""


class Sites:
    """A subscriber and its DHCP server on a bridge, the box, and the world with its DHCP server."""

    def __init__(self, folder: Path) -> None:
        tag = f"nds{os.getpid()}x{time.monotonic_ns() % 100000}"
        self.folder = folder
        self.subscriber, self.access, self.box, self.world = (
            f"{tag}-{part}" for part in ("sub", "acc", "box", "out")
        )
        self.spaces = (self.subscriber, self.access, self.box, self.world)
        self.children: list[Popen[str]] = []

    def up(self) -> None:
        """Make them."""
        for space in self.spaces:
            sh("ip", "netns", "add", space)
            sh(
                "ip",
                "netns",
                "exec",
                space,
                "sysctl",
                "-qw",
                "net.ipv6.conf.default.disable_ipv6=1",
            )
            sh("ip", "-n", space, "link", "set", "lo", "up")
        cables = (
            (self.access, "sub", self.subscriber, "s0"),
            (self.access, "box", self.box, "in0"),
            (self.world, "o0", self.box, "out0"),
        )
        for near, name, far, peer in cables:
            sh(
                "ip",
                "-n",
                near,
                "link",
                "add",
                name,
                "type",
                "veth",
                "peer",
                peer,
                "netns",
                far,
            )
            for space, link in ((near, name), (far, peer)):
                off = (
                    "tso",
                    "off",
                    "gso",
                    "off",
                    "gro",
                    "off",
                    "tx",
                    "off",
                    "rx",
                    "off",
                )
                sh("ip", "netns", "exec", space, "ethtool", "-K", link, *off)
                sh("ip", "-n", space, "link", "set", link, "up")
        sh("ip", "-n", self.access, "link", "add", "br0", "type", "bridge")
        for port in ("sub", "box"):
            sh("ip", "-n", self.access, "link", "set", port, "master", "br0")
        sh("ip", "-n", self.access, "link", "set", "br0", "up")
        sh("ip", "-n", self.access, "addr", "add", "10.0.0.1/24", "dev", "br0")
        sh("ip", "-n", self.world, "addr", "add", f"{ROUTER}/24", "dev", "o0")
        sh("ip", "-n", self.world, "addr", "add", f"{SERVER}/32", "dev", "lo")
        self.start(self.world, sys.executable, "-c", WEB)

    def down(self) -> None:
        """Take them away."""
        for space in self.spaces:
            for pid in sh("ip", "netns", "pids", space, check=False).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            sh("ip", "netns", "del", space, check=False)
        for child in self.children:
            child.wait(10)

    def start(self, space: str, *command: str, **more: Any) -> Popen[str]:
        """Start something in a namespace."""
        child = Popen(
            ("ip", "netns", "exec", space, *command),
            stdout=PIPE,
            stderr=DEVNULL,
            text=True,
            **more,
        )
        self.children.append(child)
        return child

    def kea(
        self,
        name: str,
        space: str,
        interface: str,
        first: str,
        router: str,
        seconds: int,
    ) -> Popen[str]:
        """A DHCP server that gives addresses from `first` on, and is ready."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        network = first.rpartition(".")[0]
        settings = {
            "interfaces-config": {"interfaces": [interface], "dhcp-socket-type": "raw"},
            "lease-database": {
                "type": "memfile",
                "persist": True,
                "name": str(folder / "leases.csv"),
            },
            "valid-lifetime": seconds,
            "authoritative": True,
            "subnet4": [
                {
                    "id": 1,
                    "subnet": f"{network}.0/24",
                    "pools": [{"pool": f"{first} - {network}.199"}],
                    "option-data": [{"name": "routers", "data": router}],
                }
            ],
            "loggers": [
                {
                    "name": "kea-dhcp4",
                    "severity": "INFO",
                    "output_options": [{"output": "stdout"}],
                }
            ],
        }
        (folder / "kea.json").write_text(json.dumps({"Dhcp4": settings}))
        # copies: AppArmor's rules are for the paths where they are installed
        kea, lfc = (shutil.copy(f"/usr/sbin/{program}", folder) for program in ("kea-dhcp4", "kea-lfc"))
        environment = {
            "KEA_PIDFILE_DIR": str(folder), "KEA_LOCKFILE_DIR": "none", "KEA_LFC_EXECUTABLE": lfc,
        }  # fmt: skip
        with (folder / "log").open("w") as log:
            command = (
                "ip",
                "netns",
                "exec",
                space,
                kea,
                "-c",
                str(folder / "kea.json"),
            )
            child = Popen(
                command,
                stdout=log,
                stderr=STDOUT,
                text=True,
                env=os.environ | environment,
            )
        self.children.append(child)
        until(
            lambda: "DHCP4_STARTED" in (folder / "log").read_text(),
            30,
            f"{name} is not ready",
        )
        return child

    def boot(self) -> None:
        """Let the subscriber ask for its address."""
        hook = self.folder / "hook"
        hook.write_text(HOOK)
        hook.chmod(0o755)
        self.inside("ip", "link", "set", "s0", "up")
        self.inside("udhcpc", "-n", "-q", "-i", "s0", "-t", "20", "-T", "1", "-s", str(hook))

    def inside(self, *command: str, check: bool = True) -> str:
        """Run something as the subscriber."""
        return sh("ip", "netns", "exec", self.subscriber, *command, check=check)

    def reaches(self) -> bool:
        """Whether the subscriber reaches the server."""
        return "1 received" in self.inside("ping", "-c1", "-W1", SERVER, check=False)


@pytest.fixture
def sites(lab: Lab) -> Iterator[Sites]:
    made = Sites(lab.base)
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.mark.sampled(4, of="NATs that run for a while")
@pytest.mark.limit(180)
def test_a_site_boots_surfs_loses_its_lease_and_comes_back(lab: Lab, sites: Sites) -> None:
    private = sites.kea("private", sites.access, "br0", PRIVATE, "10.0.0.254", 3600)
    public = sites.kea("public", sites.world, "o0", PUBLIC, ROUTER, LEASE)
    name = f"s{os.getpid()}"
    file = lab.write(
        "nat.json",
        {
            "format": "netdyno-nat/1",
            "name": name,
            # whichever worker has the site
            "workers": 2,
            "inside": {"device": "af_packet:in0", "ip": "10.0.0.254/24"},
            "outside": {"device": "af_packet:out0", "ip": "203.0.113.2/24", "gateway": ROUTER},
            "sites": {
                "most": 16, "by": "vlan", "least_lease": "1s", "known": str(lab.base / "sites.json"),
            },
            "leases": {"file": str(sites.folder / "private" / "leases.csv"), "server": "kea"},
        },
    )  # fmt: skip
    child = lab.start(
        "nat",
        "run",
        file,
        "--for",
        "240s",
        "-q",
        prefix=("ip", "netns", "exec", sites.box),
    )
    sites.boot()
    sniff = sites.start(sites.world, sys.executable, "-c", SNIFF)
    assert sniff.stdout and sniff.stdout.readline() == "up\n"
    until(sites.reaches, 60, "no way out")
    # the world sees the address that it gave, and the site's MAC address
    assert sniff.stdout.readline().split() == [MAC, PUBLIC]
    assert sites.inside(sys.executable, "-c", SURF).strip() == PUBLIC
    neighbour = sh("ip", "-n", sites.world, "neigh", "show", PUBLIC)
    assert f"lladdr {MAC}" in neighbour

    def asked(verb: str) -> Any:
        return json.loads(lab.good("nat", verb, name, "--json").out)[verb]

    (site,) = asked("sites")
    assert (site["site"], site["mac"], site["address"]) == ("VLAN none", MAC, PUBLIC)
    assert (site["server"], site["subscribers"]) == (ROUTER, 1)
    assert {one["outside"].partition(":")[0] for one in asked("sessions")} == {PUBLIC}
    assert [one["outside"] for one in asked("subscribers")] == [PUBLIC]
    status = json.loads(lab.good("nat", "status", name, "--json").out)["workers"]
    assert [one["addresses"] for one in status] == [site["worker"] == i for i in range(2)]
    # the server is gone: the lease is over, and with it the address and all sessions
    public.kill()
    public.wait(10)
    until(lambda: asked("sites")[0]["address"] is None, 60, "it keeps its address")
    until(lambda: not asked("sessions"), 60, "sessions are left")
    assert not sites.reaches()
    # it is back: the site has its address again
    sites.kea("public", sites.world, "o0", PUBLIC, ROUTER, LEASE)
    until(sites.reaches, 60, "it does not come back")
    assert asked("sites")[0]["address"] == PUBLIC
    assert private.poll() is None
    child.send_signal(signal.SIGTERM)
    done = lab.wait(child)
    assert done.code == 0, done.text
    (known,) = json.loads((lab.base / "sites.json").read_text())["sites"]
    assert (known["mac"], known["address"], known["bound"]) == (MAC, PUBLIC, True)
    lab.clean()
