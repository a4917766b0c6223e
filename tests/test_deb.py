"""The Debian package in an empty root: it installs, runs its demo, and leaves nothing when it is purged."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from inconclusive import OF_TIME
from lab import NETDYNOD, ROOT, root
from package_lab import PYTHON, setuptools

from netdyno.core.result import Result

pytestmark = [root, pytest.mark.full, pytest.mark.limit(3000)]
SERVICES = "#!/bin/sh\nexit 101\n"
"""What keeps packages from starting services."""


def release() -> str:
    """The distribution's name in its archive."""
    lines = Path("/etc/os-release").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    return found.get("VERSION_CODENAME", "").strip('"')


class Root:
    """An empty system, in which commands run with their own mounts, processes and network."""

    def __init__(self, folder: Path):
        self.folder = folder

    def run(self, *command: str, codes: Collection[int] = (0,), seconds: float = 900) -> str:
        """What the command prints; it must end with one of these codes."""
        inside = 'mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "sh", "-c", inside, str(self.folder), *command],
            capture_output=True, text=True, timeout=seconds,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LANG": "C.UTF-8"},
        )  # fmt: skip
        assert done.returncode in codes, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    """A fresh root of this machine's distribution."""
    tool = shutil.which("debootstrap") or shutil.which("debootstrap", path="/usr/sbin")
    if not tool or not release():
        pytest.skip("debootstrap is not installed")
    folder = tmp_path_factory.mktemp("root")
    # it is the root of servers that run as users of their own
    folder.chmod(0o755)
    done = subprocess.run([tool, "--variant=minbase", release(), str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    (folder / "usr/sbin/policy-rc.d").write_text(SERVICES)
    (folder / "usr/sbin/policy-rc.d").chmod(0o755)
    shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
    yield Root(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of this tree, with the daemon of the tests."""
    return built(tmp_path_factory.mktemp("package"))


def built(folder: Path, **environment: str) -> Path:
    """Build the package into a folder."""
    words = ["--daemon", NETDYNOD, "--wheel", setuptools("wheel", folder / "plain"), "--into", folder]
    done = subprocess.run(
        [PYTHON, ROOT / "packaging/deb.py", *words],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    subprocess.run(["sha256sum", "--quiet", "--check", "SHA256SUMS"], cwd=folder, check=True)
    return Path(done.stdout.splitlines()[-1])


def test_an_empty_root_runs_the_demo_and_is_as_before_after_a_purge(empty: Root, package: Path) -> None:
    shutil.copy(package, empty.folder / "root/netdyno.deb")
    empty.run("apt-get", "update")
    start = time.monotonic()
    empty.run(
        "apt-get", "install", "-y", "--no-install-recommends", "/root/netdyno.deb", "mosquitto", "nginx-light"
    )
    print(f"installed in {time.monotonic() - start:.0f} s")
    assert "netdyno 0." in empty.run("netdyno", "--version")
    assert "NETDYNO" in empty.run("sh", "-c", "zcat /usr/share/man/man1/netdyno.1.gz")
    # what it runs is its own, and not this tree's
    assert str(ROOT) not in empty.run("netdyno", "doctor", "--json")
    print(f"the demo begins after {time.monotonic() - start:.0f} s")
    # what was lost, refused or wrong is a fault; how long things took is up to the machine
    said = empty.run("netdyno", "demo", "--json", "--runs", "/root/runs", codes=(0, 90, 99))
    print(f"it ends after {time.monotonic() - start:.0f} s")
    result = Result.model_validate_json(said)
    assert {reason.code for reason in result.reasons} <= OF_TIME, result.reasons
    assert [leg.name for leg in result.legs if leg.repetitions] == ["sockets", "dpdk", "dpdk-devices"]
    missed = {one.metric for one in result.thresholds if not one.passed}
    assert all(".delay." in metric or "flows_completed" in metric for metric in missed), missed
    empty.run("apt-get", "purge", "-y", "netdyno")
    assert not (empty.folder / "usr/lib/netdyno").exists()
    assert not (empty.folder / "usr/bin/netdyno").exists()


def test_two_builds_are_the_same(package: Path, tmp_path: Path) -> None:
    again = built(tmp_path, PYTHONHASHSEED="1")
    assert again.read_bytes() == package.read_bytes()


def test_the_image_runs_a_load_without_root(empty: Root, package: Path, tmp_path: Path) -> None:
    podman, runc = shutil.which("podman"), shutil.which("runc", path="/usr/bin:/usr/sbin")
    if not podman or not runc:
        pytest.skip("an image is built by podman and run by runc")
    # images of its own: a base of this name may be there, and be another; this path is at most 50 letters long
    short = Path(tempfile.mkdtemp(prefix="nd-image-"))
    store = [podman, "--root", tmp_path / "images", "--runroot", short, "--runtime", runc]
    base = subprocess.Popen(
        ["tar", "-C", empty.folder, "--one-file-system", "-c", "."], stdout=subprocess.PIPE
    )
    subprocess.run(
        [*store, "import", "-q", "-", "docker.io/library/debian:12-slim"], stdin=base.stdout, check=True
    )
    assert base.wait() == 0
    build = ["build", "--isolation", "chroot", "--network", "host", "--pull=never", "--tag", "netdyno"]
    file = ["--file", ROOT / "packaging/Containerfile", "--build-arg", f"DEB={package.name}", package.parent]
    done = subprocess.run([*store, *build, *file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    # within what a machine without more rights may allow
    limits = ["--ulimit", "nofile=10000:10000", "--ulimit", "nproc=10000:10000"]
    serve = "netdyno serve http --listen 127.0.0.1:8080 & until netdyno run http://127.0.0.1:8080/ -n 1 -q; do sleep 1; done"
    load = "netdyno run http://127.0.0.1:8080/ -n 20 -q --json; id -u"
    words = [
        "run",
        "--rm",
        "--network",
        "none",
        *limits,
        "--entrypoint",
        "timeout",
        "netdyno",
        "120",
        "sh",
        "-c",
    ]
    done = subprocess.run(
        [*store, *words, f"({serve}) >&2; {load}"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said, _, user = done.stdout.rstrip().rpartition("\n")
    assert user != "0"
    (group,) = Result.model_validate_json(said).legs[0].repetitions[0].groups
    assert group.measured.messages_delivered == 20
    subprocess.run([*store, "rmi", "--all", "--force"], capture_output=True, check=False)
    shutil.rmtree(short)
