"""Prometheus metrics: served while a run lasts, or written as a text file at its end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from netdyno import escape, files
from netdyno.core import models, wire
from netdyno.core.result import Result
from netdyno.core.wire import Counts
from netdyno.errors import Error
from netdyno.experiment.view import NullView, Plan

BOUNDS = tuple(round(step * 10.0**decade, 9) for decade in range(-5, 3) for step in (1, 2.5, 5))[:22]
"""Upper bounds of the buckets of delays, seconds: 10 µs to 100 s, as the core counts them."""


class Delays(Collector):
    """Delays as histograms: the buckets of the core, added up."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def add(self, labels: tuple[str, ...], values: dict[str, Any]) -> None:
        """Add what one interval measured: `count`, `mean` in ns, `buckets` of (upper bound in ns, count)."""
        counts = self._counts.setdefault(labels, [0] * (len(BOUNDS) + 1))
        within = 0
        for bound, count in values.get("buckets") or ():
            counts[bisect_left(BOUNDS, bound / 1e9 * (1 - 1e-9))] += int(count)
            within += int(count)
        counts[-1] += int(values.get("count", 0)) - within
        total = values.get("count", 0) * values.get("mean", 0) / 1e9
        self._sums[labels] = self._sums.get(labels, 0.0) + total

    def collect(self) -> Iterator[Metric]:
        """The histograms, each bucket with those below it."""
        found = Metric("netdyno_delay_seconds", "Delay from the intended send time", "histogram")
        for (leg, group, delay), counts in list(self._counts.items()):
            labels = {"leg": leg, "group": group, "delay": delay}
            total = 0
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
                total += count
                found.add_sample("netdyno_delay_seconds_bucket", labels | {"le": bound}, total)
            found.add_sample("netdyno_delay_seconds_count", labels, total)
            found.add_sample("netdyno_delay_seconds_sum", labels, self._sums[leg, group, delay])
        yield found


class RunLabels(Collector):
    """Adds the label of the run to the metrics of a registry."""

    def __init__(self, inner: CollectorRegistry) -> None:
        self.run = ""
        self._inner = inner

    def collect(self) -> Iterator[Metric]:
        """All of them, labelled."""
        for metric in self._inner.collect():
            metric.samples = [self._labelled(one) for one in metric.samples]
            yield metric

    def _labelled(self, one: Sample) -> Sample:
        return one._replace(labels=one.labels | {"run": self.run}) if self.run else one


PERCENTILES = (("50", "p50"), ("90", "p90"), ("95", "p95"), ("99", "p99"), ("99.9", "p999"))


class Exporter(NullView):
    """A view that keeps the metrics of a run."""

    def __init__(self) -> None:
        self.served = False
        self._registry = CollectorRegistry()
        self._run = RunLabels(self._registry)
        self.registry = CollectorRegistry()
        self.registry.register(self._run)
        self._delays = Delays()
        self._registry.register(self._delays)
        labels = ["leg", "group"]
        self._labels = labels
        self._counts = {
            one.name: Counter(f"netdyno_{one.name}", _help(one), labels, registry=self._registry)
            for one in models.catalogue().counters
        }
        self._own: dict[tuple[str, str], Counter] = {}
        self._index: dict[tuple[str, str], Gauge] = {}
        self._models: dict[str, wire.ModelDescription] = {}
        self._failures = Counter(
            "netdyno_failures", "Failures by kind", [*labels, "kind"], registry=self._registry
        )
        self._delay = Gauge(
            "netdyno_delay_interval_seconds", "Percentiles of the delay in the last interval",
            [*labels, "delay", "percentile"],
            registry=self._registry,
        )  # fmt: skip
        self._devices = Gauge("netdyno_devices_active", "Devices at work", labels, registry=self._registry)
        self._worker = Gauge(
            "netdyno_worker_cpu_ratio", "CPU of a worker", ["leg", "worker", "state"], registry=self._registry
        )
        self._dut = Gauge(
            "netdyno_dut_cpu_cores", "CPU of a device under test", ["leg", "dut"], registry=self._registry
        )
        self._verdict = Gauge(
            "netdyno_verdict", "1 for the verdict there is, once there is one", ["verdict"],
            registry=self._registry,
        )  # fmt: skip
        self._waiting = Gauge(
            "netdyno_devices_waiting", "Devices that wait for an answer longer than their limit", labels,
            registry=self._registry,
        )  # fmt: skip
        self._known: dict[str, Gauge] = {}
        """Of the result, once there is one."""
        self._leg = ""

    def serve(self, address: str) -> None:
        """Answer on `ADDRESS:PORT` or `:PORT` until the process ends."""
        serve(address, self.registry)
        self.served = True

    def start(self, plan: Plan) -> None:
        """A trial begins."""
        self._leg = escape.visible(plan.get("leg", ""))
        self._run.run = escape.visible(plan.get("id", ""))
        groups = plan.get("groups", [])
        self._models = {str(g.get("name")): models.find(str(g.get("protocol"))) for g in groups}
        # there from the beginning, as those of every group are
        for model in self._models.values():
            for counter in model.counters:
                name = f"netdyno_{model.name}_{counter.name}"
                if (model.name, counter.name) not in self._own:
                    made = Counter(name, _help(counter), self._labels, registry=self._registry)
                    self._own[model.name, counter.name] = made
            for index in model.indices:
                name = f"netdyno_{model.name}_{index.name}_{index.unit}"
                if (model.name, index.name) not in self._index:
                    text = f"{index.about} In the last interval"
                    made_index = Gauge(name, text, self._labels, registry=self._registry)
                    self._index[model.name, index.name] = made_index

    def _model(self, name: str, labels: tuple[str, str], counts: dict[str, Any]) -> None:
        """What the group's model counts of its own, and what follows from it."""
        model = self._models.get(name)
        if model is None:
            return
        for counter in model.counters:
            self._own[model.name, counter.name].labels(*labels).inc(counts.get(counter.name, 0))
        for index in model.indices:
            value = index.of(Counts.model_validate(counts))
            if value is not None:
                self._index[model.name, index.name].labels(*labels).set(value)

    def sample(self, sample: dict[str, Any]) -> None:
        """Add a point of the series."""
        for name, group in sample.get("groups", {}).items():
            labels = (self._leg, escape.visible(name))
            counts = group.get("counts", {})
            for counter, metric in self._counts.items():
                metric.labels(*labels).inc(counts.get(counter, 0))
            self._model(name, labels, counts)
            for kind, count in counts.get("failures", {}).items():
                self._failures.labels(*labels, escape.visible(kind)).inc(count)
            self._devices.labels(*labels).set(group.get("devices_active", 0))
            if group.get("waiting") is not None:
                self._waiting.labels(*labels).set(group["waiting"])
            for delay, values in group.get("delays", {}).items():
                named = (*labels, escape.visible(delay))
                self._delays.add(named, values)
                for percent, key in PERCENTILES:
                    self._delay.labels(*named, percent).set(values.get(key, 0) / 1e9)
        for worker in sample.get("workers", []):
            for state in ("cpu", "starved"):
                self._worker.labels(self._leg, str(worker.get("worker")), state).set(worker.get(state, 0))

    def dut(self, name: str, cpu: float) -> None:
        """CPU of a device under test."""
        self._dut.labels(self._leg, escape.visible(name)).set(cpu)

    def result(self, result: Result) -> None:
        """The verdict."""
        self._run.run = escape.visible(result.id)
        # before there is a result nobody knows
        known = (
            ("netdyno_valid", "Whether the measurement is valid", result.valid),
            ("netdyno_passed", "1 for the verdict pass, 0 for fail and no verdict", result.verdict == "pass"),
        )
        for name, about, value in known:
            if name not in self._known:
                self._known[name] = Gauge(name, about, registry=self._registry)
            self._known[name].set(value)
        for word in ("pass", "fail", "none"):
            self._verdict.labels(word).set(result.verdict == word)

    def text(self) -> str:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry).decode()

    def write(self, path: Path) -> None:
        """Write them to a file, as node_exporter's textfile collector reads them."""
        files.write(path, self.text(), shared=True)


def serve(address: str, registry: CollectorRegistry) -> None:
    """Answer with these metrics on `ADDRESS:PORT` or `:PORT` until the process ends."""
    host, _, port = address.rpartition(":")
    try:
        start_http_server(int(port), addr=host.strip("[]") or "127.0.0.1", registry=registry)
    except OSError as e:
        what = f"metrics cannot be served: {e.strerror}"
        raise Error("ND-92-24", what, at=address, fix="Choose another port") from e
    except (ValueError, OverflowError) as e:
        what = f"{address!r} is not ADDRESS:PORT or a file"
        raise Error("ND-104-22", what, at="--prometheus", fix="A port is 1 to 65535") from e


def _help(counter: wire.Counter) -> str:
    """Its meaning and unit, as `# HELP` has it."""
    return f"{counter.about} Unit: {counter.unit}"


def is_address(text: str) -> bool:
    """Whether `--prometheus` names an address and not a file."""
    return text.rpartition(":")[2].isdigit() and ":" in text
