"""Put a setting in force so that it can always be taken back.

What is about to be changed is in the journal, on disk, before the first write. It is put back when the holder
leaves the block, by the watchdog when the holder dies, and otherwise by the next start or `netdyno restore`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from netdyno import files, paths
from netdyno.errors import Error
from netdyno.stats.observation import Value
from netdyno.system import device, namespace, proc
from netdyno.system.journal import Journal, journal
from netdyno.tuning import access, owners
from netdyno.tuning.plan import Change, Plan, Step
from netdyno.tuning.registry import DEVICE
from netdyno.tuning.watchdog import Watchdog


@dataclass
class AppliedSetting:
    """A setting in force until it is restored."""

    plan: Plan
    changes: list[Change]
    """With what the kernel made of each."""
    notes: Journal
    entries: list[int] = field(default_factory=list)
    """Of the journal, one a step."""
    _watchdog: Watchdog | None = None

    def restore(self) -> None:
        """Put everything back as it was. Raises when something cannot be; the rest is."""
        entries, self.entries = self.entries, []
        try:
            self.notes.undo(*entries)
        finally:
            if self._watchdog:
                self._watchdog.stop()

    def keep(self, *drafts: int, also: Iterable[Step] = ()) -> None:
        """Let it outlive this process, with what other entries stand for that are noted as kept already, and
        with what had its value before: that stays when it is taken back.

        Only `netdyno restore` and `netdyno tune restore` take it back then.
        """
        noted = [(step, self.notes.entry(n)) for step, n in zip(self.plan.steps, self.entries, strict=True)]
        for step, entry in [*noted, *((step, _as_it_is(step)) for step in also)]:
            values = {key: entry[key] for key in ("saved", "made")}
            self.notes.write("tunable_kept", kept=True, boot=proc.boot_id(), **_about(step), **values)
        self.notes.forget(*self.entries, *drafts)
        self.entries = []
        self.restore()

    def value(self, name: str) -> Value | None:
        """What the kernel made of a change."""
        return next((change.got for change in self.changes if change.name == name), None)

    def __enter__(self) -> AppliedSetting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()


def apply(
    planned: Plan,
    notes: Journal | None = None,
    *,
    watched: bool = False,
) -> AppliedSetting:
    """Put a plan in force. `watched` has a watchdog put it back should this process be killed."""
    notes = notes or journal()
    applied = AppliedSetting(planned, [], notes)
    with alone(), ExitStack() as undo:
        owners.refuse(planned, notes.folder)
        undo.callback(applied.restore)
        for step in planned.steps:
            applied.entries.append(_note(step, notes))
        if watched:
            applied._watchdog = Watchdog(notes.path)
        for step in planned.steps:
            applied.changes += _write(step)
        # only now: what is set later may change what was set before
        made = {
            n: _written(step, notes.entry(n)) for n, step in zip(applied.entries, planned.steps, strict=True)
        }
        if made:
            notes.became(made)
        undo.pop_all()
    return applied


def _as_it_is(step: Step) -> dict[str, Any]:
    """What an entry says of a value that stays as it was."""
    way = access.kind(step.target)
    with _os_errors(step):
        saved = access.within(step.where, lambda: way.save(step.target, set(step.values)))
    return {"saved": saved, "made": _written(step, {"saved": saved})}


def _note(step: Step, notes: Journal) -> int:
    way = access.kind(step.target)
    with _os_errors(step):
        saved = access.within(step.where, lambda: way.save(step.target, set(step.values)))
    return notes.write("tunable", **_about(step), saved=saved)


def _about(step: Step) -> dict[str, Any]:
    target = [step.target.kind, step.target.path, step.target.device]
    names = ", ".join(change.name for change in step.changes)
    words = names + (f" in {step.where}" if step.where else "")
    of_keys = {
        name: change.name
        for key, change in zip(step.values, step.changes, strict=True)
        for name in key.split() or [key]
    }
    about = {"words": words, "names": of_keys, "where": step.where, "id": namespace.cookie(step.where),
             "target": target}  # fmt: skip
    if step.changes[0].name.startswith(DEVICE):
        known = namespace.inside(step.where, lambda: device.identity(step.target.device))
        about |= {"device": known} if known else {}
    return about


def _written(step: Step, entry: Mapping[str, Any]) -> access.Saved:
    """What became of it, told as what it was is: whoever changes it after us shows by that."""
    with _os_errors(step):
        return access.within(step.where, lambda: access.kind(step.target).now(step.target, entry["saved"]))


def _write(step: Step) -> list[Change]:
    """Write, and read what the kernel made of it."""
    way = access.kind(step.target)

    def work() -> Mapping[str, Value]:
        way.write(step.target, step.values)
        return way.read(step.target)

    with _os_errors(step):
        made = access.within(step.where, work)
    done = []
    for key, change in zip(step.values, step.changes, strict=True):
        got = access.at(made, key)
        if got is None or (str(got) != str(change.new) and not _rounds(got, change)):
            fix = "See `dmesg`, and the driver's documentation for what is a device's"
            what = f"{change.name} was set to {change.new}, and is {got}"
            raise Error("ND-92-33", what, at=change.name, fix=fix)
        done.append(replace(change, got=got))
    return done


def _rounds(got: Value, change: Change) -> bool:
    """Whether the kernel took a number that is near, and did not just keep the old one."""
    return isinstance(got, int) and isinstance(change.new, int) and str(got) != str(change.old)


@contextmanager
def _os_errors(step: Step) -> Iterator[None]:
    """Turn what the system says into our error."""
    try:
        yield
    except OSError as e:
        names = ", ".join(f"{change.name} = {change.new}" for change in step.changes)
        fix = "Check that it may be set here: run it with sudo, see `netdyno tune params`"
        if step.target.path == "net.ipv4.tcp_congestion_control" and step.where:
            fix = "In a namespace only those in net.ipv4.tcp_allowed_congestion_control can be set"
        what = f"{names}: {e.strerror or e}"
        raise Error("ND-92-33", what, at=step.where or "this machine", fix=fix) from e


@contextmanager
def alone() -> Iterator[None]:
    """Two of us do not look and write at the same time, whatever their state folders are."""
    path = files.own_folder(paths.runtime()) / "tuning.lock"
    with files.os_errors(path):
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
