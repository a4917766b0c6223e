"""How changes of the tuning are undone: what the kernel was told, and what was set of a socket."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netdyno.system import device, namespace, proc
from netdyno.system.undo import TakenOverError, taken_over
from netdyno.tuning import access, live_sockets


def tunable(entry: dict[str, Any]) -> bool:
    """What the kernel was told, in a namespace or for the whole machine."""
    place = place_of(entry)
    if place is None:
        return False
    where, target = place
    saved, made, names = entry["saved"], entry.get("made", {}), entry.get("names", {})
    way = access.kind(target)

    def work() -> tuple[bool, list[str]]:
        now = way.now(target, saved) if made else {}
        taken = {k for k in saved.keys() & made.keys() & now.keys() if now[k] not in (made[k], saved[k])}
        done = bool(saved.keys() - taken) and way.put(
            target, {k: v for k, v in saved.items() if k not in taken}
        )
        return done, [taken_over(name(k), now[k], made[k], saved[k]) for k in sorted(taken)]

    def name(key: str) -> str:
        one = names.get(key)
        return f"{one} in {entry['where']}" if one and entry["where"] else str(one or entry["words"])

    try:
        done, taken = access.within(where, work)
    except FileNotFoundError:
        return False
    if taken:
        raise TakenOverError("; ".join(taken))
    return done


def place_of(entry: dict[str, Any]) -> tuple[str | None, access.Target] | None:
    """Where it was set: in that namespace and of that device, whatever they are called by now; None: they are
    gone, and so is the value."""
    target, known = access.Target(*entry["target"]), entry.get("device")
    where = entry["where"]
    # cookies begin anew with each boot: what outlived one is where the machine set it again
    outlived = where is None and entry.get("kept") and entry.get("boot") != proc.boot_id()
    found = namespace.find_by_cookie(where, None if outlived else entry["id"])
    if known is None:
        if found is None and where is None and not target.path.startswith("/proc/sys/net/"):
            # of the machine, whichever namespace it was set from
            return None, target
        return (found.where, target) if found else None
    place = device.locate(known, found.where if found else None, found is not None)
    if place is not None:
        return place.where, replace(target, device=place.name)
    if found or device.physical(known):
        raise device.GoneError(f"{entry['words']}: {device.words(known)} is gone, and with it the value")
    return None


def socket(entry: dict[str, Any]) -> bool:
    """What was set of a socket of a running process."""
    return live_sockets.restore_size(entry)
