"""The page of `netdyno demo nat`: who got through, as whom, how much, and what it cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from netdyno.report import units
from netdyno.report.change import shift, words
from netdyno.report.comparison import Block, Row, effects, lost, pairs_csv
from netdyno.report.page import Download, environment, when
from netdyno.report.render import one_file
from netdyno.report.study import StudyPage
from netdyno.report.table import Column, Table, data, number
from netdyno.report.text import Data, M, Msg

Doc = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class NatDemo(StudyPage):
    """The template's context."""

    subscribers: Table
    unleased: Msg
    sites: Table
    mappings: Table
    block: Block
    elements: Table
    drops: Table
    environment: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)


def render(document: Doc) -> str:
    """One self-contained file, of a document as `netdyno.nat.demo` makes it."""
    return one_file("demo.html.j2", build(document), "netdyno.nat")


def build(document: Doc) -> NatDemo:
    """The page's contents."""
    found = document["comparison"]
    sides = str(found["a"]), str(found["b"])
    rows = [Row("", one["metric"]["name"], one, one["pairs"]) for one in found["metrics"]]
    charts: dict[str, list[dict[str, Any]]] = {}
    block = effects(0, M("Throughput beside the kernel's NAT"), _about(document), rows, sides, (), charts)
    return NatDemo(
        str(document["name"]),
        _facts(document),
        "invalid" if found["too_few"] or found.get("unequal") else "pass",
        M("Too few pairs")
        if found["too_few"]
        else M("Unequal discards")
        if found.get("unequal")
        else M("Measured"),
        _lead(document),
        [*_difference_lines(found, sides), *lost(found)],
        charts,
        [_raw(document), pairs_csv("pairs", sides, rows)],
        subscribers=_subscribers(document),
        unleased=_unleased(document["unleased"]),
        sites=_sites(document),
        mappings=_mappings(document),
        block=block,
        elements=_elements(document),
        drops=_drops(document),
        environment=environment(document["environment"]),
    )


def _facts(document: Doc) -> list[tuple[Msg, str]]:
    return [
        (M("Started"), when(str(document["started"]))),
        (M("Finished"), when(str(document["finished"]))),
        (M("Command"), str(document["command"])),
    ]


def _lead(document: Doc) -> Msg:
    load = document["load"]
    return M(
        "{n} subscribers booted by DHCP, the NAT got a public address by DHCP for the site of each, and they "
        "reached the web server through it; nobody without a lease did. Both NATs ran on the machine's "
        "{cores} cores, with the generators and the server.",
        n=str(load["subscribers"]),
        cores=str(document["cores"]["usable"]),
    )


def _difference_lines(found: Doc, sides: tuple[str, str]) -> list[Msg]:
    return [
        M(
            "{metric}: {b} against {a}: {change} ({verdict})",
            metric=Data(one["metric"]["name"]),
            a=Data(sides[0]),
            b=Data(sides[1]),
            change=shift(one),
            verdict=words(one["verdict"]),
        )
        for one in found["metrics"]
    ]


def _about(document: Doc) -> Msg:
    load, found = document["load"], document["comparison"]
    return M(
        "Over {n} pairs of trials in randomised order: {connections} connections of each subscriber fetch a "
        "page of {page} bytes again and again. Both NATs forward frames of at most 1,500 bytes between the "
        "same bridges, with offloads off. The ports of the netdyno NAT are AF_PACKET sockets here, through "
        "which every frame passes the kernel as well: on the ports of a NIC other figures come out.",
        n=str(found["pairs"]),
        connections=str(load["connections"]),
        page=units.count(load["page_bytes"]),
    )


def _subscribers(document: Doc) -> Table:
    table = Table(
        M("Subscribers"),
        [
            Column(M("Subscriber"), numeric=False), Column(M("Ethernet address"), numeric=False),
            Column(M("Address by DHCP"), numeric=False), Column(M("Router"), numeric=False),
            Column(M("Lease")), Column(M("Time to boot")),
        ],
    )  # fmt: skip
    for one in document["dhcp"]:
        table.add(
            data(str(one["subscriber"])),
            data(str(one["mac"])),
            data(str(one["address"])),
            data(str(one["router"])),
            number(units.seconds(one["seconds"]), one["seconds"]),
            number(units.duration(one["took_s"] * 1e9), one["took_s"]),
        )
    return table


def _sites(document: Doc) -> Table:
    table = Table(
        M("Sites"),
        [
            Column(M("Subscriber"), numeric=False), Column(M("Site"), numeric=False),
            Column(M("Virtual MAC address"), numeric=False),
            Column(M("Public address by DHCP"), numeric=False), Column(M("DHCP server"), numeric=False),
            Column(M("Lease left")),
        ],
        note=M(
            "Each subscriber is a site. The NAT has a DHCP client for each, at a virtual MAC address of its "
            "own, which the DHCP server outside answers."
        ),
    )  # fmt: skip
    for one in document["sites"]:
        table.add(
            data(str(one["subscriber"])),
            data(str(one["site"])),
            data(str(one["mac"])),
            data(str(one["address"])),
            data(str(one["server"])),
            number(units.seconds(one["left_s"]), one["left_s"]),
        )
    return table


def _unleased(found: Doc) -> Msg:
    return M(
        "{subscriber} also sent from {address} without a lease: {n} packets were dropped, and the server "
        "was not reached.",
        subscriber=Data(str(found["subscriber"])),
        address=Data(str(found["address"])),
        n=units.count(found["dropped"]),
    )


def _mappings(document: Doc) -> Table:
    found = document["mappings"]
    table = Table(
        M("Mappings"),
        [
            Column(M("Subscriber"), numeric=False), Column(M("Private endpoint"), numeric=False),
            Column(M("Public endpoint, as the server sees it"), numeric=False),
            Column(M("State"), numeric=False),
        ],
        note=_sessions(found["sessions"]),
    )  # fmt: skip
    for one in found["rows"]:
        table.add(
            data(str(one["subscriber"])),
            data(str(one["inside"])),
            data(str(one["outside"])),
            data(str(one.get("state", units.NONE))),
        )
    return table


def _sessions(count: int | None) -> Msg | None:
    if count is None:
        return None
    return M("The NAT reported the same mappings; it had {n} sessions then.", n=units.count(count))


def _elements(document: Doc) -> Table:
    table = Table(
        M("Elements"),
        [
            Column(M("Element"), numeric=False), Column(M("In the graph"), numeric=False),
            Column(M("Packets")), Column(M("Cycles per packet")),
        ],
        note=M(
            "Over the trials, both directions; one core runs all five. Cycles are those of the time stamp "
            "counter. TX hands each frame to the kernel, whose work on it is in its cycles."
        ),
    )  # fmt: skip
    for one in document["elements"]:
        cycles = one["cycles_per_packet"]
        table.add(
            data(str(one["element"])),
            data(", ".join(one["names"])),
            number(units.count(one["packets"]), one["packets"]),
            number(units.NONE if cycles is None else units.significant(cycles), cycles),
        )
    return table


def _drops(document: Doc) -> Table:
    table = Table(
        M("Drops"),
        [
            Column(M("Element"), numeric=False),
            Column(M("Reason"), numeric=False),
            Column(M("Packets")),
        ],
        note=M("Since the start, including intended drops."),
    )
    for one in document["drops"]:
        table.add(
            data(str(one["element"])),
            data(str(one["reason"])),
            number(units.count(one["packets"]), one["packets"]),
        )
    return table


def _raw(document: Doc) -> Download:
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    return Download("demo-nat.json", "application/json", text, M("everything, as the program reads it"))
