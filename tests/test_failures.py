"""What is lost, killed, interrupted or full: a clear message, the right code, what was measured, nothing left."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from inconclusive import OF_TIME
from lab import (
    MQTT,
    NETDYNO,
    NETDYNOD,
    Lab,
    Wire,
    experiment,
    group,
    profile,
    root,
    sh,
    until,
)
from rpc import Rpc

pytestmark = root

STRICT = [{"metric": "sensors.errors", "max": 0}]


def long(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A profile that does not end by itself within the test."""
    document = profile(*groups, measure="60s", **more)
    document["phases"] |= {"warmup": "0s", "drain": "1s"}
    return document


def mqtt(lab: Lab) -> str:
    """An experiment with a broker of the driver's."""
    document = long(group("sensors", "broker", MQTT, 10), thresholds=STRICT)
    document["capture"] = {"interface": "gen0", "limit": "1MiB"}
    return lab.write("e.json", experiment(document, broker="mosquitto"))


def inside(folder: Path, host: str) -> str:
    """The namespace of a host of the first trial of a run."""
    return f"nd-{folder.name.rpartition('-')[2]}1-{host}"


def pid_of(folder: Path, host: str, program: str) -> int:
    for pid in sh("ip", "netns", "pids", inside(folder, host)).split():
        if Path(f"/proc/{pid}/comm").read_text().strip() == program:
            return int(pid)
    raise AssertionError(f"no {program} in {host}")


def test_a_broker_that_dies_ends_the_run_and_is_named(lab: Lab) -> None:
    child = lab.start("run", mqtt(lab))
    folder = lab.sampled(delivered=11)
    os.kill(pid_of(folder, "srv", "mosquitto"), signal.SIGKILL)
    done = lab.wait(child)
    assert done.code == 91, done.text
    assert "ND-91-23" in done.err
    assert "mosquitto ended with signal 9" in done.err
    assert "broker" in done.err
    assert "verdict FAIL" in done.out
    trial = done.trial
    assert trial.dut["broker"].died
    assert trial.stopped == "stopped"
    kinds = {error.kind: error.count for error in trial.groups[0].errors}
    assert sum(kinds.values()) > 0
    assert kinds == {k: n for k, n in trial.groups[0].total.failures.items() if n}
    # what was measured before is there
    assert trial.groups[0].total.messages_delivered > 10
    assert done.result.error
    assert not done.result.valid
    assert "ND-90-05" in done.out
    lab.clean()


SERVERS = {
    "mosquitto": (
        "mqtt",
        "1883",
        "listener 1883 {address}\nallow_anonymous true\nuser root\n",
        ["-c", "{conf}"],
    ),
    "nginx": (
        "http",
        "80",
        "daemon off; master_process off; pid {base}/pid; error_log stderr; user root;\n"
        "events {{}}\nhttp {{ access_log off; server {{ listen {address}:80; return 200 ok; }} }}\n",
        ["-p", "{base}", "-e", "stderr", "-c", "{conf}"],
    ),
}


@pytest.mark.parametrize("server", SERVERS)
def test_somebody_elses_server_that_dies_is_counted_as_errors(lab: Lab, cable: Wire, server: str) -> None:
    scheme, port, text, arguments = SERVERS[server]
    conf = lab.write("conf", text.format(address=Wire.FAR, base=lab.base))
    words = [one.format(conf=conf, base=lab.base) for one in arguments]
    running = lab.spawn(*cable.at_far, server, *words)
    until(
        lambda: f":{port} " in sh(*cable.at_far, "ss", "-Hltn"),
        60,
        f"{server} does not listen",
    )
    model = MQTT if scheme == "mqtt" else {"http": {"interval": "50ms"}}
    document = profile(
        group("sensors", f"{scheme}://{Wire.FAR}", model, 10),
        measure="3s",
        thresholds=STRICT,
    )
    child = lab.start("run", lab.write("p.json", document), prefix=cable.at_near)
    folder = lab.sampled(points=3)
    running.kill()
    done = lab.wait(child)
    assert done.code == 99, done.text
    assert done.result.valid, done.text
    assert done.result.verdict == "fail"
    assert done.folder == folder
    total = done.trial.groups[0].total
    # connections were cut, and then refused
    assert total.failures.get("refused", 0) > 0, total.failures
    assert set(total.failures) <= {
        "refused",
        "reset",
        "closed",
        "timeout",
        "unanswered",
        "cancelled",
    }, total.failures
    assert total.messages_delivered > 10
    examples = {error.kind: error.example for error in done.trial.groups[0].errors}
    assert Wire.FAR in str(examples["refused"]) or "refused" in str(examples["refused"])
    assert "refused" in done.out
    lab.clean()


def test_nobody_there_is_no_pass(lab: Lab, cable: Wire) -> None:
    done = lab.run("run", f"mqtt://{Wire.FAR}", "--duration", "1s", prefix=cable.at_near)
    assert done.result.verdict == "fail"
    # whether such a run is valid too is the machine's affair
    assert done.code == (99 if done.result.valid else 90), done.text
    assert {reason.code for reason in done.result.reasons} <= {
        "ND-90-01",
        "ND-90-02",
        "ND-90-03",
        "ND-90-08",
    }, done.text
    assert "refused" in done.out
    assert done.trial.groups[0].total.messages_delivered == 0


def test_a_daemon_that_is_killed_is_named_and_the_rest_is_kept(lab: Lab) -> None:
    child = lab.start("run", mqtt(lab))
    folder = lab.sampled(points=2)
    os.kill(pid_of(folder, "gen", "netdynod"), signal.SIGKILL)
    done = lab.wait(child)
    assert done.code == 91, done.text
    assert "ND-91-20" in done.err
    assert "SIGKILL" in done.err
    assert not done.result.valid
    assert done.trial.stopped == "failed"
    assert len(done.trial.series) >= 2
    lab.clean()


def sent(folder: Path) -> int:
    """Packets that left the generator, by the kernel."""
    text = sh("ip", "-n", inside(folder, "gen"), "-j", "-s", "link", "show", "dev", "gen0")
    return int(json.loads(text)[0]["stats64"]["tx"]["packets"])


def daemon(folder: Path) -> Rpc:
    """A connection to the daemon of the first trial of a run."""
    (path,) = Path("/run/netdyno").glob(f"nd-{folder.name.rpartition('-')[2]}*.sock")
    return Rpc(str(path))


def test_a_command_that_is_killed_stops_the_load_and_is_restored(lab: Lab) -> None:
    steady = group("sensors", "reflector", {"stream": {"rate": "500/s", "echo": False}})
    path = lab.write("e.json", experiment(long(steady), broker="mosquitto", reflector="reflector"))
    child = lab.start("run", path)
    folder = lab.sampled()
    child.kill()
    child.wait()
    assert lab.leftovers()
    # it was in the middle of its load, and ended that by itself, for the silence
    viewer = daemon(folder)
    assert viewer.until_done()["state"] == "done"
    assert viewer.call("run.result")["stopped"] == "lease"
    viewer.close()
    # nothing for a second, at 500 a second; who looks for its neighbour may be late
    until(
        lambda: sent(folder) == sent_after(folder, 1.0),
        60,
        "the daemon goes on sending",
    )
    # the samples until then are on the disk
    assert (folder / "samples.jsonl").read_text().count("\n") >= 1
    done = lab.good("restore")
    assert f"namespace {inside(folder, 'gen')}" in done.out
    assert "netdynod" in done.out
    lab.clean()
    assert "nothing was left behind" in lab.good("restore").out


def sent_after(folder: Path, seconds: float) -> int:
    sh("sleep", str(seconds))
    return sent(folder)


@pytest.mark.parametrize("what", ["link", "namespace"])
def test_a_link_that_vanishes_is_said_as_that(lab: Lab, what: str) -> None:
    child = lab.start("run", mqtt(lab))
    folder = lab.sampled()
    space = inside(folder, "gen")
    sh(
        "ip",
        *(("-n", space, "link", "del", "gen0") if what == "link" else ("netns", "del", space)),
    )
    done = lab.wait(child)
    assert done.code == 91, done.text
    assert "ND-91-27" in done.err
    # a cable goes with both its ends, whichever is missed first
    gone = (
        r"the interface (gen\.gen0|srv\.srv0) is gone" if what == "link" else "the namespace of gen is gone"
    )
    assert re.search(gone, done.err), done.err
    assert done.trial.stopped == "stopped"
    lab.clean()


def test_the_next_run_puts_back_what_a_killed_one_left(lab: Lab, cable: Wire) -> None:
    child = lab.start("run", mqtt(lab))
    folder = lab.sampled()
    child.kill()
    child.wait()
    document = profile(group("alive", f"ping://{Wire.FAR}", {"ping": {}}), measure="500ms")
    done = lab.good("run", lab.write("p.json", document), prefix=cable.at_near)
    assert f"put back what an earlier run left: namespace {inside(folder, 'srv')}" in done.err
    lab.clean()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_measured(lab: Lab, number: signal.Signals) -> None:
    child = lab.start("run", mqtt(lab))
    lab.sampled(points=2, delivered=11)
    child.send_signal(number)
    done = lab.wait(child)
    assert done.code == 105, done.text
    assert "Traceback" not in done.err
    assert "interrupted" in done.text
    assert done.result.interrupted
    trial = done.trial
    assert trial.stopped == "stopped"
    assert trial.groups[0].total.messages_delivered > 10
    assert trial.series
    assert done.folder
    names = {path.name for path in done.folder.iterdir()}
    assert {
        "result.json",
        "report.html",
        "series.csv",
        "flows.csv",
        "capture.pcapng",
        "log.jsonl",
    } <= names
    assert "samples.jsonl" not in names
    assert sh("tshark", "-r", str(done.folder / "capture.pcapng"), "-Y", "mqtt")
    lab.clean()


def tiny(lab: Lab, size: str) -> str:
    """A disk that is soon full."""
    full = lab.base / "full"
    full.mkdir()
    sh("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(full))
    lab.at_end(lambda: sh("umount", "-l", str(full), check=False))
    return str(full)


def test_a_full_disk_is_told_and_nothing_is_left(lab: Lab) -> None:
    full = tiny(lab, "48k")
    document = profile(group("sensors", "broker", MQTT, 10), measure="1s")
    done = lab.run(
        "run",
        lab.write("e.json", experiment(document, broker="mosquitto")),
        "--runs",
        full,
    )
    assert done.code == 92, done.text
    assert "ND-92-27" in done.err
    assert "the disk is full" in done.err
    assert full in done.err
    assert "--runs" in done.err
    assert "Traceback" not in done.err
    lab.clean()


def test_a_capture_that_fills_the_disk_is_told(lab: Lab, cable: Wire) -> None:
    full = tiny(lab, "1500k")
    sink = lab.spawn(
        *cable.at_far,
        NETDYNOD,
        "reflect",
        "--udp",
        "9",
        "--mode",
        "sink",
        "--bind",
        Wire.FAR,
    )
    assert sink.stdout
    assert "ready" in sink.stdout.readline()
    stream = group(
        "voice",
        f"udp://{Wire.FAR}:9",
        {"stream": {"rate": "2k/s", "size": "1000B", "echo": False}},
    )
    # four times as much as there is room for
    document = profile(stream, measure="3s", capture={"interface": "w0", "limit": "64MiB"})
    done = lab.run("run", lab.write("p.json", document), "--runs", full, prefix=cable.at_near)
    assert done.code == 92, done.text
    assert "ND-92-09" in done.err
    assert "the capture ended after" in done.err
    # the capture's last block decides whether there is room for the result: it is whole in its folder, or that is told
    written = [json.loads(path.read_text()) for path in Path(full).rglob("result.json")]
    assert [one["verdict"] for one in written] or "ND-92-27" in done.err, done.text
    assert "Traceback" not in done.err
    assert "voice" in done.out
    shown = json.loads(lab.good("runs", "show", "--json").out)
    assert shown["legs"][0]["repetitions"][0]["capture"]["state"] == "failed"
    assert shown["legs"][0]["repetitions"][0]["groups"][0]["total"]["messages_sent"] > 1000
    assert not {"namespaces", "sockets", "journals"} & lab.leftovers().keys(), lab.leftovers()


def test_a_port_in_use_is_told(lab: Lab) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        document = profile(group("sensors", "broker", MQTT))
        wanted = experiment(document, broker={"driver": "mosquitto", "options": {"port": port}})
        del wanted["legs"][0]["topology"]
        done = lab.run("run", lab.write("e.json", wanted))
    assert done.code == 92, done.text
    assert "ND-92-24" in done.err
    assert f"127.0.0.1 port {port}" in done.err
    lab.clean()


def test_a_missing_daemon_is_told(lab: Lab) -> None:
    lab.environment["NETDYNO_DAEMON"] = "/nowhere/netdynod"
    done = lab.run("run", "ping://127.0.0.1", "--duration", "1s")
    assert done.code == 92, done.text
    assert "ND-92-20" in done.err
    assert "/nowhere/netdynod" in done.err
    lab.clean()


def nobody(lab: Lab, cable: Wire) -> tuple[str, ...]:
    """Prefix of a command that is run without any rights."""
    for path in (lab.base / "tmp", lab.state, lab.runs):
        path.mkdir(exist_ok=True)
        os.chown(path, 65534, 65534)
    lab.environment |= {
        "HOME": "/nonexistent",
        "XDG_RUNTIME_DIR": str(lab.base / "tmp"),
    }
    prefix = (
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
    )
    for program in (NETDYNO, NETDYNOD):
        if subprocess.run([*prefix, "test", "-x", program]).returncode:
            pytest.skip(f"nobody cannot reach {program}")
    return (*cable.at_near, *prefix)


def test_without_rights_sockets_work(lab: Lab, cable: Wire) -> None:
    prefix = nobody(lab, cable)
    _, _, text, arguments = SERVERS["nginx"]
    conf = lab.write("conf", text.format(address="127.0.0.1", base=lab.base))
    words = [one.format(conf=conf, base=lab.base) for one in arguments]
    lab.spawn(*cable.at_near, "nginx", *words)
    until(lambda: ":80 " in sh(*cable.at_near, "ss", "-Hltn"), 60, "nginx does not listen")
    document = profile(
        group("sensors", "http://127.0.0.1", {"http": {"interval": "20ms"}}, 5),
        thresholds=STRICT,
    )
    done = lab.good("run", lab.write("p.json", document), prefix=prefix)
    assert done.trial.groups[0].total.messages_delivered > 100
    # the quick form too; whether such short a run is valid is the machine's affair
    quick = lab.run("run", "http://127.0.0.1/", "--rate", "50/s", "--duration", "1s", prefix=prefix)
    assert quick.code in (0, 90), quick.text
    assert {reason.code for reason in quick.result.reasons} <= OF_TIME, quick.text
    assert quick.trial.groups[0].total.messages_delivered > 10
    assert not {"namespaces", "sockets", "journals"} & lab.leftovers().keys(), lab.leftovers()


def test_without_rights_it_says_what_is_missing(lab: Lab, cable: Wire) -> None:
    prefix = nobody(lab, cable)
    done = lab.run("demo", prefix=prefix)
    assert done.code == 92, done.text
    assert "ND-92-22" in done.err
    assert "sudo" in done.err
    # ICMP: refused by the kernel's ping_group_range, which is nobody's in a new namespace
    sh(*cable.at_near, "sysctl", "-qw", "net.ipv4.ping_group_range=1 0")
    done = lab.run("run", "ping://127.0.0.1", "--duration", "1s", prefix=prefix)
    assert done.code == 92, done.text
    assert "ping_group_range" in done.err
    done = lab.run("run", "udp://127.0.0.1:9", "--duration", "1s", "--capture", prefix=prefix)
    assert done.code == 92, done.text
    assert "CAP_NET_RAW" in done.err
