"""Hosts joined by an impaired path; the kernel's ping and TCP are the witnesses."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from inconclusive import Verdict
from lab import PATIENT, Lab, root, sh, until

from netdyno.system import namespace

pytestmark = [
    root,
    pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="there is no /dev/net/tun"),
]
NEAR, FAR = "198.18.0.1", "198.18.0.2"


class Wan:
    """A `netdyno impair` that is under way between two namespaces of a test's own."""

    def __init__(self, lab: Lab, *options: str, quiet: bool = True) -> None:
        tag = f"ndt{os.getpid()}x{time.monotonic_ns() % 100000}"
        self.near, self.far = f"{tag}n", f"{tag}f"
        self.lab, self.quiet = lab, quiet
        if quiet:
            # of our own making, for nothing to be on the link but what the test sends
            for space in (self.near, self.far):
                sh("ip", "netns", "add", space)
                for scope in ("all", "default"):
                    off = f"net.ipv6.conf.{scope}.disable_ipv6=1"
                    sh("ip", "netns", "exec", space, "sysctl", "-qw", off)
        self.child = lab.start("impair", "--between", f"{self.near},{self.far}", "--json", *options)
        lab.at_end(self.remove)
        until(
            lambda: self.up(self.near) and self.up(self.far),
            60,
            "the link does not come up",
        )
        for space, other in ((self.near, FAR), (self.far, NEAR)):
            mac = self.mac(self.far if space == self.near else self.near)
            sh(
                "ip",
                "-n",
                space,
                *f"neigh replace {other} lladdr {mac} dev wan0 nud permanent".split(),
            )

    def remove(self) -> None:
        for space in (self.near, self.far):
            sh("ip", "netns", "del", space, check=False)

    def up(self, space: str) -> bool:
        return "inet 198.18" in sh("ip", "-n", space, "addr", "show", "dev", "wan0", check=False)

    def gone(self) -> bool:
        return not {self.near, self.far} & set(namespace.names())

    def mac(self, space: str) -> str:
        (link,) = json.loads(sh("ip", "-n", space, "-j", "link", "show", "dev", "wan0"))
        return str(link["address"])

    def ping(self, *options: str) -> str:
        return sh("ip", "netns", "exec", self.near, "ping", "-q", *options, FAR, check=False)

    def quickest(self) -> float:
        """The least of 20 round trips, ms: what the machine adds when nothing else is in its way."""
        return float(re.findall(r"= ([\d.]+)/", self.ping("-c", "20", "-i", "0.05"))[0])

    def end(self) -> dict[str, Any]:
        """Ctrl-C; its last counters."""
        self.child.send_signal(signal.SIGINT)
        done = self.lab.wait(self.child)
        assert done.code == 0, done.text
        assert self.gone() or self.quiet
        counters: dict[str, Any] = json.loads(done.out)
        return counters


@pytest.mark.alone
def test_ping_sees_the_delay_that_was_put_in(lab: Lab, verdict: Verdict) -> None:
    bare = Wan(lab)
    added = bare.quickest()
    assert bare.end()["a_to_b"]["lost"] == 0
    late = Wan(lab, "--there", "delay=30ms", "--back", "delay=10ms")
    seen = late.quickest()
    last = late.end()
    assert last["a_to_b"]["packets_in"] == last["b_to_a"]["packets_out"] == 20
    lab.clean()
    # never less than asked; more by what the machine adds, which differs from one moment to the next
    assert seen >= 40.0
    verdict.undisturbed()
    assert seen <= 40.0 * 1.01 + added + 2.0, (seen, added)


def test_a_link_may_have_cores_of_its_own(lab: Lab) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    for given in ([cores[-1]], cores):
        path = Wan(lab, "--delay", "2ms", "--cores", ",".join(map(str, given)))
        assert path.quickest() >= 4.0
        threads = [task for pid in lab.processes() for task in Path(f"/proc/{pid}/task").iterdir()]
        carrying = [one for one in threads if re.fullmatch(r"impair\d\n", (one / "comm").read_text())]
        allowed = [os.sched_getaffinity(int(one.name)) for one in sorted(carrying)]
        assert allowed == [{core} for core in given]
        assert [os.getpriority(os.PRIO_PROCESS, int(one.name)) for one in carrying] == [-20] * len(given)
        last = path.end()
        assert last["a_to_b"]["packets_in"] == last["b_to_a"]["packets_out"] == 20
    lab.clean()


def test_each_packet_lost_is_one_that_ping_misses(lab: Lab) -> None:
    path = Wan(lab, "--loss", "20%", "--seed", "7")
    said = path.ping("-c", "200", "-i", "0.005", "-W", "1")
    sent, came = (int(n) for n in re.findall(r"(\d+) packets transmitted, (\d+) received", said)[0])
    last = path.end()
    there, back = last["a_to_b"], last["b_to_a"]
    assert sent == there["packets_in"] == 200
    assert there["packets_in"] - there["lost"] == there["packets_out"] == back["packets_in"]
    assert came == back["packets_in"] - back["lost"]
    assert there["lost"] > 10 < back["lost"]
    # the same seed loses the same ones
    again = Wan(lab, "--loss", "20%", "--seed", "7")
    assert again.ping("-c", "200", "-i", "0.005", "-W", "1").split("time")[0] == said.split("time")[0]
    assert again.end()["a_to_b"]["lost"] == there["lost"]


def test_a_transfer_over_a_lossy_path_is_whole(lab: Lab) -> None:
    path = Wan(lab, "--delay", "2ms", "--loss", "1%", "--duplicate", "1%", "--reorder", "1%")
    sent = os.urandom(5_000_000)
    listener = namespace.inside(path.far, lambda: socket.create_server((FAR, 7000)))
    received = bytearray()

    def receive() -> None:
        with listener, listener.accept()[0] as stream:
            stream.settimeout(60)
            while piece := stream.recv(1 << 16):
                received.extend(piece)

    receiver = threading.Thread(target=receive)
    receiver.start()
    with namespace.connect(path.near, (FAR, 7000)) as stream:
        stream.sendall(sent)
    receiver.join(60)
    last = path.end()
    assert bytes(received) == sent
    there = last["a_to_b"]
    # packets on the wire, not super-segments
    assert there["packets_in"] > len(sent) / 1448
    assert there["lost"] > 0 < there["duplicated"]
    assert (there["queue_full"], there["not_taken"], there["no_copy"]) == (0, 0, 0)


def test_a_file_is_followed_when_it_changes_and_recorded(lab: Lab) -> None:
    spec = lab.write("wan.json", {"a_to_b": {"loss": {"periodic": 2}}})
    record = lab.base / "did.yaml"
    path = Wan(lab, "--spec", spec, "--record", str(record))
    assert "10 received" in path.ping("-c", "20", "-i", "0.01", "-W", "1")
    lab.write("wan.json", {"a_to_b": {"loss": {"independent": "100%"}}})
    until(
        lambda: " 0 received" in path.ping("-c", "1", "-W", "1"),
        60,
        "the change is not followed",
    )
    lab.write("wan.json", {"a_to_b": {"loss": "all"}})
    time.sleep(1.5)
    assert " 0 received" in path.ping("-c", "1", "-W", "1"), "what makes no sense changes nothing"
    assert path.end()["a_to_b"]["changes"] == 2
    said = record.read_text()
    assert "periodic: 2" in said and "independent: 100%" in said
    lab.good(
        "validate",
        lab.write("with.json", _experiment("ping", json.loads(_as_json(record)))),
    )


def _as_json(path: Path) -> str:
    import yaml

    return json.dumps(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize("victim", ["command", "daemon", "both"])
def test_whoever_is_killed_nothing_stays_behind(lab: Lab, victim: str) -> None:
    path = Wan(lab, "--delay", "1ms", quiet=False)
    words = {pid: Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in lab.processes()}
    ((daemon, its),) = [(pid, one) for pid, one in words.items() if "--socket" in one]
    made = Path(its[its.index("--socket") + 1])
    assert made.exists()
    if victim != "daemon":
        path.child.kill()
        path.child.wait(60)
    if victim == "command":
        # its lease ends, and with it the link
        until(lambda: not path.up(path.near), 60, "the link outlives its owner")
        assert not path.gone()
    else:
        os.kill(daemon, signal.SIGKILL)
    if victim == "daemon":
        done = lab.wait(path.child)
        assert done.code == 91 and "ND-91-20" in done.err, done.text
    else:
        lab.good("restore")
    assert path.gone()
    assert not list(made.parent.glob(made.name.replace("-links.sock", "*")))
    lab.clean()


def test_what_was_there_stays_there(lab: Lab) -> None:
    spaces = [f"ndt{os.getpid()}own{n}" for n in "ab"]
    for space in spaces:
        sh("ip", "netns", "add", space)
        lab.at_end(lambda name=space: sh("ip", "netns", "del", name, check=False))
    sh("ip", "-n", spaces[0], "tuntap", "add", "mine", "mode", "tap")
    sh("ip", "-n", spaces[0], "addr", "add", "10.94.0.1/24", "dev", "mine")
    ends = (
        "--between",
        f"{spaces[0]}:mine,{spaces[1]}:two",
        "--addresses",
        "10.95.0.1/24,10.94.0.2/24",
    )
    child = lab.start("impair", *ends, "--preset", "metro")
    ping = (
        "ip",
        "netns",
        "exec",
        spaces[1],
        "ping",
        "-q",
        "-c",
        "1",
        "-W",
        "1",
        "10.94.0.1",
    )
    until(lambda: " 1 received" in sh(*ping, check=False), 60, "the tap is not reached")
    child.send_signal(signal.SIGINT)
    assert lab.wait(child).code == 0
    assert set(spaces) <= set(namespace.names())
    left = [[link["ifname"] for link in json.loads(sh("ip", "-n", space, "-j", "link"))] for space in spaces]
    assert left == [["lo", "mine"], ["lo"]]
    shown = sh("ip", "-n", spaces[0], "addr", "show", "dev", "mine")
    assert "10.94.0.1/24" in shown and "10.95" not in shown
    lab.clean()


def command(pid: int) -> list[str]:
    """The words that a process was started with."""
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def test_ports_are_joined_as_hosts_are(lab: Lab) -> None:
    tag = f"ndt{os.getpid()}"
    # a namespace and the tap in it have one name
    spaces = taps = [f"{tag}l", f"{tag}r"]
    spec = lab.write("wan.json", {})
    ports = [word for tap in taps for word in ("--port", f"tap:{tap}")]
    child = lab.start("impair", *ports, "--spec", spec, "--memory", "64MiB", "--json")
    until(
        lambda: all(f" {tap}:" in sh("ip", "-o", "link") for tap in taps),
        60,
        "the taps are not made",
    )
    for space, tap, address in zip(spaces, taps, (NEAR, FAR), strict=True):
        sh("ip", "netns", "add", space)
        lab.at_end(lambda name=space: sh("ip", "netns", "del", name, check=False))
        for scope in ("all", "default"):
            sh(
                "ip",
                "netns",
                "exec",
                space,
                "sysctl",
                "-qw",
                f"net.ipv6.conf.{scope}.disable_ipv6=1",
            )
        sh("ip", "link", "set", tap, "netns", space)
        sh("ip", "-n", space, "addr", "add", f"{address}/30", "dev", tap)
        sh("ip", "-n", space, "link", "set", tap, "up")
    macs = [json.loads(sh("ip", "-n", space, "-j", "link", "show", space))[0]["address"] for space in spaces]
    for space, other, mac in ((spaces[0], FAR, macs[1]), (spaces[1], NEAR, macs[0])):
        sh(
            "ip",
            "-n",
            space,
            *f"neigh replace {other} lladdr {mac} dev {space} nud permanent".split(),
        )

    def ping(count: int) -> str:
        words = f"-q -c {count} -i 0.01 -W 1 {FAR}".split()
        return sh("ip", "netns", "exec", spaces[0], "ping", *words, check=False)

    def quickest() -> float:
        return float((re.findall(r"= ([\d.]+)/", ping(2)) or [0])[0])

    late = {"delay": {"constant": "20ms"}}
    lab.write("wan.json", {"a_to_b": late | {"loss": {"periodic": 5}}, "b_to_a": late})
    until(lambda: quickest() >= 40.0, 60, "the change is not followed")
    # of any twenty in a row every fifth
    said = ping(20)
    assert "16 received" in said, said
    # the elements that it is made of, watched beside it
    (words,) = [words for pid in lab.processes() if "--socket" in (words := command(pid))]
    serves = words[words.index("--socket") + 1]
    shown = json.loads(lab.good("graph", "--json", "--socket", serves).out)
    lost = {one["name"]: one["drops"].get("lost", 0) for one in shown["elements"]}
    assert lost["a.impair"] >= 4 > lost["b.impair"] == 0, shown
    assert [port["driver"] for port in shown["ports"]] == ["net_tap", "net_tap"]
    # requests: replies that are on their way already never come by the first port's receiver
    requests = "icmp[icmptype] == icmp-echo"
    tracing = lab.start("graph", "--trace", "2", "--filter", requests, "--socket", serves)
    until(lambda: ping(5) and tracing.poll() is not None, 60, "no packet is followed")
    assert re.search(r"µs  a\.impair +passed to out|µs  a\.rx +passed to out", lab.wait(tracing).out)
    child.send_signal(signal.SIGINT)
    done = lab.wait(child)
    assert done.code == 0, done.text
    last = json.loads(done.out)
    there, back = last["a_to_b"], last["b_to_a"]
    assert there["packets_in"] == there["packets_out"] + there["lost"]
    assert (there["changes"], back["lost"], back["packets_in"]) == (
        2,
        0,
        back["packets_out"],
    )
    lab.clean()


def test_it_ends_when_its_time_is_over(lab: Lab) -> None:
    near, far = (f"ndt{os.getpid()}end{n}" for n in "ab")
    began = time.monotonic()
    done = lab.good(
        "impair",
        "--between",
        f"{near},{far}",
        "--for",
        "1500ms",
        "--preset",
        "geo",
        "--json",
    )
    assert time.monotonic() - began >= 1.5
    assert json.loads(done.out)["elapsed"] >= 1.5
    cut = lab.start("impair", "--between", f"{near},{far}", "--for", "60s")
    until(lambda: far in namespace.names(), 60)
    cut.send_signal(signal.SIGINT)
    assert lab.wait(cut).code == 105, "who asked for a minute got less"
    assert not {near, far} & set(namespace.names())
    lab.clean()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--between", "one"), 104, "two ends"),
        (("--between", "ndtx,ndty", "--delay", "4 parsecs"), 104, "parsecs"),
        (("--between", "ndtx,ndty", "--loss", "1"), 104, "at  --loss"),
        (("--between", "ndtx,ndty", "--delay", "40"), 104, "40ms or 40s"),
        (("--between", "ndtx,ndty", "--there", "los=1%"), 104, "--there"),
        (("--between", "ndtx,ndty", "--limit", "10"), 104, "rate"),
        (
            ("--between", "ndtx,ndty", "--delay", "1ms", "--jitter", "2ms"),
            104,
            "more than the delay",
        ),
        (("--between", "ndtx,ndty", "--preset", "lute"), 104, "lte"),
        (("--between", "ndtv,ndtw:lo"), 92, "ND-92-15"),
        (("--between", "ndtx,ndty", "--socket", "/run/x.sock"), 104, "--socket"),
        (("--run", "a,a", "--loss", "1%"), 104, "--run"),
        (("--run", "b", "--back", "loss=1%"), 104, "--back"),
        (("--run", "b", "--loss", "1%", "--seed", "1"), 104, "--seed"),
        (
            ("--between", "ndtl,ndtr", "--cores", "4095"),
            104,
            "there is no core 4095 here",
        ),
        (("--between", "ndtl,ndtr", "--cores", "0,0"), 104, "not one or two cores"),
        (("--between", "ndtl,ndtr", "--cores", "x"), 104, "not one or two cores"),
        (("--between", "ndtl,ndtr", "--cores", ""), 104, "not one or two cores"),
        (
            ("--between", "ndtl,ndtr", "--cores", "9" * 5000),
            104,
            "not one or two cores",
        ),
        (("--run", "b", "--loss", "1%", "--cores", "0"), 104, "--cores"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(
    lab: Lab, options: tuple[str, ...], code: int, words: str
) -> None:
    done = lab.run("impair", *options)
    assert (done.code, words in done.err) == (code, True), done.text
    assert not {end.partition(":")[0] for end in options[1].split(",")} & set(namespace.names())
    lab.clean()


def _experiment(model: str, impair: Any) -> dict[str, Any]:
    """Pings to a server at the end of such a path."""
    ends = [
        {"host": host, "name": "wan0", "addresses": [f"10.93.0.{n}/24"]}
        for n, host in enumerate(("gen", "srv"), 1)
    ]
    quiet = {
        "net.ipv6.conf.all.disable_ipv6": 1,
        "net.ipv6.conf.default.disable_ipv6": 1,
    }
    open_ping = quiet | {"net.ipv4.ping_group_range": "0 2147483647"}
    profile = {
        "name": "wan",
        "phases": {"warmup": "0s", "measure": "2s", "drain": "2s", "sample": "500ms"},
        "validity": PATIENT,
        "groups": [
            {
                "name": "g",
                "target": "ping://10.93.0.2",
                "devices": 1,
                "model": {model: {"interval": "20ms"}},
            }
        ],
    }
    topology = {
        "hosts": {
            "gen": {"role": "generator", "sysctl": open_ping},
            "srv": {"sysctl": quiet},
        },
        "links": [{"a": ends[0], "b": ends[1], "impair": impair}],
    }
    return {
        "name": "wan",
        "legs": [{"name": "far", "profile": profile, "topology": topology}],
    }


def test_hosts_of_an_experiment_are_as_far_apart_as_asked(lab: Lab) -> None:
    impair = {
        "a_to_b": {"delay": {"constant": "40ms"}, "loss": {"periodic": 10}},
        "b_to_a": {"delay": {"constant": "40ms"}},
    }
    done = lab.run("run", lab.write("wan.json", _experiment("ping", impair)))
    assert done.code == 0, done.text
    trial = done.trial
    (group,) = trial.groups
    (link,) = trial.links
    assert (link.a, link.b) == ("gen.wan0", "srv.wan0")
    total = group.total
    lost = total.messages_sent - total.messages_delivered
    # echo requests, and what the kernels say among themselves: ARP, and on a slow machine more of it
    there = link.a_to_b
    others = there["packets_in"] - total.messages_sent
    assert there["lost"] == there["packets_in"] // 10 and others >= 0, (link, total)
    assert max(there["lost"] - others, 1) <= lost <= there["lost"], (link, total)
    delay = group.delays["round_trip"]
    assert delay.min is not None and 80e6 <= delay.min <= 100e6, delay
    lab.clean()


def test_an_experiment_whose_path_makes_no_sense_is_refused_with_its_place(
    lab: Lab,
) -> None:
    done = lab.run("run", lab.write("wan.json", _experiment("ping", {"a_to_b": {"delai": {}}})))
    assert done.code == 104
    assert "legs.far.topology.links[0].impair.a_to_b.delai" in done.err, done.text
    lab.clean()


def test_a_path_that_is_lost_ends_the_run_and_is_named(lab: Lab) -> None:
    document = _experiment("ping", "metro")
    document["legs"][0]["profile"]["phases"]["measure"] = "60s"
    child = lab.start("run", lab.write("wan.json", document))
    lab.sampled()
    links = [pid for pid in lab.processes() if b"-links.sock" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    for pid in links:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    done = lab.wait(child)
    assert done.code == 91 and "ND-91-20" in done.err, done.text
    lab.clean()
