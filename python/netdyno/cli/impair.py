"""`netdyno impair`: a network between two hosts of this machine or two ports, made as bad as wanted."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from netdyno import config, files, paths
from netdyno.cli import console, impair_run, impair_view, values
from netdyno.cli.execute import put_back
from netdyno.cli.impair_view import Plain, view
from netdyno.core.address import Address
from netdyno.errors import Error
from netdyno.experiment import validation
from netdyno.lab import impairment
from netdyno.lab.hosts import Hosts
from netdyno.lab.links import Device, ImpairedLink, Links, Side
from netdyno.lab.topology import need_root
from netdyno.system.interrupt import Interrupts, interrupted
from netdyno.units import seconds

ADDRESSES = "198.18.0.1/30,198.18.0.2/30"
"""Of the block that is set aside for such tests (RFC 2544 section 12, RFC 6890)."""
WAY, LINK = "What happens to packets, both ways", "The link"


def impair(
    between: Annotated[
        str | None,
        typer.Option(
            help="Ends: NAMESPACE or NAMESPACE:INTERFACE; :INTERFACE is in this namespace.",
            metavar="A,B",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        list[str] | None,
        typer.Option(
            help="In place of --between, twice: a DPDK port, by PCI address or as in a profile.",
            metavar="DEVICE",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            help="In place of these: one or two impaired ports of the current run.",
            metavar="[A,]B",
            show_default=False,
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(help="One-way delay, like 40ms.", metavar="TIME", rich_help_panel=WAY),
    ] = None,
    jitter: Annotated[
        str | None,
        typer.Option(help="Uniform delay variation, plus or minus.", metavar="TIME", rich_help_panel=WAY),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(help="Share lost, like 1% or 10ppm.", metavar="SHARE", rich_help_panel=WAY),
    ] = None,
    duplicate: Annotated[
        str | None, typer.Option(help="Share duplicated.", metavar="SHARE", rich_help_panel=WAY)
    ] = None,
    reorder: Annotated[
        str | None,
        typer.Option(help="Share held back until 3 more have passed.", metavar="SHARE", rich_help_panel=WAY),
    ] = None,
    corrupt: Annotated[
        str | None, typer.Option(help="Share with one bit flipped.", metavar="SHARE", rich_help_panel=WAY)
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(help="Rate of the bottleneck, like 100Mbit/s.", metavar="RATE", rich_help_panel=WAY),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(
            help="Queue of the bottleneck: packets, or a SIZE like 64KiB.", metavar="N", rich_help_panel=WAY
        ),
    ] = None,
    there: Annotated[
        str | None,
        typer.Option(help="Only from A to B, like delay=40ms,loss=1%.", metavar="WORDS", rich_help_panel=WAY),
    ] = None,
    back: Annotated[
        str | None,
        typer.Option(help="Only from B to A.", metavar="WORDS", rich_help_panel=WAY),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Start from a preset: metro, daejeon-seoul, cross-country, lte, geo.", metavar="NAME"
        ),
    ] = None,
    spec: Annotated[
        Path | None,
        typer.Option(help="Start from a specification; reloaded when the file changes.", metavar="FILE"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of random decisions.", metavar="N", parser=values.whole("--seed", 0)),
    ] = None,
    length: Annotated[
        str | None,
        typer.Option("--for", help="Duration.", metavar="TIME", parser=values.time("--for")),
    ] = None,
    addresses: Annotated[
        str | None,
        typer.Option(
            help=f"Addresses of the ends, with prefix. Default {ADDRESSES}.",
            metavar="A,B",
            rich_help_panel=LINK,
        ),
    ] = None,
    mtu: Annotated[
        int,
        typer.Option(
            help="Largest packet, bytes.",
            metavar="N",
            parser=values.whole("--mtu", 68, 65521),
            rich_help_panel=LINK,
        ),
    ] = 1500,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Between ports: memory for delayed frames, 2.5 KiB each. Default 256MiB.",
            metavar="SIZE",
            parser=values.size("--memory"),
            rich_help_panel=LINK,
        ),
    ] = None,
    huge_pages: Annotated[
        bool, typer.Option("--huge-pages", help="Between ports: use huge pages.", rich_help_panel=LINK)
    ] = False,
    cores: Annotated[
        str | None,
        typer.Option(
            help="Dedicated cores, for exact delays: one for both directions, or one each, like 2,3.",
            metavar="N[,N]",
            rich_help_panel=LINK,
        ),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="Record the decisions, to replay them with --spec.", metavar="FILE")
    ] = None,
    socket: Annotated[
        Address | None,
        typer.Option(
            help="With --run: the daemon at this socket or tcp://HOST:PORT.",
            metavar="ADDRESS",
            parser=values.daemon("--socket"),
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the last counters as JSON.")] = False,
) -> None:
    """Emulate a path with delay, loss, jitter, a rate and a queue between two hosts or two DPDK ports.

    The hosts are network namespaces; a missing one is created. Each gets an interface `wan0` with an
    address, and traffic between them is delayed, dropped and rate-limited as specified. The path lasts
    until Ctrl-C or for `--for` and shows its counters; then everything created is removed. Needs root.

    With `--port` twice the path connects two DPDK ports: each forwards the frames that the other receives.

    With `--run` it changes a path of the current DPDK run on this machine and exits: frames received at
    port B, or both directions between A and B. The run's result records the change.

        sudo netdyno impair --between left,right --delay 40ms --loss 1%
        sudo netdyno impair --between left,right --preset lte --for 60s
        sudo netdyno impair --between left,right --rate 100Mbit/s --there delay=30ms --back delay=10ms
        sudo netdyno impair --between left,right --delay 10ms --cores 3
        sudo netdyno impair --port 0000:83:00.0 --port 0000:83:00.1 --delay 40ms --huge-pages --memory 4GiB
        sudo netdyno impair --run b --delay 60ms --loss 1%
    """
    both = {
        "delay": delay, "jitter": jitter, "loss": loss, "duplicate": duplicate,
        "reorder": reorder, "corrupt": corrupt, "rate": rate, "limit": limit,
    }  # fmt: skip
    said = {key: text for key, text in both.items() if text is not None}
    only = {
        "a_to_b": impairment.words(there, "--there") if there else {},
        "b_to_a": impairment.words(back, "--back") if back else {},
    }
    ways = {way: said | words for way, words in only.items()}
    if preset and spec:
        raise Error("ND-104-07", "both are where to begin", at="--preset and --spec", fix="Give one of them")
    of_link = {
        "--between": between, "--port": port, "--addresses": addresses, "--memory": memory,
        "--huge-pages": huge_pages, "--seed": seed is not None, "--for": length, "--record": record,
        "--mtu": mtu != 1500, "--cores": cores is not None,
    }  # fmt: skip
    if run is not None:
        into = impair_run.ends(run)
        _no(of_link | {"--back": back and len(into) == 1}, "the paths of a run")
        if not (preset or spec or any(ways.values())):
            fix = "Say it, like --delay 60ms; --delay 0s is a path that does nothing"
            raise Error("ND-104-07", "nothing says what is to hold from now on", at="--run", fix=fix)
        impair_run.change(into, Source(preset, spec, said, only).read(), socket, as_json)
        return
    _no({"--socket": socket}, "a link of its own")
    ends = _ends(
        between, port or (), {"--addresses": addresses, "--memory": memory, "--huge-pages": huge_pages}
    )
    given = _addresses(addresses or ADDRESSES)
    how: dict[str, Any] = {} if between else {"huge_pages": huge_pages}
    how |= ({"memory": memory} if memory else {}) | ({} if cores is None else _cores(cores))
    source = Source(preset, spec, said, only, seed)
    wanted = source.read()
    if between:
        need_root()
    put_back()
    token = f"impair-{secrets.token_hex(3)}"
    log = paths.runtime() / f"nd-{token}.log"
    stack = contextlib.ExitStack()
    with Interrupts().installed() as interrupts:
        try:
            hosts = Hosts()
            stack.callback(hosts.down)
            hosts.file(log)
            links = Links(token, log)
            stack.callback(links.stop)
            sides = [end for end in ends if isinstance(end, Side)]
            for side in sides:
                hosts.need(side.namespace)
            fresh = [not hosts.has(side.namespace, side.interface) for side in sides]
            named = [
                _side_text(side, address if new else "")
                for side, address, new in zip(sides, given, fresh, strict=False)
            ]
            link = _joined(links, ends, wanted, mtu, how)
            # from here on it is there, and ends in good order
            with interrupts.asking():
                for side, address, new in zip(sides, given, fresh, strict=False):
                    if new:
                        hosts.address(side.namespace, side.interface, address)
                shown = stack.enter_context(view((str(ends[0]), str(ends[1])), quiet=as_json))
                shown.say(" ⇄ ".join(named or map(str, ends)))
                shown.say(shown.paths(wanted))
                _watch(links, link, source, shown, interrupts, seconds(length) if length else None)
                last = links.end(link)
        finally:
            with interrupts.shielded():
                stack.close()
    if record:
        files.write(record, yaml.safe_dump(last["recorded"], sort_keys=False), shared=True)
    del last["recorded"]
    with console.tolerate_closed_stdout():
        if as_json:
            console.document(last)
        else:
            shown.summary(last)
    if interrupts.count and length:
        raise interrupted()


def _no(options: Mapping[str, object], what: str) -> None:
    """Refuse what says nothing of `what`."""
    for option, given in options.items():
        if given:
            raise Error("ND-104-07", f"{option} says nothing of {what}", at=option, fix="Leave it out")


def _joined(
    links: Links,
    ends: tuple[Side | Device, Side | Device],
    spec: dict[str, Any],
    mtu: int,
    how: dict[str, Any],
) -> ImpairedLink:
    try:
        return links.start(ends[0], ends[1], spec, mtu, **how)
    except Error as e:
        # where the core says it by the name of the parameter
        option = {"a.device": f"--port {ends[0]}", "b.device": f"--port {ends[1]}", "memory": "--memory"}
        raise Error(e.code, e.what, at=option.get(e.at, e.at), fix=e.fix) from None


class Source:
    """Where the specification comes from, and whether it has changed since."""

    def __init__(
        self,
        preset: str | None,
        path: Path | None,
        both: Mapping[str, str],
        only: Mapping[str, Mapping[str, str]],
        seed: int | None = None,
    ) -> None:
        self.preset = preset
        self.path = path
        self.both = both
        self.only = only
        self.seed = seed
        self._stamp = 0
        self.changed()

    def read(self) -> dict[str, Any]:
        """The specification; raises when it makes no sense."""
        said = config.read(self.path) if self.path else self.preset or {}
        try:
            base = validation.impairment(said, "")
        except Error as e:
            raise Error(e.code, e.what, at=self._within(e.at), fix=e.fix) from e
        if self.seed is not None:
            base["seed"] = self.seed
        ways = {way: {**self.both, **words} for way, words in self.only.items()}
        try:
            return validation.impairment(impairment.changed(base, ways), "")
        except Error as e:
            raise Error(e.code, e.what, at=self._option(e.at), fix=e.fix) from e

    def _within(self, place: str) -> str:
        """A place in what it begins with."""
        begins = str(self.path) if self.path else "--preset" if self.preset else ""
        return ": ".join(part for part in (begins, place) if part)

    def _option(self, place: str) -> str:
        """The option that says what stands at a place."""
        way, _, inner = place.partition(".")
        ways = [way] if way in self.only else list(self.only)
        key = impairment.option(inner if way in self.only else place)
        for one in ways:
            if key in self.only[one]:
                return f"{impair_view.OPTIONS[one]}: {key}"
        return f"--{key}" if key in self.both else self._within(place)

    def changed(self) -> bool:
        """Whether the file is another than when this was asked last."""
        before = self._stamp
        # while it is being replaced it may not be there
        with contextlib.suppress(OSError):
            self._stamp = self.path.stat().st_mtime_ns if self.path else 0
        return before != self._stamp


def _watch(
    links: Links,
    link: ImpairedLink,
    source: Source,
    shown: Plain,
    interrupts: Interrupts,
    length: float | None,
) -> None:
    """Until the time is over or somebody says so."""
    began = time.monotonic()
    until = began + length if length else float("inf")
    step = began
    while not interrupts.count and time.monotonic() < until:
        if time.monotonic() >= step:
            step += 1.0
            shown.take(links.stats(link))
            if source.changed():
                _follow(links, link, source, shown)
        time.sleep(max(0.0, min(0.1, until - time.monotonic())))


def _follow(links: Links, link: ImpairedLink, source: Source, shown: Plain) -> None:
    """The file has changed: from now on so, unless it makes no sense."""
    try:
        links.set(link, source.read())
        shown.say(f"{source.path} has changed, and holds now")
    except Error as e:
        if e.exit_code != 104:
            raise
        shown.say(f"{source.path} has changed, and is not followed: {e}")


def _ends(
    between: str | None, ports: Sequence[str], only: Mapping[str, Any]
) -> tuple[Side, Side] | tuple[Device, Device]:
    """Two namespaces or two ports, and nothing said that is of the others."""
    if bool(between) == bool(ports):
        what = "both say what its ends are" if between else "nothing says what its ends are"
        fix = "Give --between left,right, or --port twice; --run for a run that is under way"
        raise Error("ND-104-07", what, at="--between and --port", fix=fix)
    named = ("--addresses",) if ports else ("--memory", "--huge-pages")
    _no({option: only[option] for option in named}, "ports" if ports else "hosts")
    if between:
        return _sides(between)
    if len(ports) != 2 or ports[0] == ports[1]:
        fix = "Give two, like --port 0000:83:00.0 --port 0000:83:00.1"
        raise Error("ND-104-04", f"{', '.join(ports)}: not two ports", at="--port", fix=fix)
    return Device(ports[0]), Device(ports[1])


def _sides(text: str) -> tuple[Side, Side]:
    parts = text.split(",")
    found = []
    for number, part in enumerate(parts):
        space, _, interface = part.strip().partition(":")
        default = "wan1" if number and parts[0].strip().partition(":")[0] == space else "wan0"
        name = interface or default
        if not re.fullmatch(r"[A-Za-z0-9_.-]{0,64}", space) or not re.fullmatch(r"[A-Za-z0-9_-]{1,15}", name):
            break
        found.append(Side(space or None, name))
    if len(parts) != 2 or len(found) != 2 or not all(part.strip() for part in parts) or found[0] == found[1]:
        fix = "Give two, like left,right or left:wan0,:wan1"
        raise Error("ND-104-04", f"{text!r} does not name two ends", at="--between", fix=fix)
    return found[0], found[1]


def _addresses(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    with contextlib.suppress(ValueError):
        if len(parts) == 2 and all("/" in part for part in parts):
            one, two = (ipaddress.ip_interface(part) for part in parts)
            if one.ip == two.ip:
                fix = "Give each end its own, like 10.0.0.1/24,10.0.0.2/24"
                raise Error("ND-104-06", f"both ends have the address {one.ip}", at="--addresses", fix=fix)
            return parts
    fix = "Give two with their prefix, like 10.0.0.1/24,10.0.0.2/24"
    raise Error("ND-104-04", f"{text!r} is not two addresses", at="--addresses", fix=fix)


def _cores(text: str) -> dict[str, Any]:
    """What `impair.start` takes of them."""
    parts = [part.strip() for part in text.split(",")]
    numbers = [int(part) for part in parts if re.fullmatch("[0-9]{1,4}", part)]
    if len(numbers) == len(parts) == len(set(numbers)) <= 2:
        if there := set(numbers) - os.sched_getaffinity(0):
            known = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
            fix = f"Use some of {known}"
            raise Error("ND-104-04", f"there is no core {min(there)} here", at="--cores", fix=fix)
        return {"cores": numbers, "two_threads": len(numbers) == 2}
    fix = "Give one for both ways or one each, like 3 or 2,3"
    raise Error("ND-104-04", f"{text!r} is not one or two cores", at="--cores", fix=fix)


def _side_text(side: Side, address: str) -> str:
    return f"{side.namespace or 'here'} {side.interface} {address}".rstrip()
