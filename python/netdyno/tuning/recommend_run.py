"""Test at once what is proposed, under the load of the service: `tune recommend --prove`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from netdyno.errors import Error
from netdyno.experiment import entry
from netdyno.experiment.study import Study
from netdyno.stats.observation import Setting
from netdyno.stats.sequential import TEST
from netdyno.system.interrupt import Interrupts
from netdyno.tuning.gain import of_bench
from netdyno.tuning.prepared_bench import BenchRequest, PreparedBench, open_bench
from netdyno.tuning.prove import Limit
from netdyno.tuning.prove_listed import ListedProof, prove_listed
from netdyno.tuning.study_listener import StudyListener


@dataclass(frozen=True)
class ListedProofRequest:
    """A short list and the load to prove it under."""

    bench: BenchRequest
    settings: Mapping[str, Setting]
    """By name, the best first."""
    expected: Mapping[str, float]
    """The gain of each, as a log ratio."""
    objective: str | None = None
    """Metric to improve; default: the first."""
    pairs: int | None = None
    spare: int | None = None
    level: float = 0.05
    seed: int = 1
    name: str | None = None
    fresh: bool = False


@dataclass(frozen=True)
class ListedProofOutcome:
    """What was proven, and its stored study."""

    made: ListedProof
    document: Mapping[str, Any]
    study: Study
    left_out: Mapping[str, str]
    """Settings that cannot be set here, and why."""


def prove(request: ListedProofRequest, listener: StudyListener, interrupts: Interrupts) -> ListedProofOutcome:
    """Make the bench ready, prove what can be set there, keep. Call again to resume after an interrupt."""
    with open_bench(request.bench, interrupts) as on:
        objective = request.objective or next(iter(on.bench.metrics))
        of_bench(on.bench.metrics, [objective], "--for")
        why = {name: _missing(on, setting) for name, setting in request.settings.items()}
        left_out = {name: words for name, words in why.items() if words}
        settings = {n: s for n, s in request.settings.items() if n not in left_out}
        for name, words in left_out.items():
            listener.note(f"{name} is left out: {words}")
        if not settings:
            fix = "Add --global where parameters of the whole machine may be set"
            raise Error("ND-104-43", "none of the proposed settings can be set there", at="--prove", fix=fix)
        plan = {
            "settings": {name: dict(one) for name, one in settings.items()}, "objectives": [objective],
            "seed": request.seed, "test": TEST, "level": request.level,
        }  # fmt: skip
        study = Study.of("search", on.label, plan, request.name)
        with entry.open_entry(study, on.bench.metrics, fresh=request.fresh) as kept:
            listener.note(f"{study.name}: {', '.join(settings)} against the baseline")
            for said in on.remarks(one for setting in settings.values() for one in setting):
                listener.note(said)
            on.patience.follow(kept.record)
            listener.begun(kept.record, 0, [on.bench.metrics[objective]])
            made = prove_listed(
                on.bench, settings, request.expected, objective, kept.record,
                limits=[Limit(one.metric, one.bound, one.upper) for one in on.slos], pairs=request.pairs,
                spare=request.spare, seed=request.seed, level=request.level, before=listener.planned,
            )  # fmt: skip
            listener.over(kept.record)
            document = kept.finish(
                made.found.document(), [], finding=made.found.summary, valid=not made.found.invalid
            )
    return ListedProofOutcome(made, document, study, left_out)


def _missing(on: PreparedBench, setting: Setting) -> str:
    """Why a setting cannot be tried; empty if it can."""
    for name, value in setting.items():
        known = on.tunables.get(name)
        if known is None:
            return f"{name} is missing there, or holds for the whole machine"
        if known.choices and value not in known.choices:
            return f"{name} may not be {value} there; it may be {', '.join(map(str, known.choices))}"
    return ""
