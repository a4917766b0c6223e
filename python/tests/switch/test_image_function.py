"""A container's image as a function of a chain, by podman: built here, without a registry."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdyno.lab.dut.base import has
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.spec import checked
from netdyno.switch.chain.verify import verify
from netdyno.switch.driver import DRIVERS

from ..conftest import root

MOUNTS = ["sh", "-c", 'exec nsenter --mount=/proc/$PPID/ns/mnt "$@"', "sh"]
"""Back to the machine's mounts, with its control groups, which a function's namespace does not have."""
FORWARDER = r"""
#include <arpa/inet.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static void end(int number) { _exit(0); }

static int open_port(const char *name) {
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(3), .sll_ifindex = if_nametoindex(name)};
    int made = socket(AF_PACKET, SOCK_RAW, 0);
    return at.sll_ifindex && made >= 0 && !bind(made, (struct sockaddr *)&at, sizeof at) ? made : -1;
}

int main(void) {
    static char frame[65536];
    struct pollfd ports[2] = {{open_port("in"), POLLIN}, {open_port("out"), POLLIN}};
    signal(SIGTERM, end);
    if (ports[0].fd < 0 || ports[1].fd < 0) return 3;
    for (;;) {
        poll(ports, 2, -1);
        for (int i = 0; i < 2; i++) {
            struct sockaddr_ll from;
            socklen_t size = sizeof from;
            if (!(ports[i].revents & POLLIN)) continue;
            ssize_t got = recvfrom(ports[i].fd, frame, sizeof frame, 0, (struct sockaddr *)&from, &size);
            if (got > 0 && from.sll_pkttype != PACKET_OUTGOING) send(ports[!i].fd, frame, got, 0);
        }
    }
}
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One with a short name: podman takes 50 characters."""
    with tempfile.TemporaryDirectory(prefix="nd-pod-") as made:
        yield Path(made)


@pytest.fixture
def command(folder: Path) -> Iterator[list[str]]:
    """What starts a container of an image with a forwarder."""
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    if gone := next((one for one in ("podman", "gcc") if not has(one)), None):
        pytest.skip(f"{gone} is not installed")
    podman = ["podman", "--root", str(folder / "root"), "--runroot", str(folder / "run"),
              "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", *["--runtime=runc"] * has("runc")]  # fmt: skip
    content = folder / "content"
    content.mkdir()
    (folder / "forwarder.c").write_text(FORWARDER)
    for words in (
        ["gcc", "-static", "-o", str(content / "forwarder"), str(folder / "forwarder.c")],
        ["tar", "-C", str(content), "-cf", str(folder / "image.tar"), "."],
        [*podman, "import", "--change", 'CMD ["/forwarder"]', str(folder / "image.tar"), "forwarder"],
    ):
        subprocess.run(words, check=True, capture_output=True)
    files = min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    run = [*podman, "run", "--rm", "--network=host", "--cap-add=NET_RAW", f"--ulimit=nofile={files}:{files}",
           "--ulimit=nproc=512:512"]  # fmt: skip
    if (
        tried := subprocess.run([*run, "forwarder"], capture_output=True, text=True, check=False)
    ).returncode != 3:
        pytest.skip(f"podman starts no container here: {tried.stderr.strip()[-300:]}")
    yield [*run, "forwarder"]
    subprocess.run([*podman, "rm", "--all", "--force"], check=True, capture_output=True)
    subprocess.run([*podman, "rmi", "--all", "--force"], check=True, capture_output=True)


@root
@pytest.mark.drawn
def test_an_image_is_proved_and_nothing_is_left(command: list[str], folder: Path) -> None:
    vnfs = {
        "box": {"kind": "command", "options": {"command": [*MOUNTS, *command], "seconds": 10}},
        "b": {"kind": "bridge"},
    }
    with ChainLab(checked({"vnfs": vnfs, "chain": list(vnfs)}, "x")) as lab:
        found = verify(lab)
        assert found.good, found.first_fault
        assert all("box" in str(one.steps) for one in found.directions)
        assert containers(folder)
    assert not containers(folder), "the container ends with its function"


def containers(folder: Path) -> list[str]:
    """Programs of containers, and what watches them."""
    said = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in said.splitlines()
            if (line.endswith(" /forwarder") or f"{folder}/run" in line) and str(os.getpid()) not in line]  # fmt: skip
