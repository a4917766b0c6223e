"""The bench of a chain: a workload through some of its functions, and what each hop did meanwhile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from netdyno.errors import Error
from netdyno.experiment.measurer import Connect
from netdyno.lab.impairment import TrialSeeds
from netdyno.lab.workload import WORKLOADS, Site
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.switch import container, guests, remote, shares, trial
from netdyno.switch.bench import Spec, moved, tell_endpoints, workload
from netdyno.switch.chain import fleet, hops, layout, steering
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.spec import Chain
from netdyno.switch.chain.steering import CLIENT, SERVER
from netdyno.switch.guests import Machines


def lengths(chain: Chain) -> list[int]:
    """How many functions traffic can pass: from none to all, or only all where addresses part the network."""
    every = len(chain.chain)
    return [every] if chain.routed(chain.chain) else list(range(every + 1))


@dataclass
class ChainBench:
    """Measures a chain that is set up; a setting is how many functions traffic passes, `{"functions": 2}`, or
    which one alone, `{"alone": "nat"}`."""

    lab: ChainLab
    spec: Spec
    guests: Machines = (None, None)
    """Machines in place of client and server."""
    fleet: Connect | None = None
    """Connects to hosts that are the client."""
    _seeds: TrialSeeds = field(default_factory=TrialSeeds)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Those of the workload, and the CPU time of a packet."""
        return {**shares.judged(workload(self.spec)), hops.CPU.name: hops.CPU}

    def measure(self, setting: Setting, seed: int) -> Observation:
        """One trial over the same hosts and functions; the rules are replaced before."""
        lab, passed, started = self.lab, passed_functions(self.lab.chain, setting), time.time()
        lab.program(steering.rules(shortened(lab.chain, passed)))
        assert lab.folder is not None, "the lab is set up"
        spaces = {host: lab.network.namespace(host) for host in (CLIENT, SERVER)}
        address = layout.addresses(lab.chain).server
        launchers = container.launchers(self.spec.endpoints, self.spec.image)
        site = Site(
            spaces[CLIENT], spaces[SERVER], address, lab.folder, lab.notes, guests=self.guests,
            launchers=launchers, fleet=self.fleet,
        )  # fmt: skip
        path_seed = self._seeds.next(lab.chain.model_dump(mode="json"), dict(setting), seed)
        load, through = workload(self.spec), _ChainForwarder(lab, passed, self.guests)
        with contextlib.ExitStack() as stack:
            return trial.run(
                load, site, lab.network, spaces, through, setting, seed, path_seed, stack, started
            )


@dataclass
class _ChainForwarder(trial.Forwarder):
    """The chain of a trial, with the functions that traffic passes."""

    lab: ChainLab
    functions: Sequence[str]
    machines: Machines

    def start(self) -> None:
        self._hops = hops.counters(self.lab, self.functions)
        self._ports, self._cpu = self.lab.counters(), self.lab.cpu()

    def stop(self) -> dict[str, float]:
        return {
            "switch.cpu": self.lab.cpu() - self._cpu,
            **moved(self._ports, self.lab.counters()),
            **hops.differences(self._hops, hops.counters(self.lab, self.functions)),
        }

    def dead(self) -> str:
        dead = self.lab.dead()
        return f"a part of the chain ended during the trial: {dead}" if dead else ""

    def bypassed(self, counters: Mapping[str, float]) -> str:
        return hops.bypassed(self.lab, self.functions, counters)

    def metrics(self, counters: Mapping[str, float]) -> Mapping[str, float]:
        taken = hops.cpu_per_packet(counters)
        return {} if taken is None else {hops.CPU.name: taken}


def tell_ends(spec: Spec, note: Callable[[str], None]) -> None:
    """Say how virtual machines run, if they are client and server. Raises Error if ends cannot be had."""
    if spec.endpoints == "dpdk":
        what = "client and server of a chain are two hosts, and DPDK ports are of one process"
        fix = "Use --endpoints namespace or vm; a function may be a DPDK process: `over: vhost-user`"
        raise Error("ND-104-82", what, at="--endpoints", fix=fix)
    tell_endpoints(spec, note)
    if spec.fleet:
        load = fleet_of(spec)
        note(f"client: {len(load.spaces)} hosts of the fleet {spec.fleet}: {', '.join(load.spaces)}")


def fleet_of(spec: Spec) -> fleet.Load:
    """The fleet that is the client. Raises Error if it cannot be."""
    alone = spec.endpoints == "namespace" and not spec.remote
    return fleet.check(WORKLOADS[spec.workload], spec.fleet, alone)


@contextlib.contextmanager
def bench_of(lab: ChainLab, spec: Spec) -> Iterator[ChainBench]:
    """The bench of a chain that was verified. Machines take the place of client and server then."""
    if spec.fleet:
        _gather(lab)
        of, (form, _, prefix, _) = layout.addresses(lab.chain), layout.FORMS[4]
        addressed = form.format(0, "{}") + f"/{prefix}"
        client, mtu = lab.network.namespace(CLIENT), layout.host_mtu(lab.chain)
        with fleet.as_client(fleet_of(spec), client, addressed, mtu, of.routes[CLIENT]) as connect:
            yield ChainBench(lab, spec, fleet=connect)
        return
    if spec.endpoints != "vm" and not spec.remote:
        _gather(lab)
        yield ChainBench(lab, spec)
        return
    at = f"--{next(iter(spec.remote))}" if spec.remote else "--endpoints"
    if lab.chain.servers():
        what = "a machine in place of the server has one address, and a load balancer needs several"
        raise Error("ND-104-82", what, at=at, fix=f"Leave {at} out")
    assert lab.folder is not None, "the lab is set up"
    known = layout.addresses(lab.chain)
    prefix = layout.FORMS[4][2]
    hosts, more = {}, {}
    for host, address in ((CLIENT, known.client), (SERVER, known.server)):
        hosts[host] = lab.network.namespace(host), f"{address}/{prefix}"
        more[host] = [f"$b ip route add {to} via {by}" for to, by in known.routes[host].items()]
    kind, mtu = WORKLOADS[spec.workload], layout.host_mtu(lab.chain)
    if not spec.remote:
        with guests.in_place_of(hosts, kind, mtu, lab.folder, lab.notes, more) as both:
            yield ChainBench(lab, spec, both)
        return
    macs = {host: guests.mac(space) for host, (space, _) in hosts.items()}
    with contextlib.ExitStack() as stack:
        there = remote.in_place_of(
            spec.remote, hosts, macs, mtu, kind.on_other_machines(), lab.notes, stack, more=more
        )
        yield ChainBench(lab, spec, there)


def passed_functions(chain: Chain, setting: Setting) -> list[str]:
    """Functions that traffic passes in a setting of the bench."""
    return [str(setting["alone"])] if "alone" in setting else chain.chain[: int(setting["functions"])]


def _gather(lab: ChainLab) -> None:
    """Have the one program of a workload serve all addresses that a balancer chooses between."""
    for version, family in zip(lab.chain.versions(), ("ip", "ip6"), strict=False):
        known = layout.addresses(lab.chain, version)
        if known.backends:
            match = f"{family} daddr {{ {', '.join(known.backends)} }} dnat to {known.server}"
            chain = f"  chain to {{\n    type nat hook prerouting priority -100; {match}\n  }}\n"
            lab.run(SERVER, "nft", "-f", "-", text=f"table {family} netdyno {{\n{chain}}}\n")


def shortened(chain: Chain, functions: Sequence[str]) -> Chain:
    """The chain with these functions alone, for all traffic, if they are not all."""
    if list(functions) == chain.chain:
        return chain
    return chain.model_copy(update={"chain": list(functions), "classes": {}})
