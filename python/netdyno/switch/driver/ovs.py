"""Open vSwitch as a switch: `ovs-netdev`, `ovs-afxdp` and `ovs-kernel`; `ovs-dpdk` is in `ovs_dpdk.py`."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from netdyno.errors import Error
from netdyno.lab.counters import devices
from netdyno.lab.dut.base import has
from netdyno.lab.sockets import packet_socket_drops
from netdyno.switch.driver import ovs_tunnel
from netdyno.switch.driver.base import Flow, PortSettings, Switch, remove_interfaces
from netdyno.switch.driver.ovs_daemon import OvsDaemon
from netdyno.switch.openflow import action
from netdyno.switch.openflow.action import Action
from netdyno.switch.tunnel import Line, LineEnd
from netdyno.system import namespace, python
from netdyno.system.process import Process

BRIDGE = "br0"
PROGRAM = Path("/usr/lib/openvswitch-switch/ovs-vswitchd")
OTHER = Path("/usr/sbin/ovs-vswitchd")
"""Where distributions without two builds have it."""
MOST_FLOWS = 100_000
MOST_RULES, AT_ONCE = 1_000_000, 20_000
"""Of a table, and written by one program."""
FIRST = int(ipaddress.IPv4Address("10.0.0.0"))
"""The destination of the first rule."""
CONTROLLER = "127.0.0.1", 6653
"""Where the reactive controller listens, in the switch's namespace."""


class Options(PortSettings):
    """Settings of every Open vSwitch."""

    rules: int = Field(default=0, ge=0, le=MOST_RULES)
    """Rules in its flow table beside the one by which it learns: one for each IPv4 destination from 10.0.0.0
    on."""
    controller: Literal["none", "reactive"] = "none"
    """`reactive`: a controller sets each flow (port, IPv4 source and destination) up when its first packet
    comes, as a measure of flow set-up rate."""


class Ovs(Switch):
    """A private Open vSwitch with one bridge, that speaks OpenFlow 1.3."""

    openflow: ClassVar[bool] = True
    tunnels: ClassVar[bool] = True
    datapath: ClassVar[str] = "netdev"
    Options = Options
    _daemon: OvsDaemon | None = None
    _controller: Process | None = None
    """The reactive one."""
    _grouped = False
    """Groups were programmed."""

    @classmethod
    def vswitchd(cls) -> Path | None:
        """The build of ovs-vswitchd that it needs, if it is installed."""
        return next((one for one in (PROGRAM, OTHER) if os.access(one, os.X_OK)), None)

    @classmethod
    def missing(cls) -> str:
        """Its packages."""
        if cls.vswitchd() is None or not all(
            map(has, ("ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl"))
        ):
            return "Open vSwitch is not installed (sudo apt install openvswitch-switch)"
        return ""

    def config(self) -> dict[str, str]:
        """Keys of `other_config`."""
        return {}

    def interface(self, port: str) -> tuple[str, list[str]]:
        """Its name of a port, and the columns that make it."""
        return port, []

    def setup(self) -> None:
        self.check_table()
        space = self.open()
        program = self.vswitchd()
        assert program is not None, "it is not missing"
        made = OvsDaemon(self.folder, program, space, self.place.notes, self.place.at)
        self._daemon = made
        try:
            self.begin()
            made.start(self.config())
            self.process = made.vswitchd
            add = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, f"datapath_type={self.datapath}",
                   "protocols=OpenFlow13", "fail-mode=secure"]  # fmt: skip
            for number, port in enumerate(self.ports, 1):
                name, columns = self.interface(port)
                add += ["--", "add-port", BRIDGE, name, "--", "set", "interface", name,
                        f"ofport_request={number}", *columns]  # fmt: skip
            made.vsctl(*add)
            self._check(made)
            self._table(made)
        except BaseException:
            self._keep_log()
            self.teardown()
            raise

    def check_table(self) -> None:
        """Raises if its options exclude each other."""
        if self.options.rules and self.options.controller != "none":
            what = "rules are there before packets come, and a reactive controller sets them up then"
            raise Error("ND-104-07", what, at=self._at("rules"), fix="Leave rules or controller out")

    def _table(self, made: OvsDaemon) -> None:
        """The flow table to begin with."""
        if self.options.controller == "reactive":
            host, port = CONTROLLER
            words = ["--host", host, "--port", str(port)]
            self._controller = Process(
                python.module("netdyno.switch.controller.reactive", *words), log=self.folder / "reactive.log",
                namespace=self.place.namespace, notes=self.place.notes,
            )  # fmt: skip
            self.connect(f"tcp:{host}:{port}")
            made.await_controllers([f"tcp:{host}:{port}"])
            # all of a packet goes to the controller, which sends it on. Not before that is connected: a
            # switch that gets its first controller forgets the flows that it had
            made.ofctl("add-flow", BRIDGE, "priority=0,actions=CONTROLLER:65535")
            return
        if self.wiring.learning:
            made.ofctl("add-flow", BRIDGE, "priority=1,actions=NORMAL")
        if self.options.rules:
            every = range(FIRST, FIRST + self.options.rules)
            for at in range(0, len(every), AT_ONCE):
                rules = [f"priority=100,ip,nw_dst={ipaddress.IPv4Address(one)},actions=NORMAL"
                         for one in every[at : at + AT_ONCE]]  # fmt: skip
                made.ofctl("add-flows", BRIDGE, "-", text="\n".join(rules) + "\n")

    def begin(self) -> None:
        """What is to be noted before the daemon starts."""

    def _check(self, made: OvsDaemon) -> None:
        seen = made.interfaces()
        for number, port in enumerate(self.ports, 1):
            of, error = seen.get(self.interface(port)[0], (None, "it is not there"))
            if of != number or error:
                what = f"the port {port} cannot be opened: {error or made.words() or 'no reason is known'}"
                raise Error("ND-92-60", what, at=self.place.at, fix=PORT_FIX)

    def join(self, end: LineEnd) -> None:
        if self.segments:
            fix = "Leave out --segments and the option tso"
            raise Error("ND-104-80", "tunnels carry no segments beyond the MTU", at=self.place.at, fix=fix)
        number = len(self.ports) + len(self.ends) + 1
        ovs_tunnel.join(self._running(), BRIDGE, self.datapath, end, number)
        self.ends = (*self.ends, end)

    def await_joined(self) -> None:
        for end in self.ends:
            if end.line.tunnel:
                ovs_tunnel.await_other(self._running(), end)

    def tunnel_options(self, line: Line) -> dict[str, str]:
        return ovs_tunnel.options(self._running(), line.device)

    def change_tunnel(self, line: Line, options: Mapping[str, str]) -> None:
        ovs_tunnel.change(self._running(), line.device, dict(options))
        self.settle()

    def program(self, flows: Sequence[Flow]) -> None:
        """In one bundle: packets meet either all the old flows or all the new ones.

        New groups are there before flows name them, and old ones go after that.
        """
        if len(flows) > MOST_FLOWS:
            raise Error("ND-104-81", f"there are more than {MOST_FLOWS:,} flows", at=self.place.at)
        made = self._running()
        wanted = {one.number: one for flow in flows for one in action.groups(self._numbered(flow))}
        there = self.groups() if wanted or self._grouped else set()
        if new := [one.text() for number, one in wanted.items() if number not in there]:
            made.ofctl("add-groups", BRIDGE, "-", text="\n".join(new) + "\n")
            self._grouped = True
        text = "\n".join(map(self.text, flows)) + "\n"
        made.ofctl("replace-flows", BRIDGE, "-", text=text)
        # a group that flows still name would take them along
        for number in there - set(wanted):
            made.ofctl("del-groups", BRIDGE, f"group_id={number}")
        self.settle()

    def groups(self) -> set[int]:
        said = self._running().ofctl("dump-groups", BRIDGE)
        return {int(number) for number in re.findall(r"group_id=(\d+)", said)}

    def _numbered(self, flow: Flow) -> list[Action]:
        self.check_ports(flow)
        return action.renamed(flow.actions, self.numbers)

    def drop_fragments(self, drop: bool) -> None:
        """It sees no ports in the first one either."""
        self._running().ofctl("set-frags", BRIDGE, "drop" if drop else "normal")

    def settle(self) -> None:
        # the datapath remembers decisions until they were looked over
        self._running().appctl("revalidator/wait")

    def text(self, flow: Flow) -> str:
        """A flow as ovs-ofctl takes it."""
        match = [f"{key}={value}" if value else key for key, value in flow.match.items()]
        actions = action.text(self._numbered(flow)) or "drop"
        head = [f"cookie={flow.cookie:#x}", f"priority={flow.priority}"]
        if flow.in_port:
            head.append(f"in_port={self.numbers[flow.in_port]}")
        return f"{','.join([*head, *match])},actions={actions}"

    def flow_cookies(self) -> list[int]:
        """From its own tool, which no controller takes part in."""
        said = "\n".join(self.flow_texts())
        return sorted(int(cookie, 16) for cookie, _ in _FLOW.findall(said))

    def flow_texts(self) -> list[str]:
        return self._running().ofctl("dump-flows", BRIDGE).splitlines()

    def commands(self) -> dict[str, str]:
        return self._running().commands(BRIDGE)

    def datapath_id(self) -> str:
        return self._running().vsctl("get", "bridge", BRIDGE, "datapath_id").strip().strip('"')

    def flow_packets(self) -> dict[int, int]:
        """Settled: the datapath's counts are fetched before."""
        made = self._running()
        self.settle()
        return parse_flows(made.ofctl("dump-flows", BRIDGE))

    def counters(self) -> dict[str, float]:
        """Of each port, by its name in the namespace; with a reactive controller, `flows` that are set up."""
        made = self._running()
        found = parse_ports(made.ofctl("dump-ports", BRIDGE), list(self.numbers))
        for port, lost in packet_socket_drops(self.place.namespace).items():
            # Open vSwitch does not count what found no room in the socket that it receives from
            if port in self.ports:
                found[f"{port}.rx_dropped"] = found.get(f"{port}.rx_dropped", 0.0) + lost
        sent = namespace.inside(self.place.namespace, devices)
        for port in self.ports:
            if f"{port}.rx_dropped" in found and port in sent:
                found.setdefault(f"{port}.tx_dropped", sent[port]["tx_dropped"])
        if self._controller:
            counted = re.search(r"flow_count=(\d+)", made.ofctl("dump-aggregate", BRIDGE))
            # the rule that sends packets to the controller is no flow
            found["flows"] = float(counted[1]) - 1 if counted else 0.0
        return found

    def internals(self) -> dict[str, float]:
        """From its datapath in user space; one in the kernel does not count that."""
        made = self._running()
        found = parse_drops(made.appctl("coverage/show"))
        if self.datapath == "netdev":
            found |= parse_threads(made.appctl("dpif-netdev/pmd-stats-show"))
        return found

    def connect(self, *targets: str) -> None:
        made = self._running()
        made.vsctl("del-controller", BRIDGE)
        if not targets:
            return
        # flows of their own for the way to a controller within the bridge would be flows beside ours
        settings = ["connection_mode=out-of-band", "max_backoff=1000"]
        words: list[str] = []
        for number, target in enumerate(targets):
            quoted = json.dumps(target)
            words += ["--", f"--id=@c{number}", "create", "Controller", f"target={quoted}", *settings]
        ids = ",".join(f"@c{number}" for number in range(len(targets)))
        made.vsctl(*words[1:], "--", "set", "bridge", BRIDGE, f"controller=[{ids}]")

    def await_connected(self, *targets: str) -> None:
        self._running().await_controllers(targets)

    def version(self) -> str:
        import subprocess

        program = self.vswitchd()
        done = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False)
        found = re.search(r"(\d+\.\d+\.\d+)", done.stdout)
        return found[1] if found else "0"

    def death(self) -> str:
        said = super().death()
        return (
            f"{said.partition(':')[0]}: {words}" if self._daemon and (words := self._daemon.words()) else said
        )

    def cpu(self) -> float:
        return self.process.cpu() if self.process else 0.0

    def teardown(self) -> None:
        daemon, self._daemon = self._daemon, None
        controller, self._controller = self._controller, None
        self.process = None
        ends, self.ends = self.ends, ()
        try:
            if controller:
                controller.stop()
            if daemon:
                daemon.stop()
                # its taps are made to stay: one that was killed has left them
                left = (BRIDGE, f"ovs-{self.datapath}", *(end.line.bridge for end in ends))
                with contextlib.suppress(OSError):
                    namespace.inside(daemon.namespace, lambda: remove_interfaces(*left))
        finally:
            super().teardown()

    def _at(self, option: str) -> str:
        return f"duts.{self.place.name}.options.{option}"

    def _running(self) -> OvsDaemon:
        if self._daemon is None:
            raise Error("ND-91-40", f"{self.driver} is not set up", at=self.place.at)
        return self._daemon

    def _keep_log(self) -> None:
        """Its log goes with its folder, unless a place for logs is known."""
        if self.place.log and self._daemon:
            from netdyno import files

            log = self._daemon.folder / "vswitchd.log"
            if log.exists():
                files.write(self.place.log, log.read_text(errors="replace"))


PORT_FIX = "Other settings of the driver open ports another way: `netdyno switch list` names them"


class OvsNetdev(Ovs):
    """Its datapath in user space, over packet sockets of the kernel's interfaces."""

    driver: ClassVar[str] = "ovs-netdev"
    about: ClassVar[str] = "Open vSwitch's datapath in user space, over packet sockets"


class OvsAfXdp(Ovs):
    """Its datapath in user space, over AF_XDP sockets."""

    driver: ClassVar[str] = "ovs-afxdp"
    about: ClassVar[str] = "Open vSwitch's datapath in user space, over AF_XDP sockets"

    @property
    def visible(self) -> bool:
        """AF_XDP takes frames before captures do."""
        return False

    @classmethod
    def missing(cls) -> str:
        """A build with AF_XDP."""
        program = cls.vswitchd()
        if why := super().missing():
            return why
        if program and b"netdev_afxdp" not in program.read_bytes():
            return "this build of Open vSwitch has no AF_XDP"
        return ""

    def interface(self, port: str) -> tuple[str, list[str]]:
        return port, ["type=afxdp"]


class OvsKernel(Ovs):
    """Its datapath in the kernel."""

    driver: ClassVar[str] = "ovs-kernel"
    about: ClassVar[str] = "Open vSwitch's datapath in the kernel"
    datapath: ClassVar[str] = "system"
    tunnels: ClassVar[bool] = False

    def join(self, end: LineEnd) -> None:
        # the tunnels of its datapath are other modules of the kernel, and have no underlay bridge
        Switch.join(self, end)

    @property
    def segments(self) -> bool:
        """They are the kernel's own."""
        return True

    @classmethod
    def missing(cls) -> str:
        """The kernel's module."""
        if why := super().missing():
            return why
        release = os.uname().release
        modules = Path(f"/lib/modules/{release}")
        loaded = Path("/sys/module/openvswitch").exists()
        lists = [modules / name for name in ("modules.dep", "modules.builtin")]
        if loaded or any(
            "/openvswitch.ko" in one.read_text(errors="replace") for one in lists if one.exists()
        ):
            return ""
        return f"the kernel {release} has no module openvswitch"


_FLOW = re.compile(r"cookie=0x([0-9a-f]+),.*?n_packets=(\d+)")
_PORT = re.compile(r"^\s*port\s+(\S+):\s*rx pkts=(\d+), bytes=(\d+), drop=(\d+|\?).*?\n"
                   r"\s*tx pkts=(\d+), bytes=(\d+), drop=(\d+|\?)", re.MULTILINE)  # fmt: skip
_COLUMNS = ("rx_packets", "rx_bytes", "rx_dropped", "tx_packets", "tx_bytes", "tx_dropped")


_THREAD = {
    "packets received": "packets", "processing cycles": "cycles", "phwol hits": "found.cache",
    "simple match hits": "found.cache", "emc hits": "found.cache", "smc hits": "found.cache",
    "megaflow hits": "found.megaflow", "miss with success upcall": "found.upcall",
    "miss with failed upcall": "drop.failed_upcall",
}  # fmt: skip
"""Lines of `dpif-netdev/pmd-stats-show`, and what they count."""


def parse_threads(text: str) -> dict[str, float]:
    """All threads of a datapath in user space together, from `ovs-appctl dpif-netdev/pmd-stats-show`."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.strip().partition(": ")
        number = re.match(r"\d+", value)
        if number and (key := _THREAD.get(name)):
            found[key] = found.get(key, 0.0) + float(number[0])
    return found


def parse_drops(text: str) -> dict[str, float]:
    """Drops by reason, as `drop.REASON`, from `ovs-appctl coverage/show`."""
    counted = re.findall(r"^(\w*drop\w*)\s.*\btotal: (\d+)", text, re.MULTILINE)
    return {f"drop.{name}": float(count) for name, count in counted}


def parse_flows(text: str) -> dict[int, int]:
    """Packets by cookie, from `ovs-ofctl dump-flows`."""
    found: dict[int, int] = {}
    for cookie, packets in _FLOW.findall(text):
        number = int(cookie, 16)
        found[number] = found.get(number, 0) + int(packets)
    return found


def parse_ports(text: str, ports: Sequence[str]) -> dict[str, float]:
    """Counters of ports, from `ovs-ofctl dump-ports`; what is not counted (`?`) is left out."""
    found: dict[str, float] = {}
    for number, *values in _PORT.findall(text):
        name = number.strip('"')
        if name.isdigit() and 0 < int(name) <= len(ports):
            name = ports[int(name) - 1]
        elif name not in ports:
            continue
        found |= {
            f"{name}.{key}": float(one) for key, one in zip(_COLUMNS, values, strict=True) if one != "?"
        }
    return found
