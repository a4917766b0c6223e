"""Client or server of switches and chains as another machine over SSH: a namespace with an sshd of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from fleet_lab import SSHD
from lab import NETDYNOD, Lab, root, sh, until

from netdyno.switch.driver import DRIVERS

pytestmark = [root, pytest.mark.slow]
NEAR, FAR = "10.94.0.1", "10.94.0.2"
NAT = "format: netdyno-chain/1\nvnfs: {a: {kind: bridge}, n: {kind: nat}}\nchain: [a, n]\n"


class Cabled:
    """Two machines with a cable for SSH and one for the measurement: netdyno runs on the near one."""

    def __init__(self, lab: Lab) -> None:
        self.lab, tag = lab, f"ndr{os.getpid()}x{time.monotonic_ns() % 100000}"
        self.near, self.far = f"{tag}-n", f"{tag}-f"
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        if not Path(program).is_file() or not shutil.which("ssh"):
            pytest.skip("needs ssh and sshd (Debian: openssh-client, openssh-server)")
        lab.at_end(self.down)
        for space in (self.near, self.far):
            sh("ip", "netns", "add", space)
            sh("ip", "-n", space, "link", "set", "lo", "up")
        for name in ("m0", "w0"):
            peer = ("peer", name, "netns", self.far)
            sh("ip", "-n", self.near, "link", "add", name, "type", "veth", *peer)
        for space, address in ((self.near, NEAR), (self.far, FAR)):
            sh("ip", "-n", space, "addr", "add", f"{address}/24", "dev", "m0")
            sh("ip", "-n", space, "link", "set", "m0", "up")
        base = lab.base
        for key in ("id", "host_key"):
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(base / key))
        public = " ".join((base / "host_key.pub").read_text().split()[:2])
        (base / "known").write_text(f"{FAR} {public}\n")
        users = Path("/etc/passwd").read_text()
        (base / "passwd").write_text(
            users + "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n" * ("\nsshd:" not in users)
        )
        config = lab.write("sshd.conf", SSHD.format(base=base, address=FAR))
        # its programs have ours among them, as after an installation
        (base / "sbin").mkdir()
        (base / "sbin" / "netdynod").symlink_to(NETDYNOD)
        script = (
            f"mount --bind {base}/sbin /usr/local/sbin && mount --bind {base}/passwd /etc/passwd && mount -t tmpfs none /run && mkdir -m 755 /run/sshd"
            f" && exec {program} -D -e -f {config}"
        )
        with (base / "sshd.log").open("ab") as log:
            lab.spawn("ip", "netns", "exec", self.far, "sh", "-c", script, stdout=log, stderr=log)
        until(lambda: f"{FAR}:22" in sh("ss", "-Hltn", "-N", self.far), 30, "no sshd")
        self.machine = f"root@{FAR},interface=w0,here=w0,key={base}/id,known_hosts={base}/known"
        self.before = self.cables()

    @property
    def prefix(self) -> tuple[str, ...]:
        return ("nsenter", f"--net=/run/netns/{self.near}")

    def cables(self) -> dict[str, str]:
        """What both ends of the cable are like."""
        found = {}
        for space in (self.near, self.far):
            about = sh("ip", "-n", space, "-o", "addr", "show", "dev", "w0", check=False)
            link = sh("ip", "-n", space, "-o", "link", "show", "dev", "w0", check=False)
            offloads = sh("ip", "netns", "exec", space, "ethtool", "-k", "w0", check=False)
            of = re.findall(r"^(?:tx-check|tcp-seg|generic).*$", offloads, re.M)
            seen = re.search(r"mtu \d+", link), re.search(r"link/ether \S+", link)
            found[space] = f"{[one and one[0] for one in seen]} {'UP' in link} {'inet ' in about} {of}"
        return found

    def as_before(self) -> None:
        """Fail if anything is otherwise than it was."""
        until(
            lambda: self.cables() == self.before,
            60,
            f"the cable stays changed: {self.cables()}, {self.before}",
        )
        self.lab.clean()
        for port in (5201, 8083):
            left = sh("ip", "netns", "exec", self.far, "ss", "-Hltn", "sport", "=", f":{port}")
            assert not left.strip(), left

    def down(self) -> None:
        for space in (self.near, self.far):
            for pid in sh("ip", "netns", "pids", space, check=False).split():
                kill(int(pid))
            sh("ip", "netns", "delete", space, check=False)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def cabled(lab: Lab) -> Cabled:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    return Cabled(lab)


def received(space: str) -> int:
    """Bytes that came to the far end of the cable."""
    shown = sh("ip", "-n", space, "-s", "-j", "link", "show", "dev", "w0")
    return int(json.loads(shown)[0]["stats64"]["rx"]["bytes"])


@pytest.mark.drawn
def test_a_machine_over_ssh_is_the_server_of_switches(cabled: Cabled) -> None:
    before = received(cabled.far)
    done = cabled.lab.run(
        "switch", "compare", "linux-bridge", "ovs-netdev", "--server", cabled.machine, "--repeat", "2",
        "--set", "seconds=1", "--metric", "throughput", "--level", "0.5", "--json", prefix=cabled.prefix,
    )  # fmt: skip
    assert done.code == 0, done.text
    found = json.loads(done.out)
    rates = [rate for arm in found["arms"] for rate in arm["metrics"]["throughput"]["values"]]
    assert "over SSH" in found["bench"] and len(rates) >= 4 and all(rates)
    # the machine's own interface has received what iperf3 says
    assert received(cabled.far) - before > sum(rates) / 8 * 0.9
    cabled.as_before()


@pytest.mark.drawn
def test_a_machine_over_ssh_reflects_what_our_generator_sends(cabled: Cabled) -> None:
    before = received(cabled.far)
    done = cabled.lab.run(
        "chain", "run", cabled.lab.write("c.yaml", NAT), "--server", cabled.machine, "--repeat", "1",
        "--workload", "stream", "--set", "rate=200", "--set", "devices=2", "--set", "seconds=1", "--json",
        prefix=cabled.prefix,
    )  # fmt: skip
    # a generator that gets no CPU is late, and its trial invalid; what it sent arrived all the same
    assert done.code == 0 or "no trial of the chain is valid: generator" in done.err, done.text
    assert received(cabled.far) - before > 200 * 64
    cabled.as_before()


@pytest.mark.drawn
def test_a_machine_over_ssh_is_the_client_of_a_chain(cabled: Cabled) -> None:
    before = received(cabled.far)
    done = cabled.lab.run(
        "chain", "run", cabled.lab.write("c.yaml", NAT), "--client", cabled.machine, "--repeat", "1",
        "--set", "seconds=1", "--json", prefix=cabled.prefix,
    )  # fmt: skip
    assert done.code == 0, done.text
    assert received(cabled.far) > before
    cabled.as_before()


@pytest.mark.drawn
def test_a_killed_comparison_gives_the_cable_back(cabled: Cabled) -> None:
    child = cabled.lab.start(
        "switch", "compare", "linux-bridge", "ovs-netdev", "--server", cabled.machine, "--set", "seconds=60",
        prefix=cabled.prefix,
    )  # fmt: skip
    listens = ("ip", "netns", "exec", cabled.far, "ss", "-Hltn", "sport", "=", ":5201")
    until(lambda: sh(*listens).strip(), 90, "no server on the machine")
    assert not sh("ip", "-n", cabled.near, "link", "show", "dev", "w0", check=False).strip()
    child.kill()
    child.communicate(timeout=60)
    done = cabled.lab.run("restore", prefix=cabled.prefix)
    assert done.code == 0, done.text
    cabled.as_before()


@pytest.mark.drawn
def test_a_machine_that_is_lost_is_named_and_no_switch(cabled: Cabled) -> None:
    child = cabled.lab.start(
        "switch", "compare", "linux-bridge", "ovs-netdev", "--server", cabled.machine, "--set", "seconds=60",
        prefix=cabled.prefix,
    )  # fmt: skip
    listens = ("ip", "netns", "exec", cabled.far, "ss", "-Hltn", "sport", "=", ":5201")
    until(lambda: sh(*listens).strip(), 90, "no server on the machine")
    for pid in sh("ip", "netns", "pids", cabled.far).split():
        kill(int(pid))
    _, err = child.communicate(timeout=200)
    assert child.returncode == 91, err
    assert "ND-91-43" in err and FAR in err, err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("w0,here=w0", "m0,here=w0"), "m0 has addresses"),
        (("here=w0", "here=m0"), "m0 has addresses"),
        (("here=w0", "here=w9"), "no interface w9"),
        (("interface=w0", "interface=w9"), "w9"),
    ],
)
def test_an_interface_in_use_or_missing_is_told(cabled: Cabled, change: tuple[str, str], says: str) -> None:
    machine = cabled.machine.replace(*change)
    done = cabled.lab.run(
        "switch", "compare", "linux-bridge", "ovs-netdev", "--server", machine, prefix=cabled.prefix
    )
    assert done.code == 92 and "ND-92-64" in done.err and says in done.err, done.text
    cabled.as_before()
