"""Faucet as a controller: rules become ACLs of its ports, confirmed by the switch's own table."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from netdyno import files
from netdyno.errors import Error
from netdyno.switch.controller import table
from netdyno.switch.controller.base import Controller
from netdyno.switch.driver.base import Flow, Switch
from netdyno.switch.openflow import action
from netdyno.switch.openflow.action import Action, PopVlan, PushVlan
from netdyno.system import namespace
from netdyno.system.process import Process, last_lines

PROGRAM = "NETDYNO_FAUCET"
"""Environment variable with the path of the program, where it is not in PATH."""
HOST, PORT = "127.0.0.1", 6653
COOKIE = 1524372928
"""Of its own flows, as of its configuration's default."""
PATIENCE = 60.0
"""Seconds in which the switch must have all rules: a busy machine needs them, an idle one a second."""
MOST_COOKIE = 1 << 16
_VLAN = "chain"
_UNUSED = 4090
"""VLAN of ports whose frames no rule lets in."""
_FIELDS = {"nw_proto": "ip_proto", "dl_vlan": "vlan_vid", "dl_type": "eth_type"}
_ETHERNET_TYPES = {"tcp": 0x0800, "udp": 0x0800, "tcp6": 0x86DD, "udp6": 0x86DD}
_IP = {"tcp": 6, "udp": 17}


class Faucet(Controller):
    """The Faucet SDN controller, a program of its own."""

    kind: ClassVar[str] = "faucet"
    about: ClassVar[str] = "Faucet: rules are ACLs in its configuration, which it reloads"
    _process: Process | None = None

    def setup(self) -> None:
        """Start it with no rules, and connect the switch."""
        site = self.site
        program = find_program()
        self._write([])
        folder = site.folder
        environment = {
            "FAUCET_CONFIG": str(folder / "faucet.yaml"), "FAUCET_LOG": str(folder / "faucet.log"),
            "FAUCET_EXCEPTION_LOG": str(folder / "faucet-exceptions.log"),
            "FAUCET_PROMETHEUS_ADDR": HOST, "FAUCET_CONFIG_STAT_RELOAD": "0",
            # it starts osken-manager, which is beside it
            "PATH": f"{Path(program).parent}:{os.environ.get('PATH', os.defpath)}",
        }  # fmt: skip
        self._process = Process(
            [program, "--ryu-ofp-listen-host", HOST, "--ryu-ofp-tcp-listen-port", str(PORT)],
            log=folder / "controller-faucet.log", namespace=site.namespace, environment=environment,
            notes=site.notes,
        )  # fmt: skip
        self._await_listening()
        target = f"tcp:{HOST}:{PORT}"
        site.switch.connect(target)
        site.switch.await_connected(target)

    def program(self, flows: Sequence[Flow]) -> None:
        """By a new configuration. The switch's table has each rule afterwards, and no other. Raises Error."""
        assert self._process is not None, "it is set up"
        wanted = [table.expected(self.site.switch, one) for one in flows]
        self._write(flows)
        self._process.send_all(signal.SIGHUP)
        table.await_table(
            self.site.switch, wanted, lambda cookie: cookie <= MOST_COOKIE,
            lambda: self.dead() or self._rejected(), "Faucet", PATIENCE,
        )  # fmt: skip

    def owns(self, cookie: int) -> bool:
        """Its pipeline has flows of its own behind those of ACLs."""
        return cookie == COOKIE

    def dead(self) -> str:
        """How it ended."""
        process = self._process
        if process is None or process.exited() is None:
            return ""
        return f"the controller faucet ({process.ending()}): {process.tail(3) or self._words()}"

    def teardown(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process:
            process.stop()

    def _await_listening(self) -> None:
        until = time.monotonic() + PATIENCE
        while not namespace.inside(self.site.namespace, _listens):
            why = self.dead()
            if why or time.monotonic() > until:
                what = f"Faucet does not start: {why or self._words()}"
                raise Error("ND-92-62", what, at="controller", fix="`faucet -V` shows whether it is whole")
            time.sleep(0.05)

    def _write(self, flows: Sequence[Flow]) -> None:
        # YAML has all of JSON
        document = json.dumps(configuration(self.site.switch, flows), indent=1)
        files.write(self.site.folder / "faucet.yaml", document)

    def _rejected(self) -> str:
        bad = next(
            (one for one in last_lines(self.site.folder / "faucet.log") if "New config bad" in one), ""
        )
        return (
            f"Faucet rejects its configuration: {bad.partition('New config bad')[2].strip()}" if bad else ""
        )

    def _words(self) -> str:
        every = last_lines(self.site.folder / "faucet.log")
        trouble = [one for one in every if re.search(r"ERROR|WARNING|bad|invalid", one)]
        return " | ".join((trouble or every)[-2:]) or "no log"


def _listens() -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, PORT)) == 0


def find_program() -> str:
    """The program. Raises Error that says how to get it."""
    named = os.environ.get(PROGRAM)
    program = shutil.which(named or "faucet")
    if program is None:
        what = f"{PROGRAM} names {named!r}, which is no program" if named else "the program faucet is missing"
        fix = (
            "It needs a virtual environment of its own: python3 -m venv ~/faucet && "
            "~/faucet/bin/pip install faucet; "
            f"then set {PROGRAM}=~/faucet/bin/faucet"
        )
        raise Error("ND-92-62", what, at="controller", fix=fix)
    return program


def configuration(switch: Switch, flows: Sequence[Flow]) -> dict[str, Any]:
    """Faucet's configuration: an ACL for each port, with its rules by priority. Raises Error."""
    rules: dict[int, list[Flow]] = {number: [] for number in switch.numbers.values()}
    for flow in flows:
        switch.check_ports(flow)
        if not flow.in_port or flow.cookie > MOST_COOKIE:
            raise _refused(flow, "Faucet's ACLs are of ports, with cookies up to 65,536")
        rules[switch.numbers[flow.in_port]].append(flow)
    acls = {
        f"port{number}": [
            {"rule": _rule(switch, one)} for one in sorted(of, key=lambda one: -one.priority)
        ] + [{"rule": {"actions": {"allow": 0}}}]
        for number, of in rules.items()
    }  # fmt: skip
    # a key of JSON is a word, and a port's number is none
    ports = {
        f"port{number}": {"number": number, "native_vlan": _VLAN, "acls_in": [f"port{number}"]}
        for number in rules
    }
    identity = int(switch.datapath_id(), 16)
    return {
        "acls": acls, "vlans": {_VLAN: {"vid": _UNUSED}},
        "dps": {"switch": {"dp_id": identity, "hardware": "Open vSwitch", "interfaces": ports}},
    }  # fmt: skip


def _rule(switch: Switch, flow: Flow) -> dict[str, Any]:
    acts: dict[str, Any] = {"allow": 0}
    if flow.actions:
        acts["output"] = [_action(flow, one) for one in action.renamed(flow.actions, switch.numbers)]
    return {**_match(flow), "cookie": flow.cookie, "actions": acts}


def _match(flow: Flow) -> dict[str, int]:
    made: dict[str, int] = {}
    protocol = next((name for name in flow.match if name in _ETHERNET_TYPES), "")
    if protocol:
        made = {"eth_type": _ETHERNET_TYPES[protocol], "ip_proto": _IP[protocol[:3]]}
    for name, value in flow.match.items():
        if name == protocol:
            continue
        known = f"{protocol[:3]}_{name[3:]}" if name in ("tp_src", "tp_dst") else _FIELDS.get(name)
        if known is None or name.startswith("nsh"):
            raise _refused(flow, f"Faucet does not match {name}")
        made[known] = int(value, 0)
    return made


def _action(flow: Flow, one: Action) -> Mapping[str, Any]:
    if isinstance(one, str | int):
        return {"port": int(one)}
    if isinstance(one, PushVlan):
        return {"vlan_vid": one.vid}
    if isinstance(one, PopVlan):
        return {"pop_vlans": 1}
    raise _refused(flow, f"Faucet has no action for {type(one).__name__}")


def _refused(flow: Flow, why: str) -> Error:
    fix = "Use steering in_port or vlan without replicas, or --controller embedded"
    return Error(
        "ND-104-83", f"the flow {flow.cookie} cannot be given to Faucet: {why}", at="controller", fix=fix
    )
