"""A short list is proven at once; simulated, how often something is proposed where nothing helps."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from netdyno.cli.app import call
from netdyno.experiment.record import Record
from netdyno.stats.observation import Observation, Setting
from netdyno.tuning import recommend_run
from netdyno.tuning.prepared_bench import PreparedBench
from netdyno.tuning.prove_listed import ListedProof, prove_listed
from netdyno.tuning.recommend import Context, Experience, recommend
from netdyno.tuning.verbs import recommend as tune_recommend

from .drifting import INERT, Drifting

LISTED = {t.name.rpartition(".")[2]: {t.name: 100} for t in INERT[:3]}
RUNS = [pytest.param(60, id="60"), pytest.param(500, id="500", marks=pytest.mark.long)]


@pytest.fixture(autouse=True)
def _in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr("netdyno.tuning.benches.mechanism", lambda a, b: {})


class Better(Drifting):
    """One parameter helps, by so much; the others change nothing."""

    def __init__(self, seed: int, better: float, drift: float = 0.01, noise: float = 0.03) -> None:
        super().__init__(seed, drift, noise)
        self.better = better

    def measure(self, setting: Setting, seed: int) -> Observation:
        seen = super().measure(setting, seed)
        factor = 1 + self.better if INERT[0].name in setting else 1.0
        metrics = {"throughput": seen.metrics["throughput"] * factor}
        return Observation(setting, metrics, seen.counters, started=seen.started, seconds=1.0)


def listed(bench: Drifting, path: Path, seed: int = 1, **more: Any) -> ListedProof:
    with Record(path, {}) as record:
        return prove_listed(
            bench, LISTED, dict.fromkeys(LISTED, 0.3), "throughput", record, seed=seed, **more
        )


def test_what_helps_is_proven_and_comes_first(tmp_path: Path) -> None:
    found = listed(Better(1, 0.4), tmp_path / "a.jsonl")
    assert found.proven == ("inert0",) == found.names[:1]
    assert not found.doubt
    assert found.found.proven and found.found.proofs[0].setting == LISTED["inert0"]
    assert "t with 2 degrees" in found.found.document()["planned"]["assumed"]


def test_where_all_are_said_to_change_nothing_there_is_no_doubt(tmp_path: Path) -> None:
    quiet = listed(Better(1, 0.0, 0.0, 0.001), tmp_path / "a.jsonl")
    assert (quiet.proven, quiet.doubt) == ((), False)
    loud = listed(Better(1, 0.0, 0.0, 0.4), tmp_path / "b.jsonl")
    assert (loud.proven, loud.doubt) == ((), True)


def test_one_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    whole = listed(Better(3, 0.4), tmp_path / "a.jsonl").found.document()
    bench = Better(3, 0.4)
    assert listed(bench, tmp_path / "a.jsonl").found.document() == whole
    assert bench.trials == 0


@pytest.mark.parametrize("runs", RUNS)
def test_where_nothing_helps_something_is_seldom_proven(tmp_path: Path, runs: int) -> None:
    """Three settings that change nothing, on a machine that wanders."""
    wrong = 0
    for seed in range(runs):
        wrong += bool(listed(Drifting(seed), tmp_path / f"{seed}.jsonl", seed).proven)
    error = math.sqrt(0.05 * 0.95 / runs)
    print(f"proven {wrong / runs:.3f}, standard error {error:.3f}")
    assert wrong / runs <= 0.05 + 3 * error


@pytest.mark.parametrize("runs", RUNS)
def test_from_what_is_known_to_the_proof_nothing_is_proposed_where_nothing_helps(
    tmp_path: Path, runs: int
) -> None:
    """24 contexts with noise of 20 %, settings that change nothing: how many services have a short list, how many
    settings to test, and how many are proposed something after the proof."""
    draw = random.Random(21)

    def features() -> dict[str, float]:
        return {
            "rtt": 10 ** draw.uniform(-3, -1), "rate": 10 ** draw.uniform(7, 9), "udp": 0.0, "connects": 1.0,
            "drops": 0.0,
        }  # fmt: skip

    proposed = tested = proven = 0
    for seed in range(runs):
        contexts = tuple(
            Context(f"{i}", features(), "rate", {s: [draw.gauss(0, 0.2) for _ in range(3)] for s in LISTED})
            for i in range(24)
        )
        found = recommend(Experience({}, LISTED, contexts), features())
        proposed += bool(found.shortlist)
        if not found.tested:
            continue
        tested += 1
        gains = {e.setting: e.gain for e in found.expected}
        with Record(tmp_path / f"{seed}.jsonl", {}) as record:
            listed = {name: LISTED[name] for name in found.tested}
            made = prove_listed(Drifting(seed), listed, gains, "throughput", record, seed=seed)
        proven += bool(made.proven)
    print(f"proposed {proposed / runs:.3f}, tested {tested / runs:.3f}, proven {proven / runs:.3f}")
    assert proven / runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize(
    ("better", "noise", "code", "proven", "doubt"),
    [(0.5, 0.02, 0, ["inert0"], False), (0.0, 0.001, 0, [], False), (0.0, 0.5, 90, [], True)],
)
def test_the_verb_proves_and_tells_a_doubt_in_json_and_by_its_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    better: float,
    noise: float,
    code: int,
    proven: list[str],
    doubt: bool,
) -> None:
    features = {"rtt": 0.01, "rate": 1e8, "udp": 0.0, "connects": 1.0, "drops": 0.0}
    contexts = tuple(
        Context(f"{i}", {**features, "rtt": 0.01 + i / 1e4}, "rate", {n: [0.3] for n in LISTED})
        for i in range(12)
    )
    Experience({}, LISTED, contexts).write(tmp_path / "known.json")

    @contextmanager
    def opened(request: Any, interrupts: Any) -> Iterator[PreparedBench]:
        assert request.own.options["load"] == "true"
        known = {t.name: t for t in INERT[:2]}
        yield PreparedBench(Better(5, better, 0.0, noise), "mine", known, {}, (), None, False)

    monkeypatch.setenv("NETDYNO_STATE", str(tmp_path))
    monkeypatch.setattr(tune_recommend, "sample", lambda where, seconds: dict(features))
    monkeypatch.setattr(tune_recommend, "need_root", lambda: None)
    monkeypatch.setattr(recommend_run, "open_bench", opened)
    verb = ["tune", "recommend", "--experience", str(tmp_path / "known.json")]
    load = ["--load", "true", "--metric", "throughput=rate (.+)", "--better", "higher"]
    assert call([*verb, "--prove"]) == 104
    assert call([*verb, *load]) == 104
    capsys.readouterr()
    assert call([*verb, "--prove", *load, "--json"]) == code
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["doubt"] is doubt
    assert document["proof"]["proven"] == proven
    assert list(document["proof"]["left_out"]) == ["inert2"]
    assert ("ND-90-32" in err) == doubt
    assert call([*verb, "--prove", *load]) == code
    out, err = capsys.readouterr()
    assert ("use inert0: netdyno tune apply search-mine-" in out) == bool(proven)
    assert "--fresh measures again" in err
