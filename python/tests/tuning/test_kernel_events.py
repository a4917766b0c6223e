"""Drops by the kernel's reason and brief connections, against traffic whose drops and ends are known."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli.app import call
from netdyno.doctor.checks import Check
from netdyno.lab import counters
from netdyno.system import bpf, namespace
from netdyno.tuning import doctor, kernel_events
from netdyno.tuning.kernel_events import (
    COUNTED,
    HARMLESS,
    PREFIX,
    SUMS,
    Drop,
    Findings,
    Flows,
    KernelEvents,
    Window,
)  # fmt: skip

from ..command import start
from ..conftest import root
from .test_watch_silent import READERS, datagrams, of_kind
from .watching import actions

FIREWALL = (
    "add table inet f; add chain inet f in { type filter hook input priority 0; }; "
    "add rule inet f in udp dport 7003 drop"
)


@pytest.fixture
def in_kernel() -> None:
    """Where this kernel, and this root, may have the programs."""
    if os.geteuid():
        pytest.skip("only root may load programs into the kernel")
    try:
        KernelEvents(None).close()
    except bpf.BpfError as e:
        pytest.skip(f"this kernel, or this container, takes no BPF programs: {e}")


needs_programs = pytest.mark.usefixtures("in_kernel")


@pytest.fixture
def events(space: str, in_kernel: None) -> Iterator[KernelEvents]:
    made = KernelEvents(space)
    yield made
    made.close()


@root
@needs_programs
def test_each_drop_is_told_with_its_reason_place_and_counter(
    space: str,
    served: Callable[..., subprocess.Popen[str]],
    watched: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    """A full buffer, a port without a listener, and a firewall, whose drops no counter tells."""
    subprocess.run(["ip", "netns", "exec", space, "nft", FIREWALL], check=True)
    served(READERS, "7001:4000")
    seen = tmp_path / "seen"
    child = watched("--record", str(seen))

    def rates(name: str) -> list[float]:
        lines = seen.read_text().splitlines() if seen.exists() else []
        return [one for line in lines if (one := json.loads(line)["rates"].get(name, 0))]

    names = ("SOCKET_RCVBUFF", "NO_SOCKET", "NETFILTER_DROP")
    until = time.monotonic() + 60
    while not all(rates(f"drop.{name}") for name in names):
        assert time.monotonic() < until
        for port in (7001, 7002, 7003):
            datagrams(space, port, 100)
        time.sleep(0.3)
    lost = {one["reason"]: one for one in of_kind(actions(child), "droppedpackets")}
    assert lost.keys() >= set(names)
    for name, port, told in zip(
        names, (7001, 7002, 7003), (["UdpRcvbufErrors"], ["UdpNoPorts"], []), strict=True
    ):
        one = lost[name]
        assert (one["protocol"], one["ports"], one["counters"]) == ("UDP over IPv4", [port], told)
        assert one["packets"] >= 5
        assert re.fullmatch(r"\w+", one["place"])
        assert f"{name}, UDP over IPv4 to port {port}; " in one["why"]
    assert "no counter that is read tells of it" in lost["NETFILTER_DROP"]["why"]


@root
@needs_programs
def test_drops_are_counted_exactly_and_only_those_of_the_namespace(space: str, events: KernelEvents) -> None:
    before = counters.read(counters.CounterSource(space)).get("UdpNoPorts", 0)
    datagrams(space, 7002, 250)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        # in the namespace that we are in
        for _ in range(50):
            sender.sendto(b"x", ("127.0.0.1", 7012))

    def over_ipv6() -> None:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as one:
            for _ in range(30):
                one.sendto(b"x", ("::1", 7002))

    namespace.inside(space, over_ipv6)
    time.sleep(0.1)
    assert counters.read(counters.CounterSource(space))["UdpNoPorts"] - before == 250
    found = {(one.protocol, one.port): one for one in events.window().drops if one.reason == "NO_SOCKET"}
    assert {key: one.packets for key, one in found.items()} == {
        ("UDP over IPv4", 7002): 250, ("UDP over IPv6", 7002): 30,
    }  # fmt: skip
    assert Window((), (), 6).rates(2.0) == {"events.uncounted": 3}
    # each window begins at nothing
    assert not [one for one in events.window().drops if one.reason == "NO_SOCKET"]


@root
@needs_programs
def test_connections_that_nobody_sees_are_counted_with_how_they_ended(
    space: str, events: KernelEvents
) -> None:
    """20 that are closed, 10 of which we reset, 5 that are refused, and one that lives for too long."""
    once = struct.pack("ii", 1, 0)

    def work() -> None:
        with socket.create_server(("127.0.0.1", 7000)) as listening:
            kept = socket.create_connection(("127.0.0.1", 7000)), listening.accept()[0]
            for number in range(20):
                client, served = socket.create_connection(("127.0.0.1", 7000)), listening.accept()[0]
                client.sendall(b"hello")
                assert served.recv(5) == b"hello"
                if number < 10:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, once)
                client.close()
                served.close()
            for _ in range(5):
                with contextlib.suppress(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", 7999))
            time.sleep(kernel_events.BRIEF + 0.2)
            for one in kept:
                one.close()

    namespace.inside(space, work)
    time.sleep(0.2)
    window = events.window()
    found = {(one.port, one.serves): one for one in window.flows}
    assert found.keys() == {(7000, True), (7000, False), (7999, False)}
    assert {one.peer for one in window.flows} == {"127.0.0.1"}
    ours, theirs, refused = (found[key].sums for key in ((7000, False), (7000, True), (7999, False)))
    assert ours["connections"] == theirs["connections"] == 20
    assert (ours["reset_here"], ours["reset_by_peer"]) == (10, 0)
    assert (theirs["reset_here"], theirs["reset_by_peer"]) == (0, 10)
    assert (refused["connections"], refused["refused"]) == (5, 5)
    assert ours["round_trips"] == 20 and 0 < ours["round_trip"] / 20 < 1e6
    assert ours["segments"] >= 40 and ours["retransmitted"] == 0
    assert 0 < ours["microseconds"] / 20 < 1e6
    rates = window.rates(2.0)
    assert (rates["brief.connections"], rates["brief.reset_by_peer"], rates["brief.refused"]) == (
        22.5,
        5,
        2.5,
    )
    (told,) = [one for one in Findings().flows(0.0, window) if (one.port, one.serves) == (7000, True)]
    assert (told.reset, told.failed, told.peers) == (10, 0, ("127.0.0.1",))
    assert "20 connections from 127.0.0.1 to our port 7000" in told.why and "10 reset by the peer" in told.why


def loaded() -> set[int]:
    """Numbers of all programs in the kernel."""
    lib, found, number = ctypes.CDLL(bpf.LIBRARY), set(), ctypes.c_uint32(0)
    while not lib.bpf_prog_get_next_id(number, ctypes.byref(number)):
        found.add(number.value)
    return found


@root
@needs_programs
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_no_program_stays_however_the_watch_ends(space: str, end: signal.Signals) -> None:
    child = start("tune", "watch", "--where", space)
    try:
        assert child.stderr and "watching" in child.stderr.readline()
        texts = [one.read_text() for one in Path(f"/proc/{child.pid}/fdinfo").iterdir()]
        mine = {int(found[1]) for text in texts if (found := re.search(r"^prog_id:\s*(\d+)", text, re.M))}
        assert len(mine) == 1 + len(kernel_events.PROGRAMS)
        assert mine <= loaded()
    finally:
        child.send_signal(end)
        child.communicate(timeout=60)
    until = time.monotonic() + 30
    while mine & loaded():
        assert time.monotonic() < until
        time.sleep(0.1)


@root
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("BTF", Path("/nowhere"), "this kernel has no types"),
        ("LIBRARY", "libnothing.so.1", "libnothing.so.1 is not there. Install libbpf"),
    ],
)
def test_where_it_cannot_be_had_that_is_said_once_and_the_watch_works(
    space: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
    value: Any,
    said: str,
) -> None:
    monkeypatch.setattr(bpf, name, value)
    bpf._library.cache_clear()
    try:
        assert call(["tune", "watch", "--where", space, "--for", "3s"]) == 0
        err = " ".join(capfd.readouterr().err.split())
        assert err.count("drops are not told by the kernel's reason") == 1
        assert said in err
        assert "watching net.core.somaxconn" in err and "old values restored" in err
        (check,) = [one for one in doctor.checks() if one.name == "kernel events (BPF)"]
        assert check.state == "optional" and check.fix
    finally:
        bpf._library.cache_clear()


@root
@needs_programs
def test_the_doctor_says_that_they_can_be_had() -> None:
    assert [one.state for one in doctor.checks() if one.name == "kernel events (BPF)"] == ["ok"]
    assert isinstance(next(doctor.checks()), Check)


@needs_programs
def test_reasons_and_counters_are_those_of_the_kernel() -> None:
    reasons = {one.removeprefix(PREFIX) for one in bpf.enumeration("skb_drop_reason").values()}
    assert {"NO_SOCKET", "SOCKET_RCVBUFF", "NETFILTER_DROP"} <= reasons
    # newer kernels have more of them
    assert len(set(COUNTED) - reasons) <= 2
    assert len(HARMLESS - reasons) <= 2
    there = counters.read(counters.CounterSource())
    assert {name for names in COUNTED.values() for name in names} <= there.keys()
    assert bpf.enumeration("no_such_enumeration") == {}


def test_programs_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path))
    monkeypatch.setattr(kernel_events, "BUILT", tmp_path / "none")
    first = kernel_events.programs()
    assert first.startswith(b"\x7fELF")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kernel_events.programs() == first
    for path in (tmp_path / "bpf").iterdir():
        path.unlink()
    with pytest.raises(bpf.BpfError, match="no clang"):
        kernel_events.programs()
    (tmp_path / "packaged").write_bytes(b"packaged")
    monkeypatch.setattr(kernel_events, "BUILT", tmp_path / "packaged")
    assert kernel_events.programs() == b"packaged"


def flow(port: int = 80, **sums: int) -> Flows:
    return Flows("192.0.2.1", port, True, {**dict.fromkeys(SUMS, 0), **sums})


def test_what_is_little_or_told_already_is_not_told() -> None:
    def window(packets: int) -> Window:
        return Window((Drop("QDISC_DROP", "f", "TCP over IPv4", 80, packets),))

    few = Findings()
    assert not list(few.drops(0.0, window(2), {}))
    assert not list(few.drops(10.0, window(2), {}))
    # in several windows
    assert len(list(few.drops(11.0, window(2), {}))) == 1
    assert not list(few.drops(12.0, window(2), {}))
    many = Findings()
    assert [one.packets for t in range(30) for one in many.drops(float(t), window(9), {})] == [9]
    # again after a while without
    assert len(list(many.drops(200.0, window(9), {}))) == 1


@pytest.mark.parametrize(
    ("sums", "told"),
    [
        ({"connections": 100, "segments": 1000, "retransmitted": 5}, False),
        ({"connections": 100, "segments": 1000, "retransmitted": 20}, True),
        ({"connections": 100, "segments": 1000, "reset_by_peer": 2}, False),
        ({"connections": 100, "segments": 1000, "reset_by_peer": 3, "refused": 3}, True),
        ({"connections": 4, "segments": 40, "retransmitted": 20}, False),
    ],
)
def test_brief_connections_are_told_where_they_fare_badly(sums: dict[str, int], told: bool) -> None:
    assert bool(list(Findings().flows(0.0, Window((), (flow(**sums),))))) == told


@root
@needs_programs
def test_what_a_local_socket_leaves_unread_is_no_packet(space: str, events: KernelEvents) -> None:
    def left() -> None:
        for _ in range(20):
            one, other = socket.socketpair()
            one.send(b"x")
            other.close()
            one.close()

    namespace.inside(space, left)
    time.sleep(0.1)
    assert not [one for one in events.window().drops if "unix" in one.place]


@root
@needs_programs
def test_a_packet_is_dropped_where_it_is_and_not_where_it_came_from(space: str, events: KernelEvents) -> None:
    """On this machine it has its sender's socket until another host of it takes it in."""
    sender = f"{space}f"
    for words in (
        ("netns", "add", sender),
        ("-n", sender, "link", "add", "far0", "type", "veth", "peer", "name", "near0", "netns", space),
        ("-n", sender, "addr", "add", "10.77.9.1/24", "dev", "far0"),
        ("-n", sender, "link", "set", "far0", "up"),
        ("-n", space, "addr", "add", "10.77.9.2/24", "dev", "near0"),
        ("-n", space, "link", "set", "near0", "up"),
    ):
        subprocess.run(["ip", *words], check=True, timeout=30)
    try:
        table = (
            "add table netdev cut; add chain netdev cut in { type filter hook ingress device near0 priority 0; }; "
            "add rule netdev cut in udp dport 7077 drop"
        )
        subprocess.run(["ip", "netns", "exec", space, "nft", table], check=True, timeout=30)

        def out() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
                # the first waits for the neighbour
                until = time.monotonic() + 30
                while not _reached(sender) and time.monotonic() < until:
                    made.sendto(b"x", ("10.77.9.2", 7078))
                    time.sleep(0.1)
                for _ in range(40):
                    made.sendto(b"x", ("10.77.9.2", 7077))

        namespace.inside(sender, out)
        time.sleep(0.1)
        found = [one for one in events.window().drops if one.port == 7077]
        assert [(one.reason, one.packets) for one in found] == [("NETFILTER_DROP", 40)], found
    finally:
        subprocess.run(["ip", "netns", "delete", sender], check=True, timeout=30)


def _reached(space: str) -> bool:
    said = subprocess.run(
        ["ip", "-n", space, "neigh", "show"], check=True, capture_output=True, text=True, timeout=30
    )
    return "REACHABLE" in said.stdout or "DELAY" in said.stdout
