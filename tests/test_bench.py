"""Searches over real packets: our l2fwd behind a policer whose rate is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from inconclusive import Verdict
from lab import PATIENT, Done, Lab, experiment, group, root
from lab import profile as over_sockets

from netdyno.core.search import SearchReport

RATE = 20_000
"""Frames a second that the policer lets through."""
FILE = Path(__file__).resolve().parent.parent / "examples" / "bench-policer.yaml"


def profile(**changes: Any) -> dict[str, Any]:
    """The example."""
    made: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return made | changes


def behind(**impairment: Any) -> dict[str, Any]:
    """The example with a path behind the policer that does this."""
    made = profile()
    dpdk = made["transport"]["dpdk"]
    dpdk["elements"]["path"] = {"kind": "impair", **impairment}
    dpdk["edges"] = [edge.replace("-> police ->", "-> police -> path ->") for edge in dpdk["edges"]]
    return made


def conclusive(done: Done, verdict: Verdict) -> SearchReport:
    """What was found, where the machine left the generator its time."""
    search = done.result.search
    assert search is not None, done.text
    if done.code == 90:
        verdict.undisturbed()
        verdict.valid(done.result.reasons)
    assert done.code == 0, done.text
    return search


@pytest.mark.alone
@pytest.mark.sampled(1, of="bench-alone")
def test_throughput_finds_the_rate_of_a_policer(lab: Lab, verdict: Verdict) -> None:
    done = lab.run(
        "bench",
        "throughput",
        lab.write("p.json", profile()),
        "--repeat",
        "4",
        "-q",
        timeout=400,
    )
    search = conclusive(done, verdict)
    (part,) = search.parts
    (found,) = part.findings
    assert (search.kind, search.strategy, search.unit, part.most) == (
        "throughput",
        "binary",
        "frames/s",
        30_000,
    )
    assert found.load is not None and found.interval is not None
    # a burst of the policer's own is 0.5 % of a trial's frames
    assert found.load == pytest.approx(RATE, rel=0.01)
    assert found.interval[0] <= RATE * 1.01 and found.interval[1] >= RATE * 0.99
    assert found.limit == "dut" and found.bits == pytest.approx(found.load * 64 * 8)
    # each load is a leg of an ordinary result, with its trials and their series
    legs = {leg.name: leg for leg in done.result.legs}
    for one in part.trials:
        (repetition,) = [r for r in legs[one.leg].repetitions if r.index == one.number]
        assert repetition.groups[0].measured.messages_sent == one.sent
        assert repetition.series and legs[one.leg].levels["load"] == one.load
        # what the DUT itself counted as dropped is what is missing
        if one.counts and one.lost:
            police = next(e for e in repetition.elements if e["name"] == "police")
            assert police["drops"]["policed"] >= one.lost
    # the run is found and shown again as any other
    shown = lab.good("runs", "show", done.result.id)
    assert "throughput" in shown.out and "kpps" in shown.out
    assert 'id="search"' in (lab.runs / done.result.id / "report.html").read_text()
    lab.clean()


@pytest.mark.alone
@pytest.mark.sampled(1, of="bench-alone")
def test_a_loss_curve_ends_where_nothing_is_lost(lab: Lab, verdict: Verdict) -> None:
    wanted = profile(phases={"warmup": "100ms", "measure": "1s", "drain": "200ms", "sample": "200ms"})
    done = lab.run("bench", "loss", lab.write("p.json", wanted), "--step", "20%", "-q", timeout=300)
    search = conclusive(done, verdict)
    counted = [one for one in search.parts[0].trials if one.counts]
    assert [round(one.load) for one in counted[:2]] == [30_000, 24_000]
    for one in counted:
        # the burst may pass, and a trial may be a little longer or shorter than a second
        assert one.loss == pytest.approx(max(0.0, 1 - RATE / one.load), abs=0.03)
    assert [one.lost for one in counted[-2:]] == [0, 0]
    # resumed, every trial is there already, and the same is found without a frame
    file = lab.write("p.json", wanted)
    again = lab.run("bench", "loss", file, "--step", "20%", "-q", "--resume", done.result.id).result
    assert again.resumed == done.result.id and again.search is not None
    assert all(one.taken_over for leg in again.legs for one in leg.repetitions)
    same = [(one.load, one.lost) for one in again.search.parts[0].trials if one.counts]
    assert same == [(one.load, one.lost) for one in counted]
    lab.clean()


def test_latency_is_no_shorter_than_the_path(lab: Lab, verdict: Verdict) -> None:
    path = lab.write("p.json", behind(impair={"delay": {"constant": "2ms"}}))
    done = lab.run(
        "bench",
        "latency",
        path,
        "--at",
        "30%",
        "--duration",
        "1s",
        "--repeat",
        "1",
        "-q",
    )
    (part,) = conclusive(done, verdict).parts
    (trial,) = [one for one in part.trials if one.counts]
    assert trial.load == part.figures["load"] == pytest.approx(0.3 * 30_000)
    at = [part.figures[f"frames.one_way.{name}"] for name in ("min", "p50", "p99", "p999", "max")]
    # a histogram's values are known to a thousandth
    assert at == sorted(at) and at[0] >= 0.999 * 2e6
    assert part.figures["frames.one_way.pdv"] == pytest.approx(at[3] - at[0])
    lab.clean()


def test_a_recovery_takes_as_long_as_frames_are_lost(lab: Lab, verdict: Verdict) -> None:
    # half of the load begins after 1 s, and the path is down until 1.5 s
    steps = [
        {"at": "0s", "impair": {"loss": {"independent": "100%"}}},
        {"at": "1500ms", "impair": {}},
    ]
    path = lab.write("p.json", behind(impair_timeline={"steps": steps}))
    done = lab.run(
        "bench",
        "recovery",
        path,
        "--at",
        "30%",
        "--duration",
        "1s",
        "--repeat",
        "1",
        "-q",
    )
    (part,) = conclusive(done, verdict).parts
    (trial,) = [one for one in part.trials if one.counts]
    assert 0 < trial.lost < trial.sent
    verdict.undisturbed()
    # to a point of the series, which is 0.1 s, and the next one
    lasted = trial.seconds * trial.lost / trial.sent
    assert lasted - 0.2 <= part.figures["recovery_time"] <= lasted + 0.2
    lab.clean()


def test_a_reset_is_seen_by_the_frames_that_it_costs(lab: Lab, verdict: Verdict) -> None:
    wanted = {
        "name": "reset",
        "phases": {
            "warmup": "200ms",
            "measure": "3s",
            "drain": "500ms",
            "sample": "200ms",
        },
        "validity": PATIENT,
        "targets": {"far": "udp://127.0.0.1:7"},
        "groups": [
            {
                "name": "s",
                "target": "far",
                "model": {"stream": {"rate": "500/s", "size": "64B"}},
            }
        ],
    }
    leg = {
        "name": "loopback",
        "profile": wanted,
        "duts": {"far": {"driver": "reflector"}},
    }
    path = lab.write("e.json", {"format": "netdyno-experiment/1", "name": "reset", "legs": [leg]})
    search = conclusive(lab.run("bench", "reset", path, "--at", "100%", "--repeat", "1", "-q"), verdict)
    (part,) = search.parts
    (trial,) = [one for one in part.trials if one.counts]
    # it was away for a while; for how long is the machine's affair
    assert trial.lost > 0
    assert part.figures["reset_time"] == pytest.approx(3 * trial.lost / trial.sent)
    lab.clean()


@root
@pytest.mark.limit(400)
def test_a_rate_is_as_many_devices_as_a_broker_takes(lab: Lab, verdict: Verdict) -> None:
    most = 3
    stays = {
        "mqtt": {
            "qos": 1,
            "count": 100_000,
            "interval": "100ms",
            "topic": "nd/{device}",
        }
    }
    wanted = over_sockets(
        group("sensors", "broker", stays, 8),
        thresholds=[{"metric": "sensors.errors", "max": 0}],
    )
    wanted["phases"] = {
        "warmup": "200ms",
        "measure": "500ms",
        "drain": "200ms",
        "sample": "100ms",
    }
    broker = {
        "driver": "mosquitto",
        "host": "srv",
        "options": {"max_connections": most},
    }
    path = lab.write("e.json", experiment(wanted, broker=broker))
    done = lab.run("bench", "rate", path, "--repeat", "4", "-q", timeout=380)
    search = conclusive(done, verdict)
    (part,) = search.parts
    (found,) = part.findings
    assert (search.kind, search.unit, part.most, found.limit) == (
        "rate",
        "devices",
        8,
        "dut",
    )
    if found.load != most + 1:
        # in a stall connections time out, too
        verdict.undisturbed()
    # it compares with its limit before it counts who comes
    assert found.load == most + 1
    for one in part.trials:
        (leg,) = [leg for leg in done.result.legs if leg.name == one.leg]
        (repetition,) = [r for r in leg.repetitions if r.index == one.number]
        refused = repetition.groups[0].total.flows_failed
        if not one.sent:
            # the machine stood still for all of the half second
            continue
        assert (refused > 0) == (one.load > most + 1), (one.load, refused)
    lab.clean()


def test_what_cannot_run_is_not_planned(lab: Lab) -> None:
    wrong = profile()
    wrong["phases"] |= {"sample": "1ms"}
    done = lab.run("bench", "throughput", lab.write("p.json", wrong), "--dry-run")
    assert (done.code, "phases.sample" in done.err, done.out) == (104, True, ""), done.text
    lab.clean()


def test_what_is_planned_is_said_and_nothing_is_run(lab: Lab) -> None:
    path = lab.write("p.json", profile())
    done = lab.good(
        "bench",
        "throughput",
        path,
        "--sizes",
        "rfc2544",
        "--goal",
        "ndr,pdr",
        "--dry-run",
        "--json",
    )
    planned = json.loads(done.out)
    assert [part["frame"] for part in planned["parts"]] == [
        64,
        128,
        256,
        512,
        1024,
        1280,
        1518,
    ]
    assert planned["trials"] == sum(part["trials"] for part in planned["parts"]) > 7 * 10
    assert planned["seconds"] > 2 * planned["trials"]
    assert any("RFC 2544 §24" in note for note in planned["notes"])
    assert not lab.runs.exists() or not list(lab.runs.iterdir())
    lab.clean()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["throughput", "--sizes", "63"], "'63' is no frame size"),
        (["throughput", "--goal", "mrr"], "'mrr' names no goals"),
        (["throughput", "--resolution", "0"], "a share above 0"),
        (["rate"], "no thresholds"),
        (["reset"], "0 devices under test"),
    ],
)
def test_what_cannot_be_searched_is_refused(lab: Lab, arguments: list[str], says: str) -> None:
    kind, *options = arguments
    done = lab.run("bench", kind, lab.write("p.json", profile()), *options)
    assert done.code == 104 and says in done.text, done.text
    lab.clean()
