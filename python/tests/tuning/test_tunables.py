"""The registry against this kernel: everything in it reads, takes its bounds, and is put back."""

import os
import re
import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from netdyno import paths
from netdyno.errors import Error
from netdyno.stats.observation import Metric
from netdyno.system import sysctl
from netdyno.tuning import access, host_state, search_run, service
from netdyno.tuning.access import ethtool, files, irq, rss
from netdyno.tuning.access.route import Route
from netdyno.tuning.condition import Condition
from netdyno.tuning.model import Scope, Tunable
from netdyno.tuning.prepared_bench import BenchRequest, PreparedBench
from netdyno.tuning.registry import AS_TEXT, check, load, owner_of, registry

from .. import spaces
from ..conftest import root

PAPER = [
    "net.core.somaxconn", "net.ipv4.tcp_max_syn_backlog", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_max_tw_buckets", "net.ipv4.tcp_low_latency", "net.core.rmem_default", "net.core.rmem_max",
    "net.core.wmem_default", "net.core.wmem_max", "net.core.netdev_max_backlog", "net.core.netdev_budget",
    "dev.*.ring_rx", "dev.*.ring_tx", "dev.*.txqueuelen",
]  # fmt: skip
NAMES = sorted(registry().tunables)
SPACE = f"ndt-tunables-{os.getpid()}"


@pytest.fixture(scope="module")
def space() -> Iterator[str]:
    with spaces.made(SPACE) as name:
        yield name


def test_there_are_enough_and_those_of_the_paper_are_among_them() -> None:
    assert len(NAMES) >= 45
    assert set(PAPER) <= set(NAMES)
    table6 = {
        **service.find_setting("paper-latency").values,
        **service.find_setting("paper-throughput").values,
    }
    assert sorted(table6) == sorted(PAPER)


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_is_whole(name: str) -> None:
    one = registry().tunables[name]
    assert one.summary.endswith(".")
    assert one.doc.startswith("https://")
    if one.values == "number":
        assert one.low is not None and one.high is not None
        assert one.low < one.high
    if one.values == "choice":
        assert len(one.choices) > 1


@pytest.mark.sampled(30)
@pytest.mark.parametrize("name", [n for n in NAMES if registry().tunables[n].values == "number"])
def test_a_bound_is_taken_and_what_is_beyond_only_if_the_kernel_checks_it(name: str) -> None:
    one = registry().tunables[name]
    assert one.low is not None and one.high is not None
    asked = name.replace("*", "eth0")
    assert registry().read({asked: one.low}) == {asked: one.low}
    assert registry().read({asked: str(one.high)}) == {asked: one.high}
    for beyond in (one.low - 1, one.high + 1):
        if one.access.kind in AS_TEXT and (beyond >= 0 or one.low < 0):
            # the kernel says what it takes: these bounds are only those of a search
            assert registry().read({asked: beyond}) == {asked: beyond}
            continue
        with pytest.raises(Error, match="ND-104-05"):
            registry().read({asked: beyond})


def test_memory_bounds_buffers() -> None:
    small = load(paths.data("tunables"), ram=1 << 30).tunables
    large = load(paths.data("tunables"), ram=64 << 30).tunables
    assert small["net.core.rmem_max"].high == (1 << 30) // 16
    assert large["net.core.rmem_max"].high == 1073741823
    # what the paper used is allowed on the paper's machine
    for name, value in service.find_setting("paper-throughput").values.items():
        assert check(large[name], name, value) == value


@pytest.mark.parametrize(
    ("written", "code", "says"),
    [
        ({"net.core.somaxcon": 1}, "ND-104-40", "'net.core.somaxconn'"),
        ({"dev.eth0.txqueuelenn": 1}, "ND-104-40", "'dev.eth0.txqueuelen'"),
        ({"dev.*.txqueuelen": 1}, "ND-104-40", "not a kernel parameter"),
        ({"net.core.somaxconn": "8MB"}, "ND-104-04", "without a unit"),
        ({"net.core.rmem_max": "8ms"}, "ND-104-04", "number of bytes"),
        ({"net.ipv4.tcp_fin_timeout": "1500ms"}, "ND-104-04", "whole number of s"),
        ({"net.ipv4.tcp_rmem": "1 2"}, "ND-104-04", "3 numbers"),
        ({"net.core.default_qdisc": "htb"}, "ND-104-05", "none of"),
        ({"dev.eth0.rps_cpus": "cpu0"}, "ND-104-04", "mask"),
        ({"net.ipv4.ip_local_reserved_ports": "80,http"}, "ND-104-04", "'http'"),
        ({"net.ipv4.ip_local_reserved_ports": "9-8"}, "ND-104-04", "'9-8'"),
        ({"dev.eth0.tso": "perhaps"}, "ND-104-05", "on, off"),
    ],
)
def test_what_is_wrong_is_said(written: dict[str, object], code: str, says: str) -> None:
    with pytest.raises(Error, match=code) as caught:
        registry().read(written)
    assert says in str(caught.value)


def test_units_and_files_of_several_numbers() -> None:
    written = {
        "net.ipv4.tcp_rmem": "4KiB 128KiB 64MiB", "net.ipv4.tcp_rto_min_us": "5ms", "dev.a.b.rps_cpus": "00,0000000f",
        "dev.a.b.tso": True, "net.ipv4.tcp_sack": False,
    }  # fmt: skip
    assert registry().read(written) == {
        "net.ipv4.tcp_rmem.min": 4096, "net.ipv4.tcp_rmem.default": 131072, "net.ipv4.tcp_rmem.max": 67108864,
        "net.ipv4.tcp_rto_min_us": 5000, "dev.a.b.rps_cpus": "f", "dev.a.b.tso": "on", "net.ipv4.tcp_sack": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "octets"),
    [("64M", 64 << 20), ("64MiB", 64 << 20), ("64MB", 64_000_000), ("512K", 512 << 10), ("4096", 4096)],
)
def test_sizes_are_read_as_other_tools_write_them(text: str, octets: int) -> None:
    assert registry().read({"net.core.rmem_max": text}) == {"net.core.rmem_max": octets}
    whole = registry().read({"net.ipv4.tcp_rmem": f"4K 128K {text}"})
    assert [*whole.values()] == [4096, 131072, octets]


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("net.core.somaxcon > 1", "net.core.somaxcon, which is no tunable"),
        ("net.core.somaxconn <= dev.*.no_queue", "dev.*.no_queue, which is no tunable"),
        ("net.core.somaxconn <= kernel.pid_max", "on its right"),
        ("net.core.somaxconn < ", "not a condition"),
    ],
)
def test_a_condition_about_nothing_is_refused(condition: str, says: str, tmp_path: Path) -> None:
    for path in paths.data("tunables").glob("*.yaml"):
        (tmp_path / path.name).write_text(path.read_text())
    whole = tmp_path / "process.yaml"
    whole.write_text(
        f"{whole.read_text()}\nprocess.*.mine:\n  {{summary: x, doc: prlimit, low: 0, high: 9, requires: ['{condition}']}}\n"
    )
    with pytest.raises(Error, match="ND-104-41") as raised:
        load(tmp_path)
    assert says in str(raised.value)


def test_what_conditions_compare_with_is_there() -> None:
    """A name on the right that nothing has would never be enforced."""
    known = registry()
    listed = [(*t.requires, *t.conflicts, *t.only_if) for t in known.tunables.values()]
    conditions = [Condition.parse(text) for texts in listed for text in texts]
    others = {one.other for one in conditions if one.names_other}
    rest = {one for one in others if one not in known.tunables}
    assert "net.ipv4.tcp_available_congestion_control" in rest
    assert [one for one in rest if not (Path("/proc/sys") / one.replace(".", "/")).exists()] == []


def test_every_fault_is_named() -> None:
    with pytest.raises(Error) as caught:
        registry().read({"net.nothing": 1, "net.core.somaxconn": -1})
    assert [one["code"] for one in caught.value.all] == ["ND-104-40", "ND-104-05"]


def _faults(setting: dict[str, int | str], now: dict[str, int | str]) -> list[str]:
    values = host_state.with_setting(setting, now.get)
    return [
        str(e) for name, value in setting.items()
        for e in registry().faults(name, value, lambda c: c.holds(values))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "now", "says"),
    [
        ({"net.ipv4.tcp_rmem.default": 9}, {"net.ipv4.tcp_rmem.max": 8}, "net.ipv4.tcp_rmem.default <="),
        ({"net.ipv4.tcp_tw_reuse": 1}, {"net.ipv4.tcp_timestamps": 0}, "net.ipv4.tcp_timestamps != 0"),
        (
            {"net.ipv4.tcp_congestion_control": "vegas"},
            {"net.ipv4.tcp_available_congestion_control": "reno cubic"},
            "in net.ipv4.tcp_available_congestion_control",
        ),
        ({"dev.e.tso": "on"}, {"dev.e.scatter_gather": "off"}, "dev.e.scatter_gather == on"),
        ({"dev.e.lro": "on", "dev.e.gro_hw": "on"}, {}, "does not go with"),
        (
            {"dev.e.coalesce_rx_usecs": 10},
            {"dev.e.coalesce_adaptive_rx": "on"},
            "does not go with dev.e.coalesce_adaptive_rx == on",
        ),
    ],
)
def test_conditions(setting: dict[str, int | str], now: dict[str, int | str], says: str) -> None:
    assert any("ND-104-07" in one and says in one for one in _faults(setting, now))


def test_conditions_that_hold_and_what_is_switched_off_are_no_fault() -> None:
    assert _faults({"net.ipv4.tcp_tw_reuse": 0}, {"net.ipv4.tcp_timestamps": 0}) == []
    assert _faults({"dev.e.tso": "on"}, {"dev.e.scatter_gather": "on", "dev.e.tx_checksum": "on"}) == []
    # raised together
    assert (
        _faults({"net.ipv4.tcp_rmem.default": 9, "net.ipv4.tcp_rmem.max": 9}, {"net.ipv4.tcp_rmem.max": 8})
        == []
    )


def test_what_changes_nothing_is_said() -> None:
    def said(name: str, **now: int) -> list[str]:
        values = {f"net.ipv4.{key}": value for key, value in now.items()}
        return list(registry().advice(name, lambda c: c.holds(values.get)))

    assert "inert" in said("net.ipv4.tcp_low_latency")[0]
    assert "tcp_syncookies == 0" in said("net.ipv4.tcp_max_syn_backlog", tcp_syncookies=1)[0]
    assert said("net.ipv4.tcp_max_syn_backlog", tcp_syncookies=0) == []


@root
def test_scopes_are_those_of_this_kernel() -> None:
    """Newer kernels move parameters into namespaces; then the file they stand in is to be changed."""
    for name, one in registry().tunables.items():
        if one.access.kind == "sysctl":
            assert host_state.scope(one) is one.scope, name


def _ends(one: Tunable, found: host_state.HostState) -> list[int | str]:
    if one.name == "net.ipv4.tcp_congestion_control":
        # outside the machine's own namespace no others can be set
        return str(sysctl.read(None, "net.ipv4.tcp_allowed_congestion_control")).split()
    if one.name == "dev.*.qdisc":
        return ["pfifo_fast", "pfifo", "bfifo"]  # those that every kernel has
    if one.values == "choice":
        return list(one.choices)
    if one.values == "mask":
        return ["1", "3", "0"]
    if one.values == "ports":
        return ["8080,9000-9010", ""]
    assert found.low is not None and found.high is not None
    return [found.low, found.high]


OTHERS = ("coalesce_rx_usecs", "coalesce_tx_usecs", "coalesce_tx_frames", "coalesce_adaptive",
          "tso", "tx_checksum", "threaded")  # fmt: skip
"""A tap shows all of coalescing and takes received frames only; of others its reader decides."""


@pytest.mark.sampled(30)
@root
@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("process.")])
def test_it_reads_takes_both_bounds_and_is_put_back(name: str, space: str) -> None:
    one = registry().tunables[name]
    asked = [name.replace("*", device) for device in ("v0", "t0")] if "*" in name else [name]
    found = host_state.read_states(registry(), asked, space)
    there = [h for h in found.values() if h.state != "missing"]
    if not there:
        # devices that a namespace can be given: a NIC is the machine's, and is left alone
        pytest.skip(f"neither a veth nor a tap has {name}" if "*" in name else f"this kernel has no {name}")
    if one.scope is Scope.GLOBAL:
        assert there[0].value is not None  # the whole machine's: read, and left alone
        return
    for h in there:
        if h.state != "there" or h.name.startswith(tuple(f"dev.t0.{x}" for x in OTHERS)):
            continue
        target, key = access.target(one.access, owner_of(h.name))

        def work(h: host_state.HostState = h, target: access.Target = target, key: str = key) -> None:
            way = access.kind(target)
            before = way.read(target)
            saved = way.save(target, set(before) if target.kind == "sysctl" else {key})
            # the ports are refused where the first comes after the last
            beside = {"0": 1024, "1": 65535} if "port_range" in h.name else {}
            for value in _ends(one, h):
                way.write(target, beside | {key: value})
                taken = access.at(way.read(target), key)
                if h.name == "dev.t0.coalesce_rx_frames" and value == h.high:
                    assert taken == 64  # as many as a poll takes: what the driver makes of more
                else:
                    assert str(taken) == str(value)
            way.put(target, saved)
            assert way.read(target) == before
            assert way.put(target, saved) is False

        access.within(space, work)


def test_the_paper_and_its_rivals_are_settings() -> None:
    assert set(service.settings()) >= {
        "paper-latency", "paper-throughput", "tuned-network-latency", "tuned-network-throughput"
    }  # fmt: skip
    for name in service.settings():
        known = service.find_setting(name)
        assert known.summary and known.source
        assert service.on_devices(load(paths.data("tunables"), ram=64 << 30), known.values, ["eth0", "eth1"])
    setting = service.on_devices(registry(), {"dev.*.txqueuelen": 5}, ["a", "b"])
    assert setting == {"dev.a.txqueuelen": 5, "dev.b.txqueuelen": 5}


def _limits(wanted: service.ServiceClass) -> list[tuple[str, float, bool]]:
    """What a search keeps to for a class of service."""
    made = PreparedBench(_Measuring(wanted.metrics), "own", {}, {}, (), wanted, False)  # type: ignore[arg-type]
    goal = search_run.goal_of(made, search_run.TuningSearchRequest(BenchRequest("own")))
    return [(one.name, one.most, one.upper) for one in goal.limits]


@dataclass(frozen=True)
class _Measuring:
    """A bench of which only the metrics are asked."""

    metrics: Mapping[str, Metric]


def test_classes_of_service(tmp_path: Path) -> None:
    assert set(service.classes()) == {"latency", "throughput"}
    for name in service.classes():
        one = service.read(name)
        assert one.setting in service.settings()
        assert set(one.tunables) <= set(NAMES)
        assert one.traits and one.objectives
    own = tmp_path / "own.yaml"
    own.write_text("metrics: {latency_p99: {unit: ms, better: lower}}\nobjectives: [latency_p99]\n"
                   "constraints: [{metric: latency_p99, most: 5}]\n")  # fmt: skip
    mine = service.read(str(own))
    assert mine.metrics["latency_p99"].better == "lower"
    assert _limits(mine) == [("latency_p99", 5, True)]
    own.write_text("metrics: {rate: {unit: bit/s, better: higher}}\nobjectives: [rate]\n"
                   "constraints: [{metric: rate, least: 9}]\n")  # fmt: skip
    assert _limits(service.read(str(own))) == [("rate", 9, False)]
    own.write_text("metrics: {}\nobjectives: [loss]\n")
    with pytest.raises(Error, match="ND-104-41"):
        service.read(str(own))


@root
def test_namespaces_are_looked_into(space: str) -> None:
    assert set(host_state.devices(space)) == {"t0", "v0", "v1"}
    sysctl.write(space, "net.core.somaxconn", "77")
    assert host_state.read_states(registry(), ["net.core.somaxconn"], space)["net.core.somaxconn"].value == 77
    assert host_state.read_states(registry(), ["net.core.somaxconn"])["net.core.somaxconn"].value != 77


@root
def test_windows_are_set_on_every_route_and_each_gets_its_own_back(space: str) -> None:
    def ip(*words: str) -> str:
        return subprocess.run(["ip", "-n", space, *words], check=True, capture_output=True, text=True).stdout

    ip(
        "route",
        "add",
        "default",
        "via",
        "10.99.0.2",
        "dev",
        "v0",
        "initcwnd",
        "33",
        "mtu",
        "1400",
        "metric",
        "7",
    )
    ip("-6", "route", "add", "2001:db8::/32", "via", "fd99::2", "dev", "v0")
    ip("-6", "route", "add", "2001:db9::/32", "via", "fd99::2", "dev", "v0", "expires", "1000")
    ip("route", "add", "10.98.0.0/24", "nexthop", "via", "10.99.0.2", "nexthop", "via", "10.99.0.3")
    before = ip("route", "show"), ip("-6", "route", "show")

    def work() -> None:
        way, target = Route(), access.Target("route", "initcwnd", "v0")
        assert way.read(target) == {"": "33 10"}
        saved = way.save(target, {""})
        assert sorted(saved.values()) == [0, 0, 0, 33]
        way.write(target, {"": 50})
        assert way.read(target) == {"": 50}
        shown = ip("route", "show") + ip("-6", "route", "show")
        assert shown.count("initcwnd 50") == 4
        assert "default via 10.99.0.2 dev v0 metric 7 mtu 1400 initcwnd 50" in " ".join(shown.split())
        # a second window beside the first; each is put back by itself
        beside = access.Target("route", "initrwnd", "v0")
        other = way.save(beside, {""})
        way.write(beside, {"": 60})
        ip("route", "del", "default")
        assert way.put(target, saved) is True
        assert (way.read(target), way.read(beside)) == ({"": 10}, {"": 60})
        assert way.put(beside, other) is True
        assert way.put(beside, other) is False
        ip(
            "route",
            "add",
            "default",
            "via",
            "10.99.0.2",
            "dev",
            "v0",
            "initcwnd",
            "33",
            "mtu",
            "1400",
            "metric",
            "7",
        )

    def plain(text: str) -> list[str]:
        return sorted(re.sub(r"expires \d+sec", "", line).strip() for line in text.splitlines())

    access.within(space, work)
    after = ip("route", "show"), ip("-6", "route", "show")
    assert [plain(one) for one in after] == [plain(one) for one in before]
    with pytest.raises(OSError, match="it has no route"):
        access.within(space, lambda: Route().read(access.Target("route", "initcwnd", "t0")))


def test_interrupts_go_to_other_processors_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices, irqs = tmp_path / "net", tmp_path / "irq"
    monkeypatch.setattr(files, "DEVICES", devices)
    monkeypatch.setattr(irq, "IRQS", irqs)
    # the kernel takes each write for the whole value
    monkeypatch.setattr(files, "tell", lambda path, text: path.write_text(text + "\n"))
    (devices / "eth9").mkdir(parents=True)
    # a virtio device, whose interrupts are those of the PCI function above it; one has no file of its own
    (devices / "pci/virtio0").mkdir(parents=True)
    (devices / "eth9/device").symlink_to(devices / "pci/virtio0")
    for number, mask in (("24", "00000003"), ("25", "00000001"), ("26", None)):
        (devices / "pci/msi_irqs").mkdir(exist_ok=True)
        (devices / f"pci/msi_irqs/{number}").write_text("msix")
        if mask:
            (irqs / number).mkdir(parents=True)
            (irqs / number / "smp_affinity").write_text(mask + "\n")
    way, target = irq.Irq(), access.Target("irq", "smp_affinity", "eth9")
    assert way.read(target) == {"": "3 1"}
    saved = way.save(target, {""})
    way.write(target, {"": "2"})
    assert way.read(target) == {"": "2"}
    assert way.put(target, saved) is True
    assert way.put(target, saved) is False
    assert way.read(target) == {"": "3 1"}
    with pytest.raises(FileNotFoundError):
        way.read(access.Target("irq", "smp_affinity", "eth8"))


def test_queues_take_turns_by_the_table_of_a_nic_that_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    table = [0, 1, 2, 3, 0, 1, 2, 3]

    def call(device: str, data: bytearray) -> None:
        command, size = struct.unpack_from("=II", data)
        if command == 0x2D:
            struct.pack_into("=Q", data, 8, 4)
        elif command == 0x39:
            table[:] = struct.unpack_from(f"={size}I", data, 8)
        elif size:
            struct.pack_into(f"={size}I", data, 8, *table)
        else:
            struct.pack_into("=I", data, 4, len(table))

    monkeypatch.setattr(ethtool, "call", call)
    way, target = rss.Rss(), access.Target("rss", "indirection", "eth9")
    assert way.read(target) == {"": 4}
    assert way.limits(target) == {"": (1, 4)}
    saved = way.save(target, {""})
    way.write(target, {"": 3})
    assert table == [0, 1, 2, 0, 1, 2, 0, 1]
    assert way.read(target) == {"": 3}
    table[0] = 2
    assert way.read(target) == {"": "queues 0 1 2"}
    assert way.put(target, saved) is True
    assert way.put(target, saved) is False
    assert table == [0, 1, 2, 3, 0, 1, 2, 3]


def test_rings_and_interrupts_of_a_nic_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A NIC by the kernel's own structures (linux/ethtool.h): the largest first, then what is set."""
    rings = [0, 4096, 0, 0, 4096, 256, 0, 0, 256]
    coalesce = [0] * 23
    coalesce[1], coalesce[10], coalesce[14] = 3, 1, 99
    told: list[int] = []

    def call(device: str, data: bytearray) -> None:
        numbers = list(struct.unpack(f"={len(data) // 4}I", data))
        nic = rings if len(numbers) == len(rings) else coalesce
        if numbers[0] in (0x11, 0x0F):
            told.append(numbers[0])
            nic[1:] = numbers[1:]
        else:
            assert numbers[0] in (0x10, 0x0E)
        data[:] = struct.pack(f"={len(nic)}I", *nic)

    monkeypatch.setattr(ethtool, "call", call)
    way, ring = ethtool.Ethtool(), access.Target("ethtool", "ring", "eth9")
    assert way.read(ring) == {"rx": 256, "tx": 256}
    assert way.limits(ring) == {"rx": (1, 4096), "tx": (1, 4096)}
    saved = way.save(ring, {"rx"})
    way.write(ring, {"rx": 4096})
    assert rings == [0, 4096, 0, 0, 4096, 4096, 0, 0, 256]
    assert way.put(ring, saved) is True
    assert way.put(ring, saved) is False
    assert rings[5] == 256
    wait = access.Target("ethtool", "coalesce", "eth9")
    assert way.read(wait)["adaptive_rx"] == "on"
    saved = way.save(wait, {"adaptive_rx", "rx_usecs"})
    way.write(wait, {"adaptive_rx": "off", "rx_usecs": 50})
    assert (coalesce[1], coalesce[10], coalesce[14]) == (50, 0, 99)
    way.put(wait, saved)
    assert (coalesce[1], coalesce[10], coalesce[14]) == (3, 1, 99)
    assert told == [0x11, 0x11, 0x0F, 0x0F]
