"""ONOS as a controller by the address of its REST interface: flows at `/onos/v1/flows`.

ONOS gives each flow its own cookie, the flow's identifier; the switch's own table shows when flows are there.
"""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import Field

from netdyno.config import Config
from netdyno.errors import Error
from netdyno.switch.controller import table
from netdyno.switch.controller.remote import Remote, RemoteSettings
from netdyno.switch.controller.rest import Rest
from netdyno.switch.driver.base import Flow, Switch
from netdyno.switch.openflow import action
from netdyno.switch.openflow.action import VLAN_PRESENT, Action, PopVlan, PushVlan
from netdyno.switch.openflow.flow import MatchError, values

PATIENCE = 60.0
"""Seconds in which the switch must have all rules."""
ABOVE = 50_000
"""Added to priorities: flows of ONOS's own, which send ARP and LLDP to it, have 40,000."""
MOST_PRIORITY = 0xFFFF
_APPLICATION = "netdyno"
_FLOWS = "/onos/v1/flows"


class OnosSettings(RemoteSettings):
    """Where ONOS is, and the account there."""

    url: str = Field(min_length=1)


class Onos(Remote):
    """ONOS, which runs elsewhere."""

    kind: ClassVar[str] = "onos"
    about: ClassVar[str] = "ONOS by its REST interface, elsewhere: url=http://HOST:8181"
    account: ClassVar[tuple[str, str]] = ("onos", "rocks")
    title: ClassVar[str] = "ONOS"
    Options: ClassVar[type[Config]] = OnosSettings
    _rest: Rest | None = None
    _device = ""

    def setup(self) -> None:
        """Connect the switch, and wait until ONOS lists it. Raises Error."""
        self._flows: dict[str, tuple[dict[str, Any], int]] = {}
        self._numbers: dict[int, int] = {}
        self._rest = self.rest(self.options.url)
        self._rest.get("/onos/v1/devices")
        self.connect_remote()
        device = f"of:{int(self.site.switch.datapath_id(), 16):016x}"
        until = time.monotonic() + PATIENCE
        while not self._available(device):
            if time.monotonic() > until:
                what = f"ONOS does not list the switch {device} within {PATIENCE:g} s"
                fix = "Its application org.onosproject.openflow must be active, at the port of openflow="
                raise Error("ND-92-62", what, at="controller", fix=fix)
            time.sleep(0.1)
        self._device = device

    def program(self, flows: Sequence[Flow]) -> None:
        """By the flows that differ. The switch's table has each afterwards, and no other. Raises Error."""
        assert self._rest is not None, "it is set up"
        switch, device = self.site.switch, quote(self._device, safe="")
        every = [(flow, document(switch, self._device, flow)) for flow in flows]
        made = {_key(body): body for _, body in every}
        for key in [one for one in self._flows if one not in made]:
            self._rest.delete(f"{_FLOWS}/{device}/{self._flows.pop(key)[1]}")
        for key, body in made.items():
            if key not in self._flows or self._flows[key][0] != body:
                answer = self._rest.post(f"{_FLOWS}/{device}?appId={_APPLICATION}", body)
                self._flows[key] = body, _identifier(answer.headers.get("location", ""))
        cookies = {flow.cookie: self._flows[_key(body)][1] for flow, body in every}
        self._numbers |= {cookie: number for number, cookie in cookies.items()}
        wanted = [table.expected(switch, flow)._replace(cookie=cookies[flow.cookie]) for flow in flows]
        table.await_table(
            switch, wanted, lambda cookie: cookie in self._numbers, self.dead, self.title, PATIENCE
        )

    def number(self, cookie: int) -> int:
        """ONOS chooses cookies."""
        return self._numbers.get(cookie, cookie)

    def dead(self) -> str:
        """It runs elsewhere: the switch's flows stay without it."""
        return ""

    def teardown(self) -> None:
        """Take its flows away."""
        try:
            if self._rest and self._device:
                self._rest.delete(f"{_FLOWS}/application/{_APPLICATION}")
        finally:
            self._device = ""
            super().teardown()

    def _available(self, device: str) -> bool:
        assert self._rest is not None
        found = self._rest.get(f"/onos/v1/devices/{quote(device, safe='')}", 404)
        return found.status == 200 and isinstance(found.body, dict) and found.body.get("available") is True


def _key(body: dict[str, Any]) -> str:
    """Tells flows apart as ONOS does: by priority and match, and not by what is done."""
    return json.dumps([body["priority"], body["selector"]], sort_keys=True)


def _identifier(location: str) -> int:
    """Of a flow, from the address that it has."""
    try:
        return int(location.rpartition("/")[2])
    except ValueError:
        what = f"ONOS created a flow and does not say which: location {location[:80]!r}"
        raise Error("ND-92-62", what, at="controller", fix="Give ONOS's REST interface with url=") from None


def document(switch: Switch, device: str, flow: Flow) -> dict[str, Any]:
    """A flow in ONOS's form. Raises Error if it cannot be."""
    switch.check_ports(flow)
    priority = flow.priority + ABOVE
    if priority > MOST_PRIORITY:
        raise _refused(flow, f"its priority would be {priority:,}")
    criteria = _criteria(flow)
    if flow.in_port:
        criteria.append({"type": "IN_PORT", "port": switch.numbers[flow.in_port]})
    actions = action.renamed(flow.actions, switch.numbers)
    made = [each for one in actions for each in _instructions(flow, one)] or [{"type": "NOACTION"}]
    return {
        "deviceId": device, "tableId": 0, "priority": priority, "timeout": 0, "isPermanent": True,
        "selector": {"criteria": criteria}, "treatment": {"instructions": made},
    }  # fmt: skip


def _criteria(flow: Flow) -> list[dict[str, Any]]:
    try:
        known = values(flow.match)
    except MatchError as e:
        raise _refused(flow, str(e)) from None
    made: list[dict[str, Any]] = []
    for name, value in known.items():
        kind = name.upper()
        if name == "eth_type":
            made.append({"type": kind, "ethType": f"{value:#x}"})
        elif name in ("eth_src", "eth_dst"):
            text = ":".join(f"{one:02X}" for one in value.to_bytes(6, "big"))
            made.append({"type": kind, "mac": text})
        elif name == "vlan_vid":
            made.append({"type": kind, "vlanId": value & ~VLAN_PRESENT})
        elif name == "ip_proto":
            made.append({"type": kind, "protocol": value})
        elif name in ("ipv4_src", "ipv4_dst"):
            made.append({"type": kind, "ip": f"{ipaddress.IPv4Address(value)}/32"})
        elif name.startswith(("tcp_", "udp_")):
            made.append({"type": kind, f"{name[:3]}Port": value})
        else:
            raise _refused(flow, f"netdyno does not give it matches of {name}")
    return made


def _instructions(flow: Flow, one: Action) -> list[dict[str, Any]]:
    if isinstance(one, str | int):
        return [{"type": "OUTPUT", "port": str(one)}]
    if isinstance(one, PushVlan):
        return [{"type": "L2MODIFICATION", "subtype": "VLAN_PUSH"},
                {"type": "L2MODIFICATION", "subtype": "VLAN_ID", "vlanId": one.vid}]  # fmt: skip
    if isinstance(one, PopVlan):
        return [{"type": "L2MODIFICATION", "subtype": "VLAN_POP"}]
    raise _refused(flow, f"netdyno does not give it actions of {type(one).__name__}")


def _refused(flow: Flow, why: str) -> Error:
    what = f"the flow {flow.cookie} cannot be given to ONOS: {why}"
    fix = "Use steering in_port or vlan without replicas, or --controller embedded"
    return Error("ND-104-83", what, at="controller", fix=fix)
