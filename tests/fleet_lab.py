"""Three namespaces as three hosts of a fleet, and an nginx that counts who asked it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lab import NETDYNOD, Done, Lab, sh, until

HOSTS = {"a": "10.93.0.1", "b": "10.93.0.2", "c": "10.93.0.3"}
SERVER = "10.93.0.100"
NGINX = """\
daemon off; user root; pid {base}/nginx.pid; error_log stderr; worker_processes 1;
events {{ worker_connections 500; }}
http {{
  log_format who '$remote_addr $status $bytes_sent $request_uri $msec';
  access_log {base}/access.log who;
  keepalive_requests 1000000;
  server {{ listen {address}:80; location / {{ return 200 "ok"; }} }}
}}
"""
SSHD = """\
Port 22
ListenAddress {address}
HostKey {base}/host_key
PidFile none
AuthorizedKeysFile {base}/id.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 64
"""


class FleetLab:
    """Hosts on one bridge with the server; the command line runs where the server is."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.tag = f"ndf{os.getpid()}x{time.monotonic_ns() % 100000}"
        self.name = self.tag
        self.server = f"{self.tag}-s"
        self.noted: dict[str, dict[str, Any]] = {}
        """The agents that came up."""
        self.hidden: list[Path] = []
        """Files that hosts behind SSH do not have."""
        self.shell = ""
        """The login shell there."""
        lab.at_end(self.down)
        self._up()

    def space(self, host: str) -> str:
        """The namespace of a host."""
        return f"{self.tag}-{host}"

    def _up(self) -> None:
        sh("ip", "netns", "add", self.server)
        sh("ip", "-n", self.server, "link", "add", "br0", "type", "bridge")
        sh("ip", "-n", self.server, "addr", "add", f"{SERVER}/24", "dev", "br0")
        for name in ("lo", "br0"):
            sh("ip", "-n", self.server, "link", "set", name, "up")
        for host, address in HOSTS.items():
            space = self.space(host)
            sh("ip", "netns", "add", space)
            sh(
                "ip",
                "-n",
                self.server,
                "link",
                "add",
                f"v{host}",
                "type",
                "veth",
                "peer",
                "e0",
                "netns",
                space,
            )
            sh("ip", "-n", self.server, "link", "set", f"v{host}", "master", "br0", "up")
            sh("ip", "-n", space, "addr", "add", f"{address}/24", "dev", "e0")
            for name in ("lo", "e0"):
                sh("ip", "-n", space, "link", "set", name, "up")
        config = self.lab.write("nginx.conf", NGINX.format(base=self.lab.base, address=SERVER))
        self.spawn(self.server, "nginx", "-e", "stderr", "-c", config)
        until(lambda: f"{SERVER}:80" in sh("ss", "-Hltn", "-N", self.server), 30, "nginx does not listen")

    def spawn(self, space: str, *command: str) -> None:
        """Start a program in a namespace; it ends with the test."""
        with (self.lab.base / f"{space}.log").open("ab") as log:
            self.lab.spawn("ip", "netns", "exec", space, *command, stdout=log, stderr=log)

    def hosts(self, launcher: str) -> list[str]:
        """Lines of hosts.yaml for a way to reach the hosts."""
        match launcher:
            case "local":
                return self.local()
            case "address":
                return self.agents_of_others()
            case "mtls":
                return self.sshd(", mtls: 0")
            case "ssh":
                return self.sshd()
        raise AssertionError(f"no hosts for {launcher!r}: write how they are begun")

    def agents_of_others(self, **before: tuple[str, ...]) -> list[str]:
        """Agents that run before the fleet is up, with certificates of their own; lines for hosts.yaml.

        `before`: by host, what its daemon's command begins with.
        """
        lines = [f"{{name: {host}, launcher: address, address: {HOSTS[host]}, cores: [0]}}" for host in HOSTS]
        self.write(lines)
        done = self.run("fleet", "certificates", self.file)
        assert done.code == 0, done.text
        for host in HOSTS:
            self.agent(host, self.lab.base / "certificates" / host, before.get(host, ()))
        return lines

    def agent(self, host: str, identity: Path, before: tuple[str, ...] = ()) -> None:
        """An agent that nobody of ours has started."""
        address, space = f"{HOSTS[host]}:7448", self.space(host)
        socket = self.lab.base / f"{host}.sock"
        self.spawn(
            space, *before, str(NETDYNOD), "--socket", str(socket), "--mtls", address, "--identity",
            str(identity),
        )  # fmt: skip
        until(lambda: address in sh("ss", "-Hltn", "-N", space), 30, f"{host}: no agent")

    def sshd(self, more: str = "") -> list[str]:
        """An SSH server on each host; lines for hosts.yaml."""
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        if not Path(program).is_file() or not shutil.which("ssh"):
            pytest.skip("needs ssh and sshd (Debian: openssh-client, openssh-server)")
        base = self.lab.base
        for key in ("id", "host_key"):
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(base / key))
        public = " ".join((base / "host_key.pub").read_text().split()[:2])
        (base / "known").write_text("".join(f"{address} {public}\n" for address in HOSTS.values()))
        passwd = base / "passwd"
        passwd.write_text(Path("/etc/passwd").read_text())
        if "\nsshd:" not in passwd.read_text():
            passwd.write_text(passwd.read_text() + "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n")
        if self.shell:
            passwd.write_text(re.sub(r"(?m)^(root:.*):[^:\n]*$", rf"\1:{self.shell}", passwd.read_text()))
        for host, address in HOSTS.items():
            config = self.lab.write(f"sshd-{host}.conf", SSHD.format(base=base, address=address))
            # /run and /etc/passwd of this server alone, as it wants a folder and a user that may not be here
            hide = "".join(f"mount --bind /dev/null {path} && " for path in self.hidden)
            script = (
                f"{hide}mount --bind {passwd} /etc/passwd && mount -t tmpfs none /run && mkdir -m 755 /run/sshd"
                f" && exec {program} -D -e -f {config}"
            )
            self.spawn(self.space(host), "sh", "-c", script)
        for host, address in HOSTS.items():
            space = self.space(host)
            until(lambda s=space, a=address: f"{a}:22" in sh("ss", "-Hltn", "-N", s), 30, f"{host}: no sshd")
        files = f"key: {base}/id, known_hosts: {base}/known"
        # one gets a copy of the daemon, the others have it
        there = {"a": "", "b": f", program: {NETDYNOD}", "c": f", program: {NETDYNOD}"}
        return [
            f"{{name: {host}, launcher: ssh, address: root@{address}, {files}, cores: [0]{there[host]}{more}}}"
            for host, address in HOSTS.items()
        ]

    def local(self) -> list[str]:
        """Lines of hosts.yaml for processes in namespaces."""
        weights = {"a": 1, "b": 1, "c": 2}
        return [
            f"{{name: {host}, namespace: {self.space(host)}, cores: [0], weight: {weights[host]}}}"
            for host in HOSTS
        ]

    def write(self, hosts: list[str], *more: str) -> None:
        """Write hosts.yaml; `more`: other keys of it."""
        lines = ["format: netdyno-fleet/1", f"name: {self.name}", *more]
        lines += ["hosts:", *(f"- {one}" for one in hosts)]
        self.file = self.lab.write("hosts.yaml", "\n".join(lines) + "\n")

    def up(self, hosts: list[str], *more: str) -> None:
        """Bring the fleet up."""
        self.write(hosts, *more)
        done = self.run("fleet", "up", self.file)
        assert done.code == 0, done.text
        self.noted = self.agents()

    @property
    def prefix(self) -> tuple[str, ...]:
        """What runs the command line where it reaches the hosts."""
        return ("ip", "netns", "exec", self.server)

    def run(self, *arguments: str) -> Done:
        """A command line, to its end."""
        return self.lab.run(*arguments, prefix=self.prefix)

    def load(self, seconds: int, *more: str, devices: int = 8, interval: str = "20ms") -> tuple[str, ...]:
        """A run over the fleet, of which everything counts."""
        profile = {
            "name": "fleet",
            "phases": {"warmup": "0s", "measure": f"{seconds}s", "drain": "5s", "sample": "200ms"},
            "validity": {"lateness_p99": "60s", "offered": 0.001, "starved": 1.0},
            "groups": [
                {
                    "name": "web",
                    "target": f"http://{SERVER}",
                    "model": {"http": {"interval": interval}},
                    "devices": devices,
                    "load": {"closed": {"flows": 1}},
                    "total": None,
                }
            ],
        }
        return ("run", self.lab.write("fleet.json", profile), "--fleet", self.name, "-q", *more)

    def agents(self) -> dict[str, dict[str, Any]]:
        """What is noted of the agents."""
        state = json.loads((self.lab.state / "fleet" / f"{self.name}.json").read_text())
        return {one["host"]["name"]: one for one in state["agents"]}

    def kill(self, host: str) -> None:
        """Kill the agent of a host."""
        os.kill(self.agents()[host]["pid"], signal.SIGKILL)

    def states(self) -> dict[str, str]:
        """The state of each agent."""
        done = self.run("fleet", "status", self.name, "--json")
        (fleet,) = json.loads(done.out)["fleets"]
        return {one["name"]: one["state"] for one in fleet["hosts"]}

    def counted(self) -> Counter[str]:
        """Requests by host, as the server counted them."""
        names = {address: host for host, address in HOSTS.items()}
        lines = (self.lab.base / "access.log").read_text().splitlines()
        return Counter(names[line.split()[0]] for line in lines)

    def begun(self) -> dict[str, float]:
        """When the server got the first request of each host, by its own clock."""
        found: dict[str, float] = {}
        names = {address: host for host, address in HOSTS.items()}
        for line in (self.lab.base / "access.log").read_text().splitlines():
            address, *_, at = line.split()
            found.setdefault(names[address], float(at))
        return found

    def clean(self) -> None:
        """Fail if anything is left."""
        self.lab.clean()
        folders = (Path("/run/netdyno"), Path("/tmp"))
        assert not [path for folder in folders for path in folder.glob(f"nd-fleet-{self.name}*")]
        made = [one["folder"] for one in self.noted.values() if one["folder"]]
        assert not [folder for folder in made if Path(folder).exists()]

    def down(self) -> None:
        """Remove the namespaces."""
        for space in (self.server, *map(self.space, HOSTS)):
            sh("ip", "netns", "delete", space, check=False)
