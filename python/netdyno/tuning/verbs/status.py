"""`netdyno tune status`: what is applied now, and whether it is still so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from netdyno import paths
from netdyno.cli import console
from netdyno.cli.options import Json
from netdyno.errors import Error
from netdyno.stats.observation import Value
from netdyno.tuning import access, owners, undo
from netdyno.tuning.verbs.params import need_root


@dataclass(frozen=True)
class AppliedValue:
    """A value that netdyno has set and not put back."""

    parameter: str
    where: str | None
    before: Value | None
    set: Value | None
    now: Value | None
    """None: it is gone, with its namespace, device or process."""
    process: int | None
    """Which puts it back; none of a value that is kept, or whose process was killed."""
    kept: bool
    state_folder: str | None = None
    """Where the journal is that has it, if not in ours."""

    @property
    def state(self) -> str:
        """Whether it is still so, and who holds it."""
        if self.now is None:
            return "gone"
        if self.set is not None and str(self.now) != str(self.set):
            return "changed since by another program"
        if self.process is not None:
            return f"held by process {self.process}"
        command = owners.restore_command(self.state_folder)
        return "kept" if self.kept else f"left by a killed process: {command} puts it back"


def status(as_json: Json = False) -> None:
    """Show what netdyno has set of the kernel and not put back, and whether it is still so.

    That is what a running `netdyno tune apply`, a watch or a trial holds, what `apply --keep` made
    persistent, and what a killed process left. Needs root.

        sudo netdyno tune status
    """
    need_root("looking at what was set in each namespace")
    found = list(applied_values())
    if as_json:
        console.document([asdict(one) | {"state": one.state} for one in found])
    elif not found:
        console.out().print("nothing is applied")
    else:
        rows = [
            (one.parameter, one.where or "this machine", _value(one.before), _value(one.set), _value(one.now),
             one.state)
            for one in found
        ]  # fmt: skip
        console.table(
            ("parameter", "where", "before", "set", "now", ""), rows, right=("before", "set", "now")
        )


def applied_values() -> Iterator[AppliedValue]:
    """By what is in the journal, with what the kernel says now."""
    for owner, entry in owners.changes(paths.state() / "journal"):
        saved, made, now = entry["saved"], entry.get("made") or {}, _now(entry)
        if not now and owners.STATE in entry:
            # it is nobody's here to clear away
            continue
        kept = bool(entry.get("kept"))
        # what else was saved is for putting it back
        for key, name in entry.get("names", {}).items():
            yield AppliedValue(
                name,
                entry["where"],
                saved.get(key),
                made.get(key),
                now.get(key),
                None if kept else owner,
                kept,
                entry.get(owners.STATE),
            )


def _now(entry: dict[str, Any]) -> access.Saved:
    try:
        place = undo.place_of(entry)
        if place is None:
            return {}
        where, target = place
        return access.within(where, lambda: access.kind(target).now(target, entry["saved"]))
    except (OSError, Error):
        return {}


def _value(value: Value | None) -> str:
    return "–" if value is None else str(value)
