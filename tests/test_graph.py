"""Watching a run's graph beside it, as a viewer who changes nothing."""

from __future__ import annotations

import json
import re
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from lab import PATIENCE, Lab, group, profile, until

ELEMENTS = [
    "a.rx",
    "a.receiver",
    "a.arp-nd",
    "a.tx",
    "a.generator",
    "b.rx",
    "b.reflector",
    "b.tx",
]


def socket_of(lab: Lab) -> str:
    """The socket of the daemon that the lab's run has started."""
    found: list[Path] = []

    def there() -> bool:
        tokens = tuple(f"nd-{folder.name.rpartition('-')[2]}" for folder in lab.runs.glob("*-*"))
        found[:] = [p for p in Path("/run/netdyno").glob("nd-*.sock") if tokens and p.name.startswith(tokens)]
        return bool(found)

    until(there, 60, "no daemon serves")
    return str(found[0])


def running(lab: Lab, socket: str) -> dict[str, Any]:
    """What the viewer sees once packets pass."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done = lab.run("graph", "--json", "--socket", socket)
        if done.code == 0:
            shown: dict[str, Any] = json.loads(done.out)
            counts = {one["name"]: one for one in shown["elements"]}
            if shown["status"]["state"] == "running" and counts["a.receiver"]["packets_in"]:
                return shown
    raise AssertionError(done.text)


def test_the_planned_graph_is_shown_without_running(lab: Lab) -> None:
    shown = json.loads(lab.good("graph", "stream-64b", "--json").out)["legs"]["dpdk"]
    assert [one["name"] for one in shown["elements"]] == ELEMENTS
    assert {one["core"] for one in shown["elements"]} == {shown["workers"][0]["core"]}
    text = lab.good("graph", "stream-64b").out
    assert re.search(r"^a\.generator +0 +\d+ +a\.tx *$", text, re.MULTILINE), text
    # of an experiment, the legs that have one
    assert json.loads(lab.good("graph", "demo", "--json").out)["legs"]
    assert not lab.runs.exists()
    lab.clean()


def test_the_roles_of_a_profile_become_a_graph_that_runs(lab: Lab) -> None:
    text = lab.good("graph", "stream-64b", "--expand").out
    made = yaml.safe_load(text)
    dpdk = made["transport"]["dpdk"]
    assert list(dpdk) == ["ports", "elements", "edges", "memory"]
    assert dpdk["edges"] == [
        "a.rx -> a.receiver -> a.arp-nd -> a.tx",
        "a.generator -> a.tx",
        "b.rx -> b.reflector -> b.tx",
    ]
    assert not any("role" in port for port in dpdk["ports"])
    # an element of one's own, before the reflector
    dpdk["elements"]["count"] = {"kind": "counter"}
    dpdk["edges"][2] = "b.rx -> count -> b.reflector -> b.tx"
    made["phases"] = {
        "warmup": "0s",
        "measure": "500ms",
        "drain": "1s",
        "sample": "100ms",
    }
    made["groups"][0]["model"]["stream"]["rate"] = "1k/s"
    trial = lab.run("run", lab.write("mine.json", made), "-q").trial
    counts = {one["name"]: one for one in trial.elements}
    sent = trial.groups[0].total.messages_sent
    assert sent and counts["count"]["packets_out"] == counts["b.reflector"]["packets_in"] >= sent
    done = lab.run("graph", "--expand")
    assert done.code == 104 and "ND-104-22" in done.text, done.text
    lab.clean()


def over_a_cable() -> dict[str, Any]:
    """A stream that any machine can send, to our reflector and back."""
    ports = [
        {"name": "a", "device": "pair:watched", "ip": "10.0.0.1"},
        {"name": "b", "device": "pair:watched", "ip": "10.0.0.2", "role": "reflector"},
    ]
    stream = group("s", "udp://10.0.0.2:7", {"stream": {"rate": "100/s", "size": "18B"}})
    # until the test has seen all it wants
    return profile(stream, measure="300s", transport={"dpdk": {"ports": ports}})


def test_a_run_is_watched_and_packets_are_followed_beside_it(lab: Lab) -> None:
    child = lab.start("run", lab.write("p.json", over_a_cable()), "-q")
    socket = socket_of(lab)
    shown = running(lab, socket)
    assert {"from": "a.generator", "to": "a.tx", "ring": False} in shown["edges"]
    assert shown["workers"][0]["busy_cycles"] > 0

    text = lab.good("graph", "--trace", "4", "--filter", "udp dst port 7", "--socket", socket).out
    heads = re.findall(r"^10\.0\.0\.1:\d+ > 10\.0\.0\.2:7 UDP, 60 B$", text, re.MULTILINE)
    assert len(heads) == 4, text
    steps = re.findall(r"^ +(\d+\.\d{3}) µs  (\S+) +(.+?) *$", text, re.MULTILINE)
    assert {element for _, element, _ in steps} <= {
        "a.generator",
        "a.tx",
        "b.rx",
        "b.reflector",
        "b.tx",
    }
    assert ("0.000", "a.generator", "passed to out") in steps or (
        "0.000",
        "b.rx",
        "passed to out",
    ) in steps

    traced = json.loads(lab.good("graph", "--trace", "2", "--json", "--socket", socket).out)["packets"]
    assert [packet["len"] for packet in traced] == [60, 60]
    wrong = lab.run("graph", "--trace", "2", "--filter", "udp prt 7", "--socket", socket)
    assert (wrong.code, "not a packet filter" in wrong.err) == (104, True), wrong.text

    seen = lab.base / "view"

    def lines() -> list[str]:
        return [line for line in seen.read_text().splitlines() if " b.reflector " in line]

    with seen.open("w") as out:
        viewer = lab.start("graph", "--interval", "200ms", "--socket", socket, stdout=out)
    until(lambda: len(lines()) > 2, 60, "the viewer shows nothing")
    child.send_signal(signal.SIGINT)
    run, view = lab.wait(child), lab.wait(viewer)
    assert (run.code, view.code) == (105, 0), run.text + view.text
    assert re.search(
        r"^a: pair:\w+ \(net_ring\), .*, 1 queue each way; does by itself: nothing",
        seen.read_text(),
    ), seen.read_text()
    run = replace(run, folder=next(lab.runs.glob("*-e2e-*")))
    assert [reason.code for reason in run.result.reasons] == ["ND-90-05"], (
        "only cut short: a viewer changes nothing"
    )
    sent = next(one for one in run.trial.elements if one["name"] == "a.tx")["packets_in"]
    assert all(
        int(found[1].replace(",", "")) <= sent
        for line in lines()
        if (found := re.search(r"in ([\d,]+)", line))
    )
    lab.clean()


def test_a_path_of_a_run_is_changed_from_another_terminal(lab: Lab) -> None:
    run = over_a_cable()
    for port in run["transport"]["dpdk"]["ports"]:
        port["impair"] = {}
    child = lab.start("run", lab.write("p.json", run), "-q")
    socket = socket_of(lab)

    def lost() -> int:
        counts = {one["name"]: one for one in running(lab, socket)["elements"]}
        assert not counts["a.impair"]["drops"]
        return int(counts["b.impair"]["drops"].get("lost", 0))

    assert lost() == 0
    for words, code in ((("c", "--loss", "1%"), "ND-104-06"), (("b",), "ND-104-07")):
        wrong = lab.run("impair", "--socket", socket, "--run", *words)
        assert (wrong.code, code in wrong.err) == (104, True), wrong.text
    ways = ("--there", "loss=50%", "--back", "delay=20ms")
    said = lab.good("impair", "--run", "a,b", *ways, "--socket", socket).err
    assert re.search(
        r"^\S+: what comes in at b from now on: impair: .*independent: 50%",
        said,
        re.MULTILINE,
    ), said
    until(lambda: lost() > 10, 60, "nothing is lost")
    child.send_signal(signal.SIGINT)
    done = replace(lab.wait(child), folder=next(lab.runs.glob("*-e2e-*")))
    changes = {one["port"]: one["impair"] for one in done.trial.model_dump()["changes"]}
    assert (changes["a"]["delay"], changes["b"]["loss"]) == (
        {"constant": "20ms"},
        {"independent": "50%"},
    )
    lab.clean()


def test_sockets_have_no_graph(lab: Lab) -> None:
    done = lab.run("graph", "ping://127.0.0.1")
    assert (done.code, "DPDK" in done.err) == (104, True), done.text
