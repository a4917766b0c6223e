"""Another configuration for a NAT that runs, and what went on from the one before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from netdyno.errors import Error
from netdyno.nat import config, cores, graph, host
from netdyno.nat.running import Running

RESTART = "ND-104-36"
"""What a NAT cannot go on with while it runs."""


@dataclass(frozen=True)
class ReloadOutcome:
    """Changes a reload applied, and those it could not."""

    changed: tuple[str, ...]
    """Keys of the configuration."""
    left_out: tuple[str, ...]
    """What could not be done any more when it came to it, with its place."""


def reload(file: Path, running: Running) -> ReloadOutcome:
    """Let a NAT go on by what its file says now; all of it, or nothing if it cannot."""
    nat = config.load(file)
    if nat.name != running.name:
        fix = f"Write name: {running.name}, or start this one with `netdyno nat run`"
        what = f"the file is of the NAT {nat.name}, and {running.name} runs"
        raise Error(RESTART, what, at=f"{file}: name", fix=fix)
    nat = _as_begun(nat, running.call("graph.describe"))
    # the cores that it may use: ours are others where it was begun by taskset or a service manager
    where = graph.layout(nat, cores.here(running.process), cores.node_of(nat.inside.device))
    try:
        answer = running.call("nat.reload", document=graph.document(nat, where))
    except Error as e:
        raise graph.explained(e, str(file)) from e
    left = tuple(f"{graph.config_path(one['at'])}: {one['what']}" for one in answer["left_out"])
    changed = sorted({graph.config_path(f"elements.conntrack.{key}") for key in answer["changed"]})
    return ReloadOutcome(tuple(changed), left)


def _as_begun(nat: config.Nat, shape: Mapping[str, Any]) -> config.Nat:
    """What was left to the NAT when it began stays as it was decided then."""

    def side(port: str, its: config.Side) -> config.Side:
        return replace(its, kernel=host.as_begun(port, its.kernel, shape)) if its.kernel else its

    return replace(nat, inside=side("inside", nat.inside), outside=side("outside", nat.outside))


def describe(done: ReloadOutcome) -> str:
    """In words."""
    text = f"reloaded: {', '.join(done.changed)}" if done.changed else "reloaded: nothing has changed"
    return text + "".join(f"; left out {one}" for one in done.left_out)


def restored(workers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What became of the sessions that were kept before it began, if some were."""
    found = [one["restored"] for one in workers if one.get("restored")]
    if not found:
        return
    left = Counter[str]()
    for one in found:
        left.update(one["left_out"])
    sessions, subscribers = (sum(one[key] for one in found) for key in ("sessions", "subscribers"))
    text = f"{sessions:,} sessions of {subscribers:,} subscribers go on after {found[0]['age_s']:,} s"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in left.most_common())
    yield text + (f"; left out: {reasons}" if reasons else "")
