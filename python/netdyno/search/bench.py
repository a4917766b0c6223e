"""From what somebody asks to a search that is ready to run, with what it will take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from netdyno import units
from netdyno.core import defaults
from netdyno.errors import Error
from netdyno.experiment.spec import Experiment, LegSpec, resolve_profile, table
from netdyno.search.axes import Fits, every
from netdyno.search.gate import repeat_budget, repeat_disturbed
from netdyno.search.kind import KINDS
from netdyno.search.load import Axis
from netdyno.search.mlr import RelevantBounds
from netdyno.search.options import check
from netdyno.search.ratio import Ratio
from netdyno.search.request import Kind, PartSearch, SearchRequest
from netdyno.search.schedule import Search
from netdyno.search.simulated import SimulatedDut
from netdyno.search.trial import Space, TrialRequest, run

TYPICAL = 0.613
"""Capacity of the DUT, as a share of the highest load, by which the number of trials is told: halving takes
as many at any."""
AROUND = 2.0
"""Seconds that a trial takes besides its phases: daemon, topology and DUTs are set up for each."""
LONG = 60.0
"""Least length of a trial of the throughput (RFC 2544 §24)."""

SUSTAINED = 300.0
"""Least length of a sustain phase (RFC 9411 §4.3.4)."""


@dataclass(frozen=True)
class Estimate:
    """What a search is expected to take."""

    trials: int
    seconds: float


def prepare(
    request: SearchRequest,
    experiment: Experiment,
    base: Path,
    ratios: Sequence[Ratio] = (),
    fits: Fits = every,
) -> tuple[Search, Estimate]:
    """A search of a kind over the legs of an experiment, at each frame size."""
    check(request)
    kind = KINDS[request.kind]
    legs = legs_to_search(experiment, base, several=kind.several)
    leg = legs[0]
    if kind.name == "rate" and not table(leg.profile).get("thresholds"):
        what = "the profile has no thresholds, so that there is nothing a load could fail to keep"
        fix = "Add thresholds, like {metric: web.delay.response.p99, max: 50ms}"
        raise Error("ND-104-07", what, at="thresholds", fix=fix)
    parts, whole, length = [], 0, 0.0
    for label, member, one in kind.parts(legs, request, fits):
        space, unit = kind.space(one, request)
        asked = planned_trials(kind, one, space, request)
        # what is said to come is a search in which no trial is disturbed
        whole += len(asked)
        length += sum(trial_time(kind, one, ask, request) for ask in asked)
        relevant: dict[str, RelevantBounds] = {}
        strategy = repeat_disturbed(kind.strategy(one, space, request, relevant), repeat_budget(len(asked)))
        part = PartSearch(label, one, space, unit, strategy, len(asked))
        if member:
            part.leg, part.size = member, label.partition(",")[2]
        part.relevant = relevant
        parts.append(part)
    if not parts:
        what = "no leg can be measured at these frame sizes"
        raise Error("ND-104-07", what, at="--sizes", fix="Name sizes that a leg's ports have room for")
    search = Search(kind, request, parts, notes(kind, request), experiment.seed, ratios)
    return search, Estimate(whole, length)


def multi_leg_kinds() -> Iterator[str]:
    """Kinds of searches that are made over several legs."""
    return (name for name, kind in KINDS.items() if kind.several)


def legs_to_search(experiment: Experiment, base: Path, *, several: bool = False) -> list[LegSpec]:
    """The legs that are searched, with their profiles."""
    if (len(experiment.legs) != 1 and not several) or experiment.factors:
        what = f"it has {len(experiment.legs)} legs and {len(experiment.factors)} factors"
        several_legs = ", ".join(multi_leg_kinds())
        fix = f"Name a profile, or an experiment without factors; {several_legs} take several legs"
        raise Error("ND-104-07", what, at=experiment.name, fix=fix)
    return [leg.model_copy(update={"profile": resolve_profile(leg.profile, base)}) for leg in experiment.legs]


def planned_trials(kind: Kind, one: Axis, space: Space, request: SearchRequest) -> list[TrialRequest]:
    """The trials that a search takes on a DUT that does the same every time."""
    dut, asked = SimulatedDut(space.most * TYPICAL), list[TrialRequest]()

    def measure(ask: TrialRequest) -> object:
        asked.append(ask)
        if ask.shape == "burst":
            dut.capacity = space.most * space.seconds * TYPICAL / ask.seconds
        return dut(ask)

    run(kind.strategy(one, space, request, {}), measure)  # type: ignore[arg-type]
    return asked


def trial_time(kind: Kind, one: Axis, ask: TrialRequest, request: SearchRequest) -> float:
    """Seconds that a trial takes, with all around it."""
    leg = kind.leg(one, ask, request)
    phases = defaults.filled(table(leg.profile), "phases")
    phases |= leg.trial.model_dump(exclude_none=True, exclude={"load"})
    # what is on its way arrives long before the drain phase is over
    times = [units.seconds(phases[name]) for name in ("warmup", "measure")]
    return sum(times) + min(1.0, units.seconds(phases["drain"])) + AROUND


def notes(kind: Kind, request: SearchRequest) -> list[str]:
    """What differs from the standards, with its reason."""
    found = []
    if kind.rfc.startswith("RFC 9411") and request.seconds < SUSTAINED:
        found.append(
            f"sustain phases of {request.seconds:g} s; RFC 9411 §4.3.4 asks for {SUSTAINED:g} s or more: "
            f"--duration {SUSTAINED:g}s"
        )
    if kind.rfc.startswith("RFC 2544") and request.seconds < LONG:
        found.append(
            f"trials of {request.seconds:g} s; RFC 2544 §24 asks for {LONG:g} s or more: --duration {LONG:g}s"
        )
    return found
