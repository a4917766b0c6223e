"""`netdyno graph`: packet elements on DPDK ports, and packet traces."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from netdyno import paths
from netdyno.cli import console, graph_run, graph_view, values
from netdyno.cli.options import Socket
from netdyno.core import secret
from netdyno.core.address import Address
from netdyno.core.client import Client, Subscription
from netdyno.core.daemon import Daemon
from netdyno.errors import INTERRUPTED, Error
from netdyno.experiment import quick, validation
from netdyno.experiment.choose import choose
from netdyno.experiment.spec import variants
from netdyno.units import seconds

SLICE = 2.0
"""Seconds for which the daemon is asked to wait for traced packets at once."""
GONE = ("ND-91-21", "ND-91-22")
"""The daemon has gone: with its run, when it was started for that."""
NONE = "ND-104-11"
"""What is watched is not there any more."""
ORDER = ("ports", "elements", "edges", "replicas", "placement", "huge_pages", "memory")
"""How a transport is written: what there is, what leads where, and where it runs."""
Whose = dict[str, Any]
"""The link that is watched; nothing: the run."""


def graph(
    what: Annotated[
        str | None,
        typer.Argument(
            help="File or preset; default: the current run. `run FILE` runs your own graph.",
            metavar="[WHAT]",
            autocompletion=values.any_preset,
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Argument(help="With `run`: the graph.", metavar="[FILE]", show_default=False)
    ] = None,
    trace: Annotated[
        int | None,
        typer.Option(help="Follow N packets, 1 to 64.", metavar="N", parser=values.whole("--trace", 1, 64)),
    ] = None,
    wanted: Annotated[
        str | None, typer.Option("--filter", help="Which packets, as in pcap-filter(7).", metavar="FILTER")
    ] = None,
    interval: Annotated[
        str,
        typer.Option(help="Update interval, like 1s.", metavar="TIME", parser=values.interval("--interval")),
    ] = "1s",
    duration: Annotated[
        str | None,
        typer.Option(
            help="With `run`: duration. Default: until Ctrl-C.",
            metavar="TIME",
            parser=values.time("--duration"),
        ),
    ] = None,
    expand: Annotated[
        bool,
        typer.Option(
            "--expand",
            help="Print the profile with explicit elements, edges and placement.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the current or final counters as one JSON document.")
    ] = False,
    socket: Socket = None,
) -> None:
    """Show the packet elements of a DPDK run and their counters.

    For a file or preset: the planned elements, their edges and cores. Without one: the current run on this
    machine, or the ports that `netdyno impair` connects, live, with packets, drops by reason and cycles per
    packet. --trace follows single packets, element by element. Watching does not change the run.

    --expand prints the file or preset as a profile with explicit elements, edges and placement in place of
    port roles. It runs unchanged, and you may edit it, for example to add an element before a receiver.

    `run FILE` runs your own graph on ports, such as a firewall, a mirror or a load balancer, until Ctrl-C
    or for --duration.

        netdyno graph stream-64b
        netdyno graph stream-64b --expand > mine.yaml
        netdyno graph
        netdyno graph --trace 10 --filter 'udp port 7'
        netdyno graph run examples/graphs/firewall.yaml --duration 60s
    """
    if file is not None or duration is not None or what == "run":
        others = {"--trace": trace, "--filter": wanted, "--socket": socket, "--expand": expand or None}
        refuse_profile_options(what, file, others)
        assert file is not None
        graph_run.run(file, seconds(duration) if duration else None, seconds(interval), as_json)
        return
    if wanted is not None and trace is None:
        raise Error("ND-104-07", "--filter is for traces", at="--filter", fix="Add --trace 10")
    if what is not None:
        if trace or socket:
            at = "--trace" if trace else "--socket"
            raise Error("ND-104-07", f"{at} is for a run under way", at=at, fix=f"Leave out {what}")
        print_expanded(what, as_json) if expand else print_plan(what, as_json)
        return
    if expand:
        fix = "`netdyno graph stream-64b --expand` shows one"
        raise Error("ND-104-22", "no file or preset says whose roles are meant", at="--expand", fix=fix)
    path, whose = subject(socket)
    with Client(path) as client:
        if trace:
            follow(client, whose, trace, wanted or "", as_json)
        elif as_json:
            console.document(client.call("graph.describe", **whose) | client.call("graph.stats", **whose))
        else:
            watch(client, whose, seconds(interval))


def refuse_profile_options(what: str | None, file: Path | None, others: dict[str, Any]) -> None:
    """Refuse what does not go with a graph of one's own."""
    if what != "run":
        at = "--duration" if file is None else str(file)
        fix = "Write `netdyno graph run FILE`"
        raise Error("ND-104-07", f"{at} is for a graph that is to run", at=at, fix=fix)
    if file is None:
        fix = "Name one, like examples/graphs/firewall.yaml"
        raise Error("ND-104-22", "no file says which graph is to run", at="FILE", fix=fix)
    for name, value in others.items():
        if value is not None:
            raise Error("ND-104-07", f"{name} is for what is under way", at=name, fix="Leave it out")


def over_ports(what: str) -> dict[str, dict[str, Any]]:
    """The profiles of a file or preset whose traffic goes over DPDK ports, by leg."""
    chosen = choose([what], quick.UrlOptions())
    runs = {
        one.name: validation.as_run(one.leg, one.profile)
        for one in variants(chosen.experiment, chosen.folder)
        if "dpdk" in (one.profile.get("transport") or {})
    }
    if not runs:
        fix = "`netdyno graph stream-64b` shows one"
        raise Error("ND-104-07", "none of its traffic goes over DPDK ports", at=what, fix=fix)
    return runs


@contextmanager
def helper() -> Iterator[Client]:
    """A daemon that is asked, and runs nothing."""
    with tempfile.TemporaryDirectory(prefix="netdyno-") as folder:
        base = Path(folder)
        with Daemon(base / "nd-graph.sock", base / "log") as daemon, daemon.connect() as client:
            yield client


def print_expanded(what: str, as_json: bool) -> None:
    """A profile with its elements named, that runs."""
    runs = over_ports(what)
    if len(runs) > 1:
        legs = f"{len(runs)} legs of it go over DPDK ports: {', '.join(runs)}"
        raise Error("ND-104-07", legs, at=what, fix="Name the profile of one of them")
    profile = next(iter(runs.values()))
    with helper() as client:
        # what is secret is not printed: the graph does not depend on it
        profile |= client.call("graph.expand", profile=secret.resolved(profile)[0])
    if as_json:
        console.document(profile)
        return
    settings = profile["transport"]["dpdk"]
    profile["transport"] = {"dpdk": {key: settings[key] for key in ORDER if settings.get(key)}}
    text = yaml.safe_dump(profile, sort_keys=False, allow_unicode=True, width=110)
    console.out().print(text, markup=False, highlight=False, soft_wrap=True, end="")


def planned(what: str) -> dict[str, Any]:
    """The graphs of a file or preset, leg by leg."""
    runs = {name: secret.resolved(profile)[0] for name, profile in over_ports(what).items()}
    found: dict[str, Any] = {}
    refusal: Error | None = None
    with helper() as client:
        for name, profile in runs.items():
            try:
                found[name] = client.call("graph.describe", profile=profile)
            except Error as e:
                # a leg of devices with connections has no graph: others may
                if e.code != "ND-104-11":
                    raise
                refusal = e
    if refusal and not found:
        raise refusal
    return found


def print_plan(what: str, as_json: bool) -> None:
    """What would run, leg by leg."""
    legs = planned(what)
    if as_json:
        console.document({"legs": legs})
        return
    for name, shape in legs.items():
        console.out().print(graph_view.table(graph_view.rows(shape), name if len(legs) > 1 else None))


def find() -> Address:
    """The socket of the daemon whose run is under way."""
    return _only(_runs)[0]


def subject(socket: Address | None) -> tuple[Address, Whose]:
    """The daemon that has something to watch, and what."""
    if socket is None:
        return _only(lambda client: _runs(client) or _links_and_graphs(client))
    with Client(socket) as client:
        # of a run that is over there is something to see, too
        return socket, next(iter(_runs(client) or _links_and_graphs(client)), (None, {}))[1]


def _runs(client: Client) -> list[tuple[str | None, Whose]]:
    status = client.status()
    return [(status.run, {})] if status.state in ("loaded", "running", "paused", "draining") else []


def _links_and_graphs(client: Client) -> list[tuple[str | None, Whose]]:
    """Links between ports, and graphs of one's own."""
    graphs = client.call("graph.list")
    return _links(client) + [(one["run"], {"graph": one["run"]}) for one in graphs]


def _links(client: Client) -> list[tuple[str | None, Whose]]:
    made = client.call("impair.list")
    return [(one["link"], {"link": one["link"]}) for one in made if "device" in one["a"]]


def every() -> Iterator[tuple[Path, str, Whose]]:
    """All that can be watched on this machine: the daemon's socket, a name, and how it is asked for."""
    for path, found in _daemons(lambda client: _runs(client) + _links_and_graphs(client)):
        for name, whose in found:
            yield path, str(name), whose


def _daemons(
    look: Callable[[Client], list[tuple[str | None, Whose]]],
) -> Iterator[tuple[Path, list[tuple[str | None, Whose]]]]:
    """What each daemon of this user has of what is looked for."""
    for path in sorted(paths.runtime().glob("*.sock")):
        try:
            with Client(path, timeout=5.0) as client:
                there = look(client)
        except Error as e:
            if e.exit_code == INTERRUPTED:
                raise
            continue
        if there:
            yield path, there


def _only(look: Callable[[Client], list[tuple[str | None, Whose]]]) -> tuple[Address, Whose]:
    """The one of all daemons that has what is looked for."""
    found = {Address(path): there[0] for path, there in _daemons(look)}
    if not found:
        fix = "Start one with `netdyno run`, or name a file or preset; --socket for one of another user"
        raise Error("ND-104-28", "no run is under way", at=str(paths.runtime()), fix=fix)
    if len(found) > 1:
        fix = "Choose with --socket: " + ", ".join(f"{path} ({one})" for path, (one, _) in found.items())
        raise Error("ND-104-28", f"{len(found)} runs are under way", fix=fix)
    where, (_, whose) = next(iter(found.items()))
    return where, whose


def watch(client: Client, whose: Whose, interval: float) -> None:
    """Show the graph until the run, or the link, is over."""
    shape = client.call("graph.describe", **whose)
    with graph_view.view(shape) as view:
        for stats in _looks(client, whose, interval):
            view.take(stats)


def _looks(client: Client, whose: Whose, interval: float) -> Iterator[dict[str, Any]]:
    """The counters now and then, to the end of what is watched, or the daemon's."""
    events = client.subscribe()
    try:
        while True:
            stats: dict[str, Any] = client.call("graph.stats", **whose)
            yield stats
            if stats["status"]["state"] in ("done", "failed"):
                return
            # a change of state is shown at once; samples come at their own pace
            _pause(events, interval)
    except Error as e:
        if e.code not in GONE and not (whose and e.code == NONE):
            raise


def _pause(events: Subscription, interval: float) -> None:
    """Wait, unless the run's state changes."""
    until = time.monotonic() + interval
    while (left := until - time.monotonic()) > 0:
        event = events.next(timeout=left)
        if event is not None and event.status is not None:
            return


def follow(client: Client, whose: Whose, count: int, wanted: str, as_json: bool) -> None:
    """Show the way of some packets."""
    packets: list[dict[str, Any]] = []
    try:
        while len(packets) < count:
            left = count - len(packets)
            found = client.call("graph.trace", packets=left, filter=wanted, wait=SLICE, **whose)["packets"]
            packets += found
            if not as_json:
                for packet in found:
                    console.out().print(graph_view.way(packet))
    except Error as e:
        if e.code not in GONE and not (e.code == NONE and packets):
            raise
    if as_json:
        console.document({"packets": packets})
    if len(packets) < count:
        console.note(f"the run was over after {len(packets)} of {count} packets")
