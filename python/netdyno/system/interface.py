"""What a DPDK port changes of the kernel's interface below it: MTU, MAC address, XDP.

The core puts them back when it closes the port. The journal does where it could not: when it was killed.
That it is promiscuous is counted by the kernel, and ends with the process that asked for it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from netdyno.errors import Error
from netdyno.system import device, namespace
from netdyno.system.journal import Journal
from netdyno.system.undo import TakenOverError, taken_over

_OVER = re.compile(r"(?:(?:net_|eth_)?af_(?:packet|xdp)\d*)(?::|,(?:.*,)?iface=)([^,]+)")
_SET = {"mtu": "MTU", "mac": "MAC address", "xdp": "XDP program"}
"""What is put back, in words."""


def over(device: str) -> str | None:
    """The kernel's interface that a port by this device string works over, if it does over one."""
    found = _OVER.match(device)
    return found[1] if found else None


def below(devices: Iterable[str]) -> list[str]:
    """The kernel's interfaces that ports by these device strings work over."""
    names = dict.fromkeys(name for name in map(over, devices) if name)
    return [name for name in names if namespace.is_interface(name)]


def state(name: str) -> dict[str, Any] | None:
    """What an interface is now; none: there is none of this name."""
    # a large library, of which most commands need nothing
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        found = ip.link_lookup(ifname=name)
        if not found:
            return None
        (link,) = ip.get_links(found[0])
    xdp = link.get_attr("IFLA_XDP")
    return {
        "index": link["index"],
        "mtu": str(link.get_attr("IFLA_MTU")),
        "mac": str(link.get_attr("IFLA_ADDRESS")),
        "xdp": (xdp.get_attr("IFLA_XDP_PROG_ID") if xdp else None) or 0,
    }


def note(names: Iterable[str], notes: Journal) -> list[int]:
    """Write down what interfaces are, before ports are opened over them."""
    return [
        notes.write("interface", name=name, was=now, device=device.identity(name), id=namespace.cookie(None))
        for name in names
        if (now := state(name)) is not None
    ]


def note_final_state(entries: Iterable[int], notes: Journal) -> None:
    """Write down what they have become: what is otherwise when it is to be put back is somebody else's."""
    made = {number: state(str(notes.entry(number)["name"])) for number in entries}
    if known := {number: now for number, now in made.items() if now}:
        notes.became(known)


def undo_interface(entry: dict[str, Any]) -> bool:
    """An interface, as it was before a port was opened over it."""
    was, made = dict(entry["was"]), entry.get("made")
    known: Mapping[str, Any] | None = entry.get("device")
    if known is None:
        # the journal of an earlier netdyno
        return _undo(str(entry["name"]), was, made)
    found = namespace.find_by_cookie(None, entry["id"])
    here = found.where if found else None
    place = device.locate(known, here, found is not None)
    if place is None and made:
        # what we made of its address is the one that it has
        place = device.locate({**known, "address": made["mac"]}, here, found is not None)
    if place is None:
        if device.physical(known):
            raise device.GoneError(f"{device.words(known)} is gone, and is not what it was before")
        return False
    there = place
    return namespace.inside(there.where, lambda: _undo(there.name, was, made))


def _undo(name: str, was: Mapping[str, Any], made: Mapping[str, Any] | None) -> bool:
    now = state(name)
    if now is None or now["index"] != was["index"] or not namespace.is_interface(name):
        # it is gone, and another has its name
        return False
    differs = [key for key in _SET if now[key] != was[key]]
    ours = [key for key in differs if made is None or now[key] == made[key]]
    if ours:
        _put(name, {key: was[key] for key in ours})
    if theirs := [key for key in differs if key not in ours]:
        what = f"the {_SET[theirs[0]]} of {name}"
        raise TakenOverError(taken_over(what, now[theirs[0]], made and made[theirs[0]], was[theirs[0]]))
    return bool(ours)


def _put(name: str, was: Mapping[str, Any]) -> None:
    words = {"mtu": "mtu", "mac": "address"}
    command = [word for key, value in was.items() if key in words for word in (words[key], value)]
    if "xdp" in was:
        # one that was there before cannot be had again by its number
        command += ["xdp", "off"]
    program = shutil.which("ip") or "/usr/sbin/ip"
    done = subprocess.run(
        [program, "link", "set", "dev", name, *command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        fix = "" if os.geteuid() == 0 else "Run it with sudo"
        raise Error("ND-92-31", f"{name} is not what it was: {done.stderr.strip()}", at=name, fix=fix)
