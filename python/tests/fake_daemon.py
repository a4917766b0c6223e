"""A stand-in for `netdynod` that speaks its contract and moves no packets.

Started like the real one, so that everything above the socket is tested without it. Time runs `FAKE_SPEED`
times faster. `FAKE_DIE` names a moment at which it kills itself (`start`, `load`, `run`, `stats`, `result`),
`FAKE_INVALID=1` makes every trial invalid, `FAKE_FAIL=1` loses a tenth of the messages, `FAKE_STUBBORN=1`
does not stop when asked.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import math
import os
import signal
import socket
import socketserver
import sys
import threading
import time
from pathlib import Path
from typing import Any

from hdrh.histogram import HdrHistogram

from netdyno import paths

SYSTEMS = {
    file.stem.removeprefix("fake_"): importlib.import_module(file.stem)
    for file in sorted(Path(__file__).parent.glob("fake_*.py"))
    if file.stem != "fake_daemon"
}
"""What answers for a system, `fake_NAME.py`, by the group of its methods."""
SPEED = float(os.environ.get("FAKE_SPEED", "1"))
LEASE = 3.0
DELAYS = {
    "mqtt": ["connect", "connack", "publish", "end_to_end"],
    "http": ["connect", "response", "first_byte"],
    "ping": ["round_trip"],
    "stream": ["round_trip"],
}

TRACED = {
    "summary": "UDP 10.0.0.7:40007 > 198.51.100.9:53, 60 B", "len": 60,
    "steps": [
        {"element": "inside.rx", "at": 1000, "verdict": {"passed": "out"}},
        {
            "element": "conntrack", "at": 3000, "verdict": {"passed": "outside"},
            "became": "UDP 203.0.113.23:1031 > 198.51.100.9:53, 60 B",
        },
        {"element": "outside.tx", "at": 3500, "verdict": "consumed"},
    ],
}  # fmt: skip


def die(moment: str) -> None:
    if os.environ.get("FAKE_DIE") == moment:
        log("error", f"told to die at {moment}")
        os.kill(os.getpid(), signal.SIGKILL)


def log(level: str, message: str) -> None:
    line = {"time": time.time(), "level": level, "target": "fake", "message": message, "fields": {}}
    print(json.dumps(line), file=sys.stderr, flush=True)


def seconds(text: str) -> float:
    for unit, factor in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("min", 60.0), ("h", 3600.0), ("s", 1.0)):
        if text.endswith(unit):
            return float(text[: -len(unit)]) * factor
    raise ValueError(text)


def validate(profile: Any) -> list[dict[str, str]]:
    errors = []
    if not isinstance(profile, dict):
        return [{"code": "ND-104-04", "at": "", "what": "a profile is an object", "fix": "write {…}"}]
    known = {"$schema", "name", "description", "seed", "phases", "targets", "transport", "groups"}
    known |= {"validity", "thresholds", "capture"}
    for key in profile.keys() - known:
        errors.append({"code": "ND-104-02", "at": key, "what": f"unknown key {key}", "fix": "remove it"})
    if "name" not in profile:
        errors.append({"code": "ND-104-03", "at": "name", "what": "the key name is missing", "fix": "add it"})
    for i, group in enumerate(profile.get("groups", [])):
        if "://" not in group["target"] and group["target"] not in profile.get("targets", {}):
            what = f"no target {group['target']}"
            errors.append({"code": "ND-104-06", "at": f"groups[{i}].target", "what": what, "fix": "name one"})
    return errors


def distribution(count: int) -> dict[str, Any]:
    """What a sample tells of so many delays, 1 µs from each other."""
    values = range(100_000, 100_000 + 1000 * min(count, 1000), 1000)
    q = {name: values[math.ceil(p / 100 * len(values)) - 1] if values else 0 for name, p in QUANTILES}
    mean = (values[0] + values[-1]) / 2 if values else 0
    most = values[-1] if values else 0
    return {"count": len(values) * each(count), "min": min(values, default=0), "mean": mean, **q, "max": most}


def each(count: int) -> int:
    """How often each value of a distribution was seen."""
    return max(1, count // 1000)


def whole(count: int) -> dict[str, Any]:
    """A distribution as a result has it."""
    h = HdrHistogram(1, 600_000_000_000, 3)
    n = min(count, 1000)
    for i in range(n):
        h.record_value(100_000 + i * 1000, each(count))
    sd = 1000 * math.sqrt(max(0, n * n - 1) / 12)
    return {**distribution(count), "sd": sd, "jitter": None, "hdr": h.encode().decode()}


def graph_faults(graph: Any) -> list[dict[str, str]]:
    """What is wrong with a graph: of a pool it does not like addresses of TEST-NET-1, and devices have a name."""
    found = []
    for name, element in graph.get("elements", {}).items():
        for key in ("pool", "answers_for"):
            for i, one in enumerate(element.get(key, [])):
                if one.startswith("192.0.2."):
                    at = f"elements.{name}.{key}[{i}]"
                    found.append({"code": "ND-104-05", "at": at, "what": f"not {one}", "fix": "use others"})
    for name, port in graph["ports"].items():
        if port["device"] == "none":
            at = f"ports.{name}.device"
            found.append({"code": "ND-104-04", "at": at, "what": "no device", "fix": "name one"})
    return found


INTERFACE = (
    "rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors",
)  # fmt: skip


class Graph:
    """A graph of elements that carries nothing; where a system's elements are in it, the system answers for them."""

    def __init__(self, name: str, graph: dict[str, Any]) -> None:
        self.name, self.graph, self.began = name, graph, time.monotonic()

    def status(self) -> dict[str, Any]:
        elapsed = time.monotonic() - self.began
        return {
            "run": self.name,
            "state": "running",
            "elapsed": elapsed,
            "error": None,
            "captures": [],
            "lost": [],
        }

    def placed(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "kind": self.graph["elements"].get(name.partition("#")[0], {}).get("kind", name.rpartition(".")[2].rstrip("0123456789")), "worker": i, "core": w["core"]}
            for i, w in enumerate(self.graph.get("placement", [])) for name in w["elements"]
        ]  # fmt: skip

    def shape(self) -> dict[str, Any]:
        workers = [{"worker": i, "core": w["core"]} for i, w in enumerate(self.graph.get("placement", []))]
        edges = [
            {"from": a.partition(".out")[0], "to": b, "ring": False}
            for line in self.graph["edges"]
            for a, b in itertools.pairwise(line.split(" -> "))
        ]
        return {"run": self.name, "workers": workers, "elements": self.placed(), "edges": edges, "ports": []}

    def stats(self) -> dict[str, Any]:
        status = self.status()
        passed = {"packets_in": int(1000 * status["elapsed"]), "packets_out": int(1000 * status["elapsed"])}
        elements = [
            one | passed | {"drops": {}, "packets_per_batch": 16.0, "cycles_per_packet": 100.0}
            for one in self.placed()
        ]
        pauses = {"count": 0, "ns": 0, "longest_ns": 0, "lengths": []}
        busy = {"busy_cycles": 40, "idle_cycles": 60, "slept_ns": 0, "pauses": pauses, "long_turns": pauses}
        return {
            "status": status,
            "elements": elements,
            "bytes": {},
            "interfaces": {name: dict.fromkeys(INTERFACE, 0) for name in self.graph["ports"]},
            "workers": [one | busy for one in self.shape()["workers"]],
        }


QUANTILES = (("p50", 50), ("p90", 90), ("p99", 99), ("p999", 99.9))


class Refusal(Exception):
    def __init__(self, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Core:
    """The state that all connections share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.writer: Connection | None = None
        self.seen = 0.0
        self.subscribers: list[Connection] = []
        self.state, self.phase, self.elapsed, self.left = "idle", None, 0.0, 0.0
        self.profile: dict[str, Any] = {}
        self.series: list[dict[str, Any]] = []
        self.stopped: str | None = None
        self.capture: dict[str, Any] = {"state": "idle", "packets": 0, "bytes": 0, "dropped": 0, "path": None}
        self.stopping = threading.Event()
        self.runs = 0
        self.graphs: dict[str, Graph] = {}

    def status(self) -> dict[str, Any]:
        return {
            "run": f"r{self.runs}" if self.runs else None, "state": self.state, "phase": self.phase,
            "elapsed": self.elapsed, "left": self.left,
        }  # fmt: skip

    def tell(self, method: str, params: dict[str, Any]) -> None:
        for connection in list(self.subscribers):
            connection.send({"jsonrpc": "2.0", "method": method, "params": params})

    def become(self, state: str, phase: str | None = None) -> None:
        self.state, self.phase = state, phase
        self.tell("run.state", self.status())

    def load(self, profile: dict[str, Any], targets: dict[str, str], trial: dict[str, Any]) -> dict[str, Any]:
        die("load")
        profile = {**profile, "targets": {**profile.get("targets", {}), **targets}}
        errors = validate(profile)
        if errors:
            raise Refusal(-32002, "bad profile", {**errors[0], "all": errors})
        phases = {**{"warmup": "2s", "measure": "10s", "drain": "3s"}, **profile.get("phases", {}), **trial}
        for key in ("load", "secrets"):
            phases.pop(key, None)
        self.profile = {**profile, "phases": phases}
        self.runs += 1
        self.series, self.stopped, self.elapsed = [], None, 0.0
        self.stopping.clear()
        self.become("loaded")
        groups = [
            {"name": g["name"], "protocol": p, "target": g["target"], "devices": g.get("devices", 1),
             "delays": DELAYS.get(p, ["step"])}
            for g in profile.get("groups", []) for p in list(g["model"])[:1]
        ]  # fmt: skip
        return {"run": f"r{self.runs}", "groups": groups}

    def start(self) -> dict[str, Any]:
        if self.state != "loaded":
            raise Refusal(-32003, f"cannot start a run that is {self.state}")
        self.become("running", "warmup")
        threading.Thread(target=self.go, daemon=True).start()
        return self.status()

    def go(self) -> None:
        phases = {k: seconds(self.profile["phases"][k]) for k in ("warmup", "measure")}
        step = seconds(self.profile["phases"].get("sample", "1s"))
        total = sum(phases.values())
        while self.elapsed < total - 1e-9 and not self.stopping.is_set():
            self.stopping.wait(step / SPEED)
            if self.state == "paused":
                continue
            if time.monotonic() - self.seen > LEASE:
                self.stopped = "lease"
                break
            self.elapsed += step
            self.left = total - self.elapsed
            self.phase = "warmup" if self.elapsed <= phases["warmup"] else "measure"
            self.series.append(self.sample(step))
            self.tell("stats.sample", self.series[-1])
            if self.phase == "measure":
                die("run")
        if self.stopping.is_set() and not self.stopped:
            self.stopped = "stopped"
        self.become("draining", "drain")
        time.sleep(0.1 / SPEED)
        self.become("done")

    def counts(self, n: int) -> dict[str, Any]:
        lost = n // 10 if os.environ.get("FAKE_FAIL") else 0
        return {
            "flows_intended": n, "flows_started": n, "flows_completed": n - lost, "flows_failed": lost,
            "messages_intended": n, "messages_sent": n, "messages_delivered": n - lost,
            "messages_received": 0, "duplicates": 0, "reordered": 0, "bytes_sent": 64 * n,
            "bytes_received": 64 * n, "failures": {"timeout": lost} if lost else {},
        }  # fmt: skip

    def sample(self, step: float) -> dict[str, Any]:
        groups = {}
        for group in self.profile.get("groups", []):
            n = int(1000 * step)
            d = distribution(n)
            names = DELAYS.get(next(iter(group["model"])), ["step"])
            groups[group["name"]] = {
                "counts": self.counts(n), "devices_active": group.get("devices", 1),
                "delays": dict.fromkeys(names, d), "lateness": d,
            }  # fmt: skip
        return {
            "t": self.elapsed, "dt": step, "phase": self.phase, "elapsed": self.elapsed, "left": self.left,
            "groups": groups, "workers": [{"worker": 0, "core": 1, "cpu": 0.42, "starved": 0.01}],
            "interfaces": {
                name: {"rx_packets": 1, "rx_bytes": 64, "tx_packets": 1, "tx_bytes": 64} for name in self.ports()
            },
        }  # fmt: skip

    def ports(self) -> list[str]:
        dpdk = self.profile.get("transport", {}).get("dpdk")
        return [port["name"] for port in dpdk["ports"]] if dpdk else ["lo"]

    def result(self) -> dict[str, Any]:
        if self.state != "done":
            raise Refusal(-32004, "there is no result yet")
        die("result")
        groups = []
        measure = sum(1 for s in self.series if s["phase"] == "measure")
        for group in self.profile.get("groups", []):
            n = 1000 * measure
            protocol = next(iter(group["model"]))
            c = self.counts(n)
            groups.append({
                "name": group["name"], "protocol": protocol, "target": group["target"],
                "devices": group.get("devices", 1), "measured": c, "total": self.counts(1000 * len(self.series)),
                "rates": {"messages_sent": 1000.0, "messages_delivered": 1000.0, "bits_sent": 512000.0},
                "loss": 1 - c["messages_delivered"] / n if n else 0.0,
                "delays": {d: whole(n) for d in DELAYS.get(protocol, ["step"])},
                "lateness": whole(n),
                "errors": [{"kind": k, "count": v, "example": "late"} for k, v in c["failures"].items()],
            })  # fmt: skip
        reasons = []
        if os.environ.get("FAKE_INVALID"):
            reasons = [
                {
                    "code": "ND-90-01",
                    "group": groups[0]["name"],
                    "what": "offered",
                    "value": 0.5,
                    "limit": 0.99,
                }
            ]
        return {
            "run": f"r{self.runs}", "profile": self.profile, "transport": next(iter(self.profile.get("transport", {"sockets": 0}))),
            "version": "0.0.0-fake", "started": "2026-01-01T00:00:00.000Z",
            "phases": {"warmup": len(self.series) - measure, "measure": measure, "drain": 0.1},
            "stopped": self.stopped, "error": None, "validity": {"valid": not reasons, "reasons": reasons},
            "groups": groups, "workers": [{"worker": 0, "core": 1, "cpu": 0.42, "starved": 0.01, "intervals": 1}],
            "interfaces": {"lo": {"rx_packets": 9}}, "elements": [], "series": self.series,
        }  # fmt: skip

    def flows(self, offset: int = 0, limit: int = 10_000) -> dict[str, Any]:
        rows = [
            [g["name"], d, 1, 1, 3, 3, 0, 100_000, 200_000]
            for g in self.profile.get("groups", []) for d in range(g.get("devices", 1))
        ]  # fmt: skip
        return {"total": len(rows), "flows": rows[offset : offset + limit]}


class Connection(socketserver.StreamRequestHandler):
    core: Core
    server: Server

    def setup(self) -> None:
        super().setup()
        self.core = self.server.core
        self.sending = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        try:
            with self.sending:
                self.wfile.write(json.dumps(message).encode() + b"\n")
        except OSError:
            pass

    def handle(self) -> None:
        for line in self.rfile:
            request = json.loads(line)
            answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
            try:
                with self.core.lock:
                    if self.core.writer is self:
                        self.core.seen = time.monotonic()
                    answer["result"] = self.answer(request["method"], request.get("params") or {})
            except Refusal as e:
                answer["error"] = {"code": e.code, "message": str(e), **({"data": e.data} if e.data else {})}
            except (TypeError, KeyError) as e:
                answer["error"] = {"code": -32602, "message": f"bad parameters: {e!r}"}
            self.send(answer)
            if request["method"] == "core.shutdown" and "result" in answer:
                # the answer is out: what ends with the process is no part of it
                threading.Thread(target=self.server.shutdown, daemon=True).start()

    def finish(self) -> None:
        if self in self.core.subscribers:
            self.core.subscribers.remove(self)
        if self.core.writer is self:
            self.core.writer = None
            self.core.graphs.clear()
        super().finish()

    def write_only(self) -> None:
        if self.core.writer is not self:
            raise Refusal(-32001, "another connection writes" if self.core.writer else "acquire first")

    def answer(self, method: str, p: dict[str, Any]) -> Any:
        core = self.core
        if method in WRITERS:
            self.write_only()
        match method:
            case "core.describe":
                return {
                    "name": "netdynod", "version": "0.0.0-fake", "pid": os.getpid(), "cores": [0, 1],
                    "transports": [{"name": "sockets", "available": True}, {"name": "dpdk", "available": True}],
                    **json.loads((paths.data("schema") / "models.json").read_text()),
                    "interfaces": [], "limits": {"nofile": 1024},
                }  # fmt: skip
            case "core.shutdown":
                return True
            case "ports.list":
                return []
            case "profile.schema":
                return {"type": "object"}
            case "profile.validate":
                return {"errors": validate(p["profile"])}
            case "control.acquire":
                if core.writer not in (None, self):
                    raise Refusal(-32001, "another connection writes")
                core.writer, core.seen = self, time.monotonic()
                return {"writer": True}
            case "control.heartbeat":
                return True
            case "control.release":
                core.writer = None
                return True
            case "run.load":
                return core.load(p["profile"], p.get("targets", {}), p.get("trial", {}))
            case "run.start":
                return core.start()
            case "run.pause" | "run.resume":
                core.become("paused" if method == "run.pause" else "running", core.phase)
                return core.status()
            case "run.stop":
                if not os.environ.get("FAKE_STUBBORN"):
                    core.stopping.set()
                return core.status()
            case "run.status":
                return core.status()
            case "run.result":
                return core.result()
            case "run.flows":
                return core.flows(**p)
            case "stats.subscribe":
                core.subscribers.append(self)
                return {"subscription": len(core.subscribers)}
            case "stats.unsubscribe":
                return True
            case "capture.start":
                Path(p["path"]).write_bytes(b"\x0a\x0d\x0d\x0a")
                core.capture = {**core.capture, "state": "running", "path": p["path"], "packets": 1}
                return {"path": p["path"], "interface": p.get("interface") or "lo"}
            case "capture.stop" | "capture.status":
                return core.capture
            case "graph.run":
                if faults := graph_faults(p["graph"]):
                    raise Refusal(-32002, "bad graph", {**faults[0], "all": faults})
                name = f"graph-{len(core.graphs) + 1}"
                core.graphs[name] = Graph(name, p["graph"])
                return {"graph": name}
            case "graph.list":
                return [one.status() for one in core.graphs.values()]
            case "graph.describe":
                return core.graphs[p["graph"]].shape()
            case "graph.stats":
                die("stats")
                return core.graphs[p["graph"]].stats()
            case "graph.trace":
                traced = [TRACED] * p["packets"]
                return {"packets": [] if p["filter"] == "none" else traced, "complete": True}
            case "graph.stop":
                return core.graphs.pop(p["graph"]).stats()
            case "impair.list":
                return []
            case "log.tail":
                return {"entries": []}
        if system := SYSTEMS.get(method.partition(".")[0]):
            core.graphs[p["graph"]]
            try:
                return system.answer(method, p)
            except ValueError as e:
                raise Refusal(-32602, str(e)) from e
        raise Refusal(-32601, f"no method {method}")


WRITERS = {
    "core.shutdown", "control.heartbeat", "control.release", "run.load", "run.start", "run.pause",
    "run.resume", "run.stop", "capture.start", "capture.stop", "graph.run", "graph.stop",
}  # fmt: skip


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str) -> None:
        super().__init__(path, Connection)
        self.core = Core()


def serve(path: str) -> None:
    die("start")
    Path(path).unlink(missing_ok=True)
    server = Server(path)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    signal.signal(signal.SIGINT, lambda *_: threading.Thread(target=server.shutdown).start())
    log("info", "listening")
    print(json.dumps({"ready": path, "pid": os.getpid()}), flush=True)
    server.serve_forever(poll_interval=0.02)
    Path(path).unlink(missing_ok=True)


def reflect(udp: int, tcp: int, bind: str) -> None:
    """Echo datagrams; counters on SIGUSR1 and at the end."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((bind, udp))
    listener = socket.create_server((bind, tcp))
    listener.listen()
    counts = {"datagrams_received": 0, "datagrams_sent": 0}

    def show(number: int, _: Any) -> None:
        print(json.dumps(counts), flush=True)
        if number == signal.SIGTERM:
            os._exit(0)

    signal.signal(signal.SIGUSR1, show)
    signal.signal(signal.SIGTERM, show)
    print(json.dumps({"ready": True}), flush=True)
    while True:
        data, peer = sock.recvfrom(65536)
        counts["datagrams_received"] += 1
        sock.sendto(data, peer)
        counts["datagrams_sent"] += 1


def service(listen: str) -> None:
    """Accept connections; counters on SIGUSR1 and at the end."""
    host, _, port = listen.rpartition(":")
    listener = socket.create_server((host, int(port)))
    counts = {"connections": 0, "requests": 0, "messages_received": 0}

    def show(number: int, _: Any) -> None:
        print(json.dumps({"counters": counts}), flush=True)
        if number == signal.SIGTERM:
            os._exit(0)

    signal.signal(signal.SIGUSR1, show)
    signal.signal(signal.SIGTERM, show)
    print(json.dumps({"ready": {"address": listen}}), flush=True)
    while True:
        listener.accept()[0].close()
        counts["connections"] += 1


def main() -> None:
    if sys.argv[1:2] == ["--version"]:
        print("netdynod 0.0.0-fake")
        return
    if sys.argv[1:2] == ["validate"]:
        file = sys.argv[2]
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
        for one in text.splitlines() if "--lines" in sys.argv else [text]:
            document = json.loads(one)
            errors = graph_faults(document) if "--graph" in sys.argv else validate(document)
            print(json.dumps({"file": file, "errors": errors}))
        sys.exit(104 if errors else 0)
    parser = argparse.ArgumentParser()
    if sys.argv[1:2] == ["reflect"]:
        for option in ("--udp", "--tcp"):
            parser.add_argument(option, type=int)
        parser.add_argument("--mode", default="echo")
        parser.add_argument("--bind", default="0.0.0.0")
        got = parser.parse_args(sys.argv[2:])
        reflect(got.udp, got.tcp, got.bind)
        return
    if sys.argv[1:2] == ["service"]:
        parser.add_argument("--settings", required=True)
        service(json.loads(parser.parse_args(sys.argv[2:]).settings)["listen"])
        return
    parser.add_argument("--socket", required=True)
    parser.add_argument("--log-json", action="store_true")
    parser.add_argument("--log-level", default="info")
    serve(parser.parse_args().socket)


if __name__ == "__main__":
    main()
