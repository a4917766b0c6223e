"""The options by which the devices of a run go over a DPDK port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from netdyno.cli import values
from netdyno.errors import Error

Port = Annotated[
    str | None,
    typer.Option(
        help="Run the devices over this DPDK port, like af_packet:veth0. Default: as the profile says.",
        metavar="DEVICE",
    ),
]
Ip = Annotated[
    list[str] | None,
    typer.Option(
        "--ip",
        help="With --port: its address, which it needs; again for IPv6 beside IPv4. Default: none.",
        metavar="ADDRESS/PREFIX",
    ),
]
Gateway = Annotated[
    list[str] | None,
    typer.Option(
        help="With --port: router to other networks; again for IPv6. Default: none.", metavar="ADDRESS"
    ),
]
Mtu = Annotated[
    int | None,
    typer.Option(
        help="With --port: largest IP packet, bytes. Default: what the device takes, at most 1500.",
        metavar="BYTES",
        parser=values.whole("--mtu", 576, 9600),
    ),
]
Vlan = Annotated[
    int | None,
    typer.Option(
        help="With --port: the VLAN of its devices. Default: without a tag.",
        metavar="ID",
        parser=values.whole("--vlan", 1, 4094),
    ),
]
Offloads = Annotated[
    str | None,
    typer.Option(
        help="With --port: work that it does by itself: none, or some of checksum,segment,vlan. "
        "Default: auto, what helps.",
        metavar="LIST",
        parser=values.offloads("--offloads"),
    ),
]
Mss = Annotated[
    int | None,
    typer.Option(
        help="With --port: maximum segment size of TCP, bytes. Default: what the MTU leaves.",
        metavar="BYTES",
        parser=values.whole("--mss", 88, 9560),
    ),
]
Window = Annotated[
    str | None,
    typer.Option(
        help="With --port: bytes of a TCP connection under way each way. Default: 256KiB.",
        metavar="SIZE",
        parser=values.size("--window"),
    ),
]
KEYS = ("ip", "gateway", "mtu", "vlan", "offloads")
"""What is said of a port, by its names in a profile."""
TCP = ("mss", "window")
"""What is said of its TCP."""
OPTIONS = (*KEYS, *TCP)


def settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """What these options say of a port, as a profile has it."""
    of_port = {key: given[key] for key in KEYS if given.get(key)}
    if (work := of_port.get("offloads", "auto")) not in ("auto", "none"):
        of_port["offloads"] = work.split(",")
    tcp = {key: given[key] for key in TCP if given.get(key)}
    return of_port | ({"tcp": tcp} if tcp else {})


def port(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The port of `--port` as a profile has it."""
    device, further = given.get("port"), settings(given)
    if device is None:
        if alone := next((f"--{key}" for key in OPTIONS if given.get(key)), None):
            raise Error("ND-104-07", f"{alone} says something of --port", at=alone, fix="Add --port DEVICE")
        return None
    if "ip" not in further:
        what = "a port has an address of its own, which no kernel has"
        raise Error("ND-104-07", what, at="--port", fix="Add --ip, like --ip 10.0.0.1/24")
    return {"name": "a", "device": device, **further}


def place(at: str) -> str | None:
    """The option of a place in a profile whose port these made."""
    key = at.removeprefix("transport.dpdk.ports[0].")
    if key == at:
        return None
    key = key.removeprefix("tcp.").partition(".")[0].partition("[")[0]
    return f"--{key}" if key in OPTIONS else "--port"
