"""Paths of a running chain become worse while datagrams pass: which classes move, how fast, what is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from netdyno.errors import Error
from netdyno.lab import impairment
from netdyno.switch.chain import verify as verifying
from netdyno.switch.chain.failover import PATIENCE, UNDISTURBED, NumberedDatagrams
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.policy import choose
from netdyno.switch.chain.probing import Move, PathChange, PathMonitor
from netdyno.switch.chain.proof import first_fault, proven
from netdyno.switch.chain.spec import Chain
from netdyno.switch.chain.verify import Verification
from netdyno.switch.tunnel import SWITCH, WAN

CUT, FLAP = "cut", "flap"
NOTHING = {"loss": "100%"}
"""A path that is cut loses all packets, and no port goes down."""
TURNS = 3
"""Times that a flapping path comes back before it is whole."""


@dataclass(frozen=True)
class PathFault:
    """What is done to a path."""

    path: str
    words: Mapping[str, str]
    """As of `netdyno impair`, in both directions, beside what its description says."""
    flaps: bool = False
    """It is cut and whole in turn."""

    def __str__(self) -> str:
        said = ",".join(f"{key}={value}" for key, value in self.words.items())
        return f"{self.path}:{FLAP if self.flaps else CUT if self.words == NOTHING else said}"


def fault(text: str, chain: Chain, at: str = "--fault") -> PathFault:
    """`mpls:cut`, `mpls:flap` or `mpls:loss=10%,delay=80ms`. Raises Error."""
    name, colon, what = text.partition(":")
    there = chain.wan.paths if chain.wan else {}
    if not colon or not what:
        fix = "Write PATH:cut, PATH:flap or PATH:loss=10%,delay=80ms"
        raise Error("ND-104-04", f"{text[:80]!r} does not say what is done to a path", at=at, fix=fix)
    if name not in there:
        fix = f"There are: {', '.join(there)}" if there else "Describe `wan` with its `paths`"
        raise Error("ND-104-82", f"there is no path {name[:80]!r}", at=at, fix=fix)
    if what in (CUT, FLAP):
        return PathFault(name, NOTHING, what == FLAP)
    return PathFault(name, impairment.words(what, at))


@dataclass(frozen=True)
class Stream:
    """Datagrams of a class while paths were worse."""

    sent: int
    lost: int
    outage: float | None
    """Longest time between two that came back, seconds; None: none did at the end."""


@dataclass(frozen=True)
class Rerouting:
    """A class, from the fault until paths were whole again."""

    traffic: str
    before: str
    during: str
    """The path that it took when all had moved."""
    after: str
    moves: int
    """Moves while paths were worse."""
    crowded: int
    """Most of these within one `hold`."""
    decided: float | None
    """From the fault until its first move was decided, seconds; None: it did not move."""
    confirmed: float | None
    """From the fault until the switches had confirmed that, seconds."""
    back: float | None
    """From the end of the fault until it was on its first path again, seconds; None: it never left."""
    says: str
    stream: Stream | None = None
    """None: it is of TCP, and no datagrams are of it."""


@dataclass(frozen=True)
class RerouteReport:
    """Faults of paths, and what became of the classes."""

    faults: Sequence[str]
    classes: Sequence[Rerouting]
    changes: Sequence[PathChange]
    during: Verification | None
    """While paths were worse; None: a class had no path within the limits, whose packets may be lost."""
    after: Verification
    wrong: str = ""
    """What did not go as the policy says; empty: all did."""
    began: float = field(default=0.0, repr=False)

    @property
    def first_fault(self) -> str:
        """What did not go as it is to; empty: all did."""
        return self.wrong or first_fault({"while paths were worse": self.during, "after that": self.after})

    def document(self) -> dict[str, Any]:
        """As JSON. Times in seconds; those of paths from the fault on."""
        return {
            "wrong": self.first_fault, "faults": list(self.faults),
            "classes": [asdict(one) for one in self.classes],
            "paths": [asdict(one) | {"at": one.at - self.began} for one in self.changes],
            "during": self.during.document() if self.during else None, "after": self.after.document(),
        }  # fmt: skip


def run(
    lab: ChainLab,
    name: str,
    faults: Sequence[PathFault],
    seconds: float,
    told: Callable[[str], None] = lambda _: None,
) -> RerouteReport:
    """Make paths worse for so long at least, prove where packets go, make them whole, and prove it again.

    Raises Error if the chain does not work or a path is beyond the limits before, or a fault was not seen.
    """
    wan = lab.chain.wan
    assert wan is not None, "it has paths"
    paths = _Paths(lab)
    proven(lab, name, told)
    slack = PATIENCE + wan.window * wan.seconds + wan.limits.round_trip
    known = 0

    def tell() -> None:
        nonlocal known
        for one in monitor.changes[known:]:
            told(f"{one.path} is {one.state}: {one.why}")
        known = len(monitor.changes)

    with PathMonitor(lab) as monitor:
        if not monitor.wait(lambda: set(monitor.states().values()) == {"good"}, slack):
            bad = next(one for one, state in monitor.states().items() if state != "good")
            what = f"{bad} is beyond the limits before anything is done: {monitor.said()[bad]}"
            raise Error("ND-99-44", what, at=name, fix="Set `limits` that the path as described keeps")
        tell()
        before = dict(lab.by)
        known, since = len(monitor.changes), len(monitor.moves)
        with ExitStack() as stack:
            streams = _streams(lab, stack)
            time.sleep(UNDISTURBED)
            began = time.monotonic()
            stack.enter_context(paths.worse(faults, wan.held))
            for one in faults:
                seen = monitor.wait(lambda path=one.path: _seen(monitor, path, began), slack)  # type: ignore[misc]
                if not seen:
                    what = f"{one}: the path stayed within the limits: {monitor.said()[one.path]}"
                    raise Error("ND-99-44", what, at=name, fix="Make the fault worse, or the limits stricter")
            tell()
            monitor.wait(lambda: _settled(lab, monitor), slack)
            time.sleep(max(seconds, wan.held * TURNS if any(one.flaps for one in faults) else 0.0))
            tell()
            during, proof = dict(lab.by), None
            states = monitor.states()
            measured = {traffic: _finished(one) for traffic, one in streams.items()}
            streams.clear()
            moved = monitor.moves[since:]
            if all(states[path] == "good" for path in during.values()):
                with monitor.still():
                    proof = verifying.verify(lab)
        healed = time.monotonic()
        home = monitor.wait(lambda: lab.by == before, slack + wan.held)
        tell()
        returned = {one.traffic: one.confirmed - healed for one in monitor.moves if one.decided >= healed}
        late = "" if home else f"classes did not come back: {_differ(before, lab.by, monitor)}"
        with monitor.still():
            after = verifying.verify(lab)
    classes = [
        _rerouting(lab.chain, wan.held, traffic, before, during, dict(lab.by), moved, began,
                   returned.get(traffic), states, measured.get(traffic))
        for traffic in before
    ]  # fmt: skip
    wrong = next((found for one in classes if (found := _wrong(one, faults))), late)
    return RerouteReport([str(one) for one in faults], classes, monitor.changes, proof, after, wrong, began)


def _streams(lab: ChainLab, stack: ExitStack) -> dict[str, NumberedDatagrams]:
    """Datagrams of each class that has any and is let through."""
    wan = lab.chain.wan
    assert wan is not None
    found: dict[str, NumberedDatagrams] = {}

    def end() -> None:
        for one in found.values():
            one.finish()

    stack.callback(end)
    for traffic in lab.chain.paths():
        of = lab.chain.classes.get(traffic)
        if of is None or (of.match.protocol != "tcp" and of.blocked_by is None):
            late = UNDISTURBED / 4 + wan.limits.round_trip
            found[traffic] = NumberedDatagrams(lab, traffic, 1, late)
    return found


def _finished(one: NumberedDatagrams) -> Stream:
    return Stream(*one.finish())


class _Paths:
    """The paths of a chain, made worse and whole. Their timelines run only when they are asked for."""

    def __init__(self, lab: ChainLab) -> None:
        links, listed = lab.network.links, lab.network.impaired_links()
        assert links is not None and listed is not None, "all paths are impaired links"
        self._client = links.client
        specs = {one["link"]: one["spec"] for one in self._client.call("impair.list")}
        self._links: dict[str, str] = {}
        self._described: dict[str, dict[str, Any]] = {}
        for line in lab.chain.lines():
            encrypted = line.tunnel is not None and line.tunnel.wireguard
            end = f"{line.gateways[0]}.{WAN}" if encrypted else f"{SWITCH}.{line.interface}"
            self._links[line.name] = next(
                one["link"] for one in listed["links"] if end in (one["a"], one["b"])
            )
            # a preset is known to the links alone
            spec = line.path if isinstance(line.path, dict) else specs[self._links[line.name]]
            self._described[line.name] = dict(spec)
        self._steady = {
            name: {key: value for key, value in spec.items() if key != "timeline"}
            for name, spec in self._described.items()
        }
        self.steady()

    def steady(self) -> None:
        """As described, without timelines."""
        for name, spec in self._steady.items():
            self._set(name, spec)

    def _set(self, name: str, spec: Mapping[str, Any]) -> None:
        self._client.call("impair.set", link=self._links[name], spec=spec)

    def _break(self, one: PathFault) -> None:
        said = dict.fromkeys(impairment.WAYS, one.words)
        self._set(one.path, impairment.changed(self._steady[one.path], said))

    @contextmanager
    def worse(self, faults: Sequence[PathFault], hold: float) -> Iterator[None]:
        """With these faults, meanwhile; without any, timelines run.

        A path that flaps is cut and whole for half of `hold` each, so that it is never good for that long.
        """
        ended = threading.Event()

        def flap() -> None:
            broken = True
            while not ended.wait(max(0.2, hold / 2)):
                broken = not broken
                for one in faults:
                    if one.flaps:
                        self._break(one) if broken else self._set(one.path, self._steady[one.path])

        flapping = threading.Thread(target=flap, daemon=True)
        try:
            for one in faults:
                self._break(one)
            for name, spec in self._described.items() if not faults else ():
                self._set(name, spec)
            flapping.start()
            yield
        finally:
            ended.set()
            if flapping.ident:
                flapping.join()
            self.steady()


def _seen(monitor: PathMonitor, path: str, began: float) -> bool:
    return any(one.path == path and one.state != "good" and one.at >= began for one in monitor.changes)


def _settled(lab: ChainLab, monitor: PathMonitor) -> bool:
    states = monitor.states()
    return all(choose(lab.chain.order(traffic), path, states) == path for traffic, path in lab.by.items())


def _rerouting(
    chain: Chain,
    hold: float,
    traffic: str,
    before: Mapping[str, str],
    during: Mapping[str, str],
    after: Mapping[str, str],
    moved: Sequence[Move],
    began: float,
    back: float | None,
    states: Mapping[str, str],
    stream: Stream | None,
) -> Rerouting:
    own = [one for one in moved if one.traffic == traffic]
    first = own[0] if own else None
    path = during[traffic]
    if not own and states[path] == "good":
        says = "stays"
    elif states[path] == "good":
        says = f"moved to {path}"
    else:
        order = chain.order(traffic)
        says = f"no path within the limits: stays on {path}" if len(order) > 1 else f"may take {path} only"
    return Rerouting(
        traffic, before[traffic], path, after[traffic], len(own),
        max((sum(0 <= one.decided - of.decided < hold for one in own) for of in own), default=0),
        first.decided - began if first else None, first.confirmed - began if first else None, back, says,
        stream,
    )  # fmt: skip


def _wrong(one: Rerouting, faults: Sequence[PathFault]) -> str:
    """What the policy is not to do with a class."""
    hit = {of.path for of in faults}
    if hit and one.crowded > len(hit):
        paths = f"between paths of which {len(hit)} became worse"
        return f"{one.traffic} moved {one.crowded} times {paths} within one `hold`"
    if hit and one.before not in hit and one.moves:
        return f"{one.traffic} left {one.before}, which nothing was done to"
    if one.says.startswith("moved") and one.stream and one.stream.outage is None:
        return f"{one.traffic} moved to {one.during}, and no datagram of it got through after that"
    return ""


def _differ(before: Mapping[str, str], now: Mapping[str, str], monitor: PathMonitor) -> str:
    said = monitor.said()
    return "; ".join(
        f"{traffic} is on {now[traffic]}, and {path} is {monitor.states()[path]} ({said[path]})"
        for traffic, path in before.items()
        if now[traffic] != path
    )
