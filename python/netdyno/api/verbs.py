"""What the verbs of the command line do, as functions."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdyno import config, paths, units
from netdyno.api import arguments, checked
from netdyno.api.restored import put_back
from netdyno.api.results import Run, RunComparison, Search, Valid
from netdyno.core.address import Address
from netdyno.core.result import Result
from netdyno.errors import Error
from netdyno.experiment import choose, cores, quick, validation
from netdyno.experiment.measurer import FleetCore
from netdyno.experiment.resume import EarlierRun
from netdyno.experiment.runner import ExperimentRun
from netdyno.experiment.schedule import Schedule
from netdyno.experiment.spec import Experiment, variants
from netdyno.experiment.view import NullView, Plan
from netdyno.stats.runs import compare as beside
from netdyno.store import Row, Store, trusted
from netdyno.store.store import find_result, read_result
from netdyno.system import environment
from netdyno.system.interrupt import Interrupts

if TYPE_CHECKING:
    from netdyno.search.request import SearchRequest

Sampled = Callable[[Mapping[str, Any]], None]
"""Told each point of the series while a run goes on, as `stats.sample` of the RPC has it."""


@arguments.in_our_words()
def run(
    what: str | Path | Mapping[str, Any] | Sequence[str],
    *,
    devices: int | None = None,
    rate: str | float | None = None,
    interval: str | float | None = None,
    requests: int | None = None,
    count: int | None = None,
    size: str | int | None = None,
    qos: int | None = None,
    open_loop: bool | None = None,
    connection_per_request: bool = False,
    source: str | Sequence[str] = (),
    insecure: bool = False,
    method: str | None = None,
    headers: Mapping[str, str] | None = None,
    data: str | None = None,
    topic: str | None = None,
    user: str | None = None,
    cacert: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    duration: str | float | None = None,
    warmup: str | float | None = None,
    load: float | None = None,
    repeat: int | None = None,
    targets: Mapping[str, str] | None = None,
    thresholds: str | Sequence[str] = (),
    capture: bool = False,
    port: Mapping[str, Any] | None = None,
    resume: str | Path | Run | None = None,
    fleet: str | None = None,
    tolerate: int = 0,
    socket: str | Path | None = None,
    runs: str | Path | None = None,
    store: bool = True,
    on_sample: Sampled | None = None,
) -> Run:
    """Run a load test and report pass or fail, as `netdyno run` does.

    `what` is a URL or several, a profile or an experiment (its file, or the document itself), or the name of
    a preset. `devices` to `key` are for URLs, and one that a scheme cannot use is refused; `data` that
    begins with @ names a file. `thresholds` are like `"delay.response.p99 <= 50ms"`, for all groups unless
    one is named. `port` is the DPDK port that the devices run over, with the keys of a profile, like
    `{"device": "af_packet:veth0", "ip": "10.0.0.1/24"}`. `resume` resumes an interrupted run.
    `fleet` names a fleet that is up, whose hosts generate the load; `tolerate` of them may be lost.
    """
    options = arguments.quick(locals())
    conditions = arguments.texts(thresholds, "thresholds")
    places = arguments.targets(targets)
    repeat = arguments.whole_number(repeat, "repeat", 1, 10_000)
    arguments.function(on_sample, "on_sample")
    address = arguments.address(socket)
    chosen = _resolve(what, options)
    trial = {
        "load": arguments.above_0(load, "load"),
        "measure": arguments.quantity(units.TIME, duration, "duration"),
        "warmup": arguments.quantity(units.TIME, warmup, "warmup"),
    }
    for number, text in enumerate(conditions):
        with arguments.placed("--threshold", f"thresholds[{number}]"):
            choose.adjust(chosen, {}, {}, None, None, [text])
    over = arguments.port(port)
    wanted = choose.adjust(chosen, trial, places, repeat, {} if capture else None, conditions, over)
    fleets = cores.fleets(fleet, arguments.whole_number(tolerate, "tolerate", 0, 1000) or 0, wanted, address)
    with arguments.of_port(over):
        validation.refuse(wanted, chosen.folder, address)
    return Run(
        *_run_trials(wanted, chosen.folder, runs, store, address, on_sample, resume=resume, fleets=fleets)
    )


@arguments.in_our_words()
def validate(what: str | Path | Mapping[str, Any] | Sequence[str]) -> Valid:
    """Check what can be run, as `netdyno validate` does: raises what is wrong with it.

    A profile or an experiment as `run` takes it, or the file of a graph, a NAT or tables of tuning. Nothing
    is run. Of several faults the error's `all` has each.
    """
    if isinstance(what, str | Path) and Path(what).is_file():
        data = config.read(Path(what))
        other = checked.of_no_load(Path(what), data, str(what)) if isinstance(data, dict) else None
        if other is not None:
            wrong, hints = other
            if wrong:
                raise validation.error(wrong)
            return Valid(None, {}, [Error.of(one) for one in hints])
    chosen = _resolve(what, quick.UrlOptions())
    wanted, found, advice = chosen.experiment, list[validation.Finding](), list[validation.Finding]()
    each_of_them = variants(wanted, chosen.folder)
    profiles = {one.name: validation.as_run(one.leg, one.profile) for one in each_of_them}
    for name, answer in zip(profiles, validation.review(list(profiles.values())), strict=True):
        for faults, here in zip((found, advice), answer, strict=True):
            faults += [each | {"at": chosen.place(name, str(each.get("at") or ""))} for each in here]
    found += [*validation.of_links(each_of_them), *validation.of_duts(each_of_them)]
    if found:
        raise validation.error(found)
    return Valid(wanted, profiles, [Error.of(one) for one in advice])


@arguments.in_our_words()
def load(name: str | Path = "latest") -> Run:
    """A run that was kept: by its id or a part of it, `latest`, its folder, or its `result.json`.

    Of a search it is a `Search`.
    """
    path = arguments.path(name, "name")
    if path.is_dir():
        path = path / "result.json"
    if path.is_file():
        return _stored(read_result(path), path.parent)
    with Store() as store:
        identity = store.resolve(str(name))
        return _stored(store.get(identity), store.folder(identity))


def _stored(result: Result, folder: Path) -> Run:
    return Search(result, folder) if result.search is not None else Run(result, folder)


@arguments.in_our_words()
def runs(limit: int | None = None) -> list[Row]:
    """The runs that are kept, the latest first, as `netdyno runs list` shows them; at most `limit`."""
    with Store() as store:
        return store.rows(arguments.whole_number(limit, "limit"))


@arguments.in_our_words()
def compare_runs(
    a: str | Path | Run,
    b: str | Path | Run,
    *,
    metric: str | Sequence[str] = (),
    level: float = 0.05,
) -> RunComparison:
    """Compare two kept runs over their repetitions, as `netdyno compare` does.

    Each is what `load` takes, or a run itself. `metric` names one or several, like `web.delay.response.p99`;
    none: all that both have. Of two searches the loads that were found are compared.
    """
    names = arguments.texts(metric, "metric")
    arguments.level(level)
    first, second = _result(a, "a"), _result(b, "b")
    with trusted("a or b"):
        return RunComparison(beside(first, second, names, level))


@arguments.in_our_words()
def search(
    what: str | Path | Mapping[str, Any],
    how: SearchRequest,
    *,
    topology: str | Path | None = None,
    load: float | None = None,
    duration: str | float | None = None,
    resume: str | Path | Run | None = None,
    fleet: str | None = None,
    tolerate: int = 0,
    runs: str | Path | None = None,
    store: bool = True,
    on_sample: Sampled | None = None,
) -> Search:
    """Search for the load that a DUT bears, as `netdyno bench` does.

    `how` is what to look for, from `netdyno.search.rfc2544`: `throughput(loss=0.0)`, `mlrsearch()`, `loss()`,
    `back_to_back()`, `latency()`, `recovery()`, `reset()`, `rate()`; or from `netdyno.search.rfc9411`:
    `connections()`, `concurrent()`, `transactions()`, `object_throughput()`, `transaction_latency()`. The
    load of the profile is the highest that is tried. `topology` is a file with topology, duts and targets;
    `duration` is that of each trial.
    `resume` takes over the valid trials of a search that ended early. `fleet` and `tolerate`: as for `run`.
    """
    from netdyno.search import rfc2544
    from netdyno.search.request import SearchRequest

    if not isinstance(how, SearchRequest):
        raise arguments.refused(how, "something to look for, like rfc2544.throughput(loss=0.0)", "how")
    arguments.function(on_sample, "on_sample")
    chosen = _resolve(what, quick.UrlOptions())
    seconds = arguments.quantity(units.TIME, duration, "duration")
    wanted, schedule, _ = rfc2544.prepare(
        how,
        chosen,
        topology=arguments.path(topology, "topology") if topology is not None else None,
        load=arguments.above_0(load, "load"),
        duration=units.seconds(seconds) if seconds is not None else None,
    )
    fleets = cores.fleets(fleet, arguments.whole_number(tolerate, "tolerate", 0, 1000) or 0, wanted)
    validation.refuse(wanted, chosen.folder)
    return Search(*_run_trials(wanted, chosen.folder, runs, store, None, on_sample, schedule, resume, fleets))


def _run_trials(
    wanted: Experiment,
    base: Path,
    runs: str | Path | None,
    store: bool,
    address: Address | None,
    on_sample: Sampled | None,
    schedule: Schedule | None = None,
    resume: str | Path | Run | None = None,
    fleets: Mapping[str, FleetCore] | None = None,
) -> tuple[Result, Path]:
    """Put back what an earlier run left, run the trials, keep them."""
    to = paths.runs() if runs is None else arguments.path(runs, "runs")
    earlier = None if resume is None else EarlierRun(_result(resume, "resume"), environment.collect())
    put_back()
    with Interrupts().installed() as interrupts, contextlib.ExitStack() as stack:
        experiment_run = ExperimentRun(
            experiment=wanted,
            base=base,
            runs=to,
            live=_SampleCallback(on_sample),
            interrupts=interrupts,
            store=stack.enter_context(Store()) if store else None,
            command=["netdyno (script)", *sys.argv[:1]],
            socket=address,
            schedule=schedule,
            earlier=earlier,
            fleets=fleets or {},
        )
        return experiment_run.run()


class _SampleCallback(NullView):
    """Passes samples to the caller's function."""

    def __init__(self, on_sample: Sampled | None) -> None:
        self._on_sample = on_sample

    def start(self, plan: Plan) -> None:
        """Nothing."""

    def sample(self, sample: dict[str, Any]) -> None:
        """A point of the series."""
        if self._on_sample:
            self._on_sample(sample)


def _resolve(
    what: str | Path | Mapping[str, Any] | Sequence[str], options: quick.UrlOptions
) -> choose.ChosenExperiment:
    if isinstance(what, Mapping):
        return choose.document(dict(what), "the document", Path())
    names = [what] if isinstance(what, str | Path) else what
    if isinstance(names, bytes) or not isinstance(names, Sequence) or not names:
        wanted = "a URL or several, a file, the name of a preset, a profile or an experiment"
        raise arguments.refused(what, wanted, "what")
    for number, one in enumerate(names):
        if not isinstance(one, str | Path):
            raise arguments.refused(one, "a URL, a file or the name of a preset", f"what[{number}]")
    return choose.choose([str(one) for one in names], options)


def _result(value: str | Path | Run, at: str) -> Result:
    """Of a run that is there, or that was kept."""
    if isinstance(value, Run):
        return value.result
    return find_result(str(arguments.path(value, at)))
