"""FD.io's VPP as a switch (`vpp`): interfaces of the kernel in one bridge domain.

No test runs VPP itself: a stand-in that reads the same configuration and commands takes its place.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from netdyno import files
from netdyno.errors import Error
from netdyno.lab.dut.base import has
from netdyno.switch.driver.base import STATISTICS, PortSettings, Switch
from netdyno.system import namespace
from netdyno.system.process import Process, find

PATIENCE = 60.0
"""Seconds in which it must answer: a busy machine needs them."""
DOMAIN = "1"
NAMES: Mapping[str, str] = {
    "rx packets": "rx_packets", "rx bytes": "rx_bytes", "drops": "rx_dropped",
    "tx packets": "tx_packets", "tx bytes": "tx_bytes", "tx-error": "tx_dropped",
}  # fmt: skip
"""Counters of `show interface` by our names."""
_COUNTER = re.compile(r"\s+(\S+(?: \S+)*?)\s{2,}(\d+)\s*$")


class Options(PortSettings):
    """Settings of VPP."""

    over: Literal["af_packet", "af_xdp"] = "af_packet"
    """How it takes frames of an interface."""


class Vpp(Switch):
    """A VPP of its own, with private sockets and configuration, beside any that the system runs."""

    driver: ClassVar[str] = "vpp"
    about: ClassVar[str] = "FD.io's VPP with a bridge domain, over packet sockets or AF_XDP"
    Options = Options

    @classmethod
    def missing(cls) -> str:
        """Both programs."""
        gone = next((one for one in ("vpp", "vppctl") if not has(one)), None)
        return f"this machine has no {gone} (FD.io's packages vpp and vpp-plugin-core)" if gone else ""

    def setup(self) -> None:
        space = self.open()
        try:
            namespace.inside(space, self._up)
            # shared memory of its interface for programs, which it leaves behind when it is killed
            prefix = f"nd-{self.folder.name}"
            self._shared = [
                self.place.notes.write("path", path=f"/dev/shm/{prefix}-{name}")
                for name in ("global_vm", "vpe-api")
            ]
            config = self.folder / "startup.conf"
            files.write(config, configuration(self.folder, prefix, self.place.cores))
            log = self.place.log or self.folder / "log"
            self.process = Process(
                [find("vpp", "vpp"), "-c", str(config)], log=log, namespace=space,
                cores=self.place.cores, notes=self.place.notes,
            )  # fmt: skip
            self._await(self.process)
            self._join()
        except BaseException:
            self.teardown()
            raise

    def _up(self) -> None:
        from pyroute2 import IPRoute

        with IPRoute() as ip:
            for port in self.ports:
                ip.link("set", index=ip.link_lookup(ifname=port)[0], state="up")

    def _await(self, process: Process) -> None:
        until = time.monotonic() + PATIENCE
        while process.exited() is None and time.monotonic() < until:
            if self._socket.exists() and "vpp" in self._ask("show version"):
                return
            time.sleep(0.05)
        how = process.ending() or f"no answer within {PATIENCE:.0f} s"
        what = f"VPP does not start ({how}): {process.tail() or 'no log'}"
        raise Error("ND-91-40", what, at=self.place.at, fix="See its log; a VPP by hand must start, too")

    def _join(self) -> None:
        """All ports into the bridge domain. Its commands tell failures in words only: the state counts."""
        said = [self._ask(f"create bridge-domain {DOMAIN} learn 1 forward 1 uu-flood 1 flood 1 arp-term 0")]
        for port, name in self._names().items():
            for command in (
                f"create host-interface name {port}"
                if self.options.over == "af_packet"
                else f"create interface af_xdp host-if {port} name {name}",
                f"set interface l2 bridge {name} {DOMAIN}",
                f"set interface promiscuous on {name}",
                f"set interface state {name} up",
            ):
                said.append(self._ask(command))
        members = self._ask(f"show bridge-domain {DOMAIN} detail").split()
        states = interfaces(self._ask("show interface"))
        for port, name in self._names().items():
            if name not in members or states.get(name, ("",))[0] != "up":
                words = " | ".join(
                    line.strip() for text in said for line in text.splitlines() if line.strip()
                )
                what = f"VPP does not take the port {port}: {words or 'it says nothing'}"
                fix = "over=af_packet or over=af_xdp takes frames another way; both are plugins of VPP"
                raise Error("ND-92-60", what, at=self.place.at, fix=fix)

    def _names(self) -> dict[str, str]:
        """What VPP calls its ports: of a packet socket it is given by the interface's name."""
        prefix = "host" if self.options.over == "af_packet" else "xdp"
        return {port: f"{prefix}-{port}" for port in self.ports}

    @property
    def _socket(self) -> Path:
        return self.folder / "cli.sock"

    def _ask(self, command: str) -> str:
        """What it answers; nothing if it does not."""
        full = [find("vppctl", "vpp"), "-s", str(self._socket), *command.split()]
        try:
            done = subprocess.run(
                full, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=PATIENCE
            )
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout

    def counters(self) -> dict[str, float]:
        """What VPP counts of each port."""
        read = interfaces(self._ask("show interface"))
        found: dict[str, float] = {}
        for port, name in self._names().items():
            counts = read.get(name, ("", {}))[1]
            # those that are none are not shown
            found |= {f"{port}.{key}": counts.get(key, 0.0) for key in STATISTICS}
        return found

    def version(self) -> str:
        """As the one that runs says."""
        if not self.alive():
            return ""
        found = re.search(r"v(\d\S*)", self._ask("show version"))
        return found[1] if found else ""

    def teardown(self) -> None:
        shared, self._shared = self._shared, []
        try:
            super().teardown()
        finally:
            for entry in shared:
                self.place.notes.undo(entry)

    _shared: Sequence[int] = ()


def configuration(folder: Path, prefix: str, cores: Sequence[int]) -> str:
    """Its startup configuration: private sockets, no huge pages, no device of DPDK."""
    parts = {
        "unix": [f"nodaemon cli-listen {folder}/cli.sock", f"runtime-dir {folder}", f"log {folder}/vpp.log"],
        "api-segment": [f"prefix {prefix}"],
        "socksvr": [f"socket-name {folder}/api.sock"],
        "statseg": [f"socket-name {folder}/stats.sock"],
        "buffers": ["page-size default"],
        "plugins": ["plugin dpdk_plugin.so { disable }"],
    }
    if cores:
        rest = [f"corelist-workers {','.join(map(str, cores[1:]))}"] if cores[1:] else []
        parts["cpu"] = [f"main-core {cores[0]}", *rest]
    return "".join("\n".join([f"{name} {{", *lines, "}", ""]) for name, lines in parts.items())


def interfaces(text: str) -> dict[str, tuple[str, dict[str, float]]]:
    """Of each interface in the answer to `show interface` its state and its counters by our names."""
    found: dict[str, tuple[str, dict[str, float]]] = {}
    counts: dict[str, float] = {}
    for line in text.splitlines():
        head = re.match(r"(\S+)\s+\d+\s+(up|down)\s+\S+", line)
        if head:
            counts = {}
            found[head[1]] = (head[2], counts)
        if (counter := _COUNTER.match(line[head.end() :] if head else line)) and counter[1] in NAMES:
            counts[NAMES[counter[1]]] = float(counter[2])
    return found
