"""Sockets that are open already, and parameters that are read when a socket is opened or listens.

Where trials run beside a service that is not started for each of them, such a parameter would change nothing:
its open sockets are given, for the length of a trial, what they would have had if it had been so before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from netdyno.stats.observation import Value
from netdyno.system.journal import Journal
from netdyno.tuning import host_state, live_sockets
from netdyno.tuning.live_sockets import LiveSocket
from netdyno.tuning.registry import registry

UDP_DROPS = "udp.rcvbuf_errors"
"""Datagrams that found no room in a socket's buffer, over IPv4 and IPv6."""
READ = {"listen": "when a program calls listen()", "socket": "when a program opens a socket"}
"""When a parameter is read, in words."""
NAMED = 3
"""So many sockets are named, others counted."""


@dataclass(frozen=True)
class Follower:
    """Sockets whose size a parameter bounds when they are made."""

    counter: str
    """What moves when one turns something away."""
    what: live_sockets.SocketKind
    gauge: str
    """How many of them are full, and as large as the parameter lets them be."""
    scale: int = 1
    """Their size, in that of the parameter."""
    noun: str = "buffer"


FOLLOWERS = {
    "net.core.somaxconn": Follower(
        "TcpExtListenOverflows", "backlog", "listeners.cut", noun="queue of connections"
    ),
    "net.core.rmem_default": Follower(UDP_DROPS, "udp", "udp.default"),
    "net.core.rmem_max": Follower(UDP_DROPS, "udp", "udp.cut", 2),
}


def size_with(one: LiveSocket, old: int, new: int) -> int:
    """The size that a socket would have had with a parameter at `new`, in its own measure; it was at `old`.

    What is as large as it was allowed to be was cut to that; what is smaller is as its program asked.
    """
    if one.size == old:
        return new
    return min(one.size, new) if one.what == "backlog" else one.size


@contextmanager
def following(
    setting: Mapping[str, Value], where: str | None, notes: Journal
) -> Iterator[Callable[[], None]]:
    """Open sockets that a setting concerns, noted: what this yields has them follow, once it is in force.

    They are noted before it is set, and so are put back after it: a lower bound would cut what they had.
    """
    found = []
    with ExitStack() as stack:
        wanted = registry().read({name: value for name, value in setting.items() if name in FOLLOWERS})
        for name, old in _values(wanted, where).items():
            scale, new = FOLLOWERS[name].scale, int(wanted[name])
            for one in live_sockets.sockets(FOLLOWERS[name].what, where):
                size = size_with(one, old * scale, new * scale)
                entry = live_sockets.note(one, notes) if size != one.size else None
                if entry is not None:
                    stack.callback(notes.undo, entry)
                    found.append((one, size, entry))

        def follow() -> None:
            for one, size, entry in found:
                live_sockets.set_noted(one, size, entry, notes)

        yield follow


def remarks(names: Iterable[str], where: str | None) -> Iterator[str]:
    """What to know of parameters that are read before, where the service runs already."""
    wanted = {name: one.read_at for name in dict.fromkeys(names) if (one := registry().find(name)).read_at}
    values = _values(wanted, where)
    for name, when in wanted.items():
        begin = f"{name} is read {READ[when]}"
        if name not in values:
            yield (
                f"{begin}: sockets that are open already keep what they have. Have each trial start the "
                "service with --server, or restart it with the value that you try"
            )
            continue
        kind, limit = FOLLOWERS[name], values[name] * FOLLOWERS[name].scale
        listed = live_sockets.sockets(kind.what, where)
        cut = [one for one in listed if one.size == limit]
        if cut:
            yield f"{begin}: in each trial the {kind.noun} of these open sockets follows it: {_named(cut)}"
        elif listed:
            yield (
                f"{begin}, and no open socket has all that it allows ({limit:,}): their programs asked for "
                f"less, so that more changes nothing: {_named(listed)}"
            )


def _values(names: Iterable[str], where: str | None) -> dict[str, int]:
    known = host_state.read_states(registry(), [name for name in names if name in FOLLOWERS], where)
    return {name: int(one.value) for name, one in known.items() if one.value is not None}


def _named(found: list[LiveSocket]) -> str:
    """`nginx (process 12), port 80, 511`, and how many more."""
    each = list(dict.fromkeys(str(one) for one in found))
    more = f" and {len(each) - NAMED} more" if len(each) > NAMED else ""
    return "; ".join(each[:NAMED]) + more
