"""Limits that are no files of the kernel: instances of NAPI, queue disciplines, open files, memory of cgroups."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdyno.errors import Error
from netdyno.system import journal
from netdyno.tuning import access, host_state
from netdyno.tuning.access import Target, napi, process, qdisc
from netdyno.tuning.apply import apply
from netdyno.tuning.plan import plan
from netdyno.tuning.registry import registry

from .. import spaces
from ..conftest import root

HARD = 8000
SPACE = f"ndt-limits-{os.getpid()}"
SERVER = "import socket, time; s = socket.create_server(('', 7000)); print('up', flush=True); time.sleep(600)"


@pytest.fixture(scope="module")
def space() -> Iterator[str]:
    with spaces.made(SPACE) as name:
        yield name


def tc(space: str, *words: str) -> str:
    return subprocess.run(["tc", "-n", space, *words], check=True, capture_output=True, text=True).stdout


# ---- instances of NAPI


def instances(path: str) -> dict[str, int]:
    return napi.Napi().save(Target("napi", path, "v0"), {""})


@root
def test_each_instance_of_napi_gets_its_own_back(space: str) -> None:
    def work() -> None:
        try:
            both = sorted(instances("gro-flush-timeout"))
        except OSError as e:
            pytest.skip(f"not supported here because {e}")
        assert len(both) == 2
        # as somebody has set them: not alike, and not what the device has; one is larger than four bytes
        file = Path("/sys/class/net/v0/gro_flush_timeout")
        file.write_text("1000")
        target = Target("napi", "gro-flush-timeout", "v0")
        napi._set(target, {int(both[0]): 2000, int(both[1]): 1 << 33})
        before = instances("gro-flush-timeout")
        assert before == {both[0]: 2000, both[1]: 1 << 33}
        assert napi.Napi().read(target) == {"": f"2000 {1 << 33}"}

        way = napi.Napi()
        saved = way.save(target, {""})
        way.write(target, {"": 7000})
        assert (way.read(target), file.read_text()) == ({"": 7000}, "1000\n")
        assert way.put(target, saved) is True
        assert way.put(target, saved) is False
        assert instances("gro-flush-timeout") == before

        # the kernel writes what is set of the device through to its instances
        of_device, target = napi.DeviceNapi(), Target("device_napi", "gro_flush_timeout", "v0")
        saved = of_device.save(target, {""})
        of_device.write(target, {"": 9000})
        assert set(instances("gro-flush-timeout").values()) == {9000}
        assert of_device.now(target, saved) == {"gro_flush_timeout": "9000", both[0]: 9000, both[1]: 9000}
        assert of_device.put(target, saved) is True
        assert of_device.put(target, saved) is False
        assert (instances("gro-flush-timeout"), file.read_text()) == (before, "1000\n")
        # one that has gone since needs nothing
        assert napi.Napi().put(Target("napi", "gro-flush-timeout", "v0"), {"1": 5}) is False
        file.write_text("0")

    access.within(space, work)


def test_a_kernel_without_the_family_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyroute2.netlink.exceptions import NetlinkError
    from pyroute2.netlink.generic import GenericNetlinkSocket

    def bind(*_: object) -> None:
        raise NetlinkError(2)

    monkeypatch.setattr(GenericNetlinkSocket, "bind", bind)
    with pytest.raises(OSError, match="no family `netdev`"):
        napi.Napi().read(Target("napi", "defer-hard-irqs", "lo"))
    found = host_state.read_states(registry(), ["dev.lo.each_napi_defer_hard_irqs"])
    assert found["dev.lo.each_napi_defer_hard_irqs"].state == "missing"


@root
def test_a_device_without_instances_has_no_such_parameter(space: str) -> None:
    states = host_state.read_states(registry(), ["dev.t0.each_napi_irq_suspend_timeout"], space)
    assert states["dev.t0.each_napi_irq_suspend_timeout"].state == "missing"


# ---- queue disciplines


@root
def test_a_bound_is_changed_in_the_queue_discipline_that_somebody_made(space: str) -> None:
    tc(space, "qdisc", "add", "dev", "v1", "root", "handle", "7:", "bfifo", "limit", "9000")
    before = tc(space, "qdisc", "show", "dev", "v1")
    with apply(plan({"dev.v1.qdisc_limit_bytes": 40000}, space)):
        assert "bfifo 7:" in tc(space, "qdisc", "show", "dev", "v1")
        assert "limit 40000b" in tc(space, "qdisc", "show", "dev", "v1")
    assert tc(space, "qdisc", "show", "dev", "v1") == before
    with pytest.raises(Error, match=r"ND-104-43.*dev\.v1\.qdisc_limit "):
        plan({"dev.v1.qdisc_limit": 5}, space)
    # whoever changes it after us keeps it
    applied = apply(plan({"dev.v1.qdisc_limit_bytes": 40000}, space))
    tc(space, "qdisc", "change", "dev", "v1", "root", "handle", "7:", "bfifo", "limit", "50000")
    with pytest.raises(Error, match="ND-92-41"):
        applied.restore()
    assert "limit 50000b" in tc(space, "qdisc", "show", "dev", "v1")
    tc(space, "qdisc", "del", "dev", "v1", "root")


@root
def test_each_queue_gets_its_own_bound_back(space: str) -> None:
    tc(space, "qdisc", "add", "dev", "v0", "root", "handle", "8:", "mq")
    for queue, limit in ((1, 50), (2, 70)):
        parent = ("parent", f"8:{queue}", "handle", f"8{queue}:")
        tc(space, "qdisc", "replace", "dev", "v0", *parent, "pfifo", "limit", str(limit))
    before = tc(space, "qdisc", "show", "dev", "v0")
    states = host_state.read_states(registry(), ["dev.v0.qdisc_limit"], space)
    assert states["dev.v0.qdisc_limit"].value == "50 70"
    with apply(plan({"dev.v0.qdisc_limit": 99}, space)):
        assert tc(space, "qdisc", "show", "dev", "v0").count("limit 99p") == 2
    assert tc(space, "qdisc", "show", "dev", "v0") == before
    tc(space, "qdisc", "del", "dev", "v0", "root")


@root
def test_the_discipline_comes_before_its_bound_and_both_go(space: str) -> None:
    tc(space, "qdisc", "add", "dev", "v1", "root", "handle", "4e44:", "pfifo", "limit", "9")
    before = tc(space, "qdisc", "show", "dev", "v1")
    applied = apply(plan({"dev.v1.qdisc_limit": 33, "dev.v1.qdisc": "pfifo"}, space))
    assert "limit 33p" in tc(space, "qdisc", "show", "dev", "v1")
    applied.restore()
    assert tc(space, "qdisc", "show", "dev", "v1") == before
    tc(space, "qdisc", "del", "dev", "v1", "root")


DEFAULTS = {
    "fq": {"limit": 10000, "flow_limit": 100},
    "fq_codel": {"limit": 10240, "memory_limit": 33554432},
    "cake": {"bandwidth": "unlimited"},
}


class FakeTc:
    """A device with queues, whose disciplines are the kernel's until somebody replaces them, as `tc` tells it."""

    def __init__(self, kind: str, queues: int) -> None:
        self.kind, self.queues = kind, queues
        self.restart()

    def restart(self) -> None:
        """What the kernel makes by itself."""
        self.root = {"kind": "mq", "handle": "0:", "root": True, "options": {}}
        self.leaves = [self.leaf(f":{one + 1}") for one in range(self.queues)]
        if self.queues == 1:
            self.root, self.leaves = self.leaf("") | {"root": True}, []
            del self.root["parent"]

    def leaf(self, parent: str) -> dict[str, object]:
        return {"kind": self.kind, "handle": "0:", "parent": parent, "options": dict(DEFAULTS[self.kind])}

    def tc(self, *words: str) -> str:
        if "show" in words:
            return json.dumps([self.root, *self.leaves])
        verb, rest = words[1], dict(itertools.pairwise(words))
        if verb == "del":
            assert words[-1] == "root" and self.root["handle"] != "0:"
            self.restart()
        elif "mq" in words:
            assert verb == "replace"
            self.root["handle"] = rest["handle"]
            for number, one in enumerate(self.leaves):
                one["parent"] = f"{rest['handle']}{number + 1}"
        else:
            of = [one for one in (self.root, *self.leaves) if one.get("parent", "") == rest.get("parent", "")]
            at = words.index(self.kind)
            if verb == "change":
                assert rest["handle"] == of[0]["handle"] != "0:"  # the kernel changes none of its own
            else:
                of[0]["handle"] = rest.get("handle", f"800{len(words)}:")
            of[0]["options"][words[at + 1]] = int(words[at + 2])  # type: ignore[index]
        return ""


@pytest.mark.parametrize(
    ("kind", "path", "key"),
    [("fq", "packets", "limit"), ("fq", "flow", "flow_limit"), ("fq_codel", "packets", "limit"),
     ("cake", "bytes", "memlimit")],
)  # fmt: skip
@pytest.mark.parametrize("queues", [1, 4])
def test_bounds_of_disciplines_of_the_kernels_own(
    kind: str, path: str, key: str, queues: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This kernel may lack fq, fq_codel and cake: they are played by their listing."""
    fake = FakeTc(kind, queues)
    monkeypatch.setattr(qdisc, "_tc", fake.tc)
    way, target = qdisc.QdiscLimit(), Target("qdisc_limit", path, "eth9")
    before = fake.tc("show")
    assert way.read(target) == {"": DEFAULTS[kind].get(key, 0)}
    assert way.writable(target, "")
    saved = way.save(target, {""})
    for value in (77, 88):
        way.write(target, {"": value})
        assert way.read(target) == {"": value}
        listed = fake.leaves or [fake.root]
        assert [one["options"][key] for one in listed] == [value] * queues  # type: ignore[index]
    assert all(bound == 88 for _, _, bound in way.now(target, saved).values())
    assert way.put(target, saved) is True
    assert way.put(target, saved) is False
    assert fake.tc("show") == before


def test_queues_of_the_kernels_own_below_what_somebody_made_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeTc("fq", 2)
    fake.tc("qdisc", "replace", "dev", "eth9", "root", "handle", "1:", "mq")
    monkeypatch.setattr(qdisc, "_tc", fake.tc)
    way, target = qdisc.QdiscLimit(), Target("qdisc_limit", "packets", "eth9")
    assert not way.writable(target, "")
    with pytest.raises(OSError, match="below one that somebody made"):
        way.save(target, {""})


def test_a_bound_that_somebodys_discipline_has_chosen_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tc` sends no `memlimit 0`, as cake has it that bounds its memory by its rate."""
    fake = FakeTc("cake", 1)
    fake.root["handle"] = "7:"
    monkeypatch.setattr(qdisc, "_tc", fake.tc)
    way, target = qdisc.QdiscLimit(), Target("qdisc_limit", "bytes", "eth9")
    assert not way.writable(target, "")
    fake.root["options"] = {"memlimit": 5000}
    assert way.writable(target, "")


# ---- open files of running servers


@pytest.fixture
def server(space: str) -> Iterator[int]:
    command = ["ip", "netns", "exec", space, sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout and child.stdout.readline() == "up\n"
        resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (300, HARD))
        yield child.pid
        child.kill()


def limit(pid: int) -> tuple[int, int]:
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)


@root
def test_open_files_of_a_running_server(space: str, server: int) -> None:
    name = Path(f"/proc/{server}/comm").read_text().strip()
    assert host_state.servers(space) == [name]
    assert f"process.{name}.nofile" in host_state.names(registry(), [], host_state.servers(space))
    for called in (name, server):
        with apply(plan(registry().read({f"process.{called}.nofile": "5000"}), space)):
            assert limit(server) == (5000, HARD)
        assert limit(server) == (300, HARD)
    with apply(plan({f"process.{name}.nofile": 350}, space)):
        assert limit(server) == (350, HARD)
    # whoever sets it after us keeps it
    applied = apply(plan({f"process.{name}.nofile": 5000}, space))
    resource.prlimit(server, resource.RLIMIT_NOFILE, (600, HARD))
    with pytest.raises(Error, match=r"ND-92-41.*nofile"):
        applied.restore()
    assert limit(server) == (600, HARD)


@root
def test_open_files_are_put_back_after_kill_and_not_of_another_process(
    space: str, server: int, tmp_path: Path
) -> None:
    script = f"""
import os, signal
from pathlib import Path
from netdyno.system.journal import Journal
from netdyno.tuning.apply import apply
from netdyno.tuning.plan import plan
apply(plan({{"process.{server}.nofile": 5000}}, {space!r}), Journal(Path({str(tmp_path)!r})))
os.kill(os.getpid(), signal.SIGKILL)
"""
    for gone in (False, True):
        done = subprocess.run([sys.executable, "-c", script], check=False)
        assert done.returncode == -signal.SIGKILL
        assert limit(server) == (5000, HARD)
        if gone:
            # another has the number: the journal tells when the process began
            (file,) = tmp_path.glob("*.jsonl")
            start = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[19]
            file.write_text(file.read_text().replace(f"{server} {start}", f"{server} {int(start) - 1}"))
        assert not journal.restore(tmp_path).failed
        assert limit(server) == ((5000, HARD) if gone else (300, HARD))


@root
def test_the_hard_limit_is_raised_along_where_that_may_be(space: str, server: int) -> None:
    name = f"process.{server}.nofile"
    if process.may_raise():
        with apply(plan({name: 9000}, space)):
            assert limit(server) == (9000, 9000)
    else:
        # in a container that lacks CAP_SYS_RESOURCE even root may not
        with pytest.raises(Error, match=r"ND-104-05.*to 8000"):
            plan({name: 9000}, space)
    assert limit(server) == (300, HARD)


@root
def test_open_files_beyond_what_a_process_may_have_are_refused(
    space: str, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "may_raise", lambda: True)
    most = int(Path("/proc/sys/fs/nr_open").read_text())
    with pytest.raises(Error, match=r"ND-104-07.*fs\.nr_open"):
        plan({f"process.{server}.nofile": most + 8}, space)
    # raised together it may be, and what is asked for comes first
    both = {f"process.{server}.nofile": most + 8, "fs.nr_open": most + 64}
    names = [change.name for change in plan(both, space, allow_global=True).changes]
    assert names == ["fs.nr_open", f"process.{server}.nofile"]


@root
def test_processes_elsewhere_are_not_meant(space: str, server: int) -> None:
    with pytest.raises(Error, match="ND-104-43"):
        plan({f"process.{server}.nofile": 500})
    assert limit(server) == (300, HARD)


@pytest.mark.parametrize(
    "name", ["process..nofile", "process.a b.nofile", "process.a/b.nofile", "process.*.nofile"]
)
def test_what_is_no_process_is_no_parameter(name: str) -> None:
    with pytest.raises(Error, match="ND-104-40"):
        registry().read({name: 500})


# ---- memory of cgroups


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service in a cgroup of version 2, as the kernel shows it; this kernel may have version 1 only."""
    folder = tmp_path / "sys/system.slice/cache.service"
    folder.mkdir(parents=True)
    for name, text in (("memory.high", "max"), ("memory.max", "max"), ("memory.current", "90000000")):
        (folder / name).write_text(f"{text}\n")
    fake = tmp_path / "proc"
    for pid, group in ((4711, "/system.slice/cache.service"), (os.getpid(), "/user.slice")):
        (fake / f"{pid}/ns").mkdir(parents=True)
        (fake / f"{pid}/ns/net").symlink_to("net:[1]")
        (fake / f"{pid}/comm").write_text("cached\n" if pid == 4711 else "netdyno\n")
        (fake / f"{pid}/cgroup").write_text(f"3:cpu:/\n0::{group}\n")
    (fake / "thread-self/ns").mkdir(parents=True)
    (fake / "thread-self/ns/net").symlink_to("net:[1]")
    (fake / "self").mkdir()
    (fake / "self/mountinfo").write_text(f"30 24 0:27 / {tmp_path}/sys rw shared:9 - cgroup2 cgroup2 rw\n")
    monkeypatch.setattr(process, "PROC", fake)
    monkeypatch.setattr(process.proc, "start_time", lambda pid: 5)
    monkeypatch.setattr(process, "tell", lambda path, text: path.write_text(text + "\n"))
    return folder


@pytest.mark.parametrize("path", ["memory.high", "memory.max"])
def test_memory_of_a_servers_cgroup(cgroup: Path, path: str) -> None:
    way, target = process.CgroupMemory(), Target("cgroup_memory", path, "cached")
    assert way.read(target) == {"": "max"}
    assert way.writable(target, "")
    saved = way.save(target, {""})
    way.write(target, {"": 200000000})
    assert (cgroup / path).read_text() == "200000000\n"
    assert way.now(target, saved) == {str(cgroup): "200000000"}
    assert way.put(target, saved) is True
    assert way.put(target, saved) is False
    assert (cgroup / path).read_text() == "max\n"


def test_no_process_is_killed_by_a_limit_below_what_is_in_use(cgroup: Path) -> None:
    way = process.CgroupMemory()
    assert way.limits(Target("cgroup_memory", "memory.max", "cached"))[""][0] == 90000000
    assert way.limits(Target("cgroup_memory", "memory.high", "cached")) == {}


def test_netdyno_does_not_hold_back_itself(cgroup: Path) -> None:
    (process.PROC / f"{os.getpid()}/cgroup").write_text("0::/system.slice/cache.service/inner\n")
    assert not process.CgroupMemory().writable(Target("cgroup_memory", "memory.high", "cached"), "")


def test_a_process_without_such_a_cgroup_has_no_such_parameter(cgroup: Path) -> None:
    (cgroup / "memory.high").unlink()
    with pytest.raises(OSError, match="no cgroup of version 2"):
        process.CgroupMemory().read(Target("cgroup_memory", "memory.high", "cached"))
    with pytest.raises(FileNotFoundError):
        process.CgroupMemory().read(Target("cgroup_memory", "memory.high", "other"))


@root
def test_memory_of_a_real_cgroup() -> None:
    """The same with the kernel's own, where it limits memory by version 2."""
    roots = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if " cgroup2 " in line]
    if not roots or "memory" not in (Path(roots[0]) / "cgroup.controllers").read_text().split():
        pytest.skip("not supported here because memory is not limited by cgroups of version 2")
    folder = Path(roots[0]) / f"netdyno-test-{os.getpid()}"
    subtree = Path(roots[0]) / "cgroup.subtree_control"
    if "memory" not in subtree.read_text().split():
        pytest.skip("not supported here because the root cgroup passes no limits of memory on")
    folder.mkdir()
    child = subprocess.Popen(["sleep", "600"])
    try:
        (folder / "cgroup.procs").write_text(str(child.pid))
        before = (folder / "memory.high").read_text()
        with apply(plan({f"process.{child.pid}.memory_high": 1 << 26})):
            assert (folder / "memory.high").read_text() == f"{1 << 26}\n"
        assert (folder / "memory.high").read_text() == before
    finally:
        child.kill()
        child.wait()
        until = time.monotonic() + 20
        while (folder / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.02)
        folder.rmdir()
