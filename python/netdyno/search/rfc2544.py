"""What a search can look for, as scripts say it: `netdyno.search(profile, rfc2544.throughput(loss=0.0))`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from netdyno import config, units
from netdyno.core import defaults
from netdyno.errors import Error
from netdyno.experiment import spec, validation
from netdyno.experiment.choose import ChosenExperiment, adjust
from netdyno.experiment.spec import Experiment, LegSpec
from netdyno.search import bench
from netdyno.search.bench import Estimate
from netdyno.search.options import trial_length
from netdyno.search.request import SearchRequest
from netdyno.search.schedule import Search
from netdyno.search.trial import Goal, TrialRequest, loss_goal, threshold_goal

NEAR, AT_LOAD = 12, 3
"""Default number of trials: near the edge, and at a fixed load."""
FIXED_LOAD = ("latency", "recovery", "reset", "transaction-latency")
"""Kinds that measure at a fixed load once they have found it."""

OPTIONS = ("resolution", "strategy", "sizes", "repeat", "step", "at", "confirm", "baseline")
"""That each kind of search may be given."""


def throughput(loss: float = 0.0, *, pdr: float | None = None, **how: object) -> SearchRequest:
    """The highest load that loses no frame (RFC 2544 section 26.1), or at most a share; with `pdr` both."""
    goals: tuple[Goal, ...] = (loss_goal("ndr" if loss == 0 else "pdr", loss),)
    if pdr is not None:
        goals = (*goals, loss_goal("pdr", pdr, "pdr"))
    return _request("throughput", goals, how)


def mlrsearch(pdr: float = 0.005, **how: object) -> SearchRequest:
    """NDR and PDR at once, by MLRsearch (RFC 9971)."""
    goals = (loss_goal("ndr", 0.0), loss_goal("pdr", pdr, "pdr"))
    return _request("throughput", goals, {"strategy": "mlr", **how})


def loss(step: float = 0.1, **how: object) -> SearchRequest:
    """The frame loss rate from the highest load down, until two in turn lose nothing (section 26.3)."""
    return _request("loss", (loss_goal("ndr", 0.0),), {"step": step, **how})


def back_to_back(**how: object) -> SearchRequest:
    """The longest burst at the highest load of which nothing is lost (RFC 9004)."""
    if how.get("strategy", "binary") != "binary":
        what = f"back-to-back: the length of a burst is not searched by {how['strategy']}"
        raise Error("ND-104-07", what, fix="Leave strategy out")
    return _request("back-to-back", (loss_goal("ndr", 0.0),), how)


def latency(at: float | None = None, **how: object) -> SearchRequest:
    """Delays at the throughput (section 26.2), or at a share of the highest load."""
    return _request("latency", (loss_goal("ndr", 0.0),), {"at": at, **how})


def recovery(at: float | None = None, **how: object) -> SearchRequest:
    """How long a DUT takes to lose nothing any more after an overload (section 26.5)."""
    return _request("recovery", (loss_goal("ndr", 0.0),), {"at": at, **how})


def reset(at: float | None = None, **how: object) -> SearchRequest:
    """How long a DUT forwards nothing when it is started again (section 26.6, RFC 6201)."""
    return _request("reset", (loss_goal("ndr", 0.0),), {"at": at, **how})


def rate(**how: object) -> SearchRequest:
    """The highest load of a profile over kernel sockets that keeps its thresholds."""
    return _request("rate", (threshold_goal(),), how)


def _request(kind: str, goals: tuple[Goal, ...], how: dict[str, object]) -> SearchRequest:
    if unknown := how.keys() - OPTIONS:
        what = f"{kind}: there is no option {sorted(unknown)[0]!r}"
        raise Error("ND-104-07", what, fix=f"Use {', '.join(OPTIONS)}")
    return request(kind, goals, **how)


def request(kind: str, goals: tuple[Goal, ...], **how: Any) -> SearchRequest:
    """A request with the defaults of its kind for options that are None."""
    given = {name: value for name, value in how.items() if value is not None}
    return SearchRequest(goals, kind, **{"repeat": AT_LOAD if kind in FIXED_LOAD else NEAR} | given)


def prepare(
    request: SearchRequest,
    chosen: ChosenExperiment,
    *,
    topology: Path | None = None,
    load: float | None = None,
    duration: float | None = None,
    thresholds: Sequence[str] = (),
    port: Mapping[str, Any] | None = None,
) -> tuple[Experiment, Search, Estimate]:
    """The experiment that is searched, its schedule, and what it will take."""
    if duration is not None:
        trial_length(duration)
    experiment = adjust(chosen, {"load": load}, {}, None, thresholds=thresholds, port=port)
    if topology:
        experiment = placed(experiment, topology)
    seconds = _measure(experiment, chosen.folder) if duration is None else duration
    try:
        search, estimate = bench.prepare(replace(request, seconds=seconds), experiment, chosen.folder)
        return as_offered(experiment, search), search, estimate
    except (ArithmeticError, LookupError, TypeError, ValueError):
        # of a wrong profile the core says what is wrong
        validation.refuse(experiment, chosen.folder, place=chosen.place)
        raise


def as_offered(experiment: Experiment, search: Search) -> Experiment:
    """The experiment with the legs of applications as they are offered, which is what can be checked."""
    shaped = dict[str, LegSpec]()
    for part in search.parts:
        if part.axis.workload is not None:
            most = TrialRequest(part.space.most, part.space.seconds)
            shaped.setdefault(part.axis.leg.name, search.kind.leg(part.axis, most, search.request))
    legs = [shaped.get(leg.name, leg) for leg in experiment.legs]
    return experiment.model_copy(update={"legs": legs})


def placed(experiment: Experiment, path: Path) -> Experiment:
    """The experiment with the topology, DUTs and targets of a file."""
    data = config.read(path)
    known = {"topology", "duts", "targets"}
    if not isinstance(data, dict) or not data or set(data) - known:
        fix = "Write topology, duts and targets as in a leg of an experiment"
        raise Error("ND-104-29", "it is not the place of a search", at=str(path), fix=fix)
    plain = experiment.model_dump(by_alias=True, exclude_none=True)
    plain["legs"] = [leg | data for leg in plain["legs"]]
    return spec.load(plain, str(path))


def _measure(experiment: Experiment, folder: Path) -> float:
    """Length of the measure phase that the profile has."""
    leg = bench.legs_to_search(experiment, folder, several=True)[0]
    phases = defaults.filled(spec.table(leg.profile), "phases")
    return units.seconds(leg.trial.measure or str(phases["measure"]))
