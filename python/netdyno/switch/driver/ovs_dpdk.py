"""Open vSwitch over DPDK ports as a switch (`ovs-dpdk`)."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from netdyno.errors import Error
from netdyno.switch.driver import ovs
from netdyno.switch.driver.ovs import Ovs

PROGRAM = Path("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk")
"""Debian's second build; the alternative that the system uses is left as it is."""


class Options(ovs.Options):
    """Settings of Open vSwitch over DPDK."""

    over: Literal["af_xdp", "af_packet", "system", "vhost-user"] = "af_xdp"
    """How it takes frames of an interface: by DPDK's port over AF_XDP or a packet socket, polled by a thread;
    or by Open vSwitch's own packet socket (`system`), which can have `tso`. `vhost-user`: it shares memory
    with other processes in place of interfaces, and `ports` names them: a profile reaches each over
    virtio-user, as `device: dut:NAME.PORT`."""
    sockets: str = Field(default="", max_length=80)
    """Folder in which virtual machines listen for `over: vhost-user`, each by its port: `PORT.vhost`;
    default: one of its own, in which the process of the profile listens."""
    tso: bool = False
    """Userspace TSO, with `over: system` only: segments of TCP pass as they are, without checksums."""
    huge_pages: bool = False
    """Packet memory in huge pages, which must be there."""
    memory: int = Field(default=512, ge=128, le=1 << 20)
    """Packet memory, MiB."""


class OvsDpdk(Ovs):
    """Its datapath in user space, over ports of DPDK."""

    driver: ClassVar[str] = "ovs-dpdk"
    about: ClassVar[str] = "Open vSwitch over DPDK ports, polled"
    Options = Options
    _dpdk: int | None = None

    @property
    def segments(self) -> bool:
        """With userspace TSO."""
        tso: bool = self.options.tso
        return tso

    @property
    def vhost_user(self) -> bool:
        over: str = self.options.over
        return over == "vhost-user"

    def attached(self) -> dict[str, str]:
        """Ports of a process that shares memory with it."""
        if not self.vhost_user:
            return {}
        # the switch comes to the process: one that listened would stand still until somebody came
        return {
            port: f"net_virtio_user{number},path={self._socket(port)},server=1,queue_size=1024"
            for number, port in enumerate(self.options.ports)
        }

    def _socket(self, port: str) -> Path:
        """Where the process behind a port listens; of a switch that is not set up, an example."""
        name = f"{port}.vhost"
        if self.options.sockets:
            return Path(self.options.sockets) / name
        return (Path("/run") if self._dpdk is None else self.folder) / name

    @classmethod
    def vswitchd(cls) -> Path | None:
        """The build with DPDK."""
        return PROGRAM if os.access(PROGRAM, os.X_OK) else None

    @classmethod
    def missing(cls) -> str:
        """Its packages."""
        if cls.vswitchd() is None:
            return "Open vSwitch with DPDK is not installed (sudo apt install openvswitch-switch-dpdk)"
        return super().missing()

    def config(self) -> dict[str, str]:
        """DPDK's memory and the threads that poll: on the cores that it may use, else on the last."""
        o = self.options
        if self.vhost_user and not (o.ports or o.sockets):
            what = f"a switch by {o.over} joins ports of other processes, and none is named"
            raise Error("ND-104-07", what, at=self._at("ports"), fix="Name them, like ports: [a, b]")
        if o.tso and o.over != "system":
            what = f"a port by {o.over} takes no segments"
            fix = "Use tso with over=system, or leave it out"
            raise Error("ND-104-07", what, at=self._at("tso"), fix=fix)
        prefix = f"netdyno-{self.folder.name}"
        # root's DPDK keeps files by this name, which go with it
        self._dpdk = self.place.notes.write("dpdk", prefix=prefix)
        memory = f"-m {o.memory}" if o.huge_pages else f"--no-huge --legacy-mem -m {o.memory}"
        cores = list(self.place.cores) or [max(os.sched_getaffinity(0))]
        return {
            "dpdk-init": "true",
            "dpdk-extra": f"{memory} --no-pci --file-prefix={prefix}",
            "pmd-cpu-mask": hex(sum(1 << core for core in cores)),
            # else Open vSwitch asks for 0.6 GB at once where virtual machines are
            **({"per-port-memory": "true"} if self.vhost_user else {}),
            **({"userspace-tso-enable": "true"} if o.tso else {}),
        }

    def interface(self, port: str) -> tuple[str, list[str]]:
        """A port over an interface has another name than that."""
        if self.options.over == "system":
            return port, []
        if self.options.over == "vhost-user":
            path = json.dumps(str(self._socket(port)))
            return f"vhost-{port}", ["type=dpdkvhostuserclient", f"options:vhost-server-path={path}"]
        number = self.ports.index(port)
        # the device is known by a number: names of interfaces may be of other signs
        device = f"net_{self.options.over}{number},iface={port}"
        return f"dpdk{number}", ["type=dpdk", f'options:dpdk-devargs="{device}"']

    def counters(self) -> dict[str, float]:
        """Over vhost-user also `packets` that met a rule: a port counts none while nobody is behind it."""
        found = super().counters()
        if self.vhost_user:
            self.settle()
            counted = re.search(r"packet_count=(\d+)", self._running().ofctl("dump-aggregate", ovs.BRIDGE))
            found["packets"] = float(counted[1]) if counted else 0.0
        return found

    def teardown(self) -> None:
        entry, self._dpdk = self._dpdk, None
        try:
            super().teardown()
        finally:
            if entry is not None:
                self.place.notes.undo(entry)
