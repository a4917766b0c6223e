"""Applying under fault: whatever moment it is killed at, old values restored after a restore."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sampled import points

from netdyno.errors import Error
from netdyno.system import journal, namespace, proc, sysctl
from netdyno.system.journal import Journal
from netdyno.tuning import access, owners
from netdyno.tuning.access import Target, napi
from netdyno.tuning.apply import apply
from netdyno.tuning.plan import plan
from netdyno.tuning.registry import registry
from netdyno.tuning.trial_setting import applied
from netdyno.tuning.verbs import restore as tune_restore
from netdyno.tuning.watchdog import Watchdog

from .. import spaces
from ..command import start
from ..conftest import root
from ..spaces import somaxconn, wait_for

pytestmark = root
SPACE = f"ndt-apply-{os.getpid()}"
SETTING = {
    "net.core.somaxconn": 8192,
    "net.ipv4.tcp_rmem.max": 67108864,
    "net.ipv4.tcp_rmem.default": 262144,
    "net.ipv4.ip_local_port_range.low": 61000,
    "net.ipv4.ip_local_port_range.high": 65000,
    "dev.v0.rps_cpus": "3",
    "dev.v0.rps_flow_cnt": 1000,
    "dev.v0.txqueuelen": 5000,
    "dev.v0.gso_max_size": 32768,
    "dev.v0.channels_rx": 1,
    "dev.v0.tso": "off",
    "dev.v0.gro": "off",
    "dev.v0.gro_flush_timeout": 20000,
    "dev.v0.qdisc": "pfifo",
    "dev.v1.gro_flush_timeout": 30000,
    "dev.v1.each_napi_defer_hard_irqs": 7,
    "dev.t0.qdisc_limit": 20,
    "dev.t0.coalesce_rx_frames": 32,
}
STEPS = 15
"""Of them, as some are written together."""


@pytest.fixture(scope="module")
def space() -> Iterator[str]:
    with spaces.made(SPACE) as name:
        # queues that differ, and go with their channel
        def differ() -> None:
            Path("/sys/class/net/v0/queues/rx-0/rps_cpus").write_text("1")
            Path("/sys/class/net/v0/queues/rx-1/rps_cpus").write_text("2")
            napi.Napi().write(Target("napi", "gro-flush-timeout", "v1"), {"": 5000})

        for command in (f"tc -n {name} qdisc add dev t0 root handle 7: pfifo limit 50",
                        f"ip netns exec {name} ethtool -K v1 gro on"):  # fmt: skip
            subprocess.run(command.split(), check=True)
        access.within(name, differ)
        yield name


DRIVER = """
import json, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from netdyno.system import journal, undo
from netdyno.tuning import access
from netdyno.tuning.access import ethtool, files, link, napi, qdisc
from netdyno.tuning.apply import apply
from netdyno.tuning.plan import plan
from tests import spaces

space, setting, folder = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
at = seen = 0

def step():
    global seen
    seen += 1
    if seen == at:
        os.kill(os.getpid(), signal.SIGKILL)

def traced(where, name, changes=lambda *_: True):
    function = getattr(where, name)
    def around(*arguments, **more):
        if not changes(*arguments):
            return function(*arguments, **more)
        step()
        return function(*arguments, **more)
    setattr(where, name, around)

# every line of the journal, and every call that changes the kernel
traced(journal.Journal, "_append")
traced(files, "tell")
traced(link.Link, "write")
traced(qdisc, "_tc", lambda *words: "show" not in words)
traced(napi, "_set")
sets = {ethtool.SFEATURES, *(group.set for group in ethtool.GROUPS.values())}
traced(ethtool, "call", lambda _, data: int.from_bytes(data[:4], sys.byteorder) in sets)

def forked(number, work):
    global at, seen
    pid = os.fork()
    if not pid:
        at, seen = number, 0
        try:
            work()
            print("end", seen, flush=True)
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1]

planned = plan(setting, space)

def whole():
    with apply(planned, journal.Journal(folder)):
        pass

def stay():
    apply(planned, journal.Journal(folder))

before = spaces.state(space)
def check(number, what):
    now = spaces.state(space)
    changed = {key: (value, now.get(key)) for key, value in before.items() if now.get(key) != value}
    assert not changed, (what, number, changed)
    assert not list(folder.glob("*.jsonl")), (what, number)

what, number, stride = sys.argv[5], *map(int, sys.argv[6:8])
while True:
    if what == "applying":
        ended = not forked(number, whole)
    else:
        forked(0, stay)
        ended = not forked(number, lambda: journal.restore(folder))
    report = journal.restore(folder)
    assert not report.failed, (number, report.failed)
    check(number, what)
    if ended:
        break
    number += stride
"""


# before each line of the journal, each write, and each write that undoes: after one is before the next
@pytest.mark.parametrize(("what", "least"), [("applying", 4 * STEPS), ("restoring", STEPS)])
def test_killed_at_every_point(space: str, what: str, least: int, tmp_path: Path) -> None:
    tests = str(Path(__file__).resolve().parents[2])
    first, stride = points(4)
    arguments = (space, json.dumps(SETTING), str(tmp_path / "journal"), tests, what, str(first), str(stride))
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # the one that is not killed says how many points there are
    assert int(done.stdout.rpartition("end ")[2]) >= least


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_whatever_ends_the_command_it_is_put_back(space: str, number: int, state: Path) -> None:
    before = spaces.state(space)
    child = start("tune", "apply", "--set", "net.core.somaxconn=8192", "--set", "dev.v0.txqueuelen=7",
                  "--where", space)  # fmt: skip
    wait_for(space, "8192")
    child.send_signal(number)
    out, err = child.communicate(timeout=120)
    assert child.returncode == (-number if number == signal.SIGKILL else 0), err
    # after SIGKILL nobody else is there to do it than the watchdog
    until = time.monotonic() + 120
    while list((state / "journal").glob("*.jsonl")) and time.monotonic() < until:
        time.sleep(0.02)
    assert not list((state / "journal").glob("*.jsonl"))
    now = spaces.state(space)
    assert {k: v for k, v in before.items() if now.get(k) != v} == {}
    assert "Traceback" not in out + err


def test_without_watchdog_the_next_start_puts_it_back(space: str, state: Path) -> None:
    before = somaxconn(space)
    script = f"""
import os, signal
from netdyno.tuning.apply import apply
from netdyno.tuning.plan import plan
apply(plan({{"net.core.somaxconn": 777}}, {space!r}))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    assert somaxconn(space) == "777"
    child = start("tune", "apply", "--set", "net.core.somaxconn=900", "--where", space, "--for", "10ms")
    _, err = child.communicate(timeout=120)
    assert child.returncode == 0
    assert "put back what an earlier run left" in err
    assert somaxconn(space) == before


def test_settings_that_are_compared_cost_a_trial_the_same(
    space: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value of the whole machine is watched over also where it is there already: whatever the watching takes
    from the load is then no difference between two settings."""
    watched: list[int] = []

    class Counting(Watchdog):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            watched.append(self.pid)

    monkeypatch.setattr("netdyno.tuning.apply.Watchdog", Counting)
    name = "net.core.rmem_default"
    now = int(sysctl.file(name).read_text())
    settings = {"same": {name: now}, "other": {name: now + 1}, "of the space": {"net.core.somaxconn": 777}}
    counts = {}
    for label, values in settings.items():
        watched.clear()
        with applied(values, space, True, journal.journal()):
            counts[label] = len(watched)
    assert counts == {"same": 1, "other": 1, "of the space": 0}
    assert int(sysctl.file(name).read_text()) == now


def test_nothing_is_changed_that_nobody_would_put_back(
    space: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = somaxconn(space)
    monkeypatch.setattr(sys, "executable", "/bin/true")
    descriptors = open_files()
    with pytest.raises(Error, match="did not start"):
        apply(plan({"net.core.somaxconn": 777}, space), watched=True)
    assert somaxconn(space) == before
    assert not list((state / "journal").glob("*.jsonl"))
    assert open_files() <= descriptors  # what tests before this one left open may be closed meanwhile


def open_files() -> set[str]:
    """What this process has open; each pipe and socket has a name of its own."""
    names = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing itself
            names.add(str(entry.readlink()))
    return names


def test_after_a_boot_what_it_has_reset_is_left_alone(space: str, state: Path) -> None:
    notes = Journal()
    applied = apply(plan({"net.core.somaxconn": 777}, space), notes)
    text = notes.path.read_text().replace(proc.boot_id(), "another-boot")
    earlier = notes.path.with_name("1-1.jsonl")
    earlier.write_text(text)
    assert journal.restore(only=earlier).undone == []
    assert somaxconn(space) == "777"
    assert not earlier.exists()
    applied.restore()


def test_another_namespace_of_the_same_name_is_left_alone(state: Path) -> None:
    again = f"ndt-again-{os.getpid()}"
    with spaces.made(again):
        applied = apply(plan({"net.core.somaxconn": 777}, again))
        namespace.remove(again)
        namespace.create(again)
        sysctl.write(again, "net.core.somaxconn", "777")
        applied.restore()
        assert somaxconn(again) == "777"


def test_only_what_differs_is_written_and_rounding_is_said(space: str) -> None:
    before = somaxconn(space)
    assert before is not None
    planned = plan({"net.core.somaxconn": int(before), "dev.v0.rps_flow_cnt": 1000}, space)
    assert planned.same == ("net.core.somaxconn",)
    assert [change.name for change in planned.changes] == ["dev.v0.rps_flow_cnt"]
    with apply(planned) as applied:
        assert [(c.old, c.new, c.got, c.rounded) for c in applied.changes] == [(0, 1000, 1024, True)]
        assert applied.value("dev.v0.rps_flow_cnt") == 1024


def test_what_others_ask_for_is_written_first(space: str) -> None:
    def order(**values: int) -> list[str]:
        return [c.name for c in plan({f"net.ipv4.{k}": v for k, v in values.items()}, space).changes]

    assert order(tcp_reordering=400 // 2, tcp_max_reordering=500) == [
        "net.ipv4.tcp_reordering", "net.ipv4.tcp_max_reordering"
    ]  # fmt: skip
    with apply(plan({"net.ipv4.tcp_max_reordering": 10}, space)):
        up = order(tcp_reordering=200, tcp_max_reordering=500)
        assert up == ["net.ipv4.tcp_max_reordering", "net.ipv4.tcp_reordering"]
    # what makes queues anew comes before what is set of queues
    setting = {"dev.v0.rps_flow_cnt": 8, "dev.v0.channels_rx": 1}
    assert [c.name for c in plan(setting, space).changes] == ["dev.v0.channels_rx", "dev.v0.rps_flow_cnt"]


def test_beyond_the_bounds_of_searches_is_told_and_left_to_the_kernel(space: str) -> None:
    planned = plan(registry().read({"net.core.somaxconn": 131072}), space)
    assert planned.advice == (
        "net.core.somaxconn = 131072 is outside 16 to 65535, which searches stay within",
    )
    with apply(planned):
        assert somaxconn(space) == "131072"
    with pytest.raises(Error, match="ND-92-33"):
        apply(plan(registry().read({"net.core.somaxconn": 1 << 40}), space))
    assert somaxconn(space) == "4096"
    machine = plan(registry().read({"net.ipv4.tcp_mem.high": 1 << 50}), None, allow_global=True)
    assert "this machine's memory" in machine.advice[0]


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ({"net.core.rmem_max": 1 << 20}, "ND-104-42"),
        ({"dev.v0.ring_rx": 512}, "ND-104-43"),
        ({"dev.none.txqueuelen": 512}, "ND-104-43"),
        ({"dev.v0.channels_rx": 3}, "ND-104-05"),
        ({"net.ipv4.tcp_rmem.default": 1 << 27}, "ND-104-07"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    space: str, setting: dict[str, int], code: str
) -> None:
    with pytest.raises(Error, match=code):
        plan({"net.core.somaxconn": 5000} | setting, space)
    assert somaxconn(space) == "4096"


def test_a_write_that_is_refused_takes_the_others_back(space: str, state: Path) -> None:
    before = spaces.state(space)
    # a tap takes no more than received frames
    planned = plan({"net.core.somaxconn": 5000, "dev.t0.coalesce_tx_usecs": 50}, space)
    with pytest.raises(Error, match="ND-92-33"):
        apply(planned)
    now = spaces.state(space)
    assert {k: v for k, v in before.items() if now.get(k) != v} == {}
    assert not list((state / "journal").glob("*.jsonl"))


def test_a_queue_discipline_that_somebody_made_is_left_alone(space: str) -> None:
    subprocess.run(f"tc -n {space} qdisc add dev v1 root handle 7: pfifo limit 5".split(), check=True)
    with pytest.raises(Error, match="ND-104-43"):
        plan({"dev.v1.qdisc": "bfifo"}, space)
    subprocess.run(f"tc -n {space} qdisc del dev v1 root".split(), check=True)
    applied = apply(plan({"dev.v1.qdisc": "bfifo"}, space))
    # ours may be changed further, and one that somebody puts in its place stays
    with apply(plan({"dev.v1.qdisc": "pfifo"}, space)):
        pass
    shown = f"tc -n {space} qdisc show dev v1".split()
    assert "bfifo" in subprocess.run(shown, check=True, capture_output=True, text=True).stdout
    subprocess.run(f"tc -n {space} qdisc replace dev v1 root handle 7: pfifo limit 5".split(), check=True)
    with pytest.raises(Error, match=r"ND-92-41.*dev\.v1\.qdisc in .* is pfifo, and not bfifo"):
        applied.restore()
    assert "pfifo 7:" in subprocess.run(shown, check=True, capture_output=True, text=True).stdout
    subprocess.run(f"tc -n {space} qdisc del dev v1 root".split(), check=True)


def test_another_process_of_ours_is_not_fought(space: str) -> None:
    child = start("tune", "apply", "--set", "net.core.somaxconn=8192", "--where", space)
    wait_for(space, "8192")
    with pytest.raises(Error, match="ND-92-40") as caught:
        apply(plan({"net.core.somaxconn": 1000}, space))
    assert str(child.pid) in caught.value.what
    with apply(plan({"net.ipv4.tcp_fin_timeout": 15}, space)):  # what it does not hold is free
        pass
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=120)
    assert somaxconn(space) == "4096"


def test_one_namespace_under_another_name_is_the_same(space: str) -> None:
    """By its name, and by a process in it: what one of us has set there the other does not set too."""
    child = start("tune", "apply", "--set", "net.core.somaxconn=8192", "--where", space)
    wait_for(space, "8192")
    with subprocess.Popen(["ip", "netns", "exec", space, "sleep", "120"]) as inside:
        try:
            path = Path(f"/proc/{inside.pid}/ns/net")
            until = time.monotonic() + 60
            while not path.samefile(namespace.FOLDER / space):
                assert time.monotonic() < until
                time.sleep(0.02)
            with pytest.raises(Error, match=f"ND-92-40.*{child.pid}"):
                apply(plan({"net.core.somaxconn": 1000}, str(path)))
            with apply(plan({"net.ipv4.tcp_fin_timeout": 15}, str(path))):  # what it does not hold is free
                pass
        finally:
            inside.kill()
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=120)
    assert somaxconn(space) == "4096"


def test_a_file_that_another_process_of_ours_changed_is_not_changed_again(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        lives = {"owner": other.pid, "start": proc.start_time(other.pid), "boot": proc.boot_id()}
        entry = {"seq": 1, "kind": "sysctl", "path": "/proc/sys/net/a", "old": "1"}
        (tmp_path / "1.jsonl").write_text(f"{json.dumps(lives)}\n{json.dumps(entry)}\n")
        with pytest.raises(Error, match=f"ND-92-40.*{other.pid}"):
            owners.refuse_file(Path("/proc/sys/net/a"), tmp_path)
        owners.refuse_file(Path("/proc/sys/net/b"), tmp_path)
        other.kill()
    owners.refuse_file(Path("/proc/sys/net/a"), tmp_path)


def test_tuned_is_not_fought(space: str, tmp_path: Path) -> None:
    (tmp_path / "run/tuned").mkdir(parents=True)
    (tmp_path / "etc/tuned").mkdir(parents=True)
    (tmp_path / "run/tuned/tuned.pid").write_text(f"{os.getpid()}\n")
    (tmp_path / "etc/tuned/active_profile").write_text("network-latency\n")
    here = plan({"net.core.netdev_budget": 301}, None, allow_global=True)
    with pytest.raises(Error, match=r"ND-92-40.*network-latency"):
        owners.refuse(here, tmp_path, tmp_path)
    # a namespace is not its affair; and one that has ended holds nothing
    owners.refuse(plan({"net.core.somaxconn": 5000}, space), tmp_path, tmp_path)
    (tmp_path / "run/tuned/tuned.pid").write_text("4194304\n")
    owners.refuse(here, tmp_path, tmp_path)


def test_drift_from_the_files_of_boot(tmp_path: Path) -> None:
    for folder, name, text in (
        ("usr/lib/sysctl.d", "10-a.conf", "net.core.somaxconn = 1\nnet/core/netdev_budget=5\n"),
        ("etc/sysctl.d", "10-a.conf", "# mine\n-net.core.somaxconn = 2\n"),
        ("etc/sysctl.d", "20-b.conf", "net.ipv4.tcp_rmem = 1 2 3\n; net.core.rmem_max=1\n"),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_text(text)
    said = owners.configured(tmp_path)
    assert {name: value for name, (_, value) in said.items()} == {
        "net.core.somaxconn": "2", "net.ipv4.tcp_rmem": "1 2 3"
    }  # fmt: skip
    (found,) = owners.drift(["net.core.somaxconn", "net.core.rmem_max"], tmp_path)
    now = Path("/proc/sys/net/core/somaxconn").read_text().strip()
    assert str(found) == f"net.core.somaxconn is {now} here, and 2 in {tmp_path}/etc/sysctl.d/10-a.conf"


def test_tune_restore_takes_back_what_tuning_left_and_nothing_else(space: str, state: Path) -> None:
    assert tune_restore.ours({"kind": "tunable"})
    assert tune_restore.ours({"kind": "path", "path": "/etc/sysctl.d/netdyno-tune.conf"})
    assert not tune_restore.ours({"kind": "path", "path": "/run/nd-x.log"})
    assert not tune_restore.ours({"kind": "binding"})


def test_what_somebody_else_takes_over_is_forgotten(space: str) -> None:
    notes = Journal()
    applied = apply(plan({"net.core.somaxconn": 777}, space), notes)
    sysctl.write(space, "net.core.somaxconn", "888")
    notes.forget(*applied.entries)
    applied.restore()
    assert somaxconn(space) == "888"
    sysctl.write(space, "net.core.somaxconn", "4096")


def test_a_dry_run_shows_and_writes_nothing(space: str, state: Path) -> None:
    before = spaces.state(space)
    child = start("tune", "apply", "--class", "latency", "--where", space, "--dry-run", "--json")
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    shown = json.loads(out)
    assert {"name": "net.ipv4.tcp_fin_timeout", "old": 60, "new": 15, "got": 15, "rounded": False} in shown[
        "changes"
    ]
    assert [one["name"] for one in shown["left_out"]] == ["net.ipv4.tcp_low_latency"]
    assert spaces.state(space) == before
    assert not (state / "journal").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), "ND-104-22"),
        (("--set", "net.core.somaxconn"), "ND-104-04"),
        (("--set", "net.core.rmem_max=1MiB"), "ND-104-42"),
        (("paper-latency", "--class", "latency"), "ND-104-07"),
        (("paper-latency", "--keep", "--for", "1s"), "ND-104-07"),
        (("paper-latncy",), "ND-104-23"),
        (("none.yaml",), "ND-104-20"),
        (("--set", "net.core.somaxconn=5", "--where", "ndt-none"), "ND-104-04"),
    ],
)
def test_wrong_words_are_refused(
    arguments: tuple[str, ...], code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    from netdyno.cli.app import call

    assert call(["tune", "apply", *arguments, "--dry-run"]) == 104
    assert code in capfd.readouterr().err


def test_a_target_of_a_device_that_is_gone_needs_nothing(space: str) -> None:
    for kind, path, saved in (
        ("link", "txqlen", {"": 5}), ("qdisc", "root", {"": "noqueue"}), ("sysfs", "threaded", {"threaded": "0"}),
        ("ethtool", "ring", {"rx": 5}), ("ethtool", "feature", {"rx-gro": True}),
    ):  # fmt: skip
        target = Target(kind, path, "gone0")
        assert access.within(space, lambda t=target, s=saved: access.kind(t).put(t, s)) is False
