"""The longest chain that holds a target: the verdict on a length, the order of lengths, and a real search."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from netdyno.cli.app import call
from netdyno.stats.observation import Observation
from netdyno.switch.chain import search as searching
from netdyno.switch.chain.search import LengthResult, Verdict, bisect, coarse, judge, steps
from netdyno.switch.chain.verify import Verification
from netdyno.switch.chain.vnf.bridged import LimiterOptions
from netdyno.switch.driver import DRIVERS
from netdyno.switch.pages.search import build

from ..conftest import root
from .test_chain import BRIDGES

NAMED = SimpleNamespace(version=lambda: "1")


def seen(rate: float | None) -> Observation:
    metrics = {} if rate is None else {"throughput": rate}
    return Observation({"functions": 1}, metrics, {}, rate is not None, "" if rate else "lost", 0.0, 1.0, {})


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ([100.0, 101.0, 99.0], "holds"),
        ([90.0, 90.0], "holds"),  # at the target
        ([80.0, 81.0, 79.0], "fails"),
        ([70.0, 110.0, 90.0], "undecided"),
        ([100.0], "undecided"),
        ([None, None], "no valid trial"),
    ],
)
def test_a_length_against_the_target(rates: list[float | None], verdict: str) -> None:
    found = judge(1, [seen(rate) for rate in rates], 90.0, 0.95)
    assert found.verdict == verdict and found.document()["verdict"] == verdict
    assert found.why == ("lost" if verdict == "no valid trial" else "")


@pytest.mark.parametrize("count", range(1, 40))
def test_every_longest_length_is_found(count: int) -> None:
    """Whatever the longest length that holds, and in no more steps than are allowed for."""
    for longest in range(-1, count):

        def measure(n: int, longest: int = longest) -> LengthResult:
            return LengthResult(n, [1.0], None, "holds" if n <= longest else "undecided")

        found = bisect(list(range(count)), measure)
        assert max((one.functions for one in found if one.verdict == "holds"), default=-1) == longest
        assert len(found) <= steps(count) and found == sorted(found, key=lambda one: one.functions)


def test_an_interval_of_throughput_is_never_negative() -> None:
    found = judge(2, [seen(rate) for rate in (1.0, 200.0)], 50.0, 0.95)
    assert found.interval and found.interval[0] == 0.0 and found.verdict == "undecided"


def test_few_trials_are_said_to_decide_little() -> None:
    assert coarse(2, 0.975).startswith("2 trials of a length decide only a mean 18 standard deviations")
    assert not coarse(5, 0.975)


@root
@pytest.mark.parametrize(
    ("verdicts", "longest", "undecided", "code", "said"),
    [
        (["undecided", "undecided"], None, 0, 90, "ND-90-35"),
        (["fails", "fails"], None, None, 99, "ND-99-20"),
        (["holds", "undecided"], 0, 1, 0, "0 functions; 1 function: undecided"),
        (["holds", "fails"], 0, None, 0, "longest chain that holds the target: 0 functions"),
    ],
)
def test_undecided_is_no_failure(
    verdicts: list[Verdict], longest: int | None, undecided: int | None, code: int, said: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Nothing is known of a length whose interval has the target in it: more trials are asked for."""
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NETDYNO_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(searching, "ChainLab", lambda *_, **__: nullcontext(SimpleNamespace(switch=NAMED)))
    monkeypatch.setattr(searching, "proven", lambda *_: Verification([], 0.1, {}))
    monkeypatch.setattr(searching, "probe_paths", lambda *_: None)
    monkeypatch.setattr(searching, "probe_ports", lambda *_: None)
    monkeypatch.setattr(searching, "bench_of", lambda *_: nullcontext(None))
    monkeypatch.setattr(searching, "_trials", lambda *_: [seen(1.0), seen(2.0)])
    monkeypatch.setattr(searching, "bisect", lambda there, measure: [measure(n) for n in there[:2]])
    monkeypatch.setattr(
        searching, "judge", lambda n, *_: LengthResult(n, [1.0, 2.0], (0.0, 3.0), verdicts[n])
    )
    file = tmp_path / "two.yaml"
    file.write_text(json.dumps(BRIDGES))
    assert call(["chain", "search", str(file), "--target", "50M", "--repeat", "2"]) == code
    out, err = capfd.readouterr()
    told = " ".join((out + err).split())
    assert said in told and "target 50 Mbit/s" in told and "2 trials of a length decide only" in told
    (document,) = (tmp_path / "runs").glob("*/study.json")
    result = json.loads(document.read_text())["result"]
    assert (result["longest"], result["undecided"]) == (longest, undecided)
    assert build(json.loads(document.read_text())).state == {90: "invalid", 99: "fail", 0: "pass"}[code]


def test_a_target_has_a_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """50 would be 50 bit/s, which every chain holds."""
    file = tmp_path / "two.yaml"
    file.write_text(json.dumps(BRIDGES))
    assert call(["chain", "search", str(file), "--target", "50"]) == 104
    assert "a number with its unit, like 50Mbit/s" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("rate", "read"), [("50M", "50Mbit/s"), ("1G", "1Gbit/s"), ("20Mbit/s", "20Mbit/s"), ("5k", "5kbit/s")]
)
def test_rates_of_a_limiter(rate: str, read: str) -> None:
    assert LimiterOptions(rate=rate).rate == read


@root
@pytest.mark.full
def test_a_chain_is_searched_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if why := DRIVERS["ovs-netdev"].missing():
        pytest.skip(why)
    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NETDYNO_RUNS", str(tmp_path / "runs"))
    file = tmp_path / "two.yaml"
    file.write_text(json.dumps(BRIDGES))
    words = ["chain", "search", str(file), "--set", "seconds=1", "--repeat", "2", "--level", "0.45", "--json"]
    # far beyond what a machine has: every length fails
    assert call([*words, "--target", "100000Gbit/s"]) == 99
    first = json.loads(capfd.readouterr().out)
    assert first["longest"] is None and [one["functions"] for one in first["lengths"]] == [0, 1]
    assert {one["verdict"] for one in first["lengths"]} == {"fails"}
    (page,) = (tmp_path / "runs").glob("*/*.html")
    assert "No length holds the target" in page.read_text()
    assert call([*words, "--target", "100000Gbit/s"]) == 99
    again = json.loads(capfd.readouterr().out)
    assert again["lengths"] == first["lengths"], "nothing was measured again"
