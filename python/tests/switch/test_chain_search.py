"""The longest chain that holds a target: the verdict on a length, the order of lengths, and a real search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netdyno.cli.app import call
from netdyno.stats.observation import Observation
from netdyno.switch.chain.search import LengthResult, bisect, judge, steps
from netdyno.switch.driver import DRIVERS

from ..conftest import root
from .test_chain import BRIDGES


def seen(rate: float | None) -> Observation:
    metrics = {} if rate is None else {"throughput": rate}
    return Observation({"functions": 1}, metrics, {}, rate is not None, "" if rate else "lost", 0.0, 1.0, {})


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ([100.0, 101.0, 99.0], "holds"),
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
