"""How changes of the tuning are undone: what the kernel was told, and what was set of a socket."""

from __future__ import annotations

from typing import Any

from netdyno.system import namespace
from netdyno.system.undo import TakenOverError, taken_over
from netdyno.tuning import access, reach


def tunable(entry: dict[str, Any]) -> bool:
    """What the kernel was told, in a namespace or for the whole machine."""
    where, target = entry["where"], access.Target(*entry["target"])
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
        return f"{one} in {where}" if one and where else str(one or entry["words"])

    try:
        if namespace.cookie(where) != entry["id"]:
            return False
        done, taken = access.within(where, work)
    except FileNotFoundError:
        return False
    if taken:
        raise TakenOverError("; ".join(taken))
    return done


def socket(entry: dict[str, Any]) -> bool:
    """What was set of a socket of a running process."""
    return reach.put(entry)
