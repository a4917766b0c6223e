"""Open vSwitch over DPDK ports as a switch (`ovs-dpdk`)."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from netdyno.errors import Error
from netdyno.lab.dut.base import DutSite
from netdyno.switch.driver import ovs, physical
from netdyno.switch.driver.base import Wiring
from netdyno.switch.driver.ovs import Ovs

PROGRAM = Path("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk")
"""Debian's second build; the alternative that the system uses is left as it is."""


PATIENCE = 60.0
"""Seconds in which processes must be behind ports over vhost-user."""
MEMIF_QUEUES = 2
"""Of a port over memif, each way: the thread that polls sends by one, and the main thread by the other.
Frames to a queue that the process behind the port does not have are lost."""
IDLE_SLEEP = ("pmd-maxsleep", "pmd-sleep-max")
"""Microseconds that an idle polling thread may sleep, by the names that versions of Open vSwitch have for it.

DPDK's memif reads a port's memory in the midst of its connecting, and faults, where the thread that polls
loses its processor between two of its instructions. One that sleeps most of the time does not.
"""


class Options(ovs.Options):
    """Settings of Open vSwitch over DPDK."""

    over: Literal["af_xdp", "af_packet", "system", "vhost-user", "physical"] = "af_xdp"
    """How it takes frames of an interface: by DPDK's port over AF_XDP or a packet socket, polled by a thread;
    or by Open vSwitch's own packet socket (`system`), which can have `tso`. `vhost-user`: it shares memory
    with other processes in place of interfaces, and `ports` names them: a profile reaches each over
    virtio-user, as `device: dut:NAME.PORT`. `physical`: it has the `devices`, and `ports` names them."""
    devices: list[str] = Field(default_factory=list, max_length=64)
    """With `over: physical`, the device of each of `ports`: the PCI address of a network card that the user
    has given to vfio-pci (`0000:81:00.0`), or one of DPDK with arguments (`net_af_packet0,iface=eth1`)."""
    tso: bool = False
    """Userspace TSO, with `over: system` only: segments of TCP pass as they are, without checksums."""
    huge_pages: bool = False
    """Packet memory in huge pages, which must be there."""
    memory: int = Field(default=512, ge=128, le=1 << 20)
    """Packet memory, MiB."""

    @field_validator("devices")
    @classmethod
    def _devices(cls, value: list[str]) -> list[str]:
        return [physical.shaped(one) for one in value]

    @model_validator(mode="after")
    def _one_each(self) -> Options:
        if self.over == "physical" and (not self.devices or len(self.devices) != len(self.ports)):
            raise ValueError(f"over: physical has {len(self.ports)} ports and {len(self.devices)} devices")
        if self.over != "physical" and self.devices:
            raise ValueError("devices go with over: physical")
        return self


class OvsDpdk(Ovs):
    """Its datapath in user space, over ports of DPDK."""

    driver: ClassVar[str] = "ovs-dpdk"
    about: ClassVar[str] = "Open vSwitch over DPDK ports, polled"
    shares_memory: ClassVar[bool] = True
    Options = Options
    _dpdk: int | None = None

    def __init__(
        self, place: DutSite, options: Mapping[str, Any] | None = None, wiring: Wiring | None = None
    ) -> None:
        super().__init__(place, options, wiring)
        self._copied: set[str] = set()
        """Ports whose interfaces for copies are there."""

    @property
    def segments(self) -> bool:
        """With userspace TSO."""
        tso: bool = self.options.tso
        return tso

    @property
    def vhost_user(self) -> bool:
        over: str = self.options.over
        return over == "vhost-user"

    @property
    def interfaces(self) -> bool:
        over: str = self.options.over
        return over not in ("vhost-user", "physical")

    @property
    def visible(self) -> bool:
        """DPDK's own ports take frames before captures do, or send them past those."""
        over: str = self.options.over
        return over == "system"

    def attached(self) -> dict[str, str]:
        """Ports of a process that shares memory with it."""
        if not self.vhost_user:
            return {}
        # the switch comes to the process: one that listened would stand still until somebody came
        return {
            port: f"net_virtio_user{number},path={self._socket(port)},server=1,queue_size=1024"
            for number, port in enumerate(self.ports or self.options.ports)
        }

    def _socket(self, port: str) -> Path:
        """Where the process behind a port listens; of a switch that is not set up, an example."""
        name = f"{port}.vhost"
        if self.wiring.sockets:
            return self.wiring.sockets / name
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
        if self.vhost_user and not (o.ports or self.wiring.sockets):
            what = f"a switch by {o.over} joins ports of other processes, and none is named"
            raise Error("ND-104-07", what, at=self._at("ports"), fix="Name them, like ports: [a, b]")
        if o.tso and o.over != "system":
            what = f"a port by {o.over} takes no segments"
            fix = "Use tso with over=system, or leave it out"
            raise Error("ND-104-07", what, at=self._at("tso"), fix=fix)
        physical.check(o.devices, self._at("devices"))
        cards = physical.addresses(o.devices)
        prefix = f"netdyno-{self.folder.name}"
        # root's DPDK keeps files by this name, which go with it
        self._dpdk = self.place.notes.write("dpdk", prefix=prefix)
        memory = f"-m {o.memory}" if o.huge_pages else f"--no-huge --legacy-mem -m {o.memory}"
        cores = list(self.place.cores) or [max(os.sched_getaffinity(0))]
        return {
            "dpdk-init": "true",
            "dpdk-extra": " ".join(
                [memory, *(f"-a {card}" for card in cards)]
                + ["--no-pci"] * (not cards)
                + [f"--file-prefix={prefix}"]
            ),
            "pmd-cpu-mask": hex(sum(1 << core for core in cores)),
            # else Open vSwitch asks for 0.6 GB at once where virtual machines or cards are
            **({"per-port-memory": "true"} if not self.interfaces or self.wiring.shared else {}),
            **({"userspace-tso-enable": "true"} if o.tso else {}),
            **(dict.fromkeys(IDLE_SLEEP, "10000") if self.wiring.memif else {}),
        }

    def interface(self, port: str) -> tuple[str, list[str]]:
        """A port over an interface has another name than that."""
        if self.options.over == "system" and port not in self.wiring.shared:
            return port, []
        if port in self.wiring.memif:
            number, there = self.wiring.memif.index(port), self._socket(port)
            memif = f"net_memif{number},role=server,id=0,socket-abstract=no,socket={there}"
            return f"memif-{port}", [
                "type=dpdk", f'options:dpdk-devargs="{memif}"', f"options:n_rxq={MEMIF_QUEUES}",
            ]  # fmt: skip
        if self.options.over == "vhost-user" or port in self.wiring.shared:
            path = json.dumps(str(self._socket(port)))
            return f"vhost-{port}", ["type=dpdkvhostuserclient", f"options:vhost-server-path={path}"]
        number = self.ports.index(port)
        if self.options.over == "physical":
            device = self.options.devices[number]
            return f"dpdk{number}", ["type=dpdk", f'options:dpdk-devargs="{device}"']
        # the device is known by a number: names of interfaces may be of other signs
        device = f"net_{self.options.over}{number},iface={port}"
        return f"dpdk{number}", ["type=dpdk", f'options:dpdk-devargs="{device}"']

    def await_joined(self) -> None:
        """Also until processes are behind all ports over vhost-user that go with others."""
        super().await_joined()
        until = time.monotonic() + PATIENCE
        for port in self.wiring.shared:
            name = self.interface(port)[0]
            while self._running().vsctl("get", "interface", name, "link_state").strip() != "up":
                if time.monotonic() > until:
                    what = f"nobody is behind the port {port} within {PATIENCE:g} s"
                    raise Error(
                        "ND-92-60",
                        what,
                        at=self.place.at,
                        fix="Look whether the process behind it runs: it must connect to the switch",
                    )
                time.sleep(0.05)
        if self.wiring.memif:
            awake = [f"other_config:{key}=0" for key in IDLE_SLEEP]
            self._running().vsctl("set", "Open_vSwitch", ".", *awake)

    def watch_shared(self, on: bool) -> None:
        made, add = self._running(), list[str]()
        for port in self.wiring.shared if on else ():
            if port not in self._copied:
                for name in (port, f"{port}-sent"):
                    add += ["--", "add-port", ovs.BRIDGE, name]
                self._copied.add(port)
        if add:
            made.vsctl(*add[1:])
        words = ["clear", "bridge", ovs.BRIDGE, "mirrors"]
        for number, port in enumerate(self.wiring.shared if on else ()):
            names = (self.interface(port)[0], port, f"{port}-sent")
            for key, name in zip("vio", names, strict=True):
                words += ["--", f"--id=@{key}{number}", "get", "port", name]
            for way, select, to in (("to", "dst", "i"), ("from", "src", "o")):
                words += ["--", f"--id=@{way}{number}", "create", "mirror", f"name={way}-{port}",
                          f"select-{select}-port=@v{number}", f"output-port=@{to}{number}"]  # fmt: skip
                words += ["--", "add", "bridge", ovs.BRIDGE, "mirrors", f"@{way}{number}"]
        made.vsctl(*words)
        self.settle()

    def queues(self) -> dict[str, float]:
        """From the statistics of its ports over vhost-user."""
        shared = self.ports if self.vhost_user else self.wiring.shared
        if not shared:
            return {}
        columns = "--columns=name,statistics"
        said = self._running().vsctl("--format=json", columns, "list", "Interface")
        return parse_queues(said, {self.interface(port)[0]: port for port in shared})

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
        self._copied.clear()
        try:
            super().teardown()
        finally:
            if entry is not None:
                self.place.notes.undo(entry)


_QUEUES = {
    "ovs_tx_failure_drops": "full", "ovs_tx_mtu_exceeded_drops": "too_large", "ovs_tx_retries": "retries",
}  # fmt: skip
"""Statistics of a port, and what they count."""


def parse_queues(text: str, ports: Mapping[str, str]) -> dict[str, float]:
    """`PORT.full` and so on, from `ovs-vsctl --format=json --columns=name,statistics list Interface`.

    `ports`: by the switch's names for them.
    """
    found: dict[str, float] = {}
    for name, statistics in json.loads(text)["data"]:
        if name in ports:
            found |= {
                f"{ports[name]}.{_QUEUES[key]}": float(value)
                for key, value in statistics[1]
                if key in _QUEUES
            }
    return found
