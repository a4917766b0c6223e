"""Our controller: one process, or several of which etcd elects the master."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from netdyno.errors import Error
from netdyno.switch.controller.base import Replaceable, Takeover, entries
from netdyno.switch.controller.etcd import Etcd, EtcdError
from netdyno.switch.driver.base import Flow
from netdyno.switch.driver.ovs_daemon import listens
from netdyno.system import namespace, python
from netdyno.system.process import Process, find

OPENFLOW, PEERS, ETCD, ETCD_PEERS = 6653, 7653, 2379, 2380
"""TCP ports in the switch's namespace; of controllers and members of etcd, those of the first."""
MEMBERS = 3
"""Of etcd: with one of them gone, the others are a majority."""
APART = 10
"""Between the ports of two members."""
TIMING = ("--heartbeat-interval", "50", "--election-timeout", "500")
"""Of etcd's members among each other, ms: without their leader they have another before a lease expires."""
PATIENCE = 30.0
"""Seconds in which processes must answer: a busy machine needs them."""
PARTITION = "netdyno_partition"
"""Table of nftables that cuts a controller off."""


def _address(number: int) -> str:
    """Of a controller: all of the loopback interface, and each its own."""
    return f"127.0.1.{number + 1}"


def members() -> list[tuple[str, int]]:
    """Where the members of etcd answer."""
    return [("127.0.0.1", ETCD + APART * number) for number in range(MEMBERS)]


class Embedded(Replaceable):
    """Our OpenFlow 1.3 controller."""

    kind: ClassVar[str] = "embedded"
    about: ClassVar[str] = "our OpenFlow 1.3 controller; with :N, N of them with a master elected by etcd"
    most: ClassVar[int] = 9
    _etcd: Mapping[str, Process] = {}
    """Members by their names."""

    def setup(self) -> None:
        """Start etcd if there are several, then the controllers, and wait until one is master."""
        self._nodes: dict[str, Process] = {}
        site = self.site
        if self.count > 1:
            self._start_etcd()
        for number in range(self.count):
            name = f"c{number + 1}"
            words = ["--name", name, "--host", _address(number), "--port", str(OPENFLOW + number)]
            words += ["--control", str(self._socket(name))]
            if self.count > 1:
                words += [
                    "--peers",
                    str(PEERS + number),
                    "--etcd",
                    ",".join(f"{host}:{port}" for host, port in members()),
                ]
            self._nodes[name] = Process(
                python.module("netdyno.switch.controller.node", *words),
                log=site.folder / f"controller-{name}.log", namespace=site.namespace, notes=site.notes,
            )  # fmt: skip
        self._await(lambda: all(listens(self._socket(name)) for name in self._nodes), "does not start")
        targets = (f"tcp:{_address(number)}:{OPENFLOW + number}" for number in range(self.count))
        site.switch.connect(*targets)
        self._await(self._ready, "has no master that its switch confirmed")

    def program(self, flows: Sequence[Flow]) -> None:
        """By the master. Raises Error if there is none, or the switch refuses them."""
        wanted = [one.document() for one in entries(self.site.switch, flows)]
        said = self._ask(self.master(), {"do": "program", "flows": wanted})
        if why := said.get("error"):
            raise self._failed(f"the flows cannot be programmed: {why}")
        self.site.switch.settle()

    def dead(self) -> str:
        """How the first ended, once all have ended."""
        if any(one.exited() is None for one in self._nodes.values()):
            return ""
        name, last = next(iter(self._nodes.items()))
        return f"the controller {name} ({last.ending()}): {last.tail(3) or 'no log'}"

    def states(self) -> dict[str, Mapping[str, Any]]:
        """What each controller that runs says of itself, by its name."""
        alive = [name for name, one in self._nodes.items() if one.exited() is None]
        return {name: self._ask(name, {"do": "state"}) for name in alive}

    def master(self) -> str:
        """The name of the master. Raises Error if there is none."""
        found = self.states()
        for name, state in found.items():
            if state["master"]:
                return name
        why = next((str(state["error"]) for state in found.values() if state["error"]), self.dead())
        raise self._failed(f"no controller is master: {why or 'none was elected'}")

    @classmethod
    def most_kills(cls, count: int) -> int:
        """One must be left."""
        return count - 1

    def kill_master(self) -> Takeover:
        """End the master by SIGKILL and wait until another has taken over. Raises Error if none does."""
        before = self.master()
        since = self.states()[before]["generation"]
        process, began = self._nodes[before], time.monotonic()
        process.send_all(signal.SIGKILL)
        process.wait(PATIENCE)
        return self._taken_over(before, since, began)

    def partition_master(self) -> Takeover:
        """Cut the master off from its switch, etcd and the others, and wait until another has taken over.

        Packets of its address are dropped, so that nobody is told that it is gone. Raises Error if none
        takes over.
        """
        before = self.master()
        since = self.states()[before]["generation"]
        address = _address(list(self._nodes).index(before))
        lines = [
            f"table ip {PARTITION} {{", "chain in {", "type filter hook input priority 0; policy accept;",
            f"ip saddr {address} drop", f"ip daddr {address} drop", "}", "}",
        ]  # fmt: skip
        began = time.monotonic()
        self._nft("-f", "-", text="\n".join(lines) + "\n")
        return self._taken_over(before, since, began)

    def heal(self, name: str) -> float:
        """End a partition, and wait until that controller follows the master; seconds that it took.

        Raises Error if it does not.
        """
        began = time.monotonic()
        self._nft("delete", "table", "ip", PARTITION)
        newest = max(int(state["generation"]) for state in self.states().values())
        while time.monotonic() < began + PATIENCE:
            state = self.states().get(name)
            if state is None:
                raise self._failed(f"{name} ended while it was cut off")
            if not state["master"] and state["generation"] >= newest and state["switches"]:
                return time.monotonic() - began
            time.sleep(0.01)
        raise self._failed(f"{name} does not follow the new master within {PATIENCE:g} s")

    def _nft(self, *words: str, text: str | None = None) -> None:
        command = [find("nft", "nftables"), *words]
        done = namespace.inside(
            self.site.namespace,
            lambda: subprocess.run(command, capture_output=True, text=True, check=False, input=text),
        )
        if done.returncode:
            said = f"the control network cannot be changed: nft {words[0]}: {done.stderr.strip()[:200]}"
            raise Error("ND-92-62", said, at="controller")

    def _taken_over(self, before: str, since: int, began: float) -> Takeover:
        until = began + PATIENCE
        while time.monotonic() < until and not self.dead():
            for name, state in self.states().items():
                if state["master"] and state["generation"] > since and state["confirmed_at"] > began:
                    if state["error"]:
                        raise self._failed(f"{name} took over and failed: {state['error']}")
                    return Takeover(
                        before, name, state["elected_at"] - began, state["confirmed_at"] - began,
                        state["added"], state["removed"], state["kept"], state["generation"],
                    )  # fmt: skip
            time.sleep(0.005)
        why = "there was no other" if self.dead() else f"no other took over within {PATIENCE:g} s"
        raise self._failed(f"{before} is gone, and {why}")

    def teardown(self) -> None:
        """End controllers and etcd."""
        etcd, self._etcd = self._etcd, {}
        nodes, self._nodes = getattr(self, "_nodes", {}), {}
        with contextlib.ExitStack() as every:
            for one in (*etcd.values(), *nodes.values()):
                every.callback(one.stop)

    def kill_etcd(self, leader: bool) -> str:
        """End etcd's leader, or a member that follows it, by SIGKILL; its name. Raises Error."""
        for (name, process), member in zip(self._etcd.items(), members(), strict=True):
            if process.exited() is None and self._leads(member) == leader:
                process.send_all(signal.SIGKILL)
                process.wait(PATIENCE)
                return name
        raise self._failed("no member of etcd is of that kind")

    def _leads(self, member: tuple[str, int]) -> bool:
        made = Etcd(member)
        try:
            return namespace.inside(self.site.namespace, made.leads)
        except EtcdError:
            return False

    def _start_etcd(self) -> None:
        site, started = self.site, dict[str, Process]()
        peers = {f"etcd{n + 1}": f"http://127.0.0.1:{ETCD_PEERS + APART * n}" for n in range(MEMBERS)}
        cluster = ",".join(f"{name}={peer}" for name, peer in peers.items())
        for (name, peer), (host, port) in zip(peers.items(), members(), strict=True):
            here = f"http://{host}:{port}"
            started[name] = Process(
                [find("etcd", "etcd-server"), "--name", name, "--data-dir", str(site.folder / name),
                 "--listen-client-urls", here, "--advertise-client-urls", here, "--listen-peer-urls", peer,
                 "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster, *TIMING,
                 "--max-request-bytes", str(64 << 20), "--logger", "zap", "--log-level", "warn"],
                log=site.folder / f"{name}.log", namespace=site.namespace, notes=site.notes,
            )  # fmt: skip
            self._etcd = dict(started)
        until = time.monotonic() + PATIENCE
        for process, member in zip(started.values(), members(), strict=True):
            made = Etcd(member)
            while not namespace.inside(site.namespace, made.healthy):
                if process.exited() is not None or time.monotonic() > until:
                    why = process.ending() or f"it does not answer within {PATIENCE:g} s"
                    what = f"etcd does not start ({why}): {process.tail(2) or 'no log'}"
                    raise Error("ND-92-62", what, at="controller", fix="Its last words are above")
                time.sleep(0.02)

    def _ready(self) -> bool:
        found = self.states()
        if any(one["switches"] == 0 for one in found.values()):
            return False
        return any(one["master"] and one["confirmed_at"] and not one["error"] for one in found.values())

    def _await(self, ready: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            for name, one in self._nodes.items():
                if one.exited() is not None:
                    said = f"the controller {name} does not start ({one.ending()}): {one.tail(2) or 'no log'}"
                    raise Error("ND-92-62", said, at="controller", fix="Its last words are above")
            if ready():
                return
            if time.monotonic() > until:
                why = next(
                    (str(one["error"]) for one in self.states().values() if one["error"]),
                    "no reason is known",
                )
                said = f"the controller {what} within {PATIENCE:g} s: {why}"
                raise Error("ND-92-62", said, at="controller", fix="Its last words are above")
            time.sleep(0.01)

    def _socket(self, name: str) -> Path:
        return self.site.folder / f"{name}.sock"

    def _ask(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.settimeout(PATIENCE)
                made.connect(str(self._socket(name)))
                made.sendall(json.dumps(request).encode() + b"\n")
                with made.makefile("rb") as answer:
                    return dict(json.loads(answer.readline()))
        except (OSError, ValueError) as e:
            process = self._nodes[name]
            why = process.ending() or str(e)
            raise self._failed(
                f"the controller {name} does not answer ({why}): {process.tail(2) or 'no log'}"
            ) from None

    @staticmethod
    def _failed(what: str) -> Error:
        return Error("ND-91-42", what, at="controller", fix="Its last words are above")
