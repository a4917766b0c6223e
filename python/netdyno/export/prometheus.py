"""Prometheus metrics: served while a run lasts, or written as a text file at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest, start_http_server

from netdyno import escape, files
from netdyno.core import models
from netdyno.core.model import Counts
from netdyno.core.result import Result
from netdyno.errors import Error
from netdyno.experiment.view import Plan, Silent


class Exporter(Silent):
    """A view that keeps the metrics of a run."""

    def __init__(self) -> None:
        self.served = False
        self.registry = CollectorRegistry()
        labels = ["leg", "group"]
        self._labels = labels
        self._counts = {
            one.name: Counter(f"netdyno_{one.name}", _help(one), labels, registry=self.registry)
            for one in models.catalogue().counters
        }
        self._own: dict[tuple[str, str], Counter] = {}
        self._index: dict[tuple[str, str], Gauge] = {}
        self._models: dict[str, models.Description] = {}
        self._failures = Counter(
            "netdyno_failures", "Failures by kind", [*labels, "kind"], registry=self.registry
        )
        self._delay = Gauge(
            "netdyno_delay_seconds", "Delay in the last interval", [*labels, "delay", "quantile"],
            registry=self.registry,
        )  # fmt: skip
        self._devices = Gauge("netdyno_devices_active", "Devices at work", labels, registry=self.registry)
        self._worker = Gauge(
            "netdyno_worker_cpu_ratio", "CPU of a worker", ["leg", "worker", "state"], registry=self.registry
        )
        self._dut = Gauge(
            "netdyno_dut_cpu_cores", "CPU of a device under test", ["leg", "dut"], registry=self.registry
        )
        self._valid = Gauge("netdyno_valid", "Whether the measurement is valid", registry=self.registry)
        self._passed = Gauge(
            "netdyno_passed", "1 for the verdict pass, 0 for fail and for no verdict", registry=self.registry
        )
        self._verdict = Gauge(
            "netdyno_verdict", "1 for the verdict there is, once there is one", ["verdict"],
            registry=self.registry,
        )  # fmt: skip
        self._waiting = Gauge(
            "netdyno_devices_waiting", "Devices that wait for an answer longer than their limit", labels,
            registry=self.registry,
        )  # fmt: skip
        self._leg = ""

    def serve(self, address: str) -> None:
        """Answer on `ADDRESS:PORT` or `:PORT` until the process ends."""
        serve(address, self.registry)
        self.served = True

    def start(self, plan: Plan) -> None:
        """A trial begins."""
        self._leg = escape.visible(plan.get("leg", ""))
        groups = plan.get("groups", [])
        self._models = {str(g.get("name")): models.find(str(g.get("protocol"))) for g in groups}
        # there from the beginning, as those of every group are
        for model in self._models.values():
            for counter in model.counters:
                name = f"netdyno_{model.name}_{counter.name}"
                if (model.name, counter.name) not in self._own:
                    made = Counter(name, _help(counter), self._labels, registry=self.registry)
                    self._own[model.name, counter.name] = made
            for index in model.indices:
                name = f"netdyno_{model.name}_{index.name}_{index.unit}"
                if (model.name, index.name) not in self._index:
                    text = f"{index.about} In the last interval"
                    made_index = Gauge(name, text, self._labels, registry=self.registry)
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
                for quantile, key in (("0.5", "p50"), ("0.9", "p90"), ("0.99", "p99"), ("0.999", "p999")):
                    self._delay.labels(*labels, escape.visible(delay), quantile).set(values.get(key, 0) / 1e9)
        for worker in sample.get("workers", []):
            for state in ("cpu", "starved"):
                self._worker.labels(self._leg, str(worker.get("worker")), state).set(worker.get(state, 0))

    def dut(self, name: str, cpu: float) -> None:
        """CPU of a device under test."""
        self._dut.labels(self._leg, escape.visible(name)).set(cpu)

    def result(self, result: Result) -> None:
        """The verdict."""
        self._valid.set(result.valid)
        self._passed.set(result.verdict == "pass")
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


def _help(counter: models.Counter) -> str:
    """Its meaning and unit, as `# HELP` has it."""
    return f"{counter.about} Unit: {counter.unit}"


def is_address(text: str) -> bool:
    """Whether `--prometheus` names an address and not a file."""
    return text.rpartition(":")[2].isdigit() and ":" in text
