"""Results that the docs point at: what is said of them is what their trials say."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[3] / "experiments" / "tuning" / "results"


def read(name: str) -> dict[str, Any]:
    """A study as it was stored."""
    found: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return found


def test_the_search_found_ten_times_the_throughput_on_a_path_with_loss() -> None:
    study = read("search-lossy-path.json")
    assert "delay=15ms,loss=0.2%" in study["bench"]
    proof = [one for one in study["trials"] if one["phase"].startswith("proof")]
    assert all(one["observation"]["valid"] for one in proof)
    by = [
        [one["observation"] for one in proof if bool(one["setting"]) is changed] for changed in (False, True)
    ]
    baseline, best = ([one["metrics"]["throughput"] for one in of] for of in by)
    assert len(baseline) == len(best) == 9
    assert statistics.median(best) > 10 * statistics.median(baseline)
    assert min(best) > 10 * max(baseline)
    # what bound before, and what it did to the window
    cwnd = [statistics.median(one["counters"]["tcp.cwnd"] for one in of) for of in by]
    assert cwnd[1] > 10 * cwnd[0], cwnd
    assert sum(one["phase"] == "search" for one in study["trials"]) <= 30


def test_no_setting_was_found_for_redis_and_all_trials_are_kept() -> None:
    study = read("search-redis.json")
    assert "redis-benchmark" in study["bench"] and "delay 5ms" in study["bench"]
    result, trials = study["result"], study["trials"]
    assert (result["ended"], result["proven"], result["proofs"]) == ("budget", False, [])
    assert len(result["tried"]) == 27 and len(trials) == 44 and len(study["tunables"]) == 17
    assert all(one["observation"]["valid"] for one in trials)
    rate = {
        kind: [one["observation"]["metrics"]["rps"] for one in trials if one["phase"] == kind]
        for kind in ("baseline", "search")
    }
    # most of what was tried is within what the baseline itself varies by
    assert (round(min(rate["baseline"])), round(max(rate["baseline"]))) == (2239, 3891)
    assert round(statistics.median(rate["search"])) == 3851


def test_the_papers_tables_were_measured_in_full() -> None:
    study = read("paper.json")
    result, trials = study["result"], study["trials"]
    assert (result["load"], result["length"], result["repeat"], len(trials)) == (1.0, 1.0, 8, 96)
    assert "concurrency=5000" in result["benches"]["ab"] and "streams=128" in result["benches"]["tcp"]
    assert all(one["observation"]["valid"] for one in trials)
    udp = [one for one in trials if one["phase"] == "udp"]
    plain, tuned = (
        [one["observation"] for one in udp if ("net.core.rmem_max" in one["setting"]) is changed]
        for changed in (False, True)
    )
    # what the howto says is shown: a larger receive buffer loses nothing
    losses = [[one["metrics"]["loss"] for one in of] for of in (plain, tuned)]
    assert min(losses[0]) > 10 * max(losses[1]), losses
    # a counter that did not move is not kept
    dropped = [[one["counters"].get("UdpRcvbufErrors", 0) for one in of] for of in (plain, tuned)]
    assert min(dropped[0]) > 0, dropped
    assert max(dropped[1]) == 0, dropped
