"""The demo of the NAT: subscribers boot by DHCP, get public addresses by DHCP, and surf through it.

They surf through the kernel's NAT beside it, too.
What came of it is a document, as `run` returns it; nothing is left of all that was made for it.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from netdyno import __version__, paths
from netdyno.core.client import Client
from netdyno.core.daemon import Daemon
from netdyno.core.wire import GroupResult, TrialResult
from netdyno.errors import Error
from netdyno.experiment.pairs import RepeatBudget, measure_pairs
from netdyno.experiment.spec import suffix
from netdyno.lab.counters import parse_cpu
from netdyno.nat.access import kernel_nat, network, plan
from netdyno.nat.access.network import AccessNetwork
from netdyno.stats.comparison import judge
from netdyno.stats.discards import Discard
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.stats.pairs import Pair, both
from netdyno.system import environment
from netdyno.system.interrupt import Interrupts

FORMAT = "netdyno-nat-demo/1"
KERNEL, OURS = "kernel NAT", "netdyno NAT"
SERVERS = {KERNEL: plan.SERVER_BY_KERNEL, OURS: plan.SERVER}
"""By which of its addresses the server is reached through which NAT."""
PAGE, CONNECTIONS = 65_536, 8
"""Bytes of a page; connections of each subscriber, each of which asks again as soon as it has an answer."""
WARMUP, MEASURE, DRAIN = 0.3, 1.0, 1.0
"""Seconds of a trial."""
PAIRS, SPARE = 10, 6
FORWARDED = "packets through the netdyno NAT"
"""The counter that says that traffic took the path that it is said to have taken."""
METRICS = {
    one.name: one for one in (Metric("throughput", "bit/s", "higher"), Metric("response_p99", "ms", "lower"))
}
OPENED = 3
"""Connections of each subscriber whose translation is looked at one by one."""
REACH, REFUSED = 15.0, 1.5
"""Seconds within which a server is reached, and for which one is tried that is not to be reached."""
STAGES = {"rx": "RX", "validity": "validity", "subscriber-table": "NAT", "nat44": "ConnTrack", "tx": "TX"}
"""The five elements of the NAT, in the order of a packet's way, by kind; of ports by queue."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Cores:
    """Where what is pinned runs: the NAT has a core of its own as far as there are any."""

    nat: int
    loads: Sequence[int]

    @classmethod
    def of(cls, usable: Sequence[int]) -> Cores:
        """The NAT has the last one, generators the first ones."""
        others = list(usable[:-1]) or list(usable)
        return cls(usable[-1], [others[i % len(others)] for i in range(len(plan.SUBSCRIBERS))])


def run(name: str, folder: Path, interrupts: Interrupts, say: Say) -> dict[str, Any]:
    """Do it all, and take everything away."""
    network.check()
    started, stack = _now(), ExitStack()
    cores = Cores.of(sorted(os.sched_getaffinity(0)))
    try:
        found = _demo(name, folder, cores, stack, say)
    finally:
        with interrupts.shielded():
            stack.close()
    head = {"format": FORMAT, "netdyno": __version__, "name": name, "started": started, "finished": _now()}
    return {**head, "command": shlex.join(["netdyno", *sys.argv[1:]]), **found}


def _demo(name: str, folder: Path, cores: Cores, stack: ExitStack, say: Say) -> dict[str, Any]:
    token = suffix(name)
    say("two subscribers, two DHCP servers, two NATs and a web server, in namespaces")
    lab = AccessNetwork(token, folder, PAGE, cores.nat, stack)
    dhcp = []
    for one in lab.boot():
        dhcp.append(
            {"subscriber": one.name, "mac": one.mac, "took_s": round(one.took, 3), **asdict(one.lease)}
        )
        took = f"{one.lease.address} for {one.lease.seconds:,} s, after {one.took:.2f} s"
        say(f"{one.name} boots by DHCP: {took}")
    addresses = {str(one["subscriber"]): str(one["address"]) for one in dhcp}
    sites = _sites(lab, folder, addresses, say)
    for subscriber in plan.SUBSCRIBERS:
        for server in SERVERS.values():
            lab.reach(subscriber, server, REACH)
    unleased = _unleased(lab, say)
    mappings = _mappings(lab, sites, say)
    before = _counts(lab.nat.stats())
    measured = _compare(lab, folder, token, cores, say)
    after = _counts(lab.nat.stats())
    shape = lab.nat.shape()
    return {
        "dhcp": dhcp,
        "sites": sites,
        "unleased": unleased,
        "mappings": mappings,
        "elements": stages(shape, before, after),
        "drops": drops(after),
        "comparison": measured,
        "load": {"page_bytes": PAGE, "connections": CONNECTIONS, "subscribers": len(plan.SUBSCRIBERS)},
        "cores": {"usable": len(os.sched_getaffinity(0)), "nat": cores.nat, "generators": list(cores.loads)},
        "environment": environment.collect(
            duts={"nginx": lab.web.version(), "kea": lab.kea.version(), "nftables": kernel_nat.version()}
        ),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# ---- who gets through


def _sites(lab: AccessNetwork, folder: Path, addresses: Mapping[str, str], say: Say) -> list[dict[str, Any]]:
    """Each subscriber is a site; the NAT asks the DHCP server outside for its public address."""
    until = time.monotonic() + REACH
    while True:
        found = {str(one["site"]): one for one in lab.nat.sites() if one["address"]}
        waiting = [name for name, address in addresses.items() if address not in found]
        if not waiting:
            break
        if time.monotonic() > until:
            what = f"the site of {waiting[0]} has no public address within {REACH:g} s"
            raise Error("ND-92-26", what, at=waiting[0], fix=f"See the logs in {folder}")
        time.sleep(0.02)
    made = [site(name, found[address]) for name, address in addresses.items()]
    for one in made:
        what = f"{one['address']} for {one['left_s']:,} s, from {one['server']}"
        say(f"the site of {one['subscriber']} has a public address by DHCP: {what}")
    return made


def site(subscriber: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """What the NAT tells of a subscriber's site."""
    plain = {key: told[key] for key in ("site", "mac", "address", "server", "state")}
    return {"subscriber": subscriber, **plain, "left_s": math.ceil(told["lease_s"])}


def _unleased(lab: AccessNetwork, say: Say) -> dict[str, Any]:
    """A subscriber takes an address that nobody gave it, and tries."""
    subscriber, address = plan.SUBSCRIBERS[-1], plan.UNLEASED
    before = _drops_of(lab, "nat")
    reached = True
    with lab.foreign_address(subscriber, address):
        try:
            lab.connect(subscriber, plan.SERVER, REFUSED, source=address).close()
        except OSError:
            reached = False
    dropped = _drops_of(lab, "nat").get("not_bound", 0) - before.get("not_bound", 0)
    if reached:
        what = f"{subscriber} gets through the NAT as {address}, for which it has no lease"
        raise Error("ND-99-21", what, at="nat", fix="It is a fault of the NAT: please report it")
    say(f"{subscriber} takes {address} without a lease: {dropped} packets dropped, nothing gets through")
    return {"subscriber": subscriber, "address": address, "reached": reached, "dropped": dropped}


def _drops_of(lab: AccessNetwork, element: str) -> dict[str, int]:
    return {
        reason: int(count)
        for one in lab.nat.stats()["elements"]
        if one["name"] == element
        for reason, count in one["drops"].items()
    }


def _mappings(lab: AccessNetwork, sites: Sequence[Mapping[str, Any]], say: Say) -> dict[str, Any]:
    """Connections opened one by one: who the server sees when a subscriber comes, and what the NAT says."""
    rows = []
    with ExitStack() as stack:
        for subscriber in plan.SUBSCRIBERS:
            for _ in range(OPENED):
                known = lab.peers()
                one = stack.enter_context(lab.connect(subscriber, plan.SERVER, 5.0))
                inside = "{}:{}".format(*one.getsockname())
                rows.append({"subscriber": subscriber, "inside": inside, "outside": _newcomer(lab, known)})
        listed = lab.nat.sessions()
    found = {one["inside"]: one for one in listed or ()}
    for row in rows:
        told = found.get(row["inside"])
        if told is not None:
            row |= {"told": told["outside"], "state": told["state"], "remote": told["remote"]}
    own = {str(one["subscriber"]): str(one["address"]) for one in sites}
    wrong = [
        row["inside"]
        for row in rows
        if str(row["outside"]).partition(":")[0] != own[str(row["subscriber"])]
        or (listed is not None and row.get("told") != row["outside"])
    ]
    if wrong:
        what = f"the NAT says otherwise than the server of {', '.join(wrong)}"
        raise Error("ND-99-21", what, at="nat.sessions", fix="It is a fault of the NAT: please report it")
    seen = ", ".join(f"{one['site']} as {one['address']}" for one in sites)
    say(f"the server sees {seen}")
    return {"rows": rows, "sessions": None if listed is None else len(listed)}


def _newcomer(lab: AccessNetwork, known: set[str]) -> str:
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        if fresh := lab.peers() - known:
            return min(fresh)
        time.sleep(0.01)
    raise Error("ND-91-25", "a connection is up, and the web server has none", at=plan.SERVER)


# ---- how much gets through


class _Paths:
    """The load of both subscribers at once, through one NAT or the other."""

    metrics: Mapping[str, Metric] = METRICS

    def __init__(self, lab: AccessNetwork, clients: Mapping[str, Client], cores: Cores) -> None:
        self._lab, self._clients, self._cores = lab, clients, cores

    def measure(self, setting: Setting, seed: int) -> Observation:
        """One trial."""
        path = str(setting["path"])
        started, before = time.time(), self._moved()
        for core, client in zip(self._cores.loads, self._clients.values(), strict=True):
            client.call("run.load", profile=profile(SERVERS[path], core, seed), timeout=30.0)
        began = time.monotonic()
        for client in self._clients.values():
            client.call("run.start")
        trials = [_result(client) for client in self._clients.values()]
        seconds = time.monotonic() - began
        counters = {name: value - before.get(name, 0.0) for name, value in self._moved().items()}
        metrics, why = subscriber_totals(trials)
        return Observation(dict(setting), metrics, counters, not why, why, started, seconds)

    def _moved(self) -> dict[str, float]:
        passed = sum(
            one["packets_in"] for one in self._lab.nat.stats()["elements"] if one["name"] == "conntrack"
        )
        with contextlib.suppress(OSError):
            return {**parse_cpu(Path("/proc/stat").read_text()), FORWARDED: float(passed)}
        return {FORWARDED: float(passed)}


def profile(server: str, core: int, seed: int) -> dict[str, Any]:
    """What a subscriber does: the same page again and again, on connections that stay open."""
    group = {
        "name": "web",
        "target": f"http://{server}",
        "devices": CONNECTIONS,
        "model": {"http": {"path": f"/{PAGE}", "requests": 0, "interval": "0s"}},
        "load": {"closed": {}},
    }
    return {
        "name": "nat-demo",
        "seed": seed % (1 << 32),
        "phases": {"warmup": f"{WARMUP}s", "measure": f"{MEASURE}s", "drain": f"{DRAIN}s", "sample": "500ms"},
        # a page is asked for when the one before is there: being late is no fault where all share the cores
        "validity": {"lateness_p99": "60s", "offered": 0.001, "starved": 1.0},
        "transport": {"sockets": {"cores": [core]}},
        "groups": [group],
    }


def subscriber_totals(trials: Sequence[TrialResult]) -> tuple[dict[str, float], str]:
    """What the subscribers got together, and the slower one's delay; and why it does not count, if so."""
    groups: list[GroupResult] = [group for trial in trials for group in trial.groups]
    wrong = [
        f"{failure.count} requests failed ({failure.kind})" for group in groups for failure in group.errors
    ]
    delays = [group.delays["response"] for group in groups if group.delays.get("response")]
    if len(groups) < len(plan.SUBSCRIBERS) or not all(delay.count for delay in delays) or not delays:
        return {}, "; ".join(wrong) or "nothing was delivered"
    bits = sum(trial.groups[0].measured.bytes_received * 8 / trial.phases.measure for trial in trials)
    return {"throughput": bits, "response_p99": max(one.p99 for one in delays) / 1e6}, "; ".join(wrong)


def _result(client: Client) -> TrialResult:
    until = time.monotonic() + WARMUP + MEASURE + DRAIN + 20
    while not (status := client.status()).ended:
        if time.monotonic() > until:
            raise Error("ND-91-22", "the load does not end", at=client.path, fix="See the daemon's log")
        time.sleep(0.02)
    if status.state == "failed":
        raise Error.of(status.error if isinstance(status.error, Mapping) else {"what": status.error})
    return client.result()


def _compare(lab: AccessNetwork, folder: Path, token: str, cores: Cores, say: Say) -> dict[str, Any]:
    say(f"both load {SERVERS[OURS]} through the {OURS} and {SERVERS[KERNEL]} through the {KERNEL}, in turns")
    with ExitStack() as stack:
        clients = {}
        for name in plan.SUBSCRIBERS:
            where = paths.runtime() / f"nd-{token}-{name}.sock"
            log = folder / f"load-{name}.jsonl"
            daemon = stack.enter_context(Daemon(where, log, namespace=lab.network.namespace(name)))
            clients[name] = stack.enter_context(daemon.connect())
            clients[name].acquire()
        spare = RepeatBudget(SPARE)

        def progress(done: int, of: int, one: Observation) -> None:
            rate = one.metrics.get("throughput")
            what = f"{rate / 1e6:,.0f} Mbit/s" if rate is not None else "nothing"
            say(f"round {done} of {of}: {one.setting['path']}, {what}" + (f" ({one.why})" if one.why else ""))

        discarded: list[Discard] = []
        pairs = measure_pairs(
            _Paths(lab, clients, cores), {"path": KERNEL}, {"path": OURS}, PAIRS,
            secrets.randbelow(1 << 16), spare=spare, progress=progress, discarded=discarded,
        )  # fmt: skip
    return compared(pairs, spare.again, discarded)


def compared(
    pairs: Sequence[Pair], again: Mapping[str, int], discarded: Sequence[Discard] = ()
) -> dict[str, Any]:
    """What is known of the NAT of DPDK over the kernel's."""
    found = judge(pairs, METRICS, [FORWARDED], again=again, discarded=discarded)
    plain = found.as_dict()
    for one in plain["metrics"]:
        one["pairs"] = both(pairs, one["metric"]["name"])
    trials = [{"pair": number, **asdict(one)} for number, pair in enumerate(pairs, 1) for one in pair]
    return {
        **plain, "a": KERNEL, "b": OURS, "said": found.summary, "too_few": found.too_few, "trials": trials,
    }  # fmt: skip


# ---- elements


def _counts(stats: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {str(one["name"]): one for one in stats["elements"]}


def stages(
    shape: Mapping[str, Any],
    before: Mapping[str, Mapping[str, Any]],
    after: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """The five elements over the rounds: of each the packets, and cycles for one of them."""
    kinds = {str(one["name"]): stage(str(one["name"]), str(one["kind"])) for one in shape["elements"]}
    made = []
    for wanted in STAGES.values():
        names = [name for name, kind in kinds.items() if kind == wanted and name in after]
        packets = cycles = 0.0
        for name in names:
            old, new = before.get(name), after[name]
            packets += _passed(new) - (_passed(old) if old else 0)
            cycles += _cycles(new) - (_cycles(old) if old else 0.0)
        per = cycles / packets if packets else None
        made.append({"element": wanted, "names": names, "packets": int(packets), "cycles_per_packet": per})
    return made


def stage(name: str, kind: str) -> str | None:
    """Which of the five an element belongs to; the queues of ports are named `PORT.rx0`, `PORT.tx`."""
    queue = name.rpartition(".")[2]
    if queue.startswith(("rx", "tx")) and "." in name:
        return queue[:2].upper()
    return STAGES.get(kind)


def _passed(one: Mapping[str, Any]) -> int:
    return int(max(one["packets_in"], one["packets_out"]))


def _cycles(one: Mapping[str, Any]) -> float:
    return float(one["cycles_per_packet"]) * _passed(one)


def drops(counts: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Everything that was dropped since the start, by element and reason."""
    return [
        {"element": name, "reason": reason, "packets": int(count)}
        for name, one in counts.items()
        for reason, count in one["drops"].items()
        if count
    ]
