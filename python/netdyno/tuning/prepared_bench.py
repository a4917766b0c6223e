"""A bench by name, made ready to be driven: what can be tried on it, and where each parameter starts."""

from __future__ import annotations

import difflib
import itertools
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from netdyno.errors import Error
from netdyno.experiment import presets
from netdyno.experiment.measurer import SettingMeasurer
from netdyno.lab.topology import need_root
from netdyno.lab.workload import unknown
from netdyno.lab.workload.slo import Slo
from netdyno.stats.observation import Metric, Observation, Setting, Value
from netdyno.system.interrupt import Interrupts, interrupted
from netdyno.tuning import baseline as baselines
from netdyno.tuning import benches, service
from netdyno.tuning.baseline import Baseline
from netdyno.tuning.bench import NamespaceBench, remarks, workload
from netdyno.tuning.host_state import scope
from netdyno.tuning.model import Scope, Tunable
from netdyno.tuning.patience import Patience
from netdyno.tuning.registry import registry, template
from netdyno.tuning.simulated import SimulatedBench
from netdyno.tuning.space import Order, Space, axis, can_be_tried
from netdyno.tuning.tunable_bench import (
    TRIED,
    CheckedBench,
    TunableSet,
    machine,
    narrowed,
    ordered,
    tunables_of,
)

SIMULATED = "sim"


@dataclass(frozen=True)
class PreparedBench:
    """A bench ready for trials, and its tunable parameters."""

    bench: SettingMeasurer
    label: str
    tunables: Mapping[str, Tunable]
    starts: Mapping[str, Value]
    usual: tuple[str, ...]
    """Parameters that are tried when none are named."""
    service: service.ServiceClass | None
    """The class of service that is asked for."""
    real: bool
    """Whether its parameters are those of a kernel."""
    slos: tuple[Slo, ...] = ()
    """Bounds that no setting may break."""
    patience: Patience = field(default_factory=Patience)
    """When trials are cut short, once it follows the record of a study."""
    remarks: Callable[[Iterable[str]], Iterator[str]] = lambda _: iter(())
    """What to know of parameters that are tried, of how they act here."""

    def space(self, names: Sequence[str], memory: int | None) -> Space:
        """The parameters that are named; a name may end in `*`."""
        chosen = list(dict.fromkeys(n for name in names or self.usual for n in self._meant(name)))
        if not names:
            chosen = [n for n in chosen if can_be_tried(self.tunables[n], self.starts.get(n), memory)]
        bounded, orders = self.tunables, tuple[Order, ...]()
        if self.real:
            known = registry()
            bounded = narrowed(known, TunableSet(self.tunables, self.starts), chosen)
            orders = ordered(known, chosen)
        axes = (axis(bounded[n], self.starts.get(n), name=n, memory=memory) for n in chosen)
        return Space(tuple(axes), orders)

    def metrics(self, names: Sequence[str]) -> list[str]:
        """The metrics that are named, or all."""
        return list(names) or list(self.bench.metrics)

    def _meant(self, name: str) -> list[str]:
        if name.endswith("*"):
            found = [n for n in self.tunables if n.startswith(name[:-1])]
        else:
            found = [n for n in self.tunables if name in (n, template(n))]
        if not found:
            raise _not_there(name, self.tunables, self.real)
        return found


def _not_there(name: str, there: Mapping[str, Tunable], real: bool) -> Error:
    """Why a parameter cannot be tried on a bench: it needs --global, or is not there."""
    known = registry()
    plain = (
        [one for one in known.tunables if one.startswith(name[:-1])]
        if name.endswith("*")
        else [template(name)]
    )
    named = [known.tunables[one] for one in plain if one in known.tunables]
    if real and named and all(scope(one) is Scope.GLOBAL and one.values in TRIED for one in named):
        fix = "Add --global to change it for the time of the trials"
        return Error("ND-104-42", f"{name} holds for the whole machine", at="--param", fix=fix)
    fix = "`netdyno tune params` lists those of this machine"
    near = difflib.get_close_matches(name, [*there, *known.tunables] if real else list(there), 1)
    if near and not named:
        fix = f"Did you mean {near[0]!r}? {fix}"
    return Error("ND-104-50", f"there is no {name!r} to try on this bench", at="--param", fix=fix)


@dataclass(frozen=True)
class UninterruptedBench:
    """Delays the first interrupt until the running trial ends."""

    bench: SettingMeasurer
    interrupts: Interrupts

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Those of the bench."""
        return self.bench.metrics

    def measure(self, setting: Setting, seed: int) -> Observation:
        """One trial, unless there was an interrupt: what the one before saw is kept by then."""
        if self.interrupts.count:
            raise interrupted()
        with self.interrupts.asking():
            return self.bench.measure(setting, seed)


@dataclass(frozen=True)
class BenchRequest:
    """A bench request: workload, options, path and parameters."""

    bench: str
    options: Sequence[str] | Mapping[str, Any] = ()
    path: str | None = None
    tuned: str = "server"
    service: str | None = None
    params: Sequence[str] = ()
    baseline: baselines.Asked = ()
    allow_global: bool = False
    own: benches.OwnService | None = None
    """Commands, metrics and place of the workload `command`."""

    @property
    def real(self) -> bool:
        """Whether trials change a kernel's values: what a killed run left is put back before."""
        return self.bench != SIMULATED


@contextmanager
def open_bench(request: BenchRequest, interrupts: Interrupts) -> Iterator[PreparedBench]:
    """The bench that is asked for; interrupts leave nothing of it behind, and what was measured is kept."""
    if not request.real:
        _refuse_ignored(request)
        bench = SimulatedBench()
        known = {t.name: t for t in bench.tunables}
        yield PreparedBench(bench, SIMULATED, known, bench.baseline, tuple(known), None, False)
        return
    made = _namespaces(request)
    baselines.check(request.baseline)
    need_root()
    with interrupts.installed():
        base = baselines.baseline(
            request.baseline, made.spec, request.allow_global, lambda name: _is_tunable(name, request)
        )
        made = beginning_with(made, base)
        there = tunables_of(made)
        of_class = service.read(request.service) if request.service else None
        usual = of_class.tunables if of_class else sorted({t for c in _classes() for t in c.tunables})
        names = tuple(n for n in there.tunables if n in usual or template(n) in usual)
        yield PreparedBench(
            UninterruptedBench(CheckedBench(made, registry(), there.starts), interrupts),
            _label(request, made, base), there.tunables, there.starts, names, of_class, True,
            workload(made.spec).slos, made.patience,
            lambda tried: itertools.chain(base.remarks(), remarks(made.spec, tried)),
        )  # fmt: skip


def _refuse_ignored(request: BenchRequest) -> None:
    """The simulation is a formula: raises for what would change nothing of it."""
    given = {
        "--set": request.options, "--path": request.path, "--baseline": request.baseline,
        "--class": request.service, "--tune": request.tuned != "server", "--global": request.allow_global,
    }  # fmt: skip
    for option, value in given.items():
        if value:
            what = f"{option} changes nothing of {SIMULATED}, whose answers are a formula"
            fix = "Leave it out, or name a workload in place of sim"
            raise Error("ND-104-07", what, at=option, fix=fix)


def beginning_with(made: NamespaceBench, base: Baseline) -> NamespaceBench:
    """The bench with other values on the host that is tuned."""
    given = made.spec.server if made.spec.tuned == "server" else made.spec.client
    spec = made.spec.model_copy(update={made.spec.tuned: given | dict(base.values)})
    return replace(made, spec=spec)


def _label(request: BenchRequest, made: NamespaceBench, base: Baseline) -> str:
    """The bench in the words that it was asked for with, and the kernel, which decides as much."""
    if request.own or not presets.is_word(request.bench):
        return f"{made.spec.label} ({platform.release()})"
    given = request.options
    options = [f"{k}={v}" for k, v in given.items()] if isinstance(given, Mapping) else given
    parts = [" ".join((request.bench, *options))]
    parts += [f"over {request.path}"] * bool(request.path) + [f"tuning the {request.tuned}"] * (
        request.tuned != "server"
    )
    parts += [f"from {base.label}"] * bool(base.label)
    return f"{', '.join(parts)} ({platform.release()})"


def _classes() -> list[service.ServiceClass]:
    return [service.read(name) for name in service.classes()]


def _namespaces(request: BenchRequest) -> NamespaceBench:
    if request.bench not in (*benches.names(), SIMULATED) and presets.is_word(request.bench):
        raise unknown(request.bench, "BENCH", SIMULATED)
    made = benches.spec(
        request.bench,
        request.options,
        request.path,
        "client" if request.tuned == "client" else "server",
        request.own,
    )
    needed = machine(registry().tunables) if request.allow_global else {}
    changed = {"machine": made.machine | needed}
    return NamespaceBench(made.model_copy(update=changed), allow_global=request.allow_global)


def _is_tunable(name: str, request: BenchRequest) -> bool:
    """Whether a parameter is among those that are to be tried: no other is touched."""
    if request.params:
        return any(name == p or (p.endswith("*") and name.startswith(p[:-1])) for p in request.params)
    of_class = [service.read(request.service)] if request.service else _classes()
    return any(name in c.tunables for c in of_class)
