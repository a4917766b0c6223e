"""A run of a fleet whose controller is gone: what it was is noted, and what its agents measured is collected.

The agents end such a run when their leases end, and each keeps its result until it is given another run.
Collecting goes through the same steps as a run, over a core that has ended already.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from netdyno import files, reading
from netdyno.core import models
from netdyno.core.address import Address
from netdyno.core.client import Event, Subscription
from netdyno.core.wire import Status, TrialResult
from netdyno.errors import Error
from netdyno.fleet import agents, relays
from netdyno.fleet.agents import Agent, Fleet
from netdyno.fleet.host import lost
from netdyno.fleet.links import Links, connect_all
from netdyno.system import proc
from netdyno.system.journal import journal
from netdyno.system.proc import boot_id, start_time

NONE, ORPHANED = "ND-104-93", "ND-91-51"


@dataclass(frozen=True)
class RunNote:
    """What is noted of a run while its controller lives, and left when that is killed."""

    profile: Mapping[str, Any]
    """Without secrets."""
    groups: list[dict[str, Any]]
    """As the agents told them when they had loaded it."""
    at: float
    """When it began, in seconds since 1970."""
    hosts: Mapping[str, dict[str, Any]]
    """The run's id of each host, and its devices by group."""
    pid: int = field(default_factory=os.getpid)
    start: int | None = field(default_factory=lambda: start_time(os.getpid()))
    boot: str = field(default_factory=boot_id)

    @property
    def orphaned(self) -> bool:
        """Whether its controller is gone."""
        return self.boot != boot_id() or not proc.alive(self.pid, self.start)


def note_file(fleet: str) -> Path:
    """Where the run of a fleet is noted."""
    return agents.folder() / f"{fleet}.run"


def note(fleet: str, one: RunNote) -> None:
    """A run begins."""
    files.own_folder(agents.folder())
    files.write(note_file(fleet), json.dumps(asdict(one)) + "\n")


def forget(fleet: str) -> None:
    """The run of this process is over, or collected."""
    note_file(fleet).unlink(missing_ok=True)


def noted(fleet: str) -> RunNote | None:
    """The run that is noted of a fleet."""
    if not note_file(fleet).is_file():
        return None
    try:
        return RunNote(**reading.record(note_file(fleet)))
    except (OSError, ValueError, TypeError, Error) as e:
        what = f"what is noted of the fleet's run is damaged: {e}"
        raise Error(NONE, what, at=str(note_file(fleet)), fix="Remove the file") from e


def told(fleet: str) -> dict[str, Any] | None:
    """What `fleet status` says of the run: its name, when it began, and its controller's process, if that
    lives."""
    found = noted(fleet)
    if found is None:
        return None
    return {
        "name": str(found.profile.get("name") or ""), "began": found.at,
        "controller": None if found.orphaned else found.pid,
    }  # fmt: skip


def orphan(fleet: str) -> RunNote:
    """The run of a fleet that lost its controller. Raises `ND-104-93` where there is none."""
    found = noted(fleet)
    if found is None:
        fix = "See `netdyno fleet status`; a run that ended is in `netdyno runs`"
        raise Error(NONE, f"no run of the fleet {fleet} has lost its controller", at=fleet, fix=fix)
    if not found.orphaned:
        what = f"the run of the fleet {fleet} has its controller: process {found.pid}"
        raise Error(NONE, what, at=fleet, fix="Wait for it to end")
    return found


class EndedCore:
    """What agents have left of a run, as a core whose run ends at once."""

    def __init__(self, fleet: Fleet, run: RunNote, log: Callable[[str], None]) -> None:
        """Connect to all, through relays where it was so; raises `ND-91-50` where none has anything of it."""
        self.address = Address(Path(f"fleet:{fleet.name}"))
        self._run, self._log = run, log
        self._links = Links(lambda hosts, why: None)
        those = [one for one in fleet.agents if one.host.name in run.hosts]
        try:
            absent = self._connect(those, fleet.agents_per_relay)
            self._lost = {name: lost(name, f"with what it measured: {e.what}") for name, e in absent.items()}
            for host in self._links.hosts[:1]:
                # merging asks for their indices
                models.learn(host.about)
            started = datetime.fromtimestamp(run.at, UTC).isoformat(timespec="milliseconds")
            found = self._links.collect(run.hosts, dict(run.profile), started.replace("+00:00", "Z"))
            self._lost |= {host.name: host.lost for host in self._links.hosts if host.lost}
            if found is None:
                raise next(iter(self._lost.values()))
            self._found = found
        except BaseException:
            self.close()
            raise

    def _connect(self, those: Sequence[Agent], most: int) -> dict[str, Error]:
        """Why there is no connection to some."""
        token = f"collect-{secrets.token_hex(3)}"
        if parts := relays.groups(those, most):
            made = relays.start(parts, token, journal(), self._links.lose_behind)
            self._links.links.extend(made)
            self._log(f"{len(those)} agents through {len(made)} relays")
            return {name: error for one in made for name, error in one.absent.items()}
        links, absent = connect_all(those, token, journal())
        self._links.links.extend(links)
        return absent

    def call(self, method: str, *, timeout: float | None = None, **params: Any) -> Any:
        """It is loaded and has run."""
        match method:
            case "core.describe":
                return self._links.hosts[0].about
            case "run.load":
                for error in self._lost.values():
                    self._log(error.what)
                return {"run": self.status().run, "groups": self._run.groups}
        return {}

    def acquire(self) -> None:
        """Nothing is written."""

    def release(self) -> None:
        """Nothing was."""

    def subscribe(self) -> Subscription:
        """That it has ended."""
        events = Subscription()
        events.put(Event(status=self.status()))
        return events

    def status(self) -> Status:
        """Over."""
        return Status(run=self._found.run, state="done")

    def result(self) -> TrialResult:
        """All that was measured, merged; with an error where it ended before its time."""
        away = [{"name": name, "lost": error.what} for name, error in self._lost.items()]
        hosts = (self._found.model_extra or {})["hosts"] + away
        ended = self._found.stopped or self._lost
        error = self._found.error or (self._why(self._found).as_dict() if ended else None)
        return TrialResult.model_validate(self._found.model_dump() | {"hosts": hosts, "error": error})

    def _why(self, merged: TrialResult) -> Error:
        if merged.stopped != "lease":
            return next(iter(self._lost.values()))
        took = merged.phases.warmup + merged.phases.measure + merged.phases.drain
        heard = "the agents heard nothing for 3 s, and stopped"
        what = f"the controller of the run was lost: {heard} after {took:.1f} s"
        return Error(ORPHANED, what, fix="What they measured until then is kept; run it again for a verdict")

    def flows(self) -> Iterator[list[Any]]:
        """The summary of each device."""
        return self._links.flows(self._log)

    def close(self) -> None:
        """Hang up."""
        self._links.close()
