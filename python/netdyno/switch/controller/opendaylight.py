"""OpenDaylight as a controller: flows and groups in its inventory by RESTCONF (RFC 8040).

It runs here, from an assembly that `./do setup opendaylight` makes, or elsewhere by its address. The switch's
own table shows when its flows are there.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from netdyno.errors import Error
from netdyno.switch.controller import table
from netdyno.switch.controller.karaf import START, Karaf
from netdyno.switch.controller.remote import Remote
from netdyno.switch.controller.rest import Rest
from netdyno.switch.driver.base import Flow, Switch
from netdyno.switch.openflow import action
from netdyno.switch.openflow.action import VLAN_PRESENT, Action, Group, PopVlan, PushVlan, Select
from netdyno.switch.openflow.flow import MatchError, values

REST_PORT, OPENFLOW = 8181, 6653
PATIENCE = 60.0
"""Seconds in which the switch must have all rules: a busy machine needs them, an idle one a second."""
MOST_COOKIE = 1 << 16
"""Flows of its own have cookies above."""
_ROOT = "/rests/data/opendaylight-inventory:nodes"
_WHOLE = 0xFFFF
"""Bytes of a packet that are output: all."""
_ANY = 0xFFFFFFFF


class OpenDaylight(Remote):
    """OpenDaylight with its OpenFlow plugin."""

    kind: ClassVar[str] = "opendaylight"
    about: ClassVar[str] = "OpenDaylight by RESTCONF: started here, or elsewhere with url=http://HOST:8181"
    account: ClassVar[tuple[str, str]] = ("admin", "admin")
    title: ClassVar[str] = "OpenDaylight"
    _karaf: Karaf | None = None
    _rest: Rest | None = None
    _node = ""
    """Path of the switch in its data."""

    def setup(self) -> None:
        """Start it if no address is given, and connect the switch."""
        site = self.site
        self._flows: dict[str, dict[str, Any]] = {}
        if self.options.url:
            self._rest = self.rest(self.options.url)
            self._ready()
            self.connect_remote()
        else:
            self._karaf = Karaf(site.folder / "opendaylight", site.namespace, site.notes)
            self._rest = self.rest(f"http://127.0.0.1:{REST_PORT}", site.namespace)
            self._karaf.start()
            self._karaf.await_answer(self._rest.answers, "its REST interface")
            self._ready()
            target = f"tcp:127.0.0.1:{OPENFLOW}"
            site.switch.connect(target)
            site.switch.await_connected(target)
        self._identity = f"openflow:{int(site.switch.datapath_id(), 16)}"
        self._node = f"{_ROOT}/node={quote(self._identity, safe='')}"
        self._await_inventory()

    def program(self, flows: Sequence[Flow]) -> None:
        """By the flows that differ. The switch's table has each afterwards, and no other. Raises Error."""
        assert self._rest is not None, "it is set up"
        switch, rest = self.site.switch, self._rest
        wanted = [table.expected(switch, one) for one in flows]
        made = {one["id"]: one for one in (document(switch, self._identity, flow) for flow in flows)}
        named = {one.number: one for flow in flows for one in action.groups(_numbered(switch, flow))}
        there = set(switch.groups())
        for number in sorted(set(named) - there):
            rest.put(
                f"{self._node}/flow-node-inventory:group={number}",
                {"flow-node-inventory:group": [group_document(named[number])]},
            )
        self._await_groups(lambda now: set(named) <= now)
        # an entry of the same match with another number would be taken away after it was written
        for name in [one for one in self._flows if one not in made]:
            rest.delete(self._flow(name))
            del self._flows[name]
        for name, one in made.items():
            if self._flows.get(name) != one:
                rest.put(self._flow(name), {"flow-node-inventory:flow": [one]})
                self._flows[name] = one
        table.await_table(
            switch, wanted, lambda cookie: cookie <= MOST_COOKIE, self.dead, self.title, PATIENCE
        )
        for number in sorted(there - set(named)):
            rest.delete(f"{self._node}/flow-node-inventory:group={number}")
        self._await_groups(lambda now: now == set(named))

    def dead(self) -> str:
        """How it ended, if it runs here."""
        return self._karaf.dead() if self._karaf else ""

    def teardown(self) -> None:
        """End it; elsewhere, take the switch's flows out of its data."""
        karaf, self._karaf = self._karaf, None
        try:
            if karaf is None and self._rest and self._node:
                self._rest.delete(self._node)
        finally:
            self._node = ""
            super().teardown()
            if karaf:
                karaf.stop()

    def _flow(self, name: str) -> str:
        return f"{self._node}/flow-node-inventory:table=0/flow={quote(name, safe='')}"

    def _ready(self) -> None:
        """Wait until RESTCONF answers: its parts start one after the other. Raises Error."""
        assert self._rest is not None
        until = time.monotonic() + (START if self._karaf else 0.0)
        while True:
            try:
                # without any switch there are no data
                self._rest.get(f"{_ROOT}?content=nonconfig", 409)
                return
            except Error:
                if self.dead() or time.monotonic() > until:
                    raise
            time.sleep(0.2)

    def _await_inventory(self) -> None:
        """Wait until it knows the switch. Raises Error."""
        assert self._rest is not None
        until = time.monotonic() + PATIENCE
        while self._rest.get(f"{self._node}?content=nonconfig&fields=id", 404, 409).status != 200:
            if time.monotonic() > until or self.dead():
                what = f"{self.title} does not list the switch {self._identity} within {PATIENCE:g} s"
                fix = "`openflow=` must be the OpenFlow port of the controller at `url=`"
                raise Error("ND-92-62", self.dead() or what, at="controller", fix=fix)
            time.sleep(0.1)

    def _await_groups(self, right: Callable[[set[int]], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not right(set(self.site.switch.groups())):
            if time.monotonic() > until or self.dead():
                what = f"{self.title} has not written the groups within {PATIENCE:g} s"
                raise Error("ND-92-62", self.dead() or what, at="controller", fix=table.FIX)
            time.sleep(0.05)


def document(switch: Switch, identity: str, flow: Flow) -> dict[str, Any]:
    """A flow in the inventory's form. Raises Error if it cannot be."""
    match, numbered = _match(flow), _numbered(switch, flow)
    if flow.in_port:
        match["in-port"] = f"{identity}:{switch.numbers[flow.in_port]}"
    number = hashlib.sha256(json.dumps([flow.priority, match], sort_keys=True).encode()).hexdigest()[:12]
    actions = [each for one in numbered for each in _action(flow, one)]
    made: dict[str, Any] = {
        # one of another match is another flow, and so is one of another number
        "id": f"{flow.cookie}-{number}", "table_id": 0, "cookie": flow.cookie, "priority": flow.priority,
        "match": match,
    }  # fmt: skip
    if actions:
        listed = [{"order": order, **one} for order, one in enumerate(actions)]
        made["instructions"] = {"instruction": [{"order": 0, "apply-actions": {"action": listed}}]}
    return made


def group_document(group: Group) -> dict[str, Any]:
    """A group of type `select` in the inventory's form."""
    buckets = [
        {"bucket-id": number, "weight": 1, "watch_port": _ANY, "watch_group": _ANY,
         "action": [{"order": 0, **_output(port)}]}
        for number, port in enumerate(group.ports)
    ]  # fmt: skip
    return {"group-id": group.number, "group-type": "group-select", "buckets": {"bucket": buckets}}


def _numbered(switch: Switch, flow: Flow) -> list[Action]:
    switch.check_ports(flow)
    return action.renamed(flow.actions, switch.numbers)


def _match(flow: Flow) -> dict[str, Any]:
    try:
        known = values(flow.match)
    except MatchError as e:
        raise _refused(flow, str(e)) from None
    made: dict[str, Any] = {}
    ethernet: dict[str, Any] = {}
    for name, value in known.items():
        if name == "eth_type":
            ethernet["ethernet-type"] = {"type": value}
        elif name in ("eth_src", "eth_dst"):
            text = ":".join(f"{one:02x}" for one in value.to_bytes(6, "big"))
            ethernet["ethernet-source" if name == "eth_src" else "ethernet-destination"] = {"address": text}
        elif name == "vlan_vid":
            made["vlan-match"] = _vlan(value & ~VLAN_PRESENT)
        elif name == "ip_proto":
            made["ip-match"] = {"ip-protocol": value}
        elif name in ("ipv4_src", "ipv4_dst"):
            key = "ipv4-source" if name == "ipv4_src" else "ipv4-destination"
            made[key] = f"{ipaddress.IPv4Address(value)}/32"
        elif name.startswith(("tcp_", "udp_")):
            made[f"{name[:3]}-{'source' if name.endswith('src') else 'destination'}-port"] = value
        else:
            raise _refused(flow, f"it has no match for {name}")
    return {**made, "ethernet-match": ethernet} if ethernet else made


def _action(flow: Flow, one: Action) -> list[dict[str, Any]]:
    if isinstance(one, str | int):
        return [_output(int(one))]
    if isinstance(one, PushVlan):
        return [{"push-vlan-action": {"ethernet-type": 0x8100}},
                {"set-field": {"vlan-match": _vlan(one.vid)}}]  # fmt: skip
    if isinstance(one, PopVlan):
        return [{"pop-vlan-action": {}}]
    if isinstance(one, Select):
        return [{"group-action": {"group-id": one.group().number}}]
    raise _refused(flow, f"it has no action for {type(one).__name__}")


def _output(port: int) -> dict[str, Any]:
    return {"output-action": {"output-node-connector": str(port), "max-length": _WHOLE}}


def _vlan(identifier: int) -> dict[str, Any]:
    return {"vlan-id": {"vlan-id": identifier, "vlan-id-present": True}}


def _refused(flow: Flow, why: str) -> Error:
    what = f"the flow {flow.cookie} cannot be given to OpenDaylight: {why}"
    fix = "Use steering in_port or vlan, or --controller embedded"
    return Error("ND-104-83", what, at="controller", fix=fix)
