"""A stand-in for a controller: a REST interface in front of an OpenFlow 1.3 controller of our own.

What is written over REST is turned into flow entries by this file's own reading, and sent to the real switch.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import http.server
import json
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from netdyno.switch.controller.channel import Channel
from netdyno.switch.openflow import message as of
from netdyno.switch.openflow.action import Group, PopVlan, PushVlan, Select
from netdyno.switch.openflow.flow import FlowEntry, entry


class StandIn:
    """It serves from its making to its closing."""

    account = ("admin", "admin")

    def __init__(self) -> None:
        self.flows: dict[str, Any] = {}
        self.groups: dict[int, Any] = {}
        self.requests: list[tuple[str, str]] = []
        self.broken: tuple[int, bytes] | None = None
        """What it answers each request with, in place of an answer."""
        self.silent = 0.0
        """Seconds that it takes to answer."""
        self.deaf = False
        """It writes nothing to the switch."""
        self._channels: list[Channel] = []
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        threading.Thread(target=self._serve_switches, daemon=True).start()
        assert self._up.wait(10)
        stand_in = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                stand_in.requests.append((self.command, self.path))
                time.sleep(stand_in.silent)
                pair = base64.b64encode(":".join(stand_in.account).encode()).decode()
                location = ""
                if stand_in.broken:
                    status, text = stand_in.broken
                elif self.headers.get("Authorization") != f"Basic {pair}":
                    status, text = 401, b"<html>Unauthorized</html>"
                else:
                    status, found, location = stand_in.rest(self.command, self.path, body)
                    text = b"" if found is None else json.dumps(found).encode()
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    if location:
                        self.send_header("Location", location)
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)

            do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - names of the library

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def options(self) -> str:
        """As words of --controller."""
        return f"url={self.url},openflow=127.0.0.1:{self.openflow}"

    @property
    def datapaths(self) -> list[int]:
        """Switches that are connected."""
        return [one.datapath for one in self._channels if not one.closed.is_set()]

    def rest(self, verb: str, path: str, body: Any) -> tuple[int, Any, str]:
        """Status, answer, and the address of what was created."""
        raise NotImplementedError

    def entries(self) -> list[FlowEntry]:
        """Its flows, as they go to the switch."""
        raise NotImplementedError

    def group(self, number: int) -> Group:
        """One of its groups."""
        raise NotImplementedError

    def write(self) -> None:
        """Make the switch's flows those that it has."""
        if not self.deaf:
            asyncio.run_coroutine_threadsafe(self._write(self.entries()), self._loop).result(30)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _write(self, wanted: list[FlowEntry]) -> None:
        for channel in self._channels:
            if not channel.closed.is_set():
                await channel.reconcile(wanted)
                # one that no flow names is there, too
                missing = set(self.groups) - await channel.groups()
                if missing:
                    made = [self.group(number) for number in missing]
                    await channel._commit([(of.GROUP_MOD, of.group_mod(of.ADD, one)) for one in made])

    def _serve_switches(self) -> None:
        asyncio.set_event_loop(self._loop)

        async def begin() -> None:
            server = await asyncio.start_server(self._switch, "127.0.0.1", 0)
            self.openflow = server.sockets[0].getsockname()[1]
            self._up.set()

        self._loop.create_task(begin())
        self._loop.run_forever()

    async def _switch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = Channel(reader, writer)
        with contextlib.suppress(Exception):
            await channel.open()
            self._channels.append(channel)
            await channel.closed.wait()
        channel.close()


class RestconfStandIn(StandIn):
    """Flows and groups in OpenDaylight's inventory (RFC 8040)."""

    def rest(self, verb: str, path: str, body: Any) -> tuple[int, Any, str]:
        parts = urlsplit(path)
        root, _, rest = parts.path.removeprefix("/rests/data/opendaylight-inventory:nodes").partition(
            "/node="
        )
        if root or not parts.path.startswith("/rests/data/"):
            return 404, {"errors": {"error": [{"error-message": "no such path"}]}}, ""
        node, *below = rest.split("/")
        known = [f"openflow:{one}" for one in self.datapaths]
        if verb == "GET":
            if not known or (node and unquote(node) not in known):
                return 409, {"errors": {"error": [{"error-message": "data missing"}]}}, ""
            return 200, {"opendaylight-inventory:node": [{"id": unquote(node)}]}, ""
        assert unquote(node) in known, node
        kind, _, number = (
            below[-1].removeprefix("flow-node-inventory:").partition("=") if below else ("", "", "")
        )
        if verb == "DELETE":
            if not below:
                self.flows, self.groups = {}, {}
            (self.groups.pop(int(number), None) if kind == "group" else self.flows.pop(unquote(number), None))
        elif kind == "group":
            self.groups[int(number)] = body["flow-node-inventory:group"][0]
        else:
            assert below[0] == "flow-node-inventory:table=0"
            self.flows[unquote(number)] = body["flow-node-inventory:flow"][0]
        self.write()
        return 204, None, ""

    def entries(self) -> list[FlowEntry]:
        return [self._entry(one) for one in self.flows.values()]

    def group(self, number: int) -> Group:
        one = self.groups[number]
        assert one["group-type"] == "group-select"
        acts = [each["action"][0]["output-action"] for each in one["buckets"]["bucket"]]
        return Select(tuple(int(each["output-node-connector"]) for each in acts)).group()

    def _entry(self, one: Mapping[str, Any]) -> FlowEntry:
        match: dict[str, str] = {}
        port: int | None = None
        for key, value in one["match"].items():
            if key == "in-port":
                port = int(value.rpartition(":")[2])
            elif key == "ethernet-match":
                for name, of in value.items():
                    if name == "ethernet-type":
                        match["dl_type"] = str(of["type"])
                    else:
                        match["dl_src" if name == "ethernet-source" else "dl_dst"] = of["address"]
            elif key == "ip-match":
                match["nw_proto"] = str(value["ip-protocol"])
            elif key == "vlan-match":
                assert value["vlan-id"]["vlan-id-present"] is True
                match["dl_vlan"] = str(value["vlan-id"]["vlan-id"])
            elif key.endswith("-port"):
                protocol, way, _ = key.split("-")
                match[f"{protocol}_{'src' if way == 'source' else 'dst'}"] = str(value)
            else:
                match["nw_src" if key == "ipv4-source" else "nw_dst"] = value.removesuffix("/32")
        actions: list[Any] = []
        listed = (
            one["instructions"]["instruction"][0]["apply-actions"]["action"] if "instructions" in one else []
        )
        for each in sorted(listed, key=lambda act: int(act["order"])):
            if "output-action" in each:
                actions.append(int(each["output-action"]["output-node-connector"]))
            elif "push-vlan-action" in each:
                assert each["push-vlan-action"]["ethernet-type"] == 0x8100
            elif "set-field" in each:
                actions.append(PushVlan(each["set-field"]["vlan-match"]["vlan-id"]["vlan-id"]))
            elif "pop-vlan-action" in each:
                actions.append(PopVlan())
            else:
                actions.append(Select(self.group(each["group-action"]["group-id"]).ports))
        return entry(one["cookie"], one["priority"], port, match, actions)


class OnosStandIn(StandIn):
    """Flows at `/onos/v1/flows`, each with a cookie of ONOS's choice."""

    account = ("onos", "rocks")

    def rest(self, verb: str, path: str, body: Any) -> tuple[int, Any, str]:
        parts = urlsplit(path)
        words = [unquote(one) for one in parts.path.removeprefix("/onos/v1/").split("/")]
        known = [f"of:{one:016x}" for one in self.datapaths]
        if words == ["devices"]:
            return 200, {"devices": [{"id": one} for one in known]}, ""
        if words[0] == "devices":
            return (200, {"id": words[1], "available": True}, "") if words[1] in known else (404, {}, "")
        if words[0] != "flows":
            return 404, {"code": 404, "message": "no such path"}, ""
        if verb == "DELETE":
            if words[1] == "application":
                self.flows = {}
            else:
                self.flows.pop(words[2], None)
            self.write()
            return 204, None, ""
        assert words[1] in known and body["deviceId"] == words[1] and "appId=" in parts.query
        # ONOS makes the identifier of priority and match, and not of what is done
        key = json.dumps([body["priority"], body["selector"]], sort_keys=True).encode()
        number = str(int.from_bytes(hashlib.sha256(key).digest()[:7], "big"))
        self.flows[number] = body
        self.write()
        return 201, None, f"{self.url}/onos/v1/flows/{words[1]}/{number}"

    def entries(self) -> list[FlowEntry]:
        return [self._entry(int(number), one) for number, one in self.flows.items()]

    def _entry(self, cookie: int, one: Mapping[str, Any]) -> FlowEntry:
        match: dict[str, str] = {}
        port: int | None = None
        for each in one["selector"]["criteria"]:
            value = next(value for key, value in each.items() if key != "type")
            if each["type"] == "IN_PORT":
                port = int(value)
            elif each["type"] == "ETH_TYPE":
                match["dl_type"] = value
            elif each["type"] == "VLAN_VID":
                match["dl_vlan"] = str(value)
            elif each["type"].startswith("IPV4"):
                match[each["type"].lower()] = value.removesuffix("/32")
            else:
                match[each["type"].lower()] = str(value)
        actions: list[Any] = []
        for each in one["treatment"]["instructions"]:
            if each["type"] == "OUTPUT":
                actions.append(int(each["port"]))
            elif each.get("subtype") == "VLAN_ID":
                actions.append(PushVlan(each["vlanId"]))
            elif each.get("subtype") == "VLAN_POP":
                actions.append(PopVlan())
        return entry(cookie, one["priority"], port, match, actions)


@contextlib.contextmanager
def serving(kind: type[StandIn]) -> Iterator[StandIn]:
    made = kind()
    try:
        yield made
    finally:
        made.close()
