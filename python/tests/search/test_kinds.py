"""Kinds of searches on profiles: what a load is, how it is offered, and what the trials come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app
from netdyno.core.wire import Counts, GroupPoint, SeriesPoint
from netdyno.errors import Error
from netdyno.experiment.spec import Experiment, LegSpec, load
from netdyno.search import rfc2544, sizes, words
from netdyno.search.bench import multi_leg_kinds, prepare
from netdyno.search.kind import KINDS
from netdyno.search.kind.back_to_back import BURST, buffer_times, bursts
from netdyno.search.kind.recovery import EXTRA, overload, recovered
from netdyno.search.kind.reset import reset_time
from netdyno.search.load import axis, loading
from netdyno.search.options import check
from netdyno.search.request import SearchRequest
from netdyno.search.schedule import Search, turns
from netdyno.search.simulated import SimulatedDut
from netdyno.search.trial import LoadTrial, Space, TrialRequest, loss_goal, run

NDR = (loss_goal("ndr", 0.0),)


def test_a_burst_is_not_searched_by_mlr() -> None:
    assert rfc2544.back_to_back(strategy="binary").kind == "back-to-back"
    with pytest.raises(Error) as wrong:
        rfc2544.back_to_back(strategy="mlr")
    assert wrong.value.code == "ND-104-07"


@pytest.mark.parametrize("share", [1, 7, -1, -1e-9, float("nan"), float("inf"), "x", True])
def test_what_is_no_share_may_not_be_lost(share: Any) -> None:
    for goal, at in (
        (lambda: rfc2544.throughput(loss=share), "loss"),
        (lambda: rfc2544.throughput(pdr=share), "pdr"),
        (lambda: rfc2544.mlrsearch(share), "pdr"),
    ):
        with pytest.raises(Error) as wrong:
            goal()
        assert (wrong.value.code, wrong.value.at) == ("ND-104-05", at)


def test_the_least_and_the_most_that_may_be_lost() -> None:
    assert [goal.ratio for goal in rfc2544.throughput(loss=0.999).goals] == [0.999]
    assert [goal.ratio for goal in rfc2544.throughput(0.0, pdr=1e-6).goals] == [0.0, 1e-6]


@pytest.mark.parametrize(
    ("good", "wrong", "at"),
    [
        ({"resolution": 1e-4}, {"resolution": 0.99e-4}, "--resolution"),
        ({"resolution": 1.0}, {"resolution": 1.01}, "--resolution"),
        ({"step": 1e-3}, {"step": 0.99e-3}, "--step"),
        ({"step": 1.0}, {"step": 0}, "--step"),
        ({"step": 0.5}, {"step": -1}, "--step"),
        ({"at": 1.0}, {"at": 1.01}, "--at"),
        ({"seconds": 1e-3}, {"seconds": 0.99e-3}, "--duration"),
        ({"seconds": 60}, {"seconds": 0}, "--duration"),
        ({"repeat": 1}, {"repeat": 0}, "--repeat"),
        ({"repeat": 1000}, {"repeat": 1001}, "--repeat"),
        ({"repeat": 12}, {"repeat": 1.5}, "--repeat"),
        ({"strategy": "mlr"}, {"strategy": "foo"}, "--strategy"),
        ({"goals": (*NDR, loss_goal("pdr", 0.1))}, {"goals": (*NDR, loss_goal("pdr", 0))}, "--goal"),
    ],
)
def test_options_just_within_bounds(good: dict[str, Any], wrong: dict[str, Any], at: str) -> None:
    base: dict[str, Any] = {"goals": NDR}
    check(SearchRequest(**base | good))
    with pytest.raises(Error) as refused:
        check(SearchRequest(**base | wrong))
    assert refused.value.at == at
    assert refused.value.fix


@pytest.mark.parametrize("duration", ["0s", "0", "1us"])
def test_a_trial_of_no_length_is_not_taken_for_none(
    duration: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.call(["bench", "throughput", "imix", "--duration", duration, "--dry-run"]) == 104
    assert "--duration" in capsys.readouterr().err


def profile(*groups: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "name": "p",
        "phases": {"warmup": "100ms", "measure": "1s", "drain": "100ms"},
        "targets": {"peer": "udp://10.0.0.2:7", "six": "udp://[fd00::2]:7"},
        "transport": {"dpdk": {"ports": [{"name": "a", "device": "pair:x", "speed": "10Gbit/s"}]}},
        "groups": list(groups),
    } | changes


def stream(
    name: str, rate: dict[str, str], size: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    frame = {"rate": rate} | ({"size": size} if size else {})
    return {"name": name, "target": "peer", "port": "a", "model": {"stream": {}}, "frame": frame} | more


def leg(made: dict[str, Any], **more: Any) -> LegSpec:
    return LegSpec.model_validate({"name": "leg", "profile": made} | more)


# ---- loads


def test_loads_are_frames_of_all_groups() -> None:
    one = axis(
        leg(
            profile(
                stream("x", {"frames": "30k/s"}, {"fixed": "64B"}),
                stream("y", {"frames": "10k/s"}, {"fixed": "128B"}),
            )
        )
    )
    assert (one.unit, one.most, one.frame) == ("frames/s", 40_000, 80)
    assert one.line == pytest.approx(10e9 / 8 / 100)
    assert one.bits(1000) == 1000 * 80 * 8
    offered = one.at(20_000, 2.5)
    assert isinstance(offered.profile, dict)
    rates = [group["frame"]["rate"]["frames"] for group in offered.profile["groups"]]
    assert [float(rate.removesuffix("/s")) for rate in rates] == [15_000, 5_000]
    assert offered.trial.measure == "2500000us" and offered.trial.load is None


@pytest.mark.parametrize(
    ("rate", "size", "frames"),
    [
        ({"line": "100%"}, {"fixed": "64B"}, 14_880_952),
        ({"line": "50%"}, {"fixed": "1518B"}, 812_744 / 2),
        ({"l1": "1Gbit/s"}, {"imix": {}}, 1e9 / 8 / (4342 / 12 + 20)),
        ({"l2": "1Gbit/s"}, {"fixed": "512B"}, 1e9 / 8 / 512),
        ({"frames": "2M/s"}, {"genome": "aag"}, 2e6),
        # no more than the link carries
        ({"frames": "5M/s"}, {"genome": "aag"}, 1.25e9 / ((64 + 64 + 1518) / 3 + 20)),
    ],
)
def test_rates_are_those_of_the_profile(rate: dict[str, str], size: dict[str, Any], frames: float) -> None:
    """Line rates as in RFC 2544 Appendix B, for 10 Gbit/s."""
    assert axis(leg(profile(stream("x", rate, size)))).most == pytest.approx(frames, rel=1e-6)


def test_models_that_are_paced_by_devices_get_a_rate_of_frames() -> None:
    group = {
        "name": "x",
        "target": "peer",
        "devices": 4,
        "model": {"stream": {"rate": "100/s", "size": "18B"}},
    }
    one = axis(leg(profile(group)))
    assert (one.most, one.frame) == (400, 64)
    offered = one.at(200, 1.0).profile
    assert isinstance(offered, dict)
    assert "rate" not in offered["groups"][0]["model"]["stream"]
    sockets = axis(leg(profile(group, transport={"sockets": {}}))).at(200, 1.0).profile
    assert isinstance(sockets, dict)
    assert float(sockets["groups"][0]["model"]["stream"]["rate"].removesuffix("/s")) == 50


def test_open_loops_are_flows_and_closed_ones_devices() -> None:
    web: dict[str, Any] = {"name": "w", "target": "peer", "model": {"http": {}}, "devices": 50}
    opened = axis(leg(profile(web | {"load": {"open": {"rate": "2k/s"}}}, transport={"sockets": {}})))
    assert (opened.unit, opened.most) == ("flows/s", 2000)
    assert opened.at(500, 1.0).trial.load == 0.25
    closed = axis(leg(profile(web, transport={"sockets": {}}), trial={"load": 2.0}))
    assert (closed.unit, closed.most, closed.step) == ("devices", 100, 1)
    assert closed.at(25, 1.0).trial.load == 0.5


def test_sizes_are_read() -> None:
    assert [name for name, _ in sizes.read("rfc2544")] == [
        f"{n}B" for n in (64, 128, 256, 512, 1024, 1280, 1518)
    ]
    assert [name for name, _ in sizes.read("ipv6,jumbo")][:2] == ["84B", "128B"]
    assert sizes.read("64, 1518B ,imix,genome:aad") == [
        ("64B", {"fixed": "64B"}),
        ("1518B", {"fixed": "1518B"}),
        ("imix", {"imix": {}}),
        ("genome-aad", {"genome": "aad"}),
    ]
    # RFC 6985: z is the size of the MTU
    assert sizes.read("genome:zz") == [("genome-zz", {"genome": "zz"})]
    assert sizes.read(f"genome:{'a' * 1024}")
    for wrong in ("63", "16001", "small", "genome:", "genome:q", f"genome:{'a' * 1025}", ""):
        with pytest.raises(Error, match="is no frame size"):
            sizes.read(wrong)


def test_a_size_has_room_for_what_is_measured() -> None:
    group = {"name": "x", "target": "six", "model": {"stream": {"rate": "1k/s"}}}
    made = profile(group, transport={"sockets": {}})
    fits = axis(leg(made), {"fixed": "84B"})
    assert fits.frame == 84
    assert (
        isinstance(fits.leg.profile, dict)
        and fits.leg.profile["groups"][0]["model"]["stream"]["size"] == "18B"
    )
    with pytest.raises(Error, match="no room"):
        axis(leg(made), {"fixed": "83B"})


# ---- kinds


def wanted(**changes: Any) -> SearchRequest:
    return SearchRequest(goals=NDR, seconds=1.0, **changes)


def test_latency_is_held_at_what_was_found() -> None:
    kind, one = KINDS["latency"], axis(leg(profile(stream("x", {"frames": "1M/s"}, {"fixed": "64B"}))))
    options = wanted(repeat=3)
    space, _ = kind.space(one, options)
    trials, _ = run(kind.strategy(one, space, options, {}), SimulatedDut(0.6e6))
    *search, a, b, c = trials
    assert a.load == b.load == c.load == pytest.approx(0.6e6, rel=0.006) and a.load <= 0.6e6
    assert {one.seconds for one in search} == {0.25} and {a.seconds, b.seconds, c.seconds} == {1.0}
    at_half, _ = run(kind.strategy(one, space, wanted(repeat=2, at=0.5), {}), SimulatedDut(0.6e6))
    assert [one.load for one in at_half] == [0.5e6, 0.5e6]


def test_a_buffer_is_found_by_its_burst() -> None:
    """A DUT that forwards 600 kpps and holds 400 frames: a burst at 1 Mpps fills it after 1,000 frames."""
    kind, one = KINDS["back-to-back"], axis(leg(profile(stream("x", {"frames": "1M/s"}, {"fixed": "64B"}))))
    options = wanted(repeat=20)
    space, _ = kind.space(one, options)
    steady = SimulatedDut(0.6e6)

    def measure(ask: TrialRequest) -> LoadTrial:
        if ask.shape != BURST:
            return steady(ask)
        sent = round(ask.load)
        waiting = sent * (1 - 0.6)
        return LoadTrial(ask.load, ask.seconds, sent, max(0, round(waiting - 400)), shape=BURST)

    trials, _ = run(kind.strategy(one, space, options, {}), measure)
    longest = max(one.load for one in trials if one.shape == BURST and not one.lost)
    assert longest == pytest.approx(1000, rel=0.02)
    times = buffer_times(1000, 0.6e6, 1e6)
    assert times["implied_buffer_time"] == pytest.approx(1e-3)
    assert times["corrected_buffer_time"] == pytest.approx(400 / 1e6)
    sent = kind.leg(one, TrialRequest(1000, 1.0, BURST), options)
    assert isinstance(sent.profile, dict) and sent.trial.warmup == "0s"
    assert sent.profile["groups"][0]["model"]["stream"]["count"] == 1000
    assert sent.profile["groups"][0]["load"] == {"closed": {"flows": 1}}


def test_a_burst_is_what_all_devices_send() -> None:
    up = stream("x", {"frames": "300k/s"}, {"fixed": "64B"}, devices=16)
    down = stream("y", {"frames": "100k/s"}, {"fixed": "64B"}, devices=2)
    for groups, step in (([up], 16), ([up, down], 64)):
        one = axis(leg(profile(*groups)))
        space = bursts(one, Space(one.most, 0.005, 0.1))
        assert space.step == step
        for asked in (1, 10, 100, 149, 1000, 3999.4, 1e9):
            frames = space.round(asked)
            sent = one.burst(frames).profile
            assert isinstance(sent, dict)
            assert frames == sum(g["devices"] * g["model"]["stream"]["count"] for g in sent["groups"])


def test_a_burst_is_no_longer_than_a_trial_whatever_the_shares() -> None:
    rates = ("999983/s", "99991/s", "7919/s")
    groups = [stream(f"g{n}", {"frames": rate}, {"fixed": "64B"}, devices=7) for n, rate in enumerate(rates)]
    one = axis(leg(profile(*groups)))
    space = bursts(one, Space(one.most, 0.005, 0.1))
    assert (space.step, space.bottom) == (21, 21)
    assert space.most <= one.most * 0.1


def test_what_prepares_is_not_overloaded() -> None:
    opening = stream("open", {"frames": "1k/s"}, {"fixed": "64B"})
    opening["model"]["stream"]["count"] = 10
    one = axis(leg(profile(opening, stream("x", {"frames": "1M/s"}, {"fixed": "64B"}))))
    made = overload(one, TrialRequest(0.5e6, 4.0, "recovery"))
    assert isinstance(made.profile, dict)
    assert [group["name"] for group in made.profile["groups"]] == ["open", "x", "x" + EXTRA]


def test_an_overload_ends_with_the_warm_up() -> None:
    one = axis(leg(profile(stream("x", {"frames": "1M/s"}, {"fixed": "64B"}, devices=2))))
    made = overload(one, TrialRequest(0.5e6, 4.0, "recovery"))
    assert isinstance(made.profile, dict) and made.trial.warmup == "4000000us"
    steady, extra = made.profile["groups"]
    rates = [float(group["frame"]["rate"]["frames"].removesuffix("/s")) for group in (steady, extra)]
    assert rates == pytest.approx([0.25e6, 0.30e6]) and sum(rates) == pytest.approx(1.1 * 0.5e6)
    # all devices together send what is due in the warm-up, and no more
    assert extra["model"]["stream"]["count"] * 2 == pytest.approx(0.30e6 * 4)
    assert (extra["name"], steady["name"]) == ("x" + EXTRA, "x")


def sample(t: float, phase: str, sent: int, came: int) -> SeriesPoint:
    counts = Counts(messages_sent=sent, messages_delivered=came)
    late = GroupPoint(counts=Counts(messages_sent=50, messages_delivered=1))
    return SeriesPoint(t=t, phase=phase, groups={"x": GroupPoint(counts=counts), "x" + EXTRA: late})


def test_the_last_loss_is_the_recovery() -> None:
    warmup = [sample(0.5, "warmup", 100, 60), sample(1.0, "warmup", 100, 60)]
    clean = [sample(t, "measure", 50, 50) for t in (1.4, 1.5, 1.6)]
    lossy = [
        *warmup,
        sample(1.1, "measure", 50, 40),
        sample(1.2, "measure", 50, 50),
        sample(1.3, "measure", 50, 49),
    ]
    assert recovered([*lossy, *clean]) == pytest.approx(0.3)
    assert recovered([*warmup, *clean]) == 0.0
    # one that was lost while another was on its way is known by the count of the whole trial
    assert recovered([*warmup, *clean], lost=1) == pytest.approx(0.4)
    # one more arrives than was sent where it was on its way: that is no loss
    assert recovered([*warmup, sample(1.1, "measure", 50, 49), sample(1.2, "measure", 50, 51)]) == 0.0


def test_a_reset_is_lost_frames_over_their_rate() -> None:
    assert reset_time(lost=250, sent=1000, seconds=4.0) == 1.0
    assert reset_time(lost=0, sent=1000, seconds=4.0) == 0.0


def test_a_reset_needs_one_dut() -> None:
    with pytest.raises(Error, match="0 devices under test"):
        KINDS["reset"].space(axis(leg(profile(stream("x", {"frames": "1k/s"}, {"fixed": "64B"})))), wanted())
    dut = {"far": {"driver": "reflector"}}
    one = axis(leg(profile(stream("x", {"frames": "1k/s"}, {"fixed": "64B"})), duts=dut))
    (action,) = KINDS["reset"].actions(one, TrialRequest(1000, 4.0, "reset"))
    assert (action.dut, action.after) == ("far", pytest.approx(0.1 + 1.0))
    assert KINDS["reset"].actions(one, TrialRequest(1000, 4.0)) == ()


# ---- estimates


def test_what_it_will_take_is_known_before() -> None:
    made = profile(stream("x", {"frames": "1M/s"}))
    experiment = load({"name": "e", "legs": [{"name": "l", "profile": made}]}, "e")
    search, estimate = prepare(wanted(sizes="64,1518"), experiment, Path())
    assert [part.name for part in search.parts] == ["64B", "1518B"]
    assert estimate.trials == sum(part.planned for part in search.parts)
    # warm-up, measure, drain and what is around a trial
    assert estimate.seconds == pytest.approx(estimate.trials * (0.1 + 1.0 + 0.1 + 2.0))
    taken, _ = run(search.parts[0].strategy, SimulatedDut(0.31e6))
    assert len(taken) == pytest.approx(search.parts[0].planned, abs=6)


def two_legs() -> Experiment:
    made = {"name": "l", "profile": profile(stream("x", {"frames": "1k/s"}))}
    return load({"name": "e", "legs": [made, made | {"name": "m"}]}, "e")


def test_what_is_searched_over_several_legs() -> None:
    for kind in KINDS.keys() - {*multi_leg_kinds()}:
        with pytest.raises(Error, match="2 legs"):
            prepare(wanted(kind=kind), two_legs(), Path())
    search, _ = prepare(wanted(sizes="64,512"), two_legs(), Path())
    names = ["l,64B", "m,64B", "l,512B", "m,512B"]
    assert [part.name for part in search.parts] == names
    assert [(part.leg, part.size) for part in search.parts] == [tuple(one.split(",")) for one in names]


@pytest.mark.slow
def test_legs_are_measured_in_blocks_until_each_has_ended() -> None:
    search, _ = prepare(wanted(sizes="64,512"), two_legs(), Path())
    left = {"l,64B": 3, "m,64B": 1, "l,512B": 1, "m,512B": 2}
    seen = []
    for part in turns(search.parts, 7):
        seen.append(part.name)
        left[part.name] -= 1
        part.stop = "" if left[part.name] else "resolution"
    assert sorted(seen[:2]) == ["l,64B", "m,64B"]
    assert seen[2:4] == ["l,64B", "l,64B"]
    assert sorted(seen[4:6]) == ["l,512B", "m,512B"]
    assert seen[6:] == ["m,512B"]
    orders = {
        tuple(part.leg for part, _ in zip(turns(search_again().parts, seed), "ab", strict=False))
        for seed in range(20)
    }
    assert orders == {("l", "m"), ("m", "l")}


def search_again() -> Search:
    return prepare(wanted(sizes="64"), two_legs(), Path())[0]


def test_what_prepares_a_load_keeps_its_rate() -> None:
    opening = stream("open", {"frames": "10k/s"})
    opening["model"]["stream"]["count"] = 100
    made = axis(LegSpec(name="l", profile=profile(opening, stream("x", {"frames": "1M/s"}))))
    assert made.most == 1e6
    leg = made.at(250_000.0, 1.0)
    rates = [group["frame"]["rate"]["frames"] for group in leg.profile["groups"]]
    assert rates == ["10k/s", "250000.000000/s"]
    # where all that is sent is counted, all of it is the load, but for what is not measured
    unmeasured = {**opening, "name": "prime", "frame": {**opening["frame"], "measured": False}}
    assert [one["name"] for one in loading(profile(unmeasured, opening))] == ["open"]


def test_one_of_a_kind_is_no_plural() -> None:
    written = [words.load(value, "devices") for value in (0.0, 1.0, 2.0, 1500.0)]
    assert written == ["0 devices", "1 device", "2 devices", "1,500 devices"]
