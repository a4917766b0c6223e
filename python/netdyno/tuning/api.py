"""What `netdyno tune` does, as functions: compare settings, screen parameters, search for a setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from netdyno import units
from netdyno.api import arguments
from netdyno.api.restored import put_back
from netdyno.experiment.record import Record
from netdyno.lab.topology import need_root
from netdyno.stats.observation import Metric
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import benches, compare_run, screen_run, search_run
from netdyno.tuning.bench import HostName
from netdyno.tuning.prepared_bench import BenchRequest
from netdyno.tuning.prove import Limit
from netdyno.tuning.results import Comparison, Screening, Tuning
from netdyno.tuning.search import Budget
from netdyno.tuning.study_listener import StudyListener

SIDES = ("server", "client")
Progress = Callable[[int, int], None]
"""Told after each trial how many are over, and of how many."""


@arguments.in_our_words()
def compare(
    a: str | Mapping[str, int | str],
    b: str | Mapping[str, int | str],
    *,
    workload: str,
    options: Mapping[str, Any] | None = None,
    path: str | None = None,
    tuned: str = "server",
    pairs: int = 8,
    metrics: str | Sequence[str] = (),
    matters: float = 0.05,
    level: float = 0.05,
    seed: int = 1,
    name: str | None = None,
    fresh: bool = False,
    allow_global: bool = False,
    on_trial: Progress | None = None,
) -> Comparison:
    """Compare two kernel settings under a workload, in pairs of trials, as `netdyno tune compare` does.

    A setting is `"baseline"`, the name of a known one, a file, or parameters and values. Both hosts are
    namespaces that are made for each trial, so that nothing of the machine changes. Needs root. What was
    measured before is not measured again, unless `fresh`. `on_trial` is called with how many trials are over,
    and of how many.
    """
    arguments.setting(a, "a")
    arguments.setting(b, "b")
    names = arguments.texts(metrics, "metrics")
    arguments.whole_number(pairs, "pairs", 2, 1000)
    arguments.whole_number(seed, "seed", 0)
    arguments.level(level)
    arguments.above_0(matters, "matters")
    arguments.function(on_trial, "on_trial")
    side: HostName = "client" if arguments.one_of(tuned, "tuned", SIDES) == "client" else "server"
    made = benches.spec(str(workload), _options(options), arguments.way(path), side)
    wanted = compare_run.ComparisonRequest(
        made, a, [b], pairs, metrics=names, matters=matters, level=level, seed=seed, name=name,
        fresh=fresh, allow_global=allow_global,
    )  # fmt: skip
    need_root()
    put_back()

    class Listener(StudyListener):
        def trial(self, what: str, done: int, of: int, seen: Any) -> None:
            if on_trial and what == "compare":
                on_trial(done, of)

    with Interrupts().installed() as interrupts:
        return Comparison(compare_run.compare(wanted, Listener(), interrupts))


@arguments.in_our_words()
def screen(
    workload: str,
    *,
    params: str | Sequence[str] = (),
    metrics: str | Sequence[str] = (),
    trajectories: int = 8,
    options: Mapping[str, Any] | None = None,
    path: str | None = None,
    tuned: str = "server",
    service: str | None = None,
    baseline: str | Mapping[str, int | str] = "",
    memory: str | int | None = None,
    level: float = 0.05,
    seed: int = 1,
    name: str | None = None,
    fresh: bool = False,
    allow_global: bool = False,
    on_trial: Progress | None = None,
) -> Screening:
    """Find which kernel parameters matter under a workload, as `netdyno tune screen` does.

    `params` names what is tried (`"net.ipv4.*"`), else what the class of `service` has, or any class. The
    workload `sim` is a formula, for trying things out; others need root. What was measured before is not
    measured again, unless `fresh`.
    """
    arguments.whole_number(trajectories, "trajectories", 2, 100)
    arguments.whole_number(seed, "seed", 0)
    arguments.level(level)
    arguments.function(on_trial, "on_trial")
    wanted = screen_run.ScreeningRequest(
        bench=_bench_request(workload, params, options, path, tuned, service, baseline, allow_global),
        metrics=arguments.texts(metrics, "metrics"),
        trajectories=trajectories,
        memory=_bytes(memory),
        level=level,
        seed=seed,
        name=name,
        fresh=fresh,
    )
    if wanted.bench.real:
        put_back()
    with arguments.placed("BENCH", "workload"):
        return Screening(screen_run.screen(wanted, _Listener(on_trial), Interrupts()))


@arguments.in_our_words()
def tune(
    workload: str,
    *,
    objective: str | Sequence[str] = (),
    limits: Mapping[str, float] | None = None,
    params: str | Sequence[str] = (),
    screened: str | Screening | None = None,
    trials: int = 30,
    time: str | float | None = None,
    patience: int | None = None,
    pairs: int | None = None,
    spare: int | None = None,
    options: Mapping[str, Any] | None = None,
    path: str | None = None,
    tuned: str = "server",
    service: str | None = None,
    baseline: str | Mapping[str, int | str] = "",
    memory: str | int | None = None,
    level: float = 0.05,
    seed: int = 1,
    name: str | None = None,
    fresh: bool = False,
    allow_global: bool = False,
    on_trial: Progress | None = None,
) -> Tuning:
    """Search for a better kernel setting under a workload, and prove it, as `netdyno tune search` does.

    `objective` names the metric to improve, or several for a Pareto set; `limits` what others may be at most,
    like `{"failed": 0}`; `screened` is a screening, or its name: only what mattered in it is searched. The
    workload `sim` is a formula, for trying things out; others need root. Nothing of the machine changes:
    `netdyno tune apply` applies what is found. What was measured before is not measured again, unless
    `fresh`.
    """
    arguments.whole_number(trials, "trials", 5, 10_000)
    arguments.whole_number(patience, "patience", 1)
    arguments.whole_number(pairs, "pairs", 2, 1000)
    arguments.whole_number(spare, "spare", 0)
    arguments.whole_number(seed, "seed", 0)
    arguments.level(level)
    arguments.function(on_trial, "on_trial")
    longest = arguments.quantity(units.TIME, time, "time")
    wanted = search_run.TuningSearchRequest(
        bench=_bench_request(workload, params, options, path, tuned, service, baseline, allow_global),
        objectives=arguments.texts(objective, "objective"),
        limits=[Limit(*one) for one in arguments.numbers(limits, "limits").items()],
        screened=_study(screened),
        memory=_bytes(memory),
        budget=Budget(trials, units.seconds(longest) if longest else math.inf, patience, pairs, spare),
        level=level,
        seed=seed,
        name=name,
        fresh=fresh,
    )
    if wanted.bench.real:
        put_back()
    with arguments.placed("BENCH", "workload"):
        return Tuning(search_run.search(wanted, _Listener(on_trial), Interrupts()))


class _Listener(StudyListener):
    """Passes progress to the caller's function."""

    def __init__(self, on_trial: Progress | None) -> None:
        self._on_trial = on_trial

    def begun(self, record: Record, trials: int, metrics: Sequence[Metric]) -> None:
        """Trials are about to be measured."""
        on_trial = self._on_trial
        if on_trial:
            record.on_trial = lambda trial: on_trial(len(record.trials), max(trials, len(record.trials)))


def _bench_request(
    workload: str,
    params: str | Sequence[str],
    options: Mapping[str, Any] | None,
    path: str | None,
    tuned: str,
    service: str | None,
    baseline: str | Mapping[str, int | str],
    allow_global: bool,
) -> BenchRequest:
    if not isinstance(workload, str):
        raise arguments.refused(workload, "the name of a workload, or a file", "workload")
    if not isinstance(baseline, str | Mapping):
        wanted = '"linux", a known setting, a file, or a dict of parameters'
        raise arguments.refused(baseline, wanted, "baseline")
    if service is not None and not isinstance(service, str):
        raise arguments.refused(service, "the name of a class of service", "service")
    return BenchRequest(
        workload,
        _options(options),
        arguments.way(path),
        arguments.one_of(tuned, "tuned", SIDES),
        service,
        arguments.texts(params, "params"),
        [baseline] if baseline else [],
        allow_global,
    )


def _options(options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if options is not None and not isinstance(options, Mapping):
        raise arguments.refused(options, "a dict of options", "options")
    return options or {}


def _bytes(memory: str | int | None) -> int | None:
    text = arguments.quantity(units.SIZE, memory, "memory")
    return None if text is None else int(units.bound(text))


def _study(screened: str | Screening | None) -> str | None:
    if isinstance(screened, Screening):
        return screened.name
    if screened is not None and not isinstance(screened, str):
        raise arguments.refused(screened, "a screening, or its name", "screened")
    return screened
