from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from netdyno.cli.app import call
from netdyno.errors import Error
from netdyno.experiment.record import Record
from netdyno.stats.observation import Observation, Setting, Value
from netdyno.system import sysctl
from netdyno.tuning import features as looking
from netdyno.tuning.features import distance, features
from netdyno.tuning.learn import GridPoint, learn
from netdyno.tuning.recommend import (
    BASELINE,
    Context,
    Experience,
    Judgement,
    LeftOutCase,
    judge,
    larger_now,
    recommend,
)
from netdyno.tuning.simulated import CC, IDLE, RMEM, WMEM, SimulatedBench
from netdyno.tuning.simulated import Path as Way
from netdyno.tuning.verbs import recommend as tune_recommend

from .. import spaces
from ..conftest import root

SETTINGS = {
    "bbr": {CC: "bbr"},
    "buffers": {RMEM: 32 << 20, WMEM: 32 << 20},
    "both": {CC: "bbr", RMEM: 32 << 20, WMEM: 32 << 20},
    "idle": {IDLE: 0},
}
GRID = {
    f"{rtt * 1e3:g} ms, {loss:.1%}, {rate / 1e6:g} Mbit/s": Way(rtt, loss, rate)
    for rtt, loss, rate in itertools.product((0.002, 0.01, 0.04, 0.12), (0.0, 0.003, 0.01), (5e7, 1e9))
}


def make(path: Path, seed: int = 1, **more: object) -> Experience:
    places = [GridPoint(name, "throughput") for name in GRID]

    def bench(place: GridPoint) -> SimulatedBench:
        return SimulatedBench(path=GRID[place.name], seed=seed, **more)  # type: ignore[arg-type]

    with Record(path, {}) as record:
        return learn(places, bench, SETTINGS, record, {"cpu": "none, it is simulated"}, seed=seed)


@pytest.fixture(scope="module")
def experience(tmp_path_factory: pytest.TempPathFactory) -> Experience:
    return make(tmp_path_factory.mktemp("grid") / "grid.jsonl")


def like(way: Way, seed: int = 99) -> dict[str, float]:
    seen = SimulatedBench(path=way, seed=seed).measure({}, seed)
    return features(seen.counters, seen.seconds)


def test_the_features_of_a_service() -> None:
    counters = {
        "tcp.rtt_ms": 40.0, "tcp.delivery_rate": 1e7, "tcp.rwnd_limited": 0.5, "tcp.sndbuf_limited": 0.1,
        "tcp.connections": 4.0, "TcpOutSegs": 1000.0, "TcpInSegs": 900.0, "TcpRetransSegs": 20.0,
        "UdpInDatagrams": 60.0, "UdpOutDatagrams": 40.0, "TcpActiveOpens": 5.0, "TcpPassiveOpens": 15.0,
        "IpExtInOctets": 2e6, "IpExtOutOctets": 4e6, "UdpRcvbufErrors": 10.0, "TcpExtListenDrops": 20.0,
        "Ip6InOctets": 0.0,
    }  # fmt: skip
    found = features(counters, 10.0)
    assert found == pytest.approx({
        "rtt": 0.04, "rate": 4.8e6, "rwnd_limited": 0.5, "sndbuf_limited": 0.1, "retransmits": 0.02,
        "udp": 0.05, "connects": 2.0, "flow": 3e5, "drops": 3.0,
    })  # fmt: skip
    assert set(found) == {f.name for f in looking.FEATURES}
    assert features({}, 10.0) == {"connects": 0.0, "drops": 0.0}


def test_how_far_services_are_apart() -> None:
    one = like(Way(0.04, 0.003, 1e9))
    assert distance(one, one) == 0
    twice = {**one, "rtt": 2 * one["rtt"]}
    assert distance(one, twice) == pytest.approx((1 / len(one)) ** 0.5)
    assert distance(one, {"rtt": 0.04, "udp": 0.0}) is None


def test_what_helped_where_it_was_alike_is_proposed(experience: Experience) -> None:
    long_and_lossy = recommend(experience, like(Way(0.1, 0.004, 1e9)))
    assert long_and_lossy.setting == "both"
    expected = {e.setting: e for e in long_and_lossy.expected}
    assert expected["both"].gain > expected["buffers"].gain
    assert expected["both"].interval is not None
    assert all("120 ms" in name or "40 ms" in name for name, _ in long_and_lossy.nearest)
    truth = SimulatedBench(path=Way(0.1, 0.004, 1e9))
    assert truth.truth(SETTINGS["both"])["throughput"] > 10 * truth.truth({})["throughput"]


def test_where_nothing_helps_nothing_is_proposed(experience: Experience) -> None:
    proposal = recommend(experience, like(Way(0.002, 0.0, 5e7)))
    assert proposal.setting == BASELINE
    assert proposal.known
    assert "none of the settings" in proposal.why


def test_what_is_unlike_all_that_is_known_gets_no_proposal(experience: Experience) -> None:
    datagrams = {"udp": 1.0, "connects": 0.0, "drops": 5000.0, "retransmits": 0.0, "rtt": 0.04, "rate": 1e7}
    proposal = recommend(experience, datagrams)
    assert (proposal.setting, proposal.known) == (BASELINE, False)
    assert "unlike all that is known" in proposal.why
    assert not recommend(experience, {"connects": 1.0}).known
    few = replace(experience, contexts=experience.contexts[:5])
    assert "fewer than 6" in recommend(few, like(Way())).why


@pytest.mark.parametrize(
    ("without", "said"),
    [
        (["rtt"], "its round trip time is not known"),
        (["rate"], "its rate is not known"),
        (["rtt", "rate"], "its round trip time and rate are not known"),
    ],
)
def test_where_round_trip_or_rate_is_unknown_nothing_is_proposed(
    experience: Experience, without: list[str], said: str
) -> None:
    """The rest would be alike enough: it was taken for what it need not be."""
    whole = like(Way(0.1, 0.004, 1e9))
    assert recommend(experience, whole).setting == "both"
    seen = {name: value for name, value in whole.items() if name not in without}
    proposal = recommend(experience, seen)
    assert (proposal.setting, proposal.known, proposal.expected) == (BASELINE, False, ())
    assert (proposal.missing, proposal.why) == (tuple(without), said)


@pytest.mark.parametrize(("name", "factor"), [("rtt", 8.0), ("rtt", 1 / 200), ("rate", 1e3), ("rate", 1e-3)])
def test_beyond_what_was_measured_nothing_is_proposed(
    experience: Experience, name: str, factor: float
) -> None:
    whole = like(Way(0.1, 0.004, 1e9))
    proposal = recommend(experience, {**whole, name: whole[name] * factor})
    assert (proposal.setting, proposal.known, proposal.beyond) == (BASELINE, False, (name,))
    assert "beyond all that is known" in proposal.why


def test_the_verb_abstains_with_a_code_and_says_how_to_give_what_is_missing(
    tmp_path: Path,
    experience: Experience,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = like(Way(0.1, 0.004, 1e9))
    seen = {name: value for name, value in whole.items() if name not in ("rtt", "rate")}
    monkeypatch.setattr(tune_recommend, "sample", lambda where, seconds: dict(seen))
    experience.write(tmp_path / "known.json")
    verb = ["tune", "recommend", "--experience", str(tmp_path / "known.json")]
    assert call(verb) == 90
    out, err = capsys.readouterr()
    said = " ".join(err.split())
    assert "ND-90-32: nothing is proposed: its round trip time and rate are not known" in said
    assert "like --rtt 30ms --rate 100Mbit/s" in said
    assert "proposed" not in out
    assert call([*verb, "--rtt", "100ms", "--json"]) == 90
    out, err = capsys.readouterr()
    assert (json.loads(out)["missing"], json.loads(out)["known"]) == (["rate"], False)
    assert "like --rate 100Mbit/s" in " ".join(err.split())
    rate = f"{whole['rate'] / 1e6:.1f}Mbit/s"
    assert call([*verb, "--rtt", "100ms", "--rate", rate]) == 0
    assert "proposed: both" in capsys.readouterr().out
    assert call([*verb, "--rtt", "3s", "--rate", rate]) == 90
    assert "beyond all that is known" in " ".join(capsys.readouterr().err.split())
    assert call([*verb, "--rate", "100Mb"]) == 104


def test_a_judgement_is_that_of_its_interval() -> None:
    """Two cases that gain much make the mean the larger, where all others lose: that beats nothing."""

    def cases(gains: list[float]) -> list[LeftOutCase]:
        return [
            LeftOutCase(f"{i}", "a", True, gain, "b", 0.2, "a", gain, None) for i, gain in enumerate(gains)
        ]

    lucky = Judgement.of(cases([0.1 - i / 1e3 for i in range(22)] + [9.0, 9.1]), 0.05)
    assert lucky.gain > lucky.static_gain
    assert lucky.p <= lucky.level
    assert (lucky.beats, lucky.worse) == (False, True)
    assert lucky.interval is not None and lucky.interval[1] < 0
    good = Judgement.of(cases([0.3 + i / 1e3 for i in range(24)]), 0.05)
    assert (good.beats, good.worse) == (True, False)
    few = Judgement.of(cases([0.3] * 5), 0.05)
    assert (few.beats, few.worse, few.interval) == (False, False, None)


def test_what_no_connection_tells_is_told_by_the_path(tmp_path: Path) -> None:
    """Of crowds and datagrams the kernel shows no round trip; a grid knows the path that it made."""

    class Unseen(SimulatedBench):
        def measure(self, setting: Setting, seed: int) -> Observation:
            seen = super().measure(setting, seed)
            kept = {k: v for k, v in seen.counters.items() if not k.startswith("tcp.")}
            kept |= {"IpExtOutOctets": 4e6, "IpExtInOctets": 1e6, "TcpActiveOpens": 50.0}
            return replace(seen, counters=kept, seconds=10.0)

    with Record(tmp_path / "grid.jsonl", {}) as record:
        places = [GridPoint("crowd", "throughput", {"rtt": 0.06})]
        (context,) = learn(places, lambda place: Unseen(), SETTINGS, record, {}).contexts
    assert context.features["rtt"] == 0.06
    assert context.features["rate"] == pytest.approx(8 * 5e6 / 10)


def test_it_is_judged_on_contexts_that_it_had_not_seen(experience: Experience) -> None:
    found = judge(experience)
    assert len(found.cases) == len(GRID)
    assert found.gain <= found.best_gain
    assert found.static_gain <= found.best_gain
    covered = [c.covered for c in found.cases if c.covered is not None]
    assert sum(covered) >= 0.7 * len(covered)
    # what is proposed seldom harms
    assert min(c.gain for c in found.cases) > -0.3
    assert found.gain > 0.8 * found.best_gain


def test_where_one_setting_is_best_everywhere_it_does_not_beat_it() -> None:
    contexts = tuple(
        Context(f"{i}", {"rtt": 0.01 * i, "rate": 1e6 * i, "udp": 0.0, "connects": 1.0, "drops": 0.0},
                "throughput", {"good": [0.5, 0.52], "bad": [-0.1, -0.12]})
        for i in range(1, 21)
    )  # fmt: skip
    found = judge(Experience({}, {"good": {CC: "bbr"}, "bad": {CC: "reno"}}, contexts))
    assert {c.static for c in found.cases} == {"good"}
    assert not found.beats
    # at the edge of what is known nothing is proposed
    assert found.static_gain - 0.03 <= found.gain <= found.static_gain


def test_where_it_depends_on_the_path_it_beats_the_static_setting() -> None:
    def context(i: int) -> Context:
        slow = i % 2 == 0
        features = {"rtt": 0.1 if slow else 0.001, "rate": 1e7 + i, "udp": 0.0, "connects": 1.0, "drops": 0.0}
        gains = {"far": [1.0 if slow else -1.0] * 2, "near": [-1.0 if slow else 0.9] * 2}
        return Context(f"{i}", features, "throughput", gains)

    settings = {"far": {CC: "bbr"}, "near": {CC: "reno"}}
    found = judge(Experience({}, settings, tuple(context(i) for i in range(20))))
    assert found.beats
    assert found.abstained == 0
    assert found.gain == pytest.approx(found.best_gain)


def test_a_grid_goes_on_where_it_was(tmp_path: Path, experience: Experience) -> None:
    measured = []

    class Killed(SimulatedBench):
        def measure(self, setting: object, seed: int) -> object:  # type: ignore[override]
            if len(measured) == 50:
                raise KeyboardInterrupt
            measured.append(setting)
            return super().measure(setting, seed)  # type: ignore[arg-type]

    places = [GridPoint(name, "throughput") for name in GRID]
    path = tmp_path / "grid.jsonl"
    with Record(path, {}) as record, pytest.raises(KeyboardInterrupt):
        learn(places, lambda p: Killed(path=GRID[p.name]), SETTINGS, record, {})
    with Record(path, {}) as record:
        found = learn(
            places, lambda p: SimulatedBench(path=GRID[p.name]), SETTINGS, record, experience.machine
        )
        assert record.fresh == len(record.trials) - 50
    assert found == experience


def test_places_that_fail_are_left_out(tmp_path: Path) -> None:
    found = make(tmp_path / "grid.jsonl", breaks=0.5)
    assert 0 < len(found.contexts) < len(GRID)
    assert all(len(gains) <= 2 for c in found.contexts for gains in c.gains.values())


def test_it_is_kept_in_a_file(
    tmp_path: Path, experience: Experience, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "experience.json"
    experience.write(path)
    again = Experience.read(path)
    assert recommend(again, like(Way())) == recommend(experience, like(Way()))
    assert call(["tune", "recommend", "--judge", "--experience", str(path)]) == 0
    assert "beat the static setting" in " ".join(capsys.readouterr().out.split())
    path.write_text('{"format": 1}')
    with pytest.raises(Error, match="no experience"):
        Experience.read(path)
    assert call(["tune", "recommend", "--experience", str(tmp_path / "none.json")]) == 104
    assert "tune learn" in capsys.readouterr().err


def test_without_an_own_one_there_is_that_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path))
    assert call(["tune", "recommend", "--judge", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "measured elsewhere: a virtual machine" in err
    judged = json.loads(out)
    assert len(judged["cases"]) == 40
    # of services as unlike as these no one setting is the best for all
    assert judged["beats"] is True
    assert judged["best_gain"] >= judged["gain"] > judged["static_gain"] > 0


def test_the_rate_is_that_of_bytes_over_both_families() -> None:
    """The delivery rate of single bursts said 186 Gbit/s of a service of 76 Mbit/s."""
    counters = {"tcp.rtt_ms": 0.04, "tcp.delivery_rate": 186e9, "Ip6InOctets": 5e5, "Ip6OutOctets": 94e6}
    assert features(counters, 10.0)["rate"] == pytest.approx(8 * 94.5e6 / 10)


def test_an_experience_of_before_has_its_rates_by_bytes(tmp_path: Path) -> None:
    old = {"flow": 2e6, "connects": 0.5, "rate": 1.75e8}
    context = {"name": "c", "features": old, "metric": "m", "gains": {}}
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"format": 1, "machine": {}, "settings": {}, "contexts": [context]}))
    found = Experience.read(path)
    assert found.contexts[0].features["rate"] == 8e6
    found.write(path)
    assert Experience.read(path) == found


@pytest.mark.parametrize(
    ("value", "now", "start", "default", "stays"),
    [
        # larger now: a set that raised it where it was measured would halve it
        (32, 64, 6, None, True),
        (32, 64, None, 6, True),
        (32, 64, None, None, True),
        (32, 16, 6, None, False),
        (32, 32, 6, None, False),
        # lowering was measured
        (15, 60, 60, None, False),
        (15, 60, None, 60, False),
        # and a baseline counts, not the default
        (32, 64, 6, 128, True),
        ("bbr", "cubic", "cubic", None, False),
    ],
)
def test_what_is_larger_now_stays_unless_lowering_was_measured(
    value: Value, now: Value, start: Value | None, default: Value | None, stays: bool
) -> None:
    found = larger_now(
        {"p": value},
        {"p": now},
        {} if start is None else {"p": start},
        {} if default is None else {"p": default},
    )
    assert found == ({"p": now} if stays else {})


@root
def test_the_verb_proposes_no_lower_buffer_than_there_is(
    tmp_path: Path,
    experience: Experience,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A service whose buffers may grow to 64 MiB already, and a set of 32 MiB."""
    whole = like(Way(0.1, 0.004, 1e9))
    monkeypatch.setattr(tune_recommend, "sample", lambda where, seconds: dict(whole))
    experience.write(tmp_path / "known.json")
    with spaces.made(f"ndt-recommend-{os.getpid()}") as space:
        for name, most in (("net.ipv4.tcp_rmem", 64 << 20), ("net.ipv4.tcp_wmem", 1 << 20)):
            sysctl.write(space, name, f"4096 131072 {most}")
        verb = ["tune", "recommend", "--where", space, "--experience", str(tmp_path / "known.json")]
        assert call(verb) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert f"{RMEM} stays {64 << 20}, which is larger than its {32 << 20}" in out
        assert f"{WMEM} = {32 << 20}" in out
        command = out.partition("try it: ")[2]
        assert f"--set {WMEM}={32 << 20}" in command and RMEM not in command
        assert call([*verb, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["setting"] == "both"
        assert document["values"] == {CC: "bbr", WMEM: 32 << 20}
        assert document["larger_now"] == {RMEM: 64 << 20}
