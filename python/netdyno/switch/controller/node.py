"""A controller as a process: `python -m netdyno.switch.controller.node`, started by `embedded.py`.

It listens for switches, takes part in the election if there is an etcd, and gets the wanted flows over a Unix
socket, one JSON object a line. The master makes its switches equal to them; a new one reads them from etcd.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
import zlib
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

from netdyno.switch.controller.channel import Change, Channel, ChannelError
from netdyno.switch.controller.election import MASTER_KEY, Election
from netdyno.switch.controller.etcd import Etcd, EtcdError
from netdyno.switch.openflow import message as of
from netdyno.switch.openflow.flow import FlowEntry
from netdyno.switch.openflow.message import OpenFlowError

FLOWS_KEY = "/netdyno/chain/flows"
LINE = 64 << 20
"""Bytes of a request at most."""


class Node:
    """One controller."""

    def __init__(self, name: str, etcd: Etcd | None, host: str, port: int) -> None:
        self.etcd, self.name = etcd, name
        self.election = Election(etcd, name, host, port) if etcd else None
        self.master = False
        self.generation = 0
        self.wanted: list[FlowEntry] | None = None
        self.channels: set[Channel] = set()
        self.elected_at = self.confirmed_at = 0.0
        self.change: Change | None = None
        self.error = ""

    async def lead(self, generation: int) -> None:
        """Become master of all switches and make their flows what is wanted."""
        self.elected_at, self.master, self.generation = time.monotonic(), True, generation
        if self.etcd:
            kept = await asyncio.to_thread(self.etcd.get, FLOWS_KEY)
            self.wanted = _unpacked(kept.value) if kept else None
        for channel in list(self.channels):
            await self._lead(channel)
        print(f"master with generation id {generation}, {self._changed()}", flush=True)

    async def follow(self, generation: int) -> None:
        """Become a slave of all switches."""
        if self.master:
            print(f"no longer master with generation id {self.generation}", flush=True)
        self.master, self.generation = False, generation
        for channel in list(self.channels):
            with contextlib.suppress(OpenFlowError, ChannelError):
                await channel.role(of.SLAVE, generation)

    async def _lead(self, channel: Channel) -> None:
        try:
            await channel.role(of.MASTER, self.generation)
            if self.wanted is not None:
                self.change = await channel.reconcile(self.wanted)
            self.error, self.confirmed_at = "", time.monotonic()
        except (OpenFlowError, ChannelError) as e:
            self.error = f"switch {channel.datapath:#x}: {e}"
            print(self.error, flush=True)

    def _changed(self) -> str:
        if self.change is None:
            return "no flows yet"
        return f"{self.change.added} flows added, {self.change.removed} removed, {self.change.kept} kept"

    async def switch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a switch until its connection ends."""
        channel = Channel(reader, writer)
        try:
            await channel.open()
            self.channels.add(channel)
            print(f"switch {channel.datapath:#x} connected", flush=True)
            if self.master:
                await self._lead(channel)
            elif self.generation:
                await channel.role(of.SLAVE, self.generation)
            channel.ready = True
            await channel.closed.wait()
            print(f"switch {channel.datapath:#x}: {channel.why}", flush=True)
        except (ChannelError, OpenFlowError) as e:
            self.error = f"a peer at the OpenFlow port: {e}"
            print(self.error, flush=True)
        finally:
            self.channels.discard(channel)
            channel.close()

    async def control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests of the application."""
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(json.loads(line))).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("do") == "program":
            try:
                return await self._program(request["flows"])
            except (EtcdError, OpenFlowError, ChannelError) as e:
                return {"error": str(e)}
        return {
            "name": self.name, "master": self.master, "generation": self.generation,
            "switches": sum(one.ready for one in self.channels),
            "elected_at": self.elected_at, "confirmed_at": self.confirmed_at,
            "added": self.change.added if self.change else 0,
            "removed": self.change.removed if self.change else 0,
            "kept": self.change.kept if self.change else 0,
            "error": (self.election.error if self.election else "") or self.error,
        }  # fmt: skip

    async def _program(self, flows: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.master:
            return {"error": "this controller is not the master"}
        wanted = [FlowEntry.of(one) for one in flows]
        if self.etcd:
            text = _packed(flows)
            if not await asyncio.to_thread(self.etcd.put_if, FLOWS_KEY, text, MASTER_KEY, self.generation):
                return {"error": "this controller is not the master any more"}
        self.wanted = wanted
        if not self.channels:
            return {"error": "no switch is connected"}
        for channel in list(self.channels):
            self.change = await channel.reconcile(wanted)
        assert self.change is not None
        return {"added": self.change.added, "removed": self.change.removed, "kept": self.change.kept}


def _packed(flows: list[dict[str, Any]]) -> str:
    return b64encode(zlib.compress(json.dumps(flows).encode())).decode()


def _unpacked(text: str) -> list[FlowEntry]:
    try:
        return [FlowEntry.of(one) for one in json.loads(zlib.decompress(b64decode(text)))]
    except (ValueError, KeyError, zlib.error) as e:
        raise EtcdError(f"the flows at {FLOWS_KEY} cannot be read: {e}") from None


async def _hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A follower's connection: it stays open while this process lives."""
    with contextlib.suppress(OSError):
        await reader.read()
    writer.close()


async def serve(name: str, host: str, port: int, peers: int, control: Path, etcd: Etcd | None) -> None:
    """Listen for switches at `port`, followers at `peers`, and requests at `control`, until it is ended."""
    node = Node(name, etcd, host, peers)
    servers = [await asyncio.start_server(node.switch, host, port)]
    if node.election:
        servers.append(await asyncio.start_server(_hold, host, peers))
    servers.append(await asyncio.start_unix_server(node.control, str(control), limit=LINE))
    if node.election:
        await node.election.run(node.lead, node.follow)
    else:
        await node.lead(1)
        await asyncio.gather(*(one.serve_forever() for one in servers))


def main() -> int:
    """Run one controller."""
    parser = argparse.ArgumentParser(description="A controller of OpenFlow 1.3 switches.")
    parser.add_argument("--name", required=True, help="its name in the election")
    parser.add_argument("--host", default="127.0.0.1", help="its address")
    parser.add_argument("--port", type=int, required=True, help="TCP port for switches")
    parser.add_argument("--peers", type=int, default=0, help="TCP port for followers")
    parser.add_argument("--control", type=Path, required=True, help="Unix socket for requests")
    parser.add_argument(
        "--etcd", default="", help="HOST:PORT of each member of etcd; without it, this is the only controller"
    )
    said = parser.parse_args()
    members = [
        (host, int(port)) for host, _, port in (one.rpartition(":") for one in said.etcd.split(",")) if port
    ]
    etcd = Etcd(*members, source=said.host) if members else None
    try:
        asyncio.run(serve(said.name, said.host, said.port, said.peers, said.control, etcd))
    except OSError as e:
        print(f"cannot listen: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
