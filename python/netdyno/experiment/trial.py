"""One trial: topology, devices under test and daemon fresh, the run, and everything taken away again."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from netdyno import paths
from netdyno.core import defaults, models, redaction, secret
from netdyno.core.client import Client, Subscription
from netdyno.core.daemon import Daemon
from netdyno.core.result import CaptureReport, CpuPoint, DutReport, LinkReport, Repetition
from netdyno.core.wire import PhaseLengths, Reason, SeriesPoint, TrialResult, Validity
from netdyno.errors import Error
from netdyno.experiment import ports
from netdyno.experiment.abort import EarlyFailure
from netdyno.experiment.dut_pauses import DutPauses
from netdyno.experiment.measurer import Action, Core, Load, TrialContext, TrialOutcome
from netdyno.experiment.spec import Variant, bind_targets, table
from netdyno.experiment.view import plain
from netdyno.experiment.witness import witnesses
from netdyno.lab import impairment
from netdyno.lab.counters import parse_cpu
from netdyno.lab.dut import DRIVERS, Dut, DutSite
from netdyno.lab.links import UNASKED
from netdyno.lab.network import Network
from netdyno.system import environment
from netdyno.units import bound, seconds


class DaemonMeasurer:
    """Measures loads by our daemon, in a topology that is made for each trial."""

    def measure(self, asked: Load, seed: int) -> TrialOutcome:
        """One trial. Chance of the load is the profile's own; losses of impaired links and ports follow from
        the seed, so that repetitions are independent, unless a link or the profile names a seed."""
        return TrialRun(asked.variant, asked.context, seed).run()


class TrialRun:
    """A run of one trial of a variant."""

    def __init__(self, variant: Variant, context: TrialContext, seed: int) -> None:
        self.seed = seed
        self.variant = variant
        self.leg = variant.leg
        self.around = context
        self.duts: dict[str, Dut] = {}
        self.reports: dict[str, DutReport] = {}
        self.bound: dict[str, tuple[str, str | None]] = {}
        self.series: list[dict[str, Any]] = []
        self.outcome = TrialOutcome()
        self._cpu: dict[str, tuple[float, float]] = {}
        self._began = 0.0
        self._captured: CaptureReport | None = None
        self._ticks: Mapping[str, float] = {}
        self._network: Network | None = None
        self._daemon: Daemon | None = None
        self._pauses = DutPauses({}, {"warmup": 0.0, "measure": 0.0})
        self._late: list[Reason] = []
        self._done: list[tuple[Action, float, float]] = []
        """Actions, when they began and when they ended, in seconds after the load began."""
        self._hosts = list(self.leg.topology.hosts) if self.leg.topology else []
        self._rounds = itertools.cycle(self._hosts)

    def run(self) -> TrialOutcome:
        """Run it. Errors are in the outcome, beside what was measured until then."""
        interrupts = self.around.interrupts
        stack = ExitStack()
        try:
            self._run(stack)
        except Error as e:
            self.outcome.error = e
        finally:
            with interrupts.shielded():
                self._down(stack)
        return self.outcome

    def _down(self, stack: ExitStack) -> None:
        try:
            stack.close()
        except Error as e:
            if self.outcome.error:
                self.around.live.log(str(e))
            else:
                self.outcome.error = e

    def _run(self, stack: ExitStack) -> None:
        leg, around = self.leg, self.around
        network: Network | None = None
        if leg.topology:
            log = around.folder / "links.jsonl"
            network = self._network = Network(leg.topology, around.token, log=log, seed=self.seed)
            network.up()
            stack.callback(network.down)
        for name, spec in leg.duts.items():
            dut = DRIVERS[spec.driver](self._site(name, network), spec.options)
            stack.callback(dut.teardown)
            dut.setup()
            self.duts[name] = dut
            version = dut.version()
            host = spec.host or ""
            self.reports[name] = DutReport(driver=spec.driver, version=version, host=host)
            self.outcome.versions[spec.driver] = version
        self._environment(network)
        urls = {name: dut.urls() for name, dut in self.duts.items()}
        self.bound = {name: (url, dut) for name, url, dut in bind_targets(leg, self.variant.profile, urls)}
        generator = leg.topology.generator if leg.topology else None
        namespace = network.namespace(generator) if network and generator else None
        client: Core
        if around.connect:
            client = around.connect(around.live.log)
            models.learn(client.call("core.describe"))
            daemon = None
        elif around.socket:
            client = Client(around.socket)
            # one that ran before may be of another version
            models.learn(client.call("core.describe"))
            daemon = None
        else:
            socket = paths.runtime() / f"nd-{around.token}.sock"
            confined = around.folder if around.confined else None
            log = around.folder / "log.jsonl"
            self._daemon = daemon = Daemon(socket, log, namespace=namespace, confined=confined)
            stack.callback(daemon.stop)
            client = daemon.connect()
        stack.callback(client.close)
        try:
            self._measure(client)
        except Error as e:
            self._partial(e)
            # the daemon's own end explains the lost connection better
            if daemon and e.code == "ND-91-21":
                daemon.process.wait(1.0)
                daemon.check()
            raise

    def _seeded(self, profile: dict[str, Any]) -> dict[str, Any]:
        """With a seed of this trial where impaired ports draw losses and the profile names none."""
        if "seed" in profile or not _names(profile.get("transport"), "impair"):
            return profile
        return profile | {"seed": impairment.draws(self.seed)}

    def _site(self, name: str, network: Network | None) -> DutSite:
        spec = self.leg.duts[name]
        log = self.around.folder / f"dut-{name}.log"
        if network is None or spec.host is None:
            return DutSite(name, "127.0.0.1", cores=spec.cores, log=log)
        address = network.address(spec.host) if DRIVERS[spec.driver].reached else ""
        return DutSite(name, address, network.namespace(spec.host), spec.cores, log)

    def _environment(self, network: Network | None) -> None:
        if network:
            for host in network.topology.hosts:
                for end in network.topology.ends(host):
                    about = environment.interface(network.namespace(host), end.name)
                    self.outcome.interfaces.append({"host": host, **about})

    def _measure(self, client: Core) -> None:
        around, profile = self.around, self.variant.profile
        client.acquire()
        targets = {name: url for name, (url, _) in self.bound.items()}
        trial = self.leg.trial.model_dump(exclude_none=True)
        attached = {name: dut.attached() for name, dut in self.duts.items()}
        whole, named = secret.resolved(ports.attach(self._seeded(profile), attached))
        if named:
            trial["secrets"] = named
        if self._daemon:
            # one that ran before puts back by itself what its ports change
            self._daemon.opens(table(table(whole.get("transport")).get("dpdk")).get("ports") or [])
        loaded = client.call(
            "run.load", profile=whole, targets=targets or None, trial=trial or None, timeout=60.0
        )
        self._announce(loaded["groups"], str(client.address))
        events = client.subscribe()
        capture = profile.get("capture")
        if capture is not None and around.capture:
            client.call("capture.start", path=_capture(client, around), **capture)
            self.outcome.captured = True
            if places := self._in_the_open():
                around.live.log(f"the capture will hold secrets as they are: {', '.join(places)}")
        # each driver waits for its own counters to settle: all at once
        self._counters("counters_before")
        for name, dut in self.duts.items():
            self._cpu[name] = (time.monotonic(), dut.cpu())
        self._pauses = DutPauses(self.duts, self.around.plan["phases"])
        self._pauses.begin()
        self._ticks = _ticks()
        client.call("run.start")
        self._began = time.monotonic()
        with around.interrupts.asking():
            failure = self._watch(client, events)
        if self.outcome.captured:
            with contextlib.suppress(Error):
                self._captured = CaptureReport.model_validate(client.call("capture.stop"))
                self._captured.secrets = self._in_the_open()
        with around.interrupts.shielded():
            self._collect(client, failure)
            self._judge_capture()

    def _in_the_open(self) -> list[str]:
        """Places of secrets that go over the network as they are."""
        profile = self.variant.profile
        bound = {name: url for name, (url, _) in self.bound.items()}
        return secret.in_the_open(profile | {"targets": {**table(profile.get("targets")), **bound}})

    def _judge_capture(self) -> None:
        """Say when the capture has not everything that passed."""
        about = self._captured
        if about is None:
            return
        if about.state == "failed":
            what = f"the capture ended after {about.packets} packets: {about.error}"
            fix = "Make room there, or set a smaller capture.limit"
            raise Error("ND-92-09", what, at=about.path, fix=fix)
        if about.state == "full":
            self.around.live.log(f"the capture is full: its limit came after {about.packets} packets")
        if about.dropped:
            self.around.live.log(f"the capture lacks {about.dropped} packets: there was no time to take them")

    def _announce(self, groups: list[dict[str, Any]], daemon: str) -> None:
        profile, plan = self.variant.profile, self.around.plan
        phases = defaults.filled(profile, "phases")
        phases |= self.leg.trial.model_dump(exclude_none=True, exclude={"load"})
        lengths = {name: seconds(phases[name]) for name in ("warmup", "measure", "drain")}
        limits = defaults.filled(profile, "validity")
        plan["groups"] = groups
        plan["daemon"] = daemon
        plan["links"] = self._network.impaired_links() if self._network else None
        plan["description"] = str(profile.get("description") or "")
        plan["phases"] = lengths
        plan["duration"] = sum(lengths.values())
        plan["target"] = ", ".join(dict.fromkeys(str(group["target"]) for group in groups))
        plan["thresholds"] = list(profile.get("thresholds") or [])
        plan["lateness_p99"] = bound(limits["lateness_p99"])
        plan["offered"], plan["starved"] = float(limits["offered"]), float(limits["starved"])
        self.around.live.start(plan)

    def _watch(self, client: Core, events: Subscription) -> Error | None:
        """Until the run is over; asks it to stop on an interrupt or when a DUT ends."""
        live, interrupts = self.around.live, self.around.interrupts
        failure: Error | None = None
        asked = False
        # its ports may share memory with a DUT: when that dies, the core is about to say which went with it
        grace = 1.0 if "dpdk" in (self.variant.profile.get("transport") or {}) else 0.0
        stop_at = math.inf
        actions = list(self.around.actions)
        plan = self.around.plan
        limits = plan.get("thresholds", []) if self.around.abort_on_fail else []
        early = EarlyFailure(
            limits, plan["phases"]["measure"], plan.get("repetitions", 1), _connecting(plan.get("groups", ()))
        )
        while True:
            event = events.next(0.2 if not actions else 0.02)
            if actions and time.monotonic() - self._began >= actions[0].after:
                action = actions.pop(0)
                begins = time.monotonic() - self._began
                action.do(self.duts[action.dut])
                self._done.append((action, begins, time.monotonic() - self._began))
                self._check_deadline(action)
            if event and event.sample:
                if self._daemon and not self.series:
                    self._daemon.opened()
                self.series.append(event.sample)
                self.around.each(event.sample)
                self._pauses.sample(event.sample)
                self._cpu_point(float(event.sample["t"]))
                live.sample(event.sample)
                if limits and not asked and (metric := early.sample(event.sample)):
                    live.log(f"aborted: threshold on {metric} has failed for good")
                    self.around.aborted = metric
                    client.call("run.stop")
                    asked = True
            elif event and event.status:
                live.state(plain(event.status))
                if event.status.ended:
                    if failure is None:
                        # a process that is killed gives up memory shared with a port before it counts as dead
                        failure = self._death(grace if event.status.error else 0.0)
                    for action in actions:
                        self._check_deadline(action)
                    self._check_steady()
                    return failure or self._vanished(self._hosts)
            if interrupts.count and not asked:
                live.log("interrupted: stopping and keeping what was measured; once more to stop at once")
                client.call("run.stop")
                asked = True
            if failure is None and (failure := self._death()):
                stop_at = time.monotonic() + grace
            if time.monotonic() >= stop_at and not asked:
                client.call("run.stop")
                asked = True
            if failure is None and (failure := self._lost_link()):
                live.log(str(failure))
                client.call("run.stop")
                asked = True

    def _death(self, within: float = 0.0) -> Error | None:
        """Of the first DUT that is not alive, if any, or that dies within so many seconds; it is told."""
        last = time.monotonic() + within
        while (died := next((name for name, dut in self.duts.items() if not dut.alive()), None)) is None:
            if not self.duts or time.monotonic() >= last:
                return None
            time.sleep(0.01)
        words = self.reports[died].died = self.duts[died].death()
        failure = Error("ND-91-23", words, at=died, fix="What was measured until then is kept")
        self.around.live.log(str(failure))
        return failure

    def _check_deadline(self, action: Action) -> None:
        """An action that a busy machine delays past its deadline makes the trial invalid."""
        ended = time.monotonic() - self._began
        if ended > action.deadline:
            what = f"the action on {action.dut} ended after the measurement window"
            self._late.append(Reason(code="ND-90-22", what=what, value=ended, limit=action.deadline))

    def _check_steady(self) -> None:
        """A generator that paused during an action makes the trial invalid: nothing was there to be lost."""
        for action, begins, ends in self._done:
            limit = action.steady * (ends - begins) * 1e9
            points = [SeriesPoint.model_validate(one) for one in self.series]
            # what is sent late is told when it is sent: it counts if it may have been due during the action
            late = max(
                (
                    group.lateness.max
                    for one in points
                    for group in one.groups.values()
                    if begins < one.t < ends + one.dt + group.lateness.max / 1e9
                ),
                default=0.0,
            )
            if late > limit:
                what = f"generator lateness {late / 1e6:.3g} ms during the action on {action.dut}"
                self._late.append(Reason(code="ND-90-02", what=what, value=late / 1e9, limit=limit / 1e9))

    def _lost_link(self) -> Error | None:
        """Why a link carries nothing any more, if one does not."""
        if self._network is None:
            return None
        try:
            for _ in self._network.impaired():
                pass
        except Error as e:
            return e
        # one host a call, one after the other: this is asked while load is on
        return self._vanished(itertools.islice(self._rounds, 1))

    def _vanished(self, hosts: Iterable[str]) -> Error | None:
        """That a cable is gone; ports of DPDK and impaired links say so themselves."""
        if self._network is None or "dpdk" in (self.variant.profile.get("transport") or {}):
            return None
        what = self._network.missing_part(hosts)
        fix = "Something outside netdyno took it away; what was measured until then is kept"
        return Error("ND-91-27", f"{what} is gone", fix=fix) if what else None

    def _cpu_point(self, t: float) -> None:
        now = time.monotonic()
        for name, dut in self.duts.items():
            if not dut.alive():
                continue
            then, before = self._cpu[name]
            used = dut.cpu()
            share = max(0.0, used - before) / (now - then) if now > then else 0.0
            self._cpu[name] = (now, used)
            self.reports[name].cpu_series.append(CpuPoint(t=t, cpu=round(share, 4)))
            self.around.live.dut(name, share)

    def _counters(self, when: str) -> None:
        def read(name: str, dut: Dut) -> None:
            try:
                setattr(self.reports[name], when, dut.counters())
            except (OSError, Error, ValueError) as e:
                self.around.live.log(f"{name}: its counters cannot be read: {e}")

        alive = [(name, dut) for name, dut in self.duts.items() if dut.alive()]
        readers = [threading.Thread(target=read, args=one) for one in alive]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()

    def _collect(self, client: Core, failure: Error | None) -> None:
        status = client.status()
        if status.state == "failed":
            known = status.error if isinstance(status.error, Mapping) else {"what": status.error}
            failure = failure or Error.of(known)
            try:
                trial = client.result()
            except Error:
                raise failure from None
        else:
            trial = client.result()
        self.outcome.flows = list(client.flows())
        with contextlib.suppress(Error):
            client.release()
        self._counters("counters_after")
        self._pauses.tell(self.reports)
        self._keep(trial)
        if failure:
            raise failure
        if trial.error:
            raise Error.of(trial.error)
        if trial.stopped == "lease":
            what = "the run stopped because the daemon heard nothing from us for 3 s"
            raise Error("ND-91-22", what, fix="The machine may be overloaded")

    def _keep(self, trial: TrialResult) -> None:
        repetition = Repetition.model_validate(trial.model_dump() | {"dut": self.reports})
        repetition.profile = secret.storable(trial.profile, self.variant.profile)
        for group in repetition.groups:
            for failure in group.errors:
                failure.example = failure.example and redaction.hide(failure.example)
        repetition.capture = self._captured
        repetition.steal = _steal(self._ticks, _ticks())
        repetition.witnesses = witnesses(trial, self.duts, self.reports, self._reached())
        repetition.validity.reasons += self._late
        repetition.validity.valid &= not self._late
        self._keep_links(repetition)
        self.outcome.repetition = repetition

    def _keep_links(self, repetition: Repetition) -> None:
        """What impaired links did; what nobody asked them to do makes the trial invalid."""
        with contextlib.suppress(Error):
            for link, stats in self._network.impaired() if self._network else ():
                ends = [f"{end.host}.{end.name}" for end in (link.a, link.b)]
                ways = {way: stats[way] for way in ("a_to_b", "b_to_a")}
                seed = self._network.seed_of(link) if self._network else None
                repetition.links.append(LinkReport(a=ends[0], b=ends[1], seed=seed, **ways))
                unasked = sum(int(way[key]) for way in ways.values() for key in UNASKED)
                if unasked:
                    what = f"the link {ends[0]} – {ends[1]} had no room for some packets"
                    repetition.validity.reasons.append(
                        Reason(code="ND-90-21", what=what, value=unasked, limit=0)
                    )
                    repetition.validity.valid = False

    def _reached(self) -> dict[str, str]:
        """Which DUT each group's load reaches."""
        found: dict[str, str] = {}
        for group in self.variant.profile.get("groups") or []:
            dut = self.bound.get(str(group.get("target")), ("", None))[1]
            if dut:
                found[str(group["name"])] = dut
        return found

    def _partial(self, error: Error) -> None:
        """The daemon is gone or does not answer: what its samples told is what is left."""
        if self.outcome.repetition is not None or not self.series:
            return
        what = f"the run was lost: {error.what}"
        samples = [SeriesPoint.model_validate(one) for one in self.series]
        last = samples[-1]
        trial = TrialResult(
            run=self.around.token,
            profile=self.variant.profile,
            transport=str(self.around.plan.get("transport", "sockets")),
            phases=PhaseLengths(measure=sum(s.dt for s in samples if s.phase == "measure")),
            stopped="failed",
            error=error.as_dict(),
            validity=Validity(
                valid=False,
                reasons=[
                    Reason(code="ND-90-05", what=what, value=last.elapsed, limit=last.elapsed + last.left)
                ],
            ),
            series=samples,
        )
        self._keep(trial)


def _names(node: Any, key: str) -> bool:
    """Whether a document has this key anywhere."""
    if isinstance(node, Mapping):
        return key in node or any(_names(one, key) for one in node.values())
    return isinstance(node, list) and any(_names(one, key) for one in node)


def _ticks() -> Mapping[str, float]:
    """What the kernel counted of all processors so far."""
    with contextlib.suppress(OSError):
        return parse_cpu(Path("/proc/stat").read_text(encoding="ascii", errors="replace"))
    return {}


def _steal(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    whole = after.get("cpu.all", 0.0) - before.get("cpu.all", 0.0)
    if not before or whole <= 0:
        return None
    return round(max(0.0, after["cpu.steal"] - before["cpu.steal"]) / whole, 6)


def _capture(client: Core, context: TrialContext) -> str:
    """Where the core writes the capture: beside the result, or on its own machine in its folder for files."""
    assert context.capture is not None
    if context.confined and not context.connect:
        # the daemon's folder for files is that of the run
        return context.capture.name
    if not client.address.remote:
        return str(context.capture.absolute())
    name = f"{context.folder.name}-{context.capture.name}"
    context.live.log(f"the capture stays with the daemon at {client.address}, as {name}")
    return name


def _connecting(groups: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Groups whose devices have connections."""
    connecting = {scheme.name for scheme in models.schemes() if scheme.connects}
    return frozenset(str(one["name"]) for one in groups if str(one["target"]).partition(":")[0] in connecting)
