"""Services with a bottleneck that nobody told of: found by the watch, proven by a comparison, applied.

Each is loaded over a path of 5 ms each way while `tune watch` looks at it. What the watch sets is proven in pairs in new
namespaces, with the service's own commands, and put in force by the name of that study.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bottleneck_service import PORT
from inconclusive import Verdict
from lab import Lab, sh, until
from test_impair import FAR, Wan, pytestmark

from netdyno.system import namespace, sysctl

__all__ = ["pytestmark"]
TRACKED = "net.netfilter.nf_conntrack_max"
NEIGHBOURS = "net.ipv4.neigh.default.gc_thresh3"
SERVICE = f"{sys.executable} {Path(__file__).with_name('bottleneck_service.py')}"


@dataclass(frozen=True)
class Bottleneck:
    """A service, its load, and the one limit that binds."""

    name: str
    server: str
    load: str
    metric: str
    parameter: str
    before: dict[str, str]
    """Values of the tuned host with which it binds."""
    client: bool = False
    """Whether the client is tuned."""
    whole: bool = False
    """Whether the parameter is one of the whole machine."""
    suffers: str = ""
    """What is said of the sockets of the service, where they say something."""


BOTTLENECKS = [
    Bottleneck(
        "accept-queue", "serve-accept", "burst {address} 400", "answered=answered (.+)", "net.core.somaxconn",
        {"net.core.somaxconn": "64"}, suffers="wait to be accepted",
    ),
    Bottleneck(
        "send-buffer", "serve-bulk", "bulk {address} 1", "mbits=mbits (.+)", "net.ipv4.tcp_wmem.max",
        {"net.ipv4.tcp_wmem.max": "16384"}, suffers="held back by the send buffer in ",
    ),
    Bottleneck(
        "local-ports", "serve-close", "connects {address} 3", "rate=rate (.+)", "net.ipv4.tcp_tw_reuse",
        {"net.ipv4.ip_local_port_range.low": "32768", "net.ipv4.ip_local_port_range.high": "32799",
         "net.ipv4.tcp_tw_reuse": "2"}, client=True,
    ),
    Bottleneck(
        "udp-buffer", "serve-datagrams", "datagrams {address} 3000", "share=share (.+)", "net.core.rmem_default",
        {"net.core.rmem_default": "212992"}, whole=True,
    ),
    Bottleneck(
        "connection-tracking", "serve-tracked", "hold {address} 1500", "answered=answered (.+)",
        TRACKED, {TRACKED: "1024"}, whole=True,
    ),
    Bottleneck(
        "neighbour-table", "serve-hosts", "hosts {address} 240", "answered=answered (.+)",
        NEIGHBOURS, {NEIGHBOURS: "128"}, whole=True,
    ),
]  # fmt: skip


def may_write(file: Path) -> bool:
    """Whether a namespace has a value of its own."""
    return file.exists() and bool(file.stat().st_mode & 0o200)


def write(lab: Lab, space: str, values: dict[str, str]) -> None:
    """Values of a namespace; those of a triple or a range by the name of their part.

    One of the whole machine is put back with the test. Each namespace counts its own connections.
    """
    parts = {"low": 0, "high": 1, "min": 0, "default": 1, "max": 2}
    for name, value in values.items():
        head, _, part = name.rpartition(".")
        if part not in parts:
            if sysctl.read(space, name) == value:
                continue
            if namespace.inside(space, partial(may_write, sysctl.file(name))):
                sysctl.write(space, name, value)
            else:
                lab.at_end(partial(sysctl.write, None, name, sysctl.read(None, name)))
                sysctl.write(None, name, value)
            continue
        whole = (sysctl.read(space, head) or "").split()
        whole[parts[part]] = value
        sysctl.write(space, head, " ".join(whole))


def tracks_many(space: str | None) -> bool:
    """Whether a namespace has connections that the least of our limits would cut: each counts its own."""
    return int(sysctl.read(space, "net.netfilter.nf_conntrack_count") or 0) > 200


def knows_many() -> bool:
    """Whether there are neighbours that a full table would be a loss to: all namespaces share it."""
    found = Path("/proc/net/stat/arp_cache").read_text().splitlines()
    return int(found[1].split()[found[0].split().index("entries")], 16) > 32


def marked(case: Bottleneck) -> Any:
    """A table that is one for all namespaces is filled only where nothing else runs."""
    return pytest.param(case, marks=pytest.mark.alone) if NEIGHBOURS in case.before else case


@pytest.mark.sampled(1)
@pytest.mark.limit(1000)
@pytest.mark.parametrize("case", [marked(one) for one in BOTTLENECKS], ids=lambda case: case.name)
def test_what_limits_a_service_is_found_proven_and_applied(
    lab: Lab, case: Bottleneck, verdict: Verdict
) -> None:
    way = Wan(lab, "--delay", "5ms")
    tuned = way.near if case.client else way.far
    if TRACKED in case.before and any(tracks_many(one) for one in (None, *namespace.names())):
        pytest.skip("other namespaces of this machine track connections")
    if NEIGHBOURS in case.before and knows_many():
        pytest.skip("other namespaces of this machine have neighbours, and the table is one for all")
    if NEIGHBOURS in case.before:
        # a link of more than two hosts
        sh("ip", "-n", way.far, "addr", "add", f"{FAR}/24", "dev", "wan0")
    write(lab, tuned, case.before)
    more = ["--global"] if case.whole else []
    server = lab.spawn("ip", "netns", "exec", way.far, *SERVICE.split(), case.server)
    watch = lab.start("tune", "watch", "--where", tuned, "--json", *more)
    assert watch.stderr and "watching" in watch.stderr.readline()
    begin, done, found = time.monotonic(), threading.Event(), list[dict[str, object]]()

    def read() -> None:
        assert watch.stdout
        for line in watch.stdout:
            found.append(json.loads(line) | {"after": time.monotonic() - begin})

    def load() -> None:
        words = case.load.format(address=FAR).split()
        while not done.is_set():
            lab.wait(lab.spawn("ip", "netns", "exec", way.near, *SERVICE.split(), *words), 60)

    reader, loader = threading.Thread(target=read), threading.Thread(target=load)
    reader.start()
    loader.start()

    def sets() -> list[dict[str, object]]:
        return [one for one in found if one["action"] == "set" and one["name"] == case.parameter]

    try:
        try:
            until(lambda: bool(sets()), 60, "nothing is found")
        except AssertionError:
            verdict.undisturbed()
            raise
        # as many steps as it takes, until it has had no reason for another for a while
        until(lambda: time.monotonic() - begin - float(str(sets()[-1]["after"])) > 6, 90, "it goes on")
    finally:
        done.set()
        loader.join(90)
        watch.send_signal(signal.SIGINT)
        watch.wait(60)
        reader.join(10)
    first, last = sets()[0], sets()[-1]
    others = {one["name"] for one in found if one["action"] == "set"} - {case.parameter}
    if case.suffers:
        # the service itself is named, by what its sockets say
        whose = [one for one in found if one["action"] == "suffers" and one["name"] == case.parameter]
        assert {(one["pid"], one["port"]) for one in whose} == {(server.pid, PORT)}, found
        assert case.suffers in str(whose[0]["why"])
    print(
        f"{case.name}: found after {first['after']:.1f} s, {case.parameter} = {last['value']}; also {others}"
    )

    begin = time.monotonic()
    a = ",".join(f"{name}={value}" for name, value in case.before.items())
    b = ",".join(f"{n}={last['value'] if n == case.parameter else v}" for n, v in case.before.items())
    proof = lab.run(
        "tune", "compare", "--load", f"{SERVICE} {case.load}", "--server", f"{SERVICE} {case.server}",
        "--metric", case.metric, "--better", "higher", "--path", "delay=5ms", "--pairs", "7", "--name", case.name,
        "--tune", "client" if case.client else "server", "--json", *more, a, b, timeout=600,
    )  # fmt: skip
    print(proof.err[-400:])
    document = json.loads(proof.out)
    verdict.trials_undisturbed(document["lost"])
    (metric,) = document["metrics"]
    a_b = f"{metric['effect']['a']:.4g} → {metric['effect']['b']:.4g}"
    print(f"{a_b}, {metric['verdict']}, mechanism {document['mechanism']}")
    assert metric["verdict"] == "better", metric
    proven = time.monotonic() - begin

    begin = time.monotonic()
    key = case.parameter.removesuffix(".max")
    look = None if case.whole else tuned
    before = sysctl.read(look, key)
    child = lab.start("tune", "apply", case.name, "--where", tuned, *more)
    until(lambda: sysctl.read(look, key) != before or child.poll() is not None, 30, "it is not applied")
    assert child.poll() is None, lab.wait(child).err
    applied = time.monotonic() - begin
    child.send_signal(signal.SIGINT)
    child.wait(60)
    assert sysctl.read(look, key) == before
    print(f"{case.name}: proven in {proven:.0f} s, applied in {applied:.1f} s")
