"""A controller that sets flows up when they begin: `python -m netdyno.switch.controller.reactive`.

It learns where Ethernet addresses are. It gets the first packet of a flow (port, IPv4 source, destination),
writes a flow entry for those that follow, and sends the packet on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import sys

from netdyno.switch.controller.channel import Channel, ChannelError
from netdyno.switch.openflow import message as of
from netdyno.switch.openflow.flow import entry
from netdyno.switch.openflow.message import OpenFlowError

PRIORITY = 100
MOST_ADDRESSES = 100_000
"""Ethernet addresses that are remembered at most."""
_IPV4 = b"\x08\x00"


class Learning:
    """What is known of one switch."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._ports: dict[bytes, int] = {}
        self._flows = 0

    def packet_in(self, body: bytes) -> None:
        """Send a packet on; if it is of a flow between known ports, set the flow up before."""
        try:
            port, frame = of.packet_in(body)
        except ValueError:
            return
        to, sender = frame[:6], frame[6:12]
        if len(self._ports) < MOST_ADDRESSES:
            self._ports[sender] = port
        out = self._ports.get(to, of.FLOOD)
        if out == port:
            return
        if out != of.FLOOD and frame[12:14] == _IPV4 and len(frame) >= 34:
            self._flows += 1
            source, destination = (str(ipaddress.IPv4Address(frame[at : at + 4])) for at in (26, 30))
            match = {"ip": "", "nw_src": source, "nw_dst": destination}
            made = entry(self._flows, PRIORITY, port, match, [out])
            self._channel.send(of.FLOW_MOD, of.flow_mod(of.ADD, made))
        self._channel.send(of.PACKET_OUT, of.packet_out(port, out, frame))


async def serve_switch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a switch until its connection ends."""
    channel = Channel(reader, writer)
    channel.packet_in = Learning(channel).packet_in
    try:
        await channel.open()
        print(f"switch {channel.datapath:#x} connected", flush=True)
        await channel.closed.wait()
        print(f"switch {channel.datapath:#x}: {channel.why}", flush=True)
    except (ChannelError, OpenFlowError) as e:
        print(f"a peer at the OpenFlow port: {e}", flush=True)
    finally:
        channel.close()


async def serve(host: str, port: int) -> None:
    """Listen for switches until it is ended."""
    server = await asyncio.start_server(serve_switch, host, port)
    await server.serve_forever()


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description="A controller that sets flows up when they begin.")
    parser.add_argument("--host", default="127.0.0.1", help="its address")
    parser.add_argument("--port", type=int, required=True, help="TCP port for switches")
    said = parser.parse_args()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(said.host, said.port))
    except OSError as e:
        print(f"cannot listen: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
