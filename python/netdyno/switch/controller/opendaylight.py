"""OpenDaylight as a controller: flows and groups in its inventory by RESTCONF (RFC 8040).

It runs here, from an assembly that `./do setup opendaylight` makes, alone or as a cluster, or elsewhere by
its address. The switch's own table shows when its flows are there.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from netdyno.errors import Error
from netdyno.switch.controller import karaf, table
from netdyno.switch.controller.base import Replaceable, Takeover
from netdyno.switch.controller.karaf import Karaf
from netdyno.switch.controller.remote import Remote
from netdyno.switch.controller.rest import Rest
from netdyno.switch.driver.base import Flow, Switch
from netdyno.switch.openflow import action
from netdyno.switch.openflow.action import VLAN_PRESENT, Action, Group, PopVlan, PushVlan, Select
from netdyno.switch.openflow.flow import MatchError, values

PATIENCE = 120.0
"""Seconds in which the switch must have all rules, or another master: a busy machine needs them."""
RESTARTS = 20
"""Restarts of one node, at most."""
MOST_COOKIE = 1 << 16
"""Flows of its own have cookies above."""
NOBODY = "02:00:00:00:ff:fe"
"""The MAC address of no host."""
_ROOT = "/rests/data/opendaylight-inventory:nodes"
_OWNER = "/rests/operations/odl-entity-owners:get-entity"
_ENTITY = "org.opendaylight.mdsal.ServiceEntityType"
_WHOLE = 0xFFFF
"""Bytes of a packet that are output: all."""
_ANY = 0xFFFFFFFF


class OpenDaylight(Remote, Replaceable):
    """OpenDaylight with its OpenFlow plugin."""

    kind: ClassVar[str] = "opendaylight"
    about: ClassVar[str] = (
        "OpenDaylight by RESTCONF: started here, with :3 as a cluster, or elsewhere with url=http://HOST:8181"
    )
    most: ClassVar[int] = 5
    account: ClassVar[tuple[str, str]] = ("admin", "admin")
    title: ClassVar[str] = "OpenDaylight"
    _nodes: Sequence[Karaf] = ()
    """Those that run here."""
    _sites: Sequence[Rest] = ()
    """Where each answers; or the one elsewhere."""
    _node = ""
    """Path of the switch in its data."""

    def setup(self) -> None:
        """Start it if no address is given, and connect the switch."""
        site = self.site
        self._flows: dict[str, dict[str, Any]] = {}
        if self.options.url:
            self._sites = [self.rest(self.options.url)]
            self._read(self._sites[0])
            self.connect_remote()
        else:
            here = range(self.count)
            self._nodes = [
                Karaf(site.folder / f"opendaylight{one + 1}", site.namespace, site.notes, one, self.count)
                for one in here
            ]
            self._sites = [self.rest(f"http://127.0.0.1:{karaf.REST + one}", site.namespace) for one in here]
            for node in self._nodes:
                # one after the other: parts that wait for others for 30 s give up
                node.start()
                node.await_deployed()
            for node in self._nodes:
                self._await_node(node)
            targets = [f"tcp:127.0.0.1:{karaf.OPENFLOW + one}" for one in here]
            site.switch.connect(*targets)
            site.switch.await_connected(*targets)
        self._identity = f"openflow:{int(site.switch.datapath_id(), 16)}"
        self._node = f"{_ROOT}/node={quote(self._identity, safe='')}"
        self._await_inventory()

    def program(self, flows: Sequence[Flow]) -> None:
        """By the flows that differ. The switch's table has each afterwards, and no other. Raises Error."""
        switch, rest = self.site.switch, self._api()
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
        self._wanted = wanted
        self._await_table()
        for number in sorted(there - set(named)):
            rest.delete(f"{self._node}/flow-node-inventory:group={number}")
        self._await_groups(lambda now: now == set(named))

    def dead(self) -> str:
        """How it ended, if it runs here: of a cluster, once a majority does not run any more."""
        ends = [why for one in self._nodes if (why := one.dead())]
        return ends[0] if 2 * len(ends) >= max(1, len(self._nodes)) and ends else ""

    @classmethod
    def most_kills(cls, count: int) -> int:
        """A majority must be left; one that is alone is started again."""
        return RESTARTS if count == 1 else (count - 1) // 2

    def master(self) -> str:
        """The node that owns the switch. Raises Error if there is none."""
        if self.count == 1:
            return karaf.member(0)
        if owner := self._owner():
            return owner
        raise Error("ND-91-42", f"no node of {self.title} owns the switch", at="controller", fix=table.FIX)

    def kill_master(self) -> Takeover:
        """End the node that owns the switch by SIGKILL: another takes over, or it starts again.

        Raises Error if that fails.
        """
        switch, before = self.site.switch, self.master()
        node = next(one for one in self._nodes if one.name == before)
        there = table.ages(switch, _ours)
        began = time.monotonic()
        node.kill()
        if self.count == 1:
            node.restart()
            self._await_node(node)
        former = {"", before} if self.count > 1 else {""}
        self._await("has no other master", lambda: self._owner() not in former)
        elected = time.monotonic() - began
        self._await_inventory()
        self._write_one()
        self._await_table()
        after, took = table.ages(switch, _ours), time.monotonic() - began
        added = sum(age < took for ages in after.values() for age in ages)
        every = sum(map(len, after.values()))
        removed = sum(len(ages) - len(after.get(cookie, ())) for cookie, ages in there.items())
        return Takeover(before, self.master(), elected, took, added, removed, every - added, None)

    def _write_one(self) -> None:
        """Have it write a rule that no packet meets, and take it away. Raises Error."""
        switch = self.site.switch
        one = document(switch, self._identity, Flow(MOST_COOKIE, "", [], {"dl_dst": NOBODY}, priority=1))
        self._api().put(self._flow(one["id"]), {"flow-node-inventory:flow": [one]})
        self._await("writes no rule", lambda: MOST_COOKIE in table.ages(switch, _ours))
        self._api().delete(self._flow(one["id"]))

    def teardown(self) -> None:
        """End it; elsewhere, take the switch's flows out of its data."""
        nodes, self._nodes = self._nodes, ()
        try:
            if not nodes and self._sites and self._node:
                self._sites[0].delete(self._node)
        finally:
            self._node = ""
            super().teardown()
            with contextlib.ExitStack() as every:
                for one in nodes:
                    every.callback(one.stop)

    def _api(self) -> Rest:
        """Where a node answers that runs."""
        alive = (rest for node, rest in zip(self._nodes, self._sites, strict=False) if node.alive())
        return next(alive, self._sites[0])

    def _flow(self, name: str) -> str:
        return f"{self._node}/flow-node-inventory:table=0/flow={quote(name, safe='')}"

    @staticmethod
    def _read(rest: Rest) -> None:
        """Ask for all switches. Raises Error."""
        # without any switch there are no data
        rest.get(f"{_ROOT}?content=nonconfig", 409)

    def _await_node(self, node: Karaf) -> None:
        """Wait until RESTCONF of a node answers: its parts start one after the other. Raises Error."""
        rest = self._sites[node.number]

        def reads() -> bool:
            try:
                self._read(rest)
            except Error:
                return False
            return True

        node.await_answer(rest.answers, "its REST interface")
        node.await_answer(reads, "RESTCONF")
        node.started()

    def _owner(self) -> str:
        """The node that owns the switch, as a node that runs says; empty: none does, or it is not known."""
        entity = f"/odl-general-entity:entity[name='{self._identity}']"
        asked = {"odl-entity-owners:input": {"type": _ENTITY, "name": entity}}
        try:
            said = self._api().post(_OWNER, asked).body
        except Error:
            return ""
        found = (said or {}).get("odl-entity-owners:output", {}).get("owner-node", "")
        return found if isinstance(found, str) else ""

    def _await_inventory(self) -> None:
        """Wait until it knows the switch. Raises Error."""
        what = f"does not list the switch {self._identity}"
        fix = "`openflow=` must be the OpenFlow port of the controller at `url=`"
        path = f"{self._node}?content=nonconfig&fields=id"
        self._await(what, lambda: self._api().get(path, 404, 409).status == 200, fix)

    def _await_table(self) -> None:
        table.await_table(self.site.switch, self._wanted, _ours, self.dead, self.title, PATIENCE)

    def _await_groups(self, right: Callable[[set[int]], bool]) -> None:
        self._await("has not written the groups", lambda: right(set(self.site.switch.groups())))

    def _await(self, what: str, done: Callable[[], bool], fix: str = table.FIX) -> None:
        until = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > until or self.dead():
                said = self.dead() or f"{self.title} {what} within {PATIENCE:g} s"
                raise Error("ND-92-62", said, at="controller", fix=fix)
            time.sleep(0.1)


def _ours(cookie: int) -> bool:
    return cookie <= MOST_COOKIE


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
