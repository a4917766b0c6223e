"""Impaired links between network namespaces or ports, carried by a daemon of their own: they go with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdyno import paths
from netdyno.core.daemon import Daemon
from netdyno.errors import Error
from netdyno.system.journal import Journal

Spec = str | dict[str, Any]
"""How a link treats packets, as docs/reference/impair.md has it; or the name of a preset."""

UNASKED = ("queue_full", "not_taken", "no_copy", "missed")
"""Counters of what a link did that nobody asked for."""


@dataclass(frozen=True)
class Side:
    """One end of a link: an interface that is made in a namespace; None is the one that we are in."""

    namespace: str | None
    interface: str
    mac: str | None = None

    def __str__(self) -> str:
        return f"{self.namespace or ''}:{self.interface}"

    def parameters(self, mtu: int) -> dict[str, Any]:
        """As the daemon takes it."""
        return {"namespace": self.namespace, "name": self.interface, "mac": self.mac, "mtu": mtu}


@dataclass(frozen=True)
class Device:
    """One end of a link: a port of DPDK, as profiles name it."""

    name: str

    def __str__(self) -> str:
        return self.name

    def parameters(self, mtu: int) -> dict[str, Any]:
        """As the daemon takes it."""
        return {"device": self.name, "mtu": mtu}


@dataclass(frozen=True)
class ImpairedLink:
    """A running impaired link."""

    id: str
    a: Side | Device
    b: Side | Device


class Links:
    """Links, and the daemon that carries them as long as we live."""

    def __init__(self, token: str, log: Path, notes: Journal | None = None) -> None:
        self.all: list[ImpairedLink] = []
        self.daemon = Daemon(paths.runtime() / f"nd-{token}-links.sock", log, notes=notes)
        try:
            self.client = self.daemon.connect()
            self.client.acquire()
        except BaseException:
            self.daemon.stop()
            raise

    def start(
        self, a: Side | Device, b: Side | Device, spec: Spec, mtu: int = 1500, **how: Any
    ) -> ImpairedLink:
        """Make or open both ends, and carry what they send; `how` is what else `impair.start` takes."""
        made = self.client.call("impair.start", a=a.parameters(mtu), b=b.parameters(mtu), spec=spec, **how)
        self.all.append(ImpairedLink(str(made["link"]), a, b))
        return self.all[-1]

    def seeded(self, spec: Spec, seed: int) -> Spec:
        """The same with this seed, unless it names one; a preset is written out for that."""
        if isinstance(spec, str):
            known = {one["name"]: one["spec"] for one in self.client.call("impair.presets")}
            # a name that is unknown is an error of the core's, which says so
            return {**known[spec], "seed": seed} if spec in known else spec
        return {"seed": seed, **spec}

    def set(self, link: ImpairedLink, spec: Spec, seed: int | None = None) -> None:
        """From now on so; with a seed, all that is drawn begins anew by it."""
        self.client.call("impair.set", link=link.id, spec=spec, **({} if seed is None else {"seed": seed}))

    def stats(self, link: ImpairedLink) -> dict[str, Any]:
        """The counters of both directions. Raises when the link carries nothing any more."""
        try:
            stats: dict[str, Any] = self.client.call("impair.stats", link=link.id)
        except Error:
            # the daemon's own end explains the lost connection better
            self.daemon.process.wait(1.0)
            self.daemon.check()
            raise
        if stats["error"]:
            raise Error.of(stats["error"] | {"at": f"{link.a} – {link.b}"})
        return stats

    def end(self, link: ImpairedLink) -> dict[str, Any]:
        """Take a link away: its last counters, and `recorded`, what does again what it did."""
        self.all.remove(link)
        last: dict[str, Any] = self.client.call("impair.stop", link=link.id)
        return last

    def stop(self) -> None:
        """Take all away."""
        self.all.clear()
        self.client.close()
        self.daemon.stop()
