"""What is typed of a path, as a specification; and what is shown of it."""

from pathlib import Path
from typing import Any

import pytest

from netdyno.cli import app, impair_run, impair_view
from netdyno.errors import Error
from netdyno.lab import impairment
from netdyno.lab.links import UNASKED


@pytest.mark.parametrize(
    "both", ["10.0.0.1/24,10.0.0.1/24", "10.0.0.1/24,10.0.0.1/16", "fd00::1/64, fd00:0::1/64"]
)
def test_two_ends_have_two_addresses(both: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call(["impair", "--between", "a,b", "--addresses", both]) == 104
    assert "ND-104-06: both ends have the address" in capsys.readouterr().err


def test_words_of_a_way() -> None:
    assert impairment.words("delay=40ms, loss=1%", "--there") == {"delay": "40ms", "loss": "1%"}
    for wrong in ("", "delay", "delay=", "los=1%", "delay=1ms,,loss=1%"):
        with pytest.raises(Error, match="--there"):
            impairment.words(wrong, "--there")


@pytest.mark.parametrize(
    ("said", "base", "way"),
    [
        ({"delay": "40ms"}, {}, {"delay": {"constant": "40ms"}}),
        ({"delay": "0"}, {}, {"delay": {"constant": "0s"}}),
        ({"delay": "4ms", "jitter": "4ms"}, {}, {"delay": {"uniform": {"from": "0ns", "to": "8000000ns"}}}),
        (
            {"jitter": "100us"},
            {"delay": {"constant": "500us"}},
            {"delay": {"uniform": {"from": "400000ns", "to": "600000ns"}}},
        ),
        ({"loss": "1%"}, {"loss": {"periodic": 3}}, {"loss": {"independent": "1%"}}),
        ({"reorder": "1%"}, {}, {"reorder": {"share": "1%", "by": {"packets": 3}}}),
        ({"duplicate": "1%", "corrupt": "1ppm"}, {}, {"duplicate": "1%", "corrupt": "1ppm"}),
        ({"rate": "1Mbit/s"}, {}, {"bottleneck": {"rate": "1Mbit/s"}}),
        (
            {"limit": "9"},
            {"bottleneck": {"rate": "1Mbit/s", "queue": {"codel": {}}}},
            {"bottleneck": {"rate": "1Mbit/s", "queue": {"tail_drop": {"packets": 9}}}},
        ),
        (
            {"rate": "1Mbit/s", "limit": "64KiB"},
            {},
            {"bottleneck": {"rate": "1Mbit/s", "queue": {"tail_drop": {"bytes": "64KiB"}}}},
        ),
    ],
)
def test_what_is_said_changes_a_way_and_no_other(
    said: dict[str, str], base: dict[str, Any], way: dict[str, Any]
) -> None:
    spec = {"a_to_b": base, "b_to_a": {"loss": {"periodic": 2}}}
    made = impairment.changed(spec, {"a_to_b": said, "b_to_a": {}})
    assert made == {"a_to_b": way, "b_to_a": {"loss": {"periodic": 2}}}
    assert spec["a_to_b"] is base, "what it began with stays as it was"


@pytest.mark.parametrize(
    ("said", "base", "code"),
    [
        ({"delay": "soon"}, {}, "ND-104-04"),
        ({"delay": "40"}, {}, "ND-104-04"),
        ({"delay": "40ms", "jitter": "0.5"}, {}, "ND-104-04"),
        ({"delay": "1ms", "jitter": "2ms"}, {}, "ND-104-07"),
        ({"jitter": "1ms"}, {"delay": {"samples": ["1ms"]}}, "ND-104-07"),
        ({"limit": "10"}, {}, "ND-104-07"),
        ({"rate": "1Mbit/s", "limit": "much"}, {}, "ND-104-04"),
    ],
)
def test_what_does_not_go_together_is_refused(said: dict[str, str], base: dict[str, Any], code: str) -> None:
    with pytest.raises(Error) as error:
        impairment.changed({"a_to_b": base}, {"a_to_b": said})
    assert error.value.code == code


def test_a_time_without_a_unit_is_no_guess() -> None:
    with pytest.raises(Error) as error:
        impairment.changed({}, {"a_to_b": {"delay": "40"}})
    assert error.value.fix == "Write 40ms or 40s"


@pytest.mark.parametrize(
    ("options", "at"),
    [
        (["--loss", "1"], "--loss"),
        (["--rate", "100Mbps"], "--rate"),
        (["--rate", "1Mbit/s", "--limit", "0"], "--limit"),
        (["--delay", "-5ms"], "--delay"),
        (["--delay", "40"], "--delay"),
        (["--delay", "4ms", "--back", "jitter=5ms"], "--back: jitter"),
        (["--there", "loss=1"], "--there: loss"),
        (["--preset", "lt"], "--preset"),
        (["--spec", "w.yaml"], "w.yaml: a_to_b.delay"),
    ],
)
@pytest.mark.daemon
def test_what_is_wrong_is_told_by_the_option(
    options: list[str],
    at: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.yaml").write_text("a_to_b: {delay: 40}\n")
    assert app.call(["impair", "--between", "left,right", *options]) == 104
    assert f"  at  {at}\n" in capsys.readouterr().err


def test_paths_in_a_line() -> None:
    plain = impair_view.Plain(["left:wan0", "right:wan0"])
    late = {"delay": {"constant": "40ms"}, "loss": {"independent": "1%"}, "overtaking": False}
    slow = {"bottleneck": {"queue": {"tail_drop": {"bytes": "1MiB"}}, "rate": "6Mbit/s"}}
    assert plain.paths({"a_to_b": late, "b_to_a": late}) == "each way: delay 40ms, loss 1%"
    both = plain.paths({"a_to_b": slow, "b_to_a": {"delay": {"uniform": {"from": "1ms", "to": "2ms"}}}})
    assert both == "left → right: rate 6Mbit/s, queue 1MiB; right → left: delay uniform from 1ms to 2ms"


def test_ways_between_ports_of_a_run() -> None:
    assert impair_run.ends("b") == {"a_to_b": "b"}
    assert impair_run.ends("a, b") == {"a_to_b": "b", "b_to_a": "a"}
    for wrong in ("", "a,", "a,a", "a,b,c"):
        with pytest.raises(Error, match="--run"):
            impair_run.ends(wrong)


def test_a_port_has_one_way_of_a_specification() -> None:
    lossy, late = {"loss": {"independent": "1%"}}, {"delay": {"constant": "1s"}}
    steps = [{"at": "1s", "a_to_b": late}, {"at": "2s", "b_to_a": late}, {"at": "3s", "a_to_b": lossy}]
    spec = {"seed": 0, "a_to_b": lossy, "b_to_a": late, "timeline": {"steps": steps[:1], "repeat": None}}
    assert impair_run.way(spec, "b_to_a") == {"impair": late}
    spec["timeline"] = {"steps": steps, "repeat": "5s"}
    there = [{"at": "1s", "impair": late}, {"at": "3s", "impair": lossy}]
    timeline = {"steps": there, "repeat": "5s"}
    assert impair_run.way(spec, "a_to_b") == {"impair": lossy, "impair_timeline": timeline}


NOTHING = {
    **dict.fromkeys(("packets_in", "bytes_in", "packets_out", "bytes_out", "held", "late_p99_ns"), 0),
    **dict.fromkeys(("lost", "duplicated", "corrupted", "reordered"), 0),
    **dict.fromkeys(("tail_dropped", "red_dropped", "codel_dropped"), 0),
    **dict.fromkeys(UNASKED, 0),
}


def stats(elapsed: float, **there: int) -> dict[str, Any]:
    return {"elapsed": elapsed, "a_to_b": NOTHING | there, "b_to_a": NOTHING}


def test_rates_are_of_the_time_since_the_last() -> None:
    rates = impair_view.Rates()
    assert rates.take(stats(2.0, packets_in=100, bytes_in=1_000_000))["a_to_b"] == (50.0, 4.0)
    assert rates.take(stats(2.5, packets_in=200, bytes_in=1_000_000))["a_to_b"] == (200.0, 0.0)


def test_a_line_for_each_way_in_which_something_passed(capsys: pytest.CaptureFixture[str]) -> None:
    plain = impair_view.Plain(["left:wan0", "right:eth1"])
    plain.take(stats(1.0, packets_in=200, bytes_in=125_000, packets_out=196, held=2, lost=2, missed=1))
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "     1 s  left → right:eth1  200 packets/s  1.0 Mbit/s  2 on the way, 2 lost, 1 missed! (1 % lost)"
    ]
    plain.summary(stats(1.0, packets_in=2000, packets_out=1990, lost=10, late_p99_ns=12_000))
    table = capsys.readouterr().out.splitlines()
    assert [line.split() for line in table[1:]] == [
        ["left", "→", "right:eth1", "2,000", "1,990", "0", "10", "lost", "(0.5", "%", "lost)", "12", "µs"],
        ["right:eth1", "→", "left", "0", "0", "0", "–"],
    ]


def test_who_asks_for_json_gets_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    impair_view.Plain(["a", "b"], quiet=True).take(stats(1.0, packets_in=200))
    assert capsys.readouterr() == ("", "")
