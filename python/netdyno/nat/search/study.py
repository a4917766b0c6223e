"""A study of a NAT's speed as a search that is ready to run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from netdyno.errors import Error
from netdyno.experiment import spec
from netdyno.experiment.spec import Experiment
from netdyno.nat import cores
from netdyno.nat import study as studies
from netdyno.nat.config import Nat
from netdyno.nat.study import Machine, Study
from netdyno.search import bench, sizes
from netdyno.search.bench import Estimate
from netdyno.search.kind.latency import SEARCHING
from netdyno.search.options import check
from netdyno.search.ratio import Ratio
from netdyno.search.request import SearchRequest
from netdyno.search.schedule import Search
from netdyno.search.sizes import Size
from netdyno.search.trial import Goal, loss_goal

SECONDS, RESOLUTION, REPEAT = 1.0, 0.005, 4
"""Where nothing is said: length of a trial, how close bounds are to be, trials near the edge."""
QUICK_SIZES, QUICK_SECONDS, QUICK_RESOLUTION, QUICK_REPEAT = "64,512,1518", 0.5, 0.01, 2


@dataclass(frozen=True)
class StudyOptions:
    """How to measure a study; None: the study's value, or that of a quick study."""

    goals: tuple[Goal, ...] = (loss_goal("ndr", 0.0),)
    sizes: str | None = None
    """In place of the study's."""
    line: str | None = None
    """Likewise, the link's rate."""
    legs: tuple[str, ...] = ()
    """Only these."""
    seconds: float | None = None
    resolution: float | None = None
    repeat: int | None = None
    strategy: str = "binary"
    seed: int = 1
    quick: bool = False

    def request(self, study: Study) -> SearchRequest:
        """Search for latency at shares of a throughput with trials longer than those of the throughput."""
        usual = (QUICK_SECONDS if self.quick else SECONDS) * (SEARCHING if study.latency_at else 1)
        quick_sizes = QUICK_SIZES if self.quick and study.sizes else None
        return SearchRequest(
            goals=self.goals,
            kind="latency" if study.latency_at else study.measures,
            strategy=self.strategy,
            resolution=self.resolution or (QUICK_RESOLUTION if self.quick else RESOLUTION),
            sizes=self.sizes or quick_sizes or study.sizes or "64",
            seconds=usual if self.seconds is None else self.seconds,
            repeat=self.repeat or (QUICK_REPEAT if self.quick else REPEAT),
            shares=tuple(study.latency_at),
        )


@dataclass(frozen=True)
class PreparedStudy:
    """A study ready to run: experiment, search and estimate."""

    experiment: Experiment
    search: Search
    estimate: Estimate


def prepare(study: Study, nat: Nat, asked: StudyOptions, machine: Machine | None = None) -> PreparedStudy:
    """The experiment of a study on this machine, its schedule, and what it will take."""
    chosen = study.only(asked.legs) if asked.legs else study
    if asked.line is not None:
        studies.speed(asked.line, "--line")
        if chosen.measures != "throughput":
            what = f"a study of {chosen.measures} offers no share of a link's rate"
            raise Error("ND-104-07", what, at="--line", fix="Leave --line out")
        chosen = chosen.model_copy(update={"line": asked.line})
    there, request = machine or Machine(cores.here()), asked.request(study)
    check(request)
    plain, notes = studies.experiment(chosen, nat, there, asked.seed, request.seconds)
    experiment = spec.load(plain, study.name)
    over = {leg.name for leg in chosen.legs if leg.ports == "af_packet"}
    left_out: list[str] = []

    def fits(leg: str, label: str, size: Size) -> bool:
        fine = leg not in over or (sizes.largest(size) or 0.0) <= studies.LARGEST
        if not fine:
            left_out.append(
                f"{leg}: not at {label}, as an AF_PACKET port has room for {studies.LARGEST} bytes"
            )
        return fine

    ratios = [Ratio(one.leg, one.to, one.published) for one in chosen.beside]
    search, estimate = bench.prepare(request, experiment, Path(), ratios, fits)
    search.notes += [*left_out, *notes]
    return PreparedStudy(experiment, search, estimate)
