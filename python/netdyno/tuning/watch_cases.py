"""Known cases under watch: `tune watch` fixes what binds while the load goes on, and leaves controls alone.

The load of a case runs again and again, with its limit in force. A case is fixed once its checks hold
between the trial before the watch began and one after, and with the next one too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from netdyno.errors import INTERRUPTED, Error
from netdyno.stats.observation import Observation, Value
from netdyno.system import sysctl
from netdyno.system.journal import journal
from netdyno.tuning.bench import RunningBench, start_bench
from netdyno.tuning.cases import MISSING, Case, evaluate, missing_requirement
from netdyno.tuning.watch import Revert, Set, rules
from netdyno.tuning.watch_run import Logged, NamespaceWatch, words

PROMISED = 10.0
"""Seconds within which what binds is fixed."""
LIMIT, TRIALS = 40.0, 12
"""Seconds and trials after both of which a case is given up: a busy machine has fewer trials in the time."""
CONTROLS = 8.0
"""Seconds for which a control is watched."""
SEED = 1
"""Of all trials: half-open connections that are begun again are the same."""
CONGESTION = "net.ipv4.tcp_congestion_control"
ALLOWED = "net.ipv4.tcp_allowed_congestion_control"

SHORT: Mapping[str, Mapping[str, Any]] = {"long-path": {"seconds": 2}, "lossy-path": {"seconds": 2}}
"""Options of loads that are shorter here, for there to be new connections."""
PLENTY: Mapping[str, Mapping[str, str]] = {
    "control-fin-timeout": {"net.ipv4.ip_local_port_range": "1024 65535"}
}
"""What clients have here, as want of it would be a limit of its own, and be fixed."""

Progress = Callable[[str], None]
Shield = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class WatchedCase:
    """How a case came out under watch."""

    name: str
    about: str
    control: bool
    status: Literal["passed", "failed", "skipped"]
    why: str = ""
    after: float | None = None
    """Seconds from the beginning of the watch to the end of the first trial that was well."""
    values: Mapping[str, Value] = field(default_factory=dict)
    """What was set, as it was last."""
    said: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def in_time(self) -> bool:
        """Whether it was as quick as is promised, which a busy machine may prevent."""
        return self.after is not None and self.after <= PROMISED

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "in_time": self.in_time}


def run(
    case: Case,
    *,
    allow_global: bool = False,
    shield: Shield = nullcontext,
    progress: Progress = lambda line: None,
) -> WatchedCase:
    """Run a case under watch, if it can be run here."""
    case = watched_variant(case)
    begin = time.monotonic()

    def outcome(status: Literal["passed", "failed", "skipped"], why: str = "", **more: Any) -> WatchedCase:
        return WatchedCase(case.name, case.about, case.control, status, why, **more)

    if why := missing_requirement(case, allow_global):
        return outcome("skipped", why)
    stack = ExitStack()
    try:
        up = start_bench(stack, case.spec, case.before, None, allow_global, journal())
        watch, after = _Watch(up.tuned, allow_global, shield, progress), None
        if case.control:
            _control(up, watch)
        else:
            after = _fix(case, up, watch)
    except Error as e:
        if e.exit_code == INTERRUPTED:
            raise
        return outcome("skipped" if e.code in MISSING else "failed", str(e), seconds=time.monotonic() - begin)
    finally:
        with shield():
            stack.close()
    why = mismatch(case, watch.values, after)
    return outcome(
        "failed" if why else "passed", why, after=after, values=watch.values, said=tuple(watch.said),
        seconds=time.monotonic() - begin,
    )  # fmt: skip


def watched_variant(case: Case) -> Case:
    """A case as it is watched: short trials, and one limit, which a namespace of its own can have lifted."""
    spec = case.spec.model_copy(
        update={
            "options": {**case.spec.options, **SHORT.get(case.name, {})},
            "client": {**case.spec.client, **PLENTY.get(case.name, {})},
        }
    )
    before = dict(case.before)
    if CONGESTION in before and "bbr" in (sysctl.read(None, ALLOWED) or "").split():
        # it may be chosen here already, and Reno in any namespace
        before[CONGESTION] = "reno"
        spec = spec.model_copy(update={"machine": {}})
    return replace(case, spec=spec, before=before)


def mismatch(case: Case, touched: Mapping[str, Value], after: float | None) -> str:
    """What is not as it must be."""
    if case.control:
        return f"it touched {', '.join(sorted(touched))}" if touched else ""
    if after is None:
        return f"it is not fixed after {LIMIT:.0f} s and {TRIALS} trials"
    missed = [name for name in case.after if name not in touched]
    return f"it is fixed by something else than {', '.join(missed)}" if missed else ""


def passes(case: Case, first: Observation, now: Observation) -> bool:
    """Whether a trial shows what the case must, beside the one before the watch."""
    return bool(now.metrics) and all(evaluate(check, [(first, now)]).held for check in case.checks)


def _fix(case: Case, up: RunningBench, watch: _Watch) -> float | None:
    """Seconds until it is fixed, None if it is not."""
    first = _trial(up)
    with watch.going():
        begin, good, trials = time.monotonic(), None, 0
        while time.monotonic() < begin + LIMIT or trials < TRIALS:
            trials += 1
            if not passes(case, first, _trial(up)):
                good = None
            elif good is not None:
                return good
            else:
                good = time.monotonic() - begin
    return None


def _control(up: RunningBench, watch: _Watch) -> None:
    """Load it for a while."""
    with watch.going():
        end = time.monotonic() + CONTROLS
        while time.monotonic() < end:
            _trial(up)


def _trial(up: RunningBench) -> Observation:
    up.sampler.start()
    try:
        seen = up.load.run(up.site, SEED)
    except Error as e:
        # a load that does not get through is one that is not well
        if e.code != "ND-91-25":
            raise
        return Observation({}, {}, up.sampler.stop(), False, str(e))
    return Observation({}, seen.metrics, {**seen.counters, **up.sampler.stop()})


class _Watch:
    """A watch beside the load, in a thread."""

    def __init__(self, where: str | None, allow_global: bool, shield: Shield, progress: Progress) -> None:
        self._where, self._global, self._shield, self._progress = where, allow_global, shield, progress
        self.values: dict[str, Value] = {}
        """What was set, as it was last."""
        self.said: list[str] = []

    @contextmanager
    def going(self) -> Iterator[None]:
        """For as long as a block lasts. At its end everything is as it was."""
        begin = time.monotonic()

        def log(action: Logged) -> None:
            if isinstance(action, (Set, Revert)):
                self.values[action.name] = action.value
            self.said.append(f"{time.monotonic() - begin:.1f} s: {words(action)}")
            self._progress(self.said[-1])

        watching = NamespaceWatch(rules(), self._where, log, allow_global=self._global)
        ended, failed = threading.Event(), list[Error | OSError]()

        def ticks() -> None:
            try:
                while not ended.wait(watching.tick()):
                    pass
            except (Error, OSError) as e:
                failed.append(e)

        thread = threading.Thread(target=ticks, daemon=True)
        thread.start()
        try:
            yield
        finally:
            with self._shield():
                ended.set()
                thread.join(30)
                watching.close()
        if failed:
            raise failed[0]
