"""Prometheus: histograms that add up, labels of the run, and nothing said before it is known."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from netdyno.core.result import Result
from netdyno.export.prometheus import BOUNDS, Exporter

DELAY = {"count": 5, "mean": 2e6, "p50": 1e6, "buckets": [[1_000_000, 3], [2_500_000, 1]]}


def _exporter() -> Exporter:
    exporter = Exporter()
    exporter.start({"id": "run-1", "leg": "l", "groups": [{"name": "web", "protocol": "http"}]})
    for _ in range(2):
        exporter.sample({"groups": {"web": {"counts": {"messages_sent": 5}, "delays": {"response": DELAY}}}})
    return exporter


def _samples(exporter: Exporter, name: str) -> dict[str, float]:
    families = text_string_to_metric_families(exporter.text())
    found = [one for family in families for one in family.samples if one.name == name]
    assert all(one.labels["run"] == "run-1" for one in found)
    return {one.labels.get("le", ""): one.value for one in found}


def test_a_delay_is_a_histogram_of_the_whole_run() -> None:
    exporter = _exporter()
    buckets = _samples(exporter, "netdyno_delay_seconds_bucket")
    assert len(buckets) == len(BOUNDS) + 1
    # cumulative, and what is beyond the last bound only in the last
    assert (buckets["0.0005"], buckets["0.001"], buckets["0.0025"], buckets["100.0"]) == (0, 6, 8, 8)
    assert buckets["+Inf"] == 10
    assert _samples(exporter, "netdyno_delay_seconds_count") == {"": 10}
    assert _samples(exporter, "netdyno_delay_seconds_sum")[""] == pytest.approx(0.02)


def test_the_core_counts_in_these_buckets() -> None:
    assert [round(bound * 1e9) for bound in (BOUNDS[0], BOUNDS[7], BOUNDS[-1])] == [
        10_000,
        2_500_000,
        100_000_000_000,
    ]


def test_what_nobody_knows_yet_is_not_there() -> None:
    exporter = _exporter()
    for name in ("netdyno_valid", "netdyno_passed"):
        assert name not in exporter.text()
    exporter.result(Result(id="run-1", name="n", started="", valid=True, verdict="pass"))
    assert _samples(exporter, "netdyno_valid") == {"": 1}


def test_promtool_finds_no_fault() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool (Debian: prometheus)")
    exporter = _exporter()
    exporter.result(Result(id="run-1", name="n", started=""))
    done = subprocess.run(
        [promtool, "check", "metrics"], input=exporter.text(), text=True, capture_output=True, check=False
    )
    assert not done.stderr, done.stderr
