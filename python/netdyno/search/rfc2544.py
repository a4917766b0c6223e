"""What a search can look for, as scripts say it: `netdyno.search(profile, rfc2544.throughput(loss=0.0))`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from netdyno import config, units
from netdyno.errors import Error
from netdyno.experiment import spec, validation
from netdyno.experiment.choose import ChosenExperiment, adjust
from netdyno.experiment.spec import Experiment
from netdyno.search import bench
from netdyno.search import sizes as frames
from netdyno.search.bench import Estimate
from netdyno.search.options import trial_length
from netdyno.search.request import SearchRequest
from netdyno.search.schedule import Search
from netdyno.search.trial import Goal, loss_goal, threshold_goal

NEAR, HELD = 12, 3
"""Trials near the edge, and of a figure that is measured at a load, where nothing is said."""


OPTIONS = ("resolution", "strategy", "sizes", "repeat", "step", "at")
"""That each kind of search may be given."""


@dataclass(frozen=True)
class BenchmarkRequest:
    """A benchmark: its kind, its goals and how to measure."""

    kind: str
    goals: tuple[Goal, ...]
    resolution: float = 0.005
    """How far apart bounds may be, as a share."""
    strategy: str = "binary"
    """`binary`, or `mlr` (RFC 9971)."""
    sizes: str | None = None
    """Frame sizes: `rfc2544`, `rfc5180`, `imix`, or a list like `64,512`; none: as the profile has them."""
    repeat: int | None = None
    """Trials near the edge; of latency and the like, how often each is measured."""
    step: float = 0.1
    """Of a loss curve, as a share of the highest load."""
    messages: bool = False
    """Rate: in messages per second of devices that send at an interval."""
    at: float | None = None
    """Latency, recovery and reset: at this share of the highest load, in place of a search for it."""


def throughput(loss: float = 0.0, *, pdr: float | None = None, **how: object) -> BenchmarkRequest:
    """The highest load that loses no frame (RFC 2544 section 26.1), or at most a share; with `pdr` both."""
    goals: tuple[Goal, ...] = (loss_goal("ndr" if loss == 0 else "pdr", loss),)
    if pdr is not None:
        goals = (*goals, loss_goal("pdr", pdr, "pdr"))
    return _request("throughput", goals, how)


def mlrsearch(pdr: float = 0.005, **how: object) -> BenchmarkRequest:
    """NDR and PDR at once, by MLRsearch (RFC 9971)."""
    goals = (loss_goal("ndr", 0.0), loss_goal("pdr", pdr, "pdr"))
    return _request("throughput", goals, {"strategy": "mlr", **how})


def loss(step: float = 0.1, **how: object) -> BenchmarkRequest:
    """The frame loss rate from the highest load down, until two in turn lose nothing (section 26.3)."""
    return _request("loss", (loss_goal("ndr", 0.0),), {"step": step, **how})


def back_to_back(**how: object) -> BenchmarkRequest:
    """The longest burst at the highest load of which nothing is lost (RFC 9004)."""
    if how.get("strategy", "binary") != "binary":
        what = f"back-to-back: the length of a burst is not searched by {how['strategy']}"
        raise Error("ND-104-07", what, fix="Leave strategy out")
    return _request("back-to-back", (loss_goal("ndr", 0.0),), how)


def latency(at: float | None = None, **how: object) -> BenchmarkRequest:
    """Delays at the throughput (section 26.2), or at a share of the highest load."""
    return _request("latency", (loss_goal("ndr", 0.0),), {"at": at, **how})


def recovery(at: float | None = None, **how: object) -> BenchmarkRequest:
    """How long a DUT takes to lose nothing any more after an overload (section 26.5)."""
    return _request("recovery", (loss_goal("ndr", 0.0),), {"at": at, **how})


def reset(at: float | None = None, **how: object) -> BenchmarkRequest:
    """How long a DUT forwards nothing when it is started again (section 26.6, RFC 6201)."""
    return _request("reset", (loss_goal("ndr", 0.0),), {"at": at, **how})


def rate(**how: object) -> BenchmarkRequest:
    """The highest load of a profile over kernel sockets that keeps its thresholds."""
    return _request("rate", (threshold_goal(),), how)


def _request(kind: str, goals: tuple[Goal, ...], how: dict[str, object]) -> BenchmarkRequest:
    """With what else is said: the fields of `Asked`."""
    if unknown := how.keys() - OPTIONS:
        what = f"{kind}: there is no option {sorted(unknown)[0]!r}"
        raise Error("ND-104-07", what, fix=f"Use {', '.join(OPTIONS)}")
    return replace(BenchmarkRequest(kind, goals), **how)  # type: ignore[arg-type]


def prepare(
    asked: BenchmarkRequest,
    chosen: ChosenExperiment,
    *,
    topology: Path | None = None,
    load: float | None = None,
    duration: float | None = None,
    thresholds: Sequence[str] = (),
) -> tuple[Experiment, Search, Estimate]:
    """The experiment that is searched, its schedule, and what it will take."""
    if duration is not None:
        trial_length(duration)
    experiment = adjust(chosen, {"load": load}, {}, None, thresholds=thresholds)
    if topology:
        experiment = placed(experiment, topology)
    held = asked.kind in ("latency", "recovery", "reset")
    wanted = SearchRequest(
        goals=asked.goals,
        strategy=asked.strategy,
        resolution=asked.resolution,
        seconds=_measure(experiment, chosen.folder) if duration is None else duration,
        repeat=(HELD if held else NEAR) if asked.repeat is None else asked.repeat,
        step=asked.step,
        at=asked.at,
        messages=asked.messages,
    )
    listed = [] if asked.sizes is None else frames.read(asked.sizes)
    try:
        return experiment, *bench.prepare(asked.kind, experiment, chosen.folder, wanted, listed)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        # of a wrong profile the core says what is wrong
        validation.refuse(experiment, chosen.folder, place=chosen.place)
        raise


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
    leg = bench.searched(experiment, folder, several=True)[0]
    phases = spec.table(spec.table(leg.profile).get("phases"))
    return units.seconds(leg.trial.measure or str(phases.get("measure", "10s")))
