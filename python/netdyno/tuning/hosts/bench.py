"""A host of a fleet as what measures settings: its kernel has the setting, its agent generates the load."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass

from netdyno.core import models
from netdyno.core.client import Subscription
from netdyno.core.wire import TrialResult
from netdyno.errors import Error
from netdyno.experiment.measurer import Core, FleetHost
from netdyno.stats.observation import Metric, Observation, Setting
from netdyno.system.interrupt import Interrupts, interrupted
from netdyno.tuning.hosts.kernel import HostKernel
from netdyno.tuning.hosts.load import HostLoad


@dataclass
class HostBench:
    """Measures settings on one host."""

    host: FleetHost
    kernel: HostKernel
    load: HostLoad
    allow_global: bool
    interrupts: Interrupts
    log: Callable[[str], None] = lambda _: None

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Those of the load."""
        return self.load.metrics

    def measure(self, setting: Setting, seed: int) -> Observation:
        """One trial: the setting in force, load, the setting put back. Raises where the host is lost."""
        stack = ExitStack()
        try:
            return self._measure(stack, setting, seed)
        finally:
            with self.interrupts.shielded():
                stack.close()

    def _measure(self, stack: ExitStack, setting: Setting, seed: int) -> Observation:
        started = time.time()
        # sockets are opened with the setting in force
        stack.enter_context(self.kernel.applied(setting, self.allow_global))
        core = self.host.connect(self.log)
        stack.callback(core.close)
        models.learn(core.call("core.describe"))
        core.acquire()
        profile, trial = self.load.run(seed)
        core.call("run.load", profile=profile, trial=trial or None, timeout=60.0)
        events = core.subscribe()
        sampler = self.kernel.sampler()
        begin = time.monotonic()
        with sampler or nullcontext():
            core.call("run.start")
            with self.interrupts.asking():
                self._watch(core, events)
            counters = sampler.stop() if sampler else {}
        result = core.result()
        core.release()
        why = _wrong(result)
        return Observation(
            setting, self.load.values(result), counters, not why, why, started, time.monotonic() - begin
        )

    def _watch(self, core: Core, events: Subscription) -> None:
        """Until the run is over."""
        while True:
            event = events.next(0.2)
            if self.interrupts.count:
                core.call("run.stop")
                raise interrupted()
            if event and event.status and event.status.ended:
                if event.status.state == "failed":
                    known = event.status.error
                    raise Error.of(known if isinstance(known, Mapping) else {"what": known})
                return


def _wrong(result: TrialResult) -> str:
    """Why a trial does not count, if it does not."""
    if result.stopped:
        return f"the run ended early: {result.stopped}"
    return "; ".join(one.what or one.code for one in result.validity.reasons)
