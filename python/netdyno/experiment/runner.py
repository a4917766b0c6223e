"""Run an experiment: its trials in order, each kept as soon as it is over, and the verdict at the end."""

from __future__ import annotations

import contextlib
import csv
import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from netdyno import errors, escape, files, reading
from netdyno.core import redaction, secret
from netdyno.core.address import Address
from netdyno.core.result import Files, Leg, Result
from netdyno.errors import Error
from netdyno.experiment.events import NAME as EVENTS
from netdyno.experiment.events import EventFile
from netdyno.experiment.measurer import FleetCore, Load, LoadMeasurer, TrialContext, TrialOutcome
from netdyno.experiment.resume import EarlierRun, digest
from netdyno.experiment.schedule import FixedSchedule, Schedule, ScheduledTrial
from netdyno.experiment.spec import Experiment, Variant, run_id, suffix, variants
from netdyno.experiment.trial import DaemonMeasurer
from netdyno.experiment.verdict import judge_all
from netdyno.experiment.view import Live, Plan
from netdyno.report.network import FILE as NETWORKS
from netdyno.stats.subject import of_profiles
from netdyno.store import Store
from netdyno.system import environment
from netdyno.system.interrupt import Interrupts
from netdyno.system.journal import journal, run_journal

FLOWS = (
    "leg", "repetition", "group", "device", "flows_started", "flows_completed", "sent", "delivered", "failed",
    "delay_mean_ns", "delay_max_ns", "duplicates", "reordered", "loss_periods", "longest_loss", "furthest",
    "most_waiting",
)  # fmt: skip
PORT = ("name", "device", "driver", "rx_queues", "tx_queues", "uses", "work")
"""What of a DPDK port belongs to the environment: not its address, which a virtual one makes up."""
PARTIAL = "samples.jsonl"
"""Samples as they come; what is left of a trial when we are killed. Gone once the result holds them."""


@dataclass
class ExperimentRun:
    """A running experiment."""

    experiment: Experiment
    base: Path
    """Folder that profile files are relative to."""
    runs: Path
    live: Live
    interrupts: Interrupts
    store: Store | None = None
    command: list[str] = field(default_factory=list)
    capture: bool = True
    socket: Address | None = None
    fleets: Mapping[str, FleetCore] = field(default_factory=dict)
    """What generates the load in place of one daemon, by leg."""
    schedule: Schedule | None = None
    """What runs when; none: every variant of the experiment, repeated."""
    abort_on_fail: bool = False
    """Whether a trial whose threshold has failed for good ends the experiment."""
    earlier: EarlierRun | None = None
    """A run to go on with."""
    measurer: LoadMeasurer = field(default_factory=DaemonMeasurer)
    confined: bool = False
    """Whether profiles may name what a client over TCP may: no files, no driver's arguments."""

    def run(self) -> tuple[Result, Path]:
        """Run all trials; the result is whole also when it ended early."""
        with run_journal():
            return self._run()

    def _run(self) -> tuple[Result, Path]:
        schedule = self.schedule or FixedSchedule(self.experiment, variants(self.experiment, self.base))
        found = {variant.name: variant for variant in schedule.variants}
        identity = run_id(self.experiment.name)
        folder = files.new_private_folder(self.runs, identity)
        result = Result(
            id=identity,
            name=self.experiment.name,
            started=_now(),
            legs=[_leg(variant) for variant in found.values()],
            environment=environment.collect(),
            files=Files(profile="profile.json", log="log.jsonl"),
            command=[redaction.hide(one) for one in self.command],
            resumed=self.earlier.id if self.earlier else "",
        )
        _write_profiles(folder, found)
        self.live = events = EventFile(folder / EVENTS, self.live)
        if self.store:
            fleet = next((one.name for one in self.fleets.values()), "")
            self.store.begin(result, folder, of_profiles((one.profile for one in found.values()), fleet))
        self.live.log(f"run {identity}")
        flows = _Table(folder / "flows.csv")
        try:
            number = 0
            while place := schedule.next():
                number += 1
                self._add_leg(result, found, place.variant)
                outcome, good = self._earlier_trial(result, folder, flows, place, number) or self._trial(
                    result, folder, flows, place, number
                )
                schedule.tell(place, outcome)
                if not good:
                    break
        except Error as e:
            self._ended(result, e)
        finally:
            with self.interrupts.shielded():
                schedule.conclude(result)
                self._finish(result, folder, found, flows)
        events.remove()
        self._refuse(result, folder)
        return result, folder

    def _fleet(self, variant: Variant) -> str | None:
        found = self.fleets.get(variant.leg.name)
        return found.name if found else None

    def _add_leg(self, result: Result, found: dict[str, Variant], variant: Variant) -> None:
        """A variant that a search came to has its leg, in the store as well, before its first trial."""
        if variant.name in found:
            return
        found[variant.name] = variant
        result.legs.append(_leg(variant))
        if self.store:
            self.store.update(result)

    def _refuse(self, result: Result, folder: Path) -> None:
        """Input that the core does not take is no run: raise its error, and leave nothing."""
        if result.error is None or any(leg.repetitions for leg in result.legs):
            return
        error = Error.of(result.error)
        if error.exit_code == errors.CONFIGURATION:
            shutil.rmtree(folder, ignore_errors=True)
            if self.store:
                self.store.delete(result.id, missing_ok=True)
            raise error

    def _earlier_trial(
        self, result: Result, folder: Path, flows: _Table, scheduled: ScheduledTrial, number: int
    ) -> tuple[TrialOutcome, bool] | None:
        """A trial of the run that this one resumes, in place of a new one; none: it has none left."""
        found = self.earlier.take(scheduled.variant, self._fleet(scheduled.variant)) if self.earlier else None
        if found is None:
            return None
        self.live.log(f"trial {number}: {scheduled.variant.name}, taken over from {result.resumed}")
        outcome = TrialOutcome(repetition=found.model_copy(update={"taken_over": True}))
        with self.interrupts.shielded():
            self._keep(result, folder, scheduled.variant, number, outcome, flows)
        result.interrupted = bool(self.interrupts.count)
        return outcome, not result.interrupted

    def _trial(
        self,
        result: Result,
        folder: Path,
        flows: _Table,
        scheduled: ScheduledTrial,
        number: int,
    ) -> tuple[TrialOutcome, bool]:
        """Run one trial and keep it; False: there is no point in going on."""
        variant, count = scheduled.variant, max(number, scheduled.trials)
        plan = Plan(
            id=result.id, title=result.name, leg=variant.name, transport=_transport(variant), trial=number,
            trials=count, repetition=scheduled.repetition, repetitions=scheduled.repetitions,
        )  # fmt: skip
        self.live.log(f"trial {number} of {count}: {variant.name}, repetition {scheduled.repetition}")
        fleet = self.fleets.get(variant.leg.name)
        connect = fleet.connect if fleet else None
        path = folder / ("capture.pcapng" if number == 1 else f"capture-{number}.pcapng")
        with files.os_errors(folder / PARTIAL):
            partial = files.open_private(folder / PARTIAL, "w")
        with _closing(partial):
            token = f"{suffix(result.id)}{number}"
            around = TrialContext(
                token=token, folder=folder, live=self.live, interrupts=self.interrupts, plan=plan,
                capture=path if self.capture else None, socket=self.socket, connect=connect,
                each=_keeper(partial), actions=scheduled.actions, abort_on_fail=self.abort_on_fail,
                confined=self.confined,
            )  # fmt: skip
            outcome = self.measurer.measure(Load(variant, around), self.experiment.seed * 100_003 + number)
        result.aborted = around.aborted
        failures = [outcome.error] if outcome.error else []
        with self.interrupts.shielded():
            try:
                self._keep(result, folder, variant, number, outcome, flows)
            except Error as e:
                failures.append(e)
        if outcome.captured and result.files.capture is None and path.exists():
            result.files.capture = path.name
        if self.interrupts.count:
            result.interrupted = True
        for failure in failures:
            self._ended(result, failure)
        return outcome, not (failures or result.interrupted or result.aborted)

    def _ended(self, result: Result, error: Error) -> None:
        """Note what ended the experiment early; what was measured until then stays."""
        error = Error.of(redaction.hide_in(error.as_dict()))
        if error.exit_code == errors.INTERRUPTED:
            result.interrupted = True
            return
        earlier = result.error
        found = list((earlier.get("all") or [earlier]) if earlier else [])
        found += [one for one in error.all or [error.as_dict()] if one not in found]
        result.error = (earlier or error.as_dict()) | ({"all": found} if len(found) > 1 else {})

    def _keep(
        self,
        result: Result,
        folder: Path,
        variant: Variant,
        number: int,
        outcome: TrialOutcome,
        flows: _Table,
    ) -> None:
        known = result.environment.setdefault("interfaces", [])
        known += [about for about in outcome.interfaces if about not in known]
        result.environment.setdefault("versions", {}).update(outcome.versions)
        if outcome.repetition is None:
            return
        outcome.repetition.index = number
        # a trial that ended in an error is run again, not taken over
        outcome.repetition.digest = "" if outcome.error else digest(variant, self._fleet(variant))
        if outcome.repetition.ports:
            ports = result.environment.setdefault("ports", [])
            found = [{key: port[key] for key in PORT if key in port} for port in outcome.repetition.ports]
            ports += [port for port in found if port not in ports]
        leg = next(leg for leg in result.legs if leg.name == variant.name)
        leg.repetitions.append(outcome.repetition)
        if outcome.repetition.version:
            result.environment["versions"]["netdynod"] = outcome.repetition.version
        if self.store:
            self.store.add(result.id, leg, outcome.repetition)
        flows.add([variant.name, number, *row] for row in outcome.flows)

    def _finish(self, result: Result, folder: Path, found: dict[str, Variant], flows: _Table) -> None:
        judge_all(result, {v.name: v.profile for v in found.values()}, self.experiment.confidence)
        result.finished = _now()
        result.files.flows = "flows.csv" if (folder / "flows.csv").exists() else None
        try:
            flows.close()
            save(result, folder)
            with contextlib.suppress(OSError):
                (folder / PARTIAL).unlink()
        except Error as e:
            # the store, on its own disk, and whoever watches still get it
            self._ended(result, e)
            result.verdict = "none"
        finally:
            if self.store:
                self.store.finish(result)
            journal().undo_all()


def _leg(variant: Variant) -> Leg:
    return Leg(name=variant.name, transport=_transport(variant), levels=variant.levels)


def _write_profiles(folder: Path, found: dict[str, Variant]) -> None:
    """What is run, as it was given; of variants that a search comes to, the trials have theirs."""
    profiles = {name: secret.storable(variant.profile) for name, variant in found.items()}
    profile = next(iter(profiles.values())) if len(profiles) == 1 else profiles
    files.write(folder / "profile.json", json.dumps(profile, indent=2) + "\n")
    if networks := _networks(found):
        files.write(folder / NETWORKS, json.dumps(networks, indent=2) + "\n")


def _networks(found: dict[str, Variant]) -> list[dict[str, Any]]:
    """Each network once, with the legs in it and where their devices under test stand."""
    made: dict[str, dict[str, Any]] = {}
    for name, variant in found.items():
        leg = variant.leg
        if leg.topology is None:
            continue
        duts = {one: {"driver": dut.driver, "host": dut.host} for one, dut in leg.duts.items()}
        network = {"topology": leg.topology.model_dump(mode="json"), "duts": duts}
        made.setdefault(json.dumps(network), {"legs": [], **network})["legs"].append(name)
    return list(made.values())


def save(result: Result, folder: Path) -> None:
    """Write `result.json`, `series.csv` and `report.html`."""
    from netdyno.report.render import every_section, render
    from netdyno.report.series_csv import series_csv

    series = series_csv(result)
    files.write(folder / "series.csv", series)
    result.files.series = "series.csv"
    result.files.report = "report.html"
    document = json.dumps(result.model_dump(mode="json"), indent=2) + "\n"
    files.write(folder / "result.json", document)
    # from what is at hand: a run that is larger than what is read of others has its page too
    flows = reading.text(folder / result.files.flows, reading.OWN) if result.files.flows else ""
    more = every_section(folder, result)
    page = render(result, raw=document, flows_csv=flows, series_csv=series, sections=more)
    files.write(folder / "report.html", page)


class _Table:
    """`flows.csv`, begun with its first row."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def add(self, rows: Iterable[list[Any]]) -> None:
        """Append rows, and see them to the disk."""
        with files.os_errors(self._path):
            first = self._file is None
            if self._file is None:
                self._file = files.open_private(self._path, "w")
            writer = csv.writer(self._file, lineterminator="\n")
            if first:
                writer.writerow(FLOWS)
            writer.writerows([escape.cell(value) for value in row] for row in rows)
            self._file.flush()

    def close(self) -> None:
        """No more rows."""
        if self._file:
            with files.os_errors(self._path):
                self._file.close()


@contextlib.contextmanager
def _closing(file: IO[str]) -> Iterator[None]:
    """Close it; what it still held and a full disk does not take is told with the result."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.close()


def _keeper(file: IO[str]) -> Any:
    def keep(sample: dict[str, Any]) -> None:
        # a full disk is told when the result is written; the run goes on in memory until then
        with contextlib.suppress(OSError, ValueError):
            file.write(json.dumps(sample) + "\n")
            file.flush()

    return keep


def _transport(variant: Variant) -> str:
    return str(next(iter(variant.profile.get("transport") or {"sockets": None})))


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
