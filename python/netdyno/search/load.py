"""The axis of a search on a profile: what a load is, how high it goes, and the profile that offers one.

Where every group sends frames (the `stream` model), a load is frames per second over all groups, each with
the share that it has in the profile. Elsewhere it is what `trial.load` scales: flows per second of open
loops, devices of closed ones.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from netdyno import units
from netdyno.core import models
from netdyno.errors import Error
from netdyno.experiment.spec import LegSpec, groups, table
from netdyno.search.objects import Workload
from netdyno.search.sizes import HEADERS, WIRE, Size, mean

DEFAULT_RATE = 1000.0
"""Of a stream whose model says neither rate nor interval."""
DEFAULT_SIZE = "64B"
MESSAGES = "messages/s"
STEPS = 200
"""Lengths that bursts have at least, for a search to tell them apart."""


@dataclass(frozen=True)
class Axis:
    """Loads of one leg, at one frame size."""

    leg: LegSpec
    unit: str
    """frames/s, messages/s, flows/s, devices, or x: times the load of the profile."""
    most: float
    """The load of the profile itself."""
    step: float = 0.0
    """Of loads that come in whole numbers."""
    frame: float | None = None
    """Mean bytes of a frame, with FCS."""
    line: float | None = None
    """Frames per second that the link carries, where its speed is known."""
    shares: tuple[float, ...] = ()
    """Of each group, where frames are the unit."""
    workload: Workload | None = None
    """Of applications: what connections are used for."""

    def at(self, load: float, seconds: float, phases: Mapping[str, str] | None = None) -> LegSpec:
        """The leg that offers a load for a time; `phases` changes others than the measure phase."""
        trial = (
            self.leg.trial.model_dump(exclude_none=True) | {"measure": _time(seconds)} | dict(phases or {})
        )
        plain = self.leg.model_dump(by_alias=True, exclude_none=True)
        if self.unit == "frames/s":
            trial.pop("load", None)
            plain["profile"] = paced(plain["profile"], [load * share for share in self.shares])
        elif self.unit == MESSAGES:
            trial.pop("load", None)
            plain["profile"] = spaced(plain["profile"], self.most / load)
        else:
            trial["load"] = load / self.most * (self.leg.trial.load or 1.0)
        return LegSpec.model_validate(plain | {"trial": trial})

    def burst(self, frames: float) -> LegSpec:
        """The leg that sends so many frames at its highest load, and nothing before or after."""
        self.need_frames("a burst")
        length = frames / self.most
        leg = self.at(self.most, max(0.2, 2 * length), {"warmup": "0s"})
        assert isinstance(leg.profile, dict)
        for group, share in zip(loading(leg.profile), self.shares, strict=True):
            each = frames * share / int(group.get("devices", 1))
            group["model"]["stream"]["count"] = max(1, round(each))
            group["load"] = {"closed": {"flows": 1}}
        return leg

    def burst_step(self, most: float) -> int:
        """The fewest frames of which each device of each group sends as many: bursts are multiples of it.

        Shares may be such that these are too many for bursts of up to `most`: then a frame for each device,
        and what groups send is rounded to that.
        """
        devices = [int(group.get("devices", 1)) for group in loading(table(self.leg.profile))]
        shares = [Fraction(share).limit_denominator(1_000) for share in self.shares]
        if not all(shares):
            return sum(devices)
        each = [count / share for count, share in zip(devices, shares, strict=True)]
        step = math.lcm(*(one.numerator for one in each)) // math.gcd(*(one.denominator for one in each))
        return step if step * STEPS <= most else sum(devices)

    def need_frames(self, what: str) -> None:
        """Refuse what only frames can do."""
        if self.unit != "frames/s" or _dpdk(table(self.leg.profile)) is None:
            fix = "Use a profile whose groups are all of the stream model, over DPDK ports"
            raise Error("ND-104-07", f"{what} is made of frames, which this profile does not send", fix=fix)

    def bits(self, load: float) -> float | None:
        """Bits per second of frames with FCS (layer 2)."""
        return load * self.frame * 8 if self.frame and self.unit == "frames/s" else None


def axis(leg: LegSpec, size: Size | None = None, messages: bool = False) -> Axis:
    """The axis of a leg whose profile is resolved; with `size` all its frames are of that.

    With `messages` loads of devices at a constant pace are their messages per second, and not their number.
    """
    assert isinstance(leg.profile, dict)
    factor = leg.trial.load or 1.0
    profile = leg.profile if size is None else sized(leg.profile, size)
    members = loading(profile)
    if not members:
        raise Error("ND-104-07", "the profile has no groups, so that nothing is sent", at="groups")
    if all(_stream(group) is not None for group in members):
        rates = [_frames(profile, group) for group in members]
        whole = sum(rates)
        frames = [_frame_bytes(profile, group) for group in members]
        known = all(one is not None for one in frames)
        mix = (
            sum(r * f for r, f in zip(rates, frames, strict=True) if f is not None) / whole if known else None
        )
        speeds = {speed for group in members if (speed := _speed(profile, group)) is not None}
        line = min(speeds) / 8 / (mix + WIRE) if speeds and mix else None
        used = leg.model_copy(update={"profile": profile})
        most = whole * factor
        if line and len({group.get("port") for group in members}) == 1:
            # nothing is offered that the link cannot carry
            most = min(most, line)
        return Axis(used, "frames/s", most, frame=mix, line=line, shares=tuple(r / whole for r in rates))
    if size is not None:
        what = "only streams have frames of a size that can be set"
        raise Error("ND-104-07", what, at="--sizes", fix="Leave --sizes out, or use a profile of streams")
    loops = [table(group.get("load")) for group in members]
    # those that stay as they are at any load
    loops = [one for one in loops if table(one.get("closed")).get("scales", True)] or loops
    if messages and (rate := sum(map(_messages, members))):
        return Axis(leg, MESSAGES, rate * factor)
    if all("open" in one for one in loops):
        rate = sum(_highest_rate(table(one["open"])) for one in loops)
        return Axis(leg, "flows/s", rate * factor) if rate else Axis(leg, "x", factor)
    if not any("open" in one for one in loops):
        devices = sum(int(group.get("devices", 1)) for group in members)
        return Axis(leg, "devices", round(devices * factor), step=1.0)
    return Axis(leg, "x", factor)


def _highest_rate(loop: Mapping[str, Any]) -> float:
    """What an open loop begins in a second at most; it may begin with nothing."""
    stages = loop.get("stages") or []
    return max(units.bound(str(table(one).get("rate", "0/s"))) for one in (loop, *stages))


def _messages(group: Mapping[str, Any]) -> float:
    """Messages per second that all devices of a group send at their interval; 0 where they have none."""
    model, given = models.of_group(group)
    interval = given.get(model.quick.interval) if model.quick else None
    every = units.seconds(str(interval)) if interval else 0.0
    return int(group.get("devices", 1)) / every if every and "open" not in table(group.get("load")) else 0.0


def is_scheduled(group: Mapping[str, Any]) -> bool:
    """Whether messages or flows of a group are due at times that do not depend on answers."""
    return "open" in table(group.get("load")) or _messages(group) > 0


def spaced(profile: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The profile with so many times the time from one message of a device to its next."""
    made = copy.deepcopy(dict(profile))
    for group in groups(made):
        model, given = models.of_group(group)
        if not model.quick or not given.get(model.quick.interval):
            continue
        every = f"{units.seconds(str(given[model.quick.interval])) * factor * 1e9:.0f}ns"
        group["model"][model.name][model.quick.interval] = every
        closed = table(table(group.get("load")).get("closed"))
        if closed.get("ramp"):
            # they begin evenly over one of these times
            group["load"] = {"closed": closed | {"ramp": every}}
    return made


def loading(profile: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The groups that are the load. A stream that sends a count of frames and is done prepares for it, as one
    that opens the sessions of a NAT: it keeps the rate that it has. What is not measured is no load."""
    every = [one for one in groups(profile) if table(one.get("frame")).get("measured") is not False]
    return [group for group in every if "count" not in (_stream(group) or {})] or every


def _stream(group: Mapping[str, Any]) -> dict[str, Any] | None:
    model = table(group.get("model"))
    return table(model["stream"]) if "stream" in model else None


def _dpdk(profile: Mapping[str, Any]) -> dict[str, Any] | None:
    transport = table(profile.get("transport"))
    return table(transport["dpdk"]) if "dpdk" in transport else None


def _speed(profile: Mapping[str, Any], group: Mapping[str, Any]) -> float | None:
    """Of the group's port, where the profile says it."""
    ports = [port for port in (_dpdk(profile) or {}).get("ports") or [] if isinstance(port, dict)]
    named = [p for p in ports if p.get("name") == group.get("port", ports[0].get("name") if ports else None)]
    speed = named[0].get("speed") if named else None
    return units.BITRATE.value(str(speed), "transport.dpdk.ports[].speed") if speed else None


def _frame_bytes(profile: Mapping[str, Any], group: Mapping[str, Any]) -> float | None:
    """Mean bytes of a group's frames, with FCS."""
    if size := table(table(group.get("frame")).get("size")):
        return mean(size)
    if table(group.get("frame")).get("layers") or table(group.get("frame")).get("replay"):
        return None
    target = str(table(profile.get("targets")).get(str(group.get("target")), group.get("target", "")))
    payload = units.bound(str((_stream(group) or {}).get("size", DEFAULT_SIZE)))
    return payload + HEADERS[6 if "[" in target else 4]


def _frames(profile: Mapping[str, Any], group: Mapping[str, Any]) -> float:
    """Frames per second that a group sends by its profile."""
    model, rate = _stream(group) or {}, table(table(group.get("frame")).get("rate"))
    size = _frame_bytes(profile, group)
    match rate:
        case {"frames": text}:
            return units.RATE.value(str(text), "frame.rate.frames")
        case {"l1": text} if size:
            return units.BITRATE.value(str(text), "frame.rate.l1") / 8 / (size + WIRE)
        case {"l2": text} if size:
            return units.BITRATE.value(str(text), "frame.rate.l2") / 8 / size
        case {"line": text} if size and (speed := _speed(profile, group)):
            return units.bound(str(text)) * speed / 8 / (size + WIRE)
        case {}:
            pass
    if rate:
        what = "its rate in frames per second is not known here"
        fix = "Give frame.size, and with frame.rate.line the port's speed; or frame.rate.frames"
        raise Error("ND-104-07", what, at=f"groups.{group.get('name')}.frame.rate", fix=fix)
    if interval := model.get("interval"):
        each = 1 / max(units.seconds(str(interval)), 1e-12)
    else:
        each = units.RATE.value(str(model.get("rate", f"{DEFAULT_RATE}/s")), "model.stream.rate")
    return each * int(group.get("devices", 1))


def paced(profile: Mapping[str, Any], rates: list[float]) -> dict[str, Any]:
    """The profile with each of its streams at a rate in frames per second."""
    made = copy.deepcopy(dict(profile))
    for group, rate in zip(loading(made), rates, strict=True):
        model = table(group["model"]).setdefault("stream", {})
        for key in ("rate", "interval"):
            model.pop(key, None)
        if _dpdk(made) is not None:
            # of the whole group, whatever its devices
            group["frame"] = table(group.get("frame")) | {"rate": {"frames": f"{rate:.6f}/s"}}
        else:
            model["rate"] = f"{rate / int(group.get('devices', 1)):.6f}/s"
    return made


def sized(profile: Mapping[str, Any], size: Size) -> dict[str, Any]:
    """The profile with frames of a size."""
    made = copy.deepcopy(dict(profile))
    for group in groups(made):
        if _stream(group) is None:
            continue
        if _dpdk(made) is not None:
            group["frame"] = table(group.get("frame")) | {"size": dict(size)}
            if not group["frame"].get("layers"):
                table(group["model"])["stream"].pop("size", None)
            continue
        if "fixed" not in size:
            what = "over sockets all frames of a group are of one size"
            raise Error("ND-104-07", what, at="--sizes", fix="Give sizes in bytes, or use DPDK ports")
        target = str(table(made.get("targets")).get(str(group.get("target")), group.get("target", "")))
        room = units.bound(size["fixed"]) - HEADERS[6 if "[" in target else 4]
        if room < 18:
            what = f"a frame of {size['fixed']} has no room for a stream's 18 bytes of payload"
            raise Error("ND-104-05", what, at="--sizes", fix="The least is 64 over IPv4 and 84 over IPv6")
        table(group["model"])["stream"]["size"] = f"{room:.0f}B"
    return made


def _time(seconds: float) -> str:
    return f"{math.ceil(seconds * 1e6)}us"
