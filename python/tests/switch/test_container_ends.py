"""Client and server with the files of a user's image: as a folder here, and by a stand-in for Podman."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.lab.workload import WORKLOADS, iperf3
from netdyno.switch import container
from netdyno.switch.bench import Spec, SwitchBench, tell_endpoints
from netdyno.switch.chain.bench import bench_of
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.spec import checked
from netdyno.switch.driver import DRIVERS
from netdyno.system.vm.initramfs import libraries

from ..conftest import root

PODMAN = """\
#!/bin/sh
echo "$@" >>{log}
while [ "$1" != mine ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The files of an image: iperf3, busybox, and what they are linked with."""
    made = tmp_path / "image"
    for name in ("dev", "proc", "tmp", "usr/bin"):
        (made / name).mkdir(parents=True)
    for name in ("iperf3", "busybox"):
        found = shutil.which(name)
        if not found:
            pytest.skip(f"{name} is missing")
        shutil.copy(found, made / "usr/bin")
        for one in libraries(Path(found)):
            to = made / str(one).lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(one, to)
    (made / "figure").write_text("rate 42\n")
    return made


def inside(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Roots of the servers of iperf3, each looked at while its client runs."""
    roots: list[str] = []
    intervals = iperf3.run_generator

    def looked(site: Any, command: Any, seconds: float) -> str:
        pids = subprocess.run(
            ["ip", "netns", "pids", site.server], capture_output=True, text=True, check=True
        )
        roots.extend(str(Path(f"/proc/{pid}/root").readlink()) for pid in pids.stdout.split())
        return intervals(site, command, seconds)

    monkeypatch.setattr(iperf3, "run_generator", looked)
    return roots


@root
@pytest.mark.drawn
def test_a_folder_is_the_root_of_client_and_server(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = inside(monkeypatch)
    spec = Spec(options={"seconds": 1}, endpoints="container", image=str(image))
    tell_endpoints(spec, print)
    with SwitchBench(spec) as bench:
        seen = bench.measure({"switch": "linux-bridge"}, 1)
    assert seen.valid and seen.metrics["throughput"] > 0, seen.why
    assert str(image) in roots, roots
    assert (image / "dev").stat().st_dev == image.stat().st_dev, "mounts are theirs alone"
    assert "between containers of" in spec.label
    # a program that is in no image is told with the words of the one that looked for it
    (image / "usr/bin/iperf3").unlink()
    with SwitchBench(spec) as bench, pytest.raises(Error) as wrong:
        bench.measure({"switch": "linux-bridge"}, 2)
    assert wrong.value.code == "ND-92-25" and "iperf3" in wrong.value.what


@root
@pytest.mark.drawn
def test_a_users_own_programs_load_through_a_chain(image: Path) -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    own = {"load": "busybox cat /figure", "metrics": ["rate=rate (.+)"], "better": ["higher"],
           "server": "busybox nc -ll -p 80 -e /usr/bin/busybox true"}  # fmt: skip
    spec = Spec(workload="command", options=own, endpoints="container", image=str(image))
    tell_endpoints(spec, print)
    with (
        ChainLab(checked({"vnfs": {"a": {"kind": "bridge"}}, "chain": ["a"]}, "x")) as lab,
        bench_of(lab, spec) as bench,
    ):
        seen = bench.measure({"functions": 1}, 1)
    assert seen.valid and seen.metrics["rate"] == 42, seen.why


@root
@pytest.mark.drawn
def test_an_image_runs_by_podman_in_the_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, log = tmp_path / "podman", tmp_path / "log"
    program.write_text(PODMAN.format(log=log))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with SwitchBench(Spec(options={"seconds": 1}, endpoints="container", image="mine")) as bench:
        seen = bench.measure({"switch": "linux-bridge"}, 1)
    assert seen.valid and seen.metrics["throughput"] > 0, seen.why
    server, client = log.read_text().splitlines()
    assert server.startswith("run --rm --network=host") and "mine iperf3 -s" in server
    assert "mine iperf3 -c" in client


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ({"endpoints": "container"}, "ND-104-07", "no image"),
        ({"image": "mine"}, "ND-104-07", "for containers"),
        ({"endpoints": "container", "image": "mine", "workload": "wrk"}, "ND-104-24", "wrk"),
        ({"endpoints": "container", "image": "--privileged"}, "ND-104-04", "no image"),
        ({"endpoints": "container", "image": "/no/such"}, "ND-92-44", "no folder"),
        ({"endpoints": "container", "image": "mine"}, "ND-92-44", "podman is missing"),
    ],
)
def test_what_cannot_be_is_told(
    more: dict[str, Any], code: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        container.shutil, "which", lambda name: "/usr/bin/docker" if name == "docker" else None
    )
    with pytest.raises(Error) as wrong:
        tell_endpoints(Spec(**more), print)
    assert wrong.value.code == code and words in wrong.value.what and (wrong.value.fix or code == "ND-104-04")
    if words.startswith("podman"):
        assert "Docker's daemon" in wrong.value.what and "docker export" in (wrong.value.fix or "")


def test_workloads_in_containers_are_those_whose_both_sides_are_programs() -> None:
    assert {name for name, one in WORKLOADS.items() if one.in_containers} == {
        "iperf3-tcp",
        "iperf3-udp",
        "command",
    }
