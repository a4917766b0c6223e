"""Shards: the part of a profile that each host of a fleet runs.

Devices are split in proportion to the hosts' weights, as whole numbers that add up; a group's rate follows
its devices, so that each device has the same load as it would have on one host, and the same number. Hosts
take turns: arrivals of all together are spaced as those of one.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from netdyno.errors import Error
from netdyno.experiment.spec import FILES, groups, table
from netdyno.units import RATE

APART = "ND-104-92"
"""A profile that cannot be split over hosts."""


ADDRESSES = ("device", "ip", "gateway", "mac", "peer_mac", "vlan")
"""What a port has of its host."""


@dataclass(frozen=True)
class Part:
    """What a host brings along."""

    name: str
    weight: float
    cores: tuple[int, ...] = ()
    """Cores that generate load."""
    addresses: tuple[str, ...] = ()
    """Addresses of its interfaces."""
    sources: tuple[str, ...] = ()
    """Addresses to send from in place of the profile's."""
    remote: bool = False
    """Whether it has other files than this machine."""
    captures: bool = True
    """Whether a file with its packets can be collected."""
    ports: tuple[Mapping[str, Any], ...] = ()
    """Its DPDK ports, as a profile has them."""


@dataclass(frozen=True)
class Shard:
    """What one host runs."""

    profile: dict[str, Any]
    devices: Mapping[str, int] = field(default_factory=dict)
    """Devices by group; a group that it has no part of is not there."""


def split(total: int, weights: Sequence[float]) -> list[int]:
    """Whole numbers in proportion to weights that add up to `total` (largest remainder)."""
    parts = [Fraction(weight) for weight in weights]
    whole = sum(parts)
    if not whole:
        return [0] * len(parts)
    exact = [total * part / whole for part in parts]
    found = [math.floor(one) for one in exact]
    rest = sorted(range(len(parts)), key=lambda i: (found[i] - exact[i], i))
    for i in rest[: total - sum(found)]:
        found[i] += 1
    return found


def refuse(profile: Mapping[str, Any], parts: Sequence[Part]) -> None:
    """Refuse what hosts cannot share. Raises `ND-104-92` with the place in the profile."""
    apart = next((part.name for part in parts if not part.captures), None)
    if "capture" in profile and apart:
        what = f"no file comes from the host {apart}, whose agent is reached by mutual TLS"
        fix = "Leave the capture out, or use hosts with `launcher: local` or `ssh` without `mtls`"
        raise Error(APART, what, at="capture", fix=fix)
    away = next((part.name for part in parts if part.remote), None)
    if not away:
        return
    named = [("data", "the table of `data`")] if profile.get("data") else []
    for number, group in enumerate(groups(profile)):
        if file := _file(group):
            named.append((f"groups[{number}]", f"the file {file}"))
    for at, file in named:
        what = f"{file} is on this machine, and not on the host {away}"
        raise Error(APART, what, at=at, fix="Use a fleet of local hosts, or leave the file out")


def _file(group: Mapping[str, Any]) -> str | None:
    for *path, key in FILES:
        node: Any = group
        for step in path:
            known = table(node)
            node = next(iter(known.values()), None) if step == "*" else known.get(step)
        if isinstance(found := table(node).get(key), str):
            return found
    return None


def scaled(profile: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """A profile whose closed loops have the devices of a load factor.

    Hosts would round their parts of them, and together have others than one host has.
    """
    made = copy.deepcopy(dict(profile))

    def at(devices: int) -> int:
        return math.floor(devices * factor + 0.5)

    for group in groups(made):
        load = table(group.get("load"))
        closed = table(load.get("closed"))
        frame = table(group.get("frame"))
        paced = "rate" in frame or table(frame.get("replay")).get("own_timing")
        count, first = group.get("devices", 1), _first(group)
        if "open" in load or paced or not closed.get("scales", True) or not isinstance(count, int):
            continue
        if factor > 1:
            # those beyond have numbers of their own
            group["first_device"] = at(first)
            group["devices"] = at(first + count) - at(first)
        else:
            group["devices"] = max(1, at(count))
        stages = [
            one | {"devices": at(one["devices"])}
            for one in closed.get("stages") or ()
            if isinstance(one, dict) and isinstance(one.get("devices"), int)
        ]
        group["load"] = load | {"closed": closed | {"scales": False} | ({"stages": stages} if stages else {})}
    return made


def shards(profile: Mapping[str, Any], parts: Sequence[Part]) -> list[Shard]:
    """What each host runs, in their order. Raises `ND-104-92` for what cannot be split."""
    refuse(profile, parts)
    made = [copy.deepcopy(dict(profile)) for _ in parts]
    weights = [part.weight for part in parts]
    devices: list[dict[str, int]] = [{} for _ in parts]
    for one, part in zip(made, parts, strict=True):
        # they are judged over all hosts
        one.pop("thresholds", None)
        one["groups"] = []
        if "dpdk" in table(one.get("transport")):
            one["transport"] = {"dpdk": _ports(table(one["transport"]["dpdk"]), part)}
        elif part.cores:
            one["transport"] = {"sockets": {**table(table(one.get("transport")).get("sockets"))}}
            one["transport"]["sockets"]["cores"] = list(part.cores)
    for number, group in enumerate(groups(profile)):
        name, count = str(group.get("name")), group.get("devices", 1)
        if not isinstance(count, int) or count < 1:
            continue
        shared = _devices(group, count, weights)
        before = 0
        for i, part in enumerate(parts):
            if shared[i]:
                own = _group(group, shared, i)
                if begins := _first(group) + before:
                    own["first_device"] = begins
                if shared[i] < count:
                    own["turns"] = _turns(shared, i)
                if source := _sources(group, part, f"groups[{number}].source"):
                    own["source"] = source
                made[i]["groups"].append(own)
                devices[i][name] = shared[i]
            before += shared[i]
    seed = profile.get("seed", 1)
    for i, one in enumerate(made):
        # else hosts would draw the same random values
        one["seed"] = (seed + i) % (1 << 64) if isinstance(seed, int) else seed
    return [Shard(p, d) for p, d in zip(made, devices, strict=True)]


def _ports(dpdk: dict[str, Any], part: Part) -> dict[str, Any]:
    """The profile's ports as those of a host: what the host says of a port holds there."""
    own = {str(port["name"]): port for port in part.ports}
    found = []
    for number, port in enumerate(dpdk.get("ports") or ()):
        name = str(table(port).get("name"))
        if name not in own:
            at = f"transport.dpdk.ports[{number}]"
            fix = f"Add it under `ports` of the host in hosts.yaml, as {name}, and start the fleet again"
            raise Error(APART, f"the host {part.name} has no port {name}", at=at, fix=fix)
        # addresses of one machine would be wrong on another
        kept = {key: value for key, value in table(port).items() if key not in ADDRESSES}
        found.append(kept | dict(own[name]))
    return dpdk | {"ports": found}


def _devices(group: Mapping[str, Any], count: int, weights: Sequence[float]) -> list[int]:
    """Devices of a group on each host. A host whose share of a limit of the group would be none has none."""
    shared = split(count, weights)
    limits = (group.get("total"), table(table(group.get("load")).get("open")).get("max_flows"))
    # a limit of 0 is none
    limited = [one for one in limits if isinstance(one, int) and one > 0]
    while True:
        # of fewer hosts, another limit may have no share for one of them
        parts = [split(limit, shared) for limit in limited]
        none = [bool(n) and not all(of_limit) for n, *of_limit in zip(shared, *parts, strict=True)]
        if not any(none):
            return shared
        weights = [0.0 if out else weight for weight, out in zip(weights, none, strict=True)]
        shared = split(count, weights)


def _turns(shared: Sequence[int], i: int) -> dict[str, Any]:
    """The devices of host `i`, and how many other hosts before and behind it have how many."""
    sides = {"before": Counter(shared[:i]), "after": Counter(shared[i + 1 :])}
    other = {side: [[d, n] for d, n in sorted(found.items()) if d] for side, found in sides.items()}
    return {"own": shared[i]} | {side: found for side, found in other.items() if found}


def _first(group: Mapping[str, Any]) -> int:
    """The number of a group's first device; the daemon refuses what is none."""
    found = group.get("first_device", 0)
    return found if isinstance(found, int) else 0


def _group(group: Mapping[str, Any], shared: Sequence[int], i: int) -> dict[str, Any]:
    """The part of a group that host `i` runs, of which it has `shared[i]` devices."""
    own = copy.deepcopy(dict(group)) | {"devices": shared[i]}
    load = table(own.get("load"))
    share = Fraction(shared[i], sum(shared))
    if isinstance(load.get("open"), dict):
        _scale(load["open"], share)
        if load["open"].get("max_flows") and isinstance(load["open"]["max_flows"], int):
            load["open"]["max_flows"] = split(load["open"]["max_flows"], shared)[i]
        for stage in load["open"].get("stages") or ():
            _scale(stage, share)
    if isinstance(load.get("closed"), dict):
        for stage in load["closed"].get("stages") or ():
            if isinstance(stage, dict) and isinstance(stage.get("devices"), int):
                stage["devices"] = split(stage["devices"], shared)[i]
    if isinstance(own.get("total"), int):
        own["total"] = split(own["total"], shared)[i]
    return own


def _scale(node: Any, share: Fraction) -> None:
    """Scale the rate of an open loop or of one of its stages."""
    if isinstance(node, dict) and "rate" in node:
        rate = RATE.value(str(node["rate"]), "rate")
        node["rate"] = f"{float(Fraction(rate) * share):.9f}".rstrip("0").rstrip(".") + "/s"


Ip = IPv4Address | IPv6Address


def _sources(group: Mapping[str, Any], part: Part, at: str) -> list[str]:
    """Addresses that a host sends from: its own, or those of the profile that it has."""
    wanted = group.get("source")
    if part.sources:
        return list(part.sources)
    if not isinstance(wanted, list) or not wanted:
        return []
    ranges = [_range(str(one), at) for one in wanted]
    if all(low.is_loopback for low, _ in ranges):
        # every address of the loopback network can be used, whichever the interface has
        return [str(one) for one in wanted]
    had = [ip_address(one.partition("/")[0].partition("%")[0]) for one in part.addresses]
    found = [str(one) for one in had if any(_within(one, low, high) for low, high in ranges)]
    if not found:
        what = f"the host {part.name} has none of the addresses that the group sends from"
        fix = f"Give it one of them, or name others under `sources` of the host {part.name}"
        raise Error(APART, what, at=at, fix=fix)
    return found


def _within(one: Ip, low: Ip, high: Ip) -> bool:
    return one.version == low.version and int(low) <= int(one) <= int(high)


def _range(text: str, at: str) -> tuple[Ip, Ip]:
    """The first and last address of `10.0.0.1`, `10.0.0.0/28` or `10.0.0.1-10.0.0.9`."""
    try:
        if "/" in text:
            net = ip_network(text, strict=False)
            return net[0], net[-1]
        low, _, high = text.partition("-")
        return ip_address(low.strip()), ip_address((high or low).strip())
    except ValueError as e:
        raise Error("ND-104-04", f"{text!r} is no address: {e}", at=at, fix="Write it like 10.0.0.1") from e
