"""The kernel of a host of a fleet: what it has of the registry, and a setting in force for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from netdyno.errors import Error
from netdyno.experiment.measurer import FleetHost, LocalKernel
from netdyno.lab.counters import CounterSource, Sampler
from netdyno.stats.observation import Setting
from netdyno.system.journal import Journal
from netdyno.system.ssh import SshHost
from netdyno.tuning import host_state
from netdyno.tuning.host_state import HostState
from netdyno.tuning.hosts.remote import RemoteKernel
from netdyno.tuning.registry import registry
from netdyno.tuning.trial_setting import applied


class HostKernel(Protocol):
    """A kernel whose parameters can be set and are put back."""

    @property
    def devices(self) -> Sequence[str]:
        """Interfaces whose parameters can be set."""

    def states(self) -> Mapping[str, HostState]:
        """What it has of the registry, by name."""

    def applied(self, setting: Setting, allow_global: bool) -> AbstractContextManager[None]:
        """A setting in force for as long as a block."""

    def sampler(self) -> Sampler | None:
        """Its counters over a trial; None: they are not read."""


@dataclass(frozen=True)
class _Here:
    """The kernel here, in a namespace."""

    space: str | None
    notes: Journal

    @property
    def devices(self) -> Sequence[str]:
        return host_state.devices(self.space)

    def states(self) -> Mapping[str, HostState]:
        known = registry()
        return host_state.read_states(known, host_state.names(known, self.devices), self.space)

    @contextmanager
    def applied(self, setting: Setting, allow_global: bool) -> Iterator[None]:
        with applied(setting, self.space, allow_global, self.notes, used=bool(setting)):
            yield

    def sampler(self) -> Sampler | None:
        return Sampler({"host": CounterSource(self.space, tuple(self.devices))})


def kernel(host: FleetHost, notes: Journal) -> HostKernel:
    """That of a host. Raises `ND-104-50` where nothing but its agent is reached."""
    match host.kernel:
        case LocalKernel(namespace):
            return _Here(namespace, notes)
        case SshHost() as ssh:
            return RemoteKernel(host.name, ssh, notes)
    what = f"parameters of the host {host.name} cannot be set: only its agent is reached"
    fix = "Give it `launcher: ssh`, or `local` for a namespace of this machine"
    raise Error("ND-104-50", what, at=host.name, fix=fix)
