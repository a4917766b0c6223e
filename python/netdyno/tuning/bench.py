"""The real bench: two namespaces and a path between them, a workload over it, one host of which is tuned.

Each trial creates everything again: no trial inherits what the one before left in caches, queues or
TIME_WAIT. A setting is applied before the servers start, since some values hold for new sockets only;
the part of it that is of processes, after.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from netdyno.config import Config
from netdyno.core import redaction
from netdyno.errors import Error
from netdyno.experiment.permanent import PermanentFailures
from netdyno.lab import impairment
from netdyno.lab.counters import CounterSource, Sampler
from netdyno.lab.links import UNASKED
from netdyno.lab.network import Network
from netdyno.lab.sockets import SocketSampler
from netdyno.lab.topology import End, Host, Link, Topology
from netdyno.lab.workload import WORKLOADS, Site, Workload, unknown
from netdyno.lab.workload.command import CommandLoad
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.system import namespace, sysctl
from netdyno.system.journal import Journal, journal
from netdyno.tuning import followers, host_state
from netdyno.tuning.patience import Patience, cut_short
from netdyno.tuning.trial_setting import applied, is_tunable, of_processes, without_processes

CLIENT, SERVER = "198.18.0.1", "198.18.0.2"
"""Addresses for benchmarks (RFC 2544 appendix C.2.2)."""

CLIENT6, SERVER6 = "2001:2::1", "2001:2::2"
"""The same of IPv6 (RFC 5180 section 8), where the kernel has it."""
HAS_IPV6 = Path("/proc/sys/net/ipv6").is_dir()

DISCARD = 9
"""A port where nobody listens on a bench."""

HOST = "host"
"""Of `where`: this machine itself."""
LOOPBACK, LOOPBACK6 = "127.0.0.1", "::1"
"""Addresses of the server where load and server are in one namespace."""

_LOOPBACK = re.compile(r"\b127(\.\d+){3}\b|\blocalhost\b|\[::1\]")

HostName = Literal["server", "client"]


class Spec(Config):
    """What a bench is made of."""

    workload: str
    """Name of the workload."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Of the workload."""
    path: str | dict[str, Any] | None = None
    """How packets are treated on their way, as in `netdyno impair`; default: a plain cable."""
    tuned: HostName = "server"
    """The host that settings are applied to."""
    server: dict[str, str | int] = Field(default_factory=dict)
    """Kernel parameters of the server, whatever the setting."""
    client: dict[str, str | int] = Field(default_factory=dict)
    """Kernel parameters of the client, whatever the setting."""
    where: str | None = None
    """Where trials run: `host`, or a network namespace that is there already, with load and server in it;
    default: two namespaces made for each trial."""
    machine: dict[str, str | int] = Field(default_factory=dict)
    """Kernel parameters of the whole machine that a trial cannot do without."""
    offloads: dict[str, bool] = Field(default_factory=dict)
    """Of the client's end of the cable, as in `ethtool -K`."""

    @field_validator("server", "client", "machine")
    @classmethod
    def _parameters(cls, value: dict[str, str | int]) -> dict[str, str | int]:
        for name, text in value.items():
            try:
                if not is_tunable(name):
                    sysctl.checked(name, text)
            except Error as e:
                raise ValueError(f"{e.what}. {e.fix}") from None
        return value

    @model_validator(mode="after")
    def _bench_spec(self) -> Spec:
        if self.where is None:
            return self
        if self.workload != CommandLoad.name:
            raise ValueError(
                f"`where` is for the workload {CommandLoad.name}: others make hosts of their own"
            )
        if self.path or self.tuned != "server" or self.client or self.offloads:
            raise ValueError("with `where` there is one host: it has no path, client or offloads")
        return self

    @property
    def trial_namespace(self) -> str | None:
        """The namespace of `where`; None is the one that we are in."""
        return None if self.where == HOST else self.where

    @property
    def starts_server(self) -> bool:
        """Whether a trial starts what it loads; else that runs already."""
        return self.workload != CommandLoad.name or bool(self.options.get("server"))

    @property
    def label(self) -> str:
        """What it is, in a line."""
        shown = [self.workload, *(f"{k}={v}" for k, v in self.options.items())]
        if self.workload == CommandLoad.name:
            shown = [_command_label(self.options)]
        if self.where:
            shown.append(f"in {self.where}")
        if self.path:
            shown.append(f"over {path_words(self.path)}")
        if self.tuned != "server":
            shown.append(f"tuning the {self.tuned}")
        for host, values in (("server", self.server), ("client", self.client)):
            if values:
                shown.append(f"{host}: " + ", ".join(f"{k}={v}" for k, v in values.items()))
        if self._has_more:
            shown.append(f"[{digest(self.model_dump(mode='json'))}]")
        return " ".join(shown)

    @property
    def _has_more(self) -> bool:
        """Whether there is more to it than the words of its label tell, as the distribution of a delay."""
        ways = [self.path.get(way) or {} for way in impairment.WAYS] if isinstance(self.path, dict) else []
        nested = (one for way in ways for key, one in way.items() if key != "bottleneck")
        shaped = (set(one) - impairment.PLAIN for one in nested if isinstance(one, dict))
        return bool(self.machine or self.offloads) or any(shaped)


def _command_label(options: Mapping[str, Any]) -> str:
    """The commands; a digest tells benches with the same commands and other metrics apart."""
    # what a password is does not make another bench, and is kept nowhere
    plain = {key: redaction.command(one) if isinstance(one, str) else one for key, one in options.items()}
    server = f" on {plain['server']}" if plain.get("server") else ""
    return f"{plain.get('load')}{server} [{digest(plain)}]"


def digest(what: Mapping[str, Any]) -> str:
    """Short text that tells one from others."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:6]


def path_words(path: str | Mapping[str, Any]) -> str:
    """A path in a few words: `delay 20ms, bottleneck 400Mbit/s 20MB`; both ways only where they differ."""
    if isinstance(path, str):
        return path

    def leaves(node: Any) -> list[str]:
        return (
            [leaf for one in node.values() for leaf in leaves(one)]
            if isinstance(node, Mapping)
            else [str(node)]
        )

    def words(way: Any) -> str:
        return ", ".join(f"{key} {' '.join(leaves(one))}" for key, one in (way or {}).items()) or "nothing"

    there, back = (words(path.get(way)) for way in impairment.WAYS)
    seed = impairment.fixed_seed(path)
    fixed = "" if seed is None else f"; seed {seed}: the same losses in each trial"
    return (there if there == back else f"{there}; back: {back}") + fixed


def workload(spec: Spec) -> Workload:
    """The workload of a bench."""
    if spec.workload not in WORKLOADS:
        raise unknown(spec.workload, "workload")
    return WORKLOADS[spec.workload](spec.options)


def path(text: str) -> str | dict[str, Any]:
    """`delay=20ms,loss=1%` for both ways, or the name of a preset."""
    if "=" not in text:
        return text
    said = impairment.words(text, "--path")
    return impairment.changed({}, dict.fromkeys(impairment.WAYS, said))


def topology(spec: Spec) -> Topology:
    """A client and a server, and the path between them."""
    client, server = (
        [f"{v4}/24", *([f"{v6}/64"] * HAS_IPV6)] for v4, v6 in ((CLIENT, CLIENT6), (SERVER, SERVER6))
    )
    return Topology(
        hosts={
            "client": Host(role="generator"),
            "server": Host(role="dut"),
        },
        links=[
            Link(
                a=End(host="client", addresses=client, offloads=spec.offloads),
                b=End(host="server", addresses=server),
                impair=spec.path,
            )
        ],
    )


def add_neighbours() -> None:
    """Have both hosts know each other's hardware address: what waits for it is dropped beyond some packets.

    A datagram to a port where nobody listens is answered with an error, which has come both ways.
    """
    _reach(socket.AF_INET, SERVER)
    if HAS_IPV6:
        _reach(socket.AF_INET6, SERVER6)


def _reach(family: socket.AddressFamily, server: str) -> None:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.settimeout(0.2)
        probe.connect((server, DISCARD))
        for _ in range(10):
            try:
                probe.send(b"")
                probe.recv(1)
            except TimeoutError:
                continue
            except OSError:
                return


@dataclass(frozen=True)
class RunningBench:
    """A running bench: setting applied, server started."""

    network: Network | None
    """Hosts and path; none where it runs in a namespace that was there before."""
    site: Site
    load: Workload
    tuned: str | None
    """The namespace of the host that is tuned; None: the one that we are in."""
    sampler: Sampler

    @property
    def path_seed(self) -> int | None:
        """That the path draws with; none: there is no path, or it is a plain cable."""
        links = self.network.topology.links if self.network else []
        seeds = (self.network.seed_of(link) for link in links if link.impair) if self.network else ()
        return next(iter(seeds), None)


def start_bench(
    stack: ExitStack,
    spec: Spec,
    setting: Setting,
    folder: Path | None,
    allow_global: bool,
    notes: Journal,
    path_seed: int | None = None,
) -> RunningBench:
    """Have a bench up for as long as a stack lasts. Without a folder its logs go with it.

    Losses and delays of the path are drawn with `path_seed`, unless the path names a seed.
    """
    if folder is None:
        folder = Path(tempfile.gettempdir()) / f"nd-bench-{secrets.token_hex(8)}"
        # noted before it is made: it goes after `kill -9`, too
        stack.callback(notes.undo, notes.write("path", path=str(folder)))
        folder.mkdir(mode=0o700)
    if spec.where:
        return _start_in_place(stack, spec, setting, folder, allow_global, notes)
    token = f"t{secrets.token_hex(3)}"
    network = Network(topology(spec), token, notes, folder / "links.jsonl", seed=path_seed)
    stack.enter_context(network)
    spaces = {host: network.namespace(host) for host in ("server", "client")}
    other: HostName = "client" if spec.tuned == "server" else "server"
    hosts = ((spec.machine, spec.tuned), (spec.client, "client"), (spec.server, "server"))
    given = [*hosts, (setting, spec.tuned)]
    for values, host in given:
        stack.enter_context(applied(without_processes(values), spaces[host], allow_global, notes))
    address6 = SERVER6 if HAS_IPV6 else ""
    site = Site(spaces["client"], spaces["server"], SERVER, folder, notes, address6=address6)
    load = workload(spec)
    load.serve(site)
    stack.callback(load.stop)
    for values, host in given:
        stack.enter_context(applied(of_processes(values), spaces[host], allow_global, notes))
    namespace.inside(spaces["client"], add_neighbours)
    places: dict[str, CounterSource] = {
        host: CounterSource(spaces[host], ("eth0",)) for host in (spec.tuned, other)
    }
    sampler = stack.enter_context(Sampler(places))
    return RunningBench(network, site, load, spaces[spec.tuned], sampler)


def _start_in_place(
    stack: ExitStack, spec: Spec, setting: Setting, folder: Path, allow_global: bool, notes: Journal
) -> RunningBench:
    """A bench in a namespace that is there already; values are put back when the stack ends."""
    given = (spec.machine, spec.server, setting)
    merged = {name: value for values in given for name, value in values.items()}
    # a server that is started for the trial opens its sockets with the setting in force
    follow: Callable[[], None] | None = None
    if not spec.starts_server:
        follow = stack.enter_context(followers.following(merged, spec.trial_namespace, notes))
    for values in given:
        wanted = without_processes(values)
        stack.enter_context(applied(wanted, spec.trial_namespace, allow_global, notes, used=True))
    if follow:
        follow()
    address6 = LOOPBACK6 if HAS_IPV6 else ""
    site = Site(spec.trial_namespace, spec.trial_namespace, LOOPBACK, folder, notes, address6=address6)
    load = workload(spec)
    load.serve(site)
    stack.callback(load.stop)
    for values in given:
        wanted = of_processes(values)
        stack.enter_context(applied(wanted, spec.trial_namespace, allow_global, notes, used=True))
    devices = tuple(host_state.devices(spec.trial_namespace))
    sampler = stack.enter_context(Sampler({"server": CounterSource(spec.trial_namespace, devices)}))
    return RunningBench(None, site, load, spec.trial_namespace, sampler)


def remarks(spec: Spec, names: Iterable[str]) -> Iterator[str]:
    """What to know of parameters that are tried, of how they act on a service that runs already."""
    if spec.where and not spec.starts_server:
        yield from followers.remarks(names, spec.trial_namespace)


@contextmanager
def tuned_host(spec: Spec, notes: Journal, *, with_path: bool = True) -> Iterator[str | None]:
    """The namespace of the host that is tuned, as it is before a trial sets anything."""
    if spec.where:
        yield spec.trial_namespace
        return
    plain = spec if with_path else spec.model_copy(update={"path": None})
    with (
        tempfile.TemporaryDirectory(prefix="nd-look-") as folder,
        Network(topology(plain), f"t{secrets.token_hex(3)}", notes, Path(folder) / "links.jsonl") as network,
    ):
        yield network.namespace(spec.tuned)


def path_losses(setting: Setting) -> tuple[str, ...]:
    """Counters of what a path does that nobody asked for.

    The queue into a tap is as long as its `txqueuelen`: where that is tuned, its drops are an effect of it.
    """
    tuned = any(name.startswith("dev.") and name.endswith(".txqueuelen") for name in setting)
    return tuple(name for name in UNASKED if not (tuned and name == "missed"))


@dataclass
class NamespaceBench:
    """A bench of namespaces."""

    spec: Spec
    allow_global: bool = False
    """Whether parameters of the whole machine may be set for a trial."""
    folder: Path | None = None
    """Where logs go; none: they go with each trial."""
    notes: Journal = field(default_factory=journal)
    shield: Callable[[], AbstractContextManager[Any]] = nullcontext
    """What keeps interrupts off while everything is taken down."""
    patience: Patience = field(default_factory=Patience)
    """When a trial of a setting is hopeless, and cut short."""
    failures: PermanentFailures | None = field(default_factory=PermanentFailures)
    """Ends a study whose load fails whatever the setting; none: such trials are results as others."""
    _begun: Counter[str] = field(default_factory=Counter)
    """How often a trial of a setting and a seed was begun."""

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Those of the workload."""
        return workload(self.spec).metrics

    def measure(self, setting: Setting, seed: int) -> Observation:
        """One trial: everything up, the setting applied, load, everything down.

        Raises where the load fails whatever the setting.
        """
        seen, failure = self._once(setting, seed)
        self.check(failure, seed)
        return seen

    def path_seed(self, setting: Setting, seed: int) -> int:
        """Of the next trial: no two trials share what the path loses, not even those of a pair.

        The seed of a trial is that of its pair, as both have the same load. By the number of a packet the
        same ones would be lost in both, or in all pairs, and many trials would be one draw.
        """
        trial = json.dumps([self.spec.model_dump(mode="json"), dict(setting), seed], sort_keys=True)
        self._begun[trial] += 1
        return impairment.draws(trial, self._begun[trial])

    def check(self, failure: Error | None, seed: int) -> None:
        """Told how the load of a trial failed, if it did; raises where it does so whatever the setting."""
        if self.failures:
            self.failures.after(failure, lambda: self._once({}, seed)[1], self._advice)

    def _advice(self, failure: Error) -> str:
        """What to do about a load that fails whatever the setting, where that is known."""
        if failure.at == "--metric":
            return "Correct --metric: it must match what the command prints"
        load = str(self.spec.options.get("load", "")) if self.spec.workload == CommandLoad.name else ""
        if self.spec.where is None and _LOOPBACK.search(load):
            return (
                "The load has a network namespace of its own, where the server is not at 127.0.0.1: write "
                "{address}, or {address6} for IPv6, in place of it"
            )
        return ""

    def _once(self, setting: Setting, seed: int) -> tuple[Observation, Error | None]:
        """A trial, and how its load failed, if it did."""
        stack = ExitStack()
        try:
            return self._measure(stack, setting, seed)
        finally:
            with self.shield():
                stack.close()

    def _measure(self, stack: ExitStack, setting: Setting, seed: int) -> tuple[Observation, Error | None]:
        started = time.time()
        drawn = self.path_seed(setting, seed)
        up = start_bench(stack, self.spec, setting, self.folder, self.allow_global, self.notes, drawn)
        limit = self.patience.seconds if self.patience.applies(setting) else None
        site = replace(up.site, patience=limit) if limit else up.site
        begin, why = time.monotonic(), ""
        failure: Error | None = None
        metrics: Mapping[str, float] = {}
        counters: dict[str, float] = {}
        glances = SocketSampler(up.tuned)
        try:
            with glances:
                seen = up.load.run(site, seed)
            metrics, why, counters = seen.metrics, seen.wrong, glances.summary() | dict(seen.counters)
        except Error as e:
            # a load that does not get through is a result of the setting, not of the bench
            if e.code != "ND-91-25":
                raise
            late = limit is not None and time.monotonic() - begin >= limit
            why = cut_short(limit) if limit and late else redaction.hide(str(e))
            failure = None if late else e
        seconds = time.monotonic() - begin
        counters |= up.sampler.stop()
        unasked = sum(
            int(stats[way][name])
            for _, stats in (up.network.impaired() if up.network else ())
            for way in impairment.WAYS
            for name in path_losses(setting)
        )
        if unasked:
            why = why or f"the path had no room for {unasked} packets"
        return Observation(
            setting, metrics, counters, not why, why, started, seconds, path_seed=up.path_seed
        ), failure
